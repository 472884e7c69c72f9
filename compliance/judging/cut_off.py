"""Runs whose last lines may be lost though no number is missing: they end without having said that they end."""

from datetime import datetime

import msgspec

from compliance.judging.facts import RunFacts
from compliance.latest import cut_off


def marked(runs: list[RunFacts], horizon: datetime) -> list[RunFacts]:
    """The runs, those that are cut off marked as such.

    Args:
        runs: All of them.
        horizon: No clock that is about right says more.
    """
    found = cut_off([run.end for run in runs], horizon)
    return [
        msgspec.structs.replace(run, is_cut_off=True) if (run.proxy_id, run.boot_id) in found else run for run in runs
    ]
