"""Runs the rows, peer by peer, round by round."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from loadgen.bench_limits.figures import Samples
from loadgen.bench_limits.orders import LaneOrder
from loadgen.bench_limits.peers import Peers
from loadgen.bench_limits.rows.row import Row
from loadgen.bench_limits.trial import Stage

WARM_UP_S = 3.0
WARM_UP_DRAIN_S = 10.0
Progress = Callable[[str], None]


def measure(rows: Sequence[Row], peers: Peers, folder: Path, progress: Progress) -> dict[str, tuple[Samples, Samples]]:
    """What each row gave at the broker's own limits and through Sluice.

    Args:
        rows: What to measure.
        peers: Both, running.
        folder: For the trials' files.
        progress: Gets a line for each round that is done.
    """
    own = Stage(peers.own, peers.broker_url, peers.broker, folder)
    stages = (own, replace(own, peer=peers.sluice))
    for stage in stages:
        warm_up(stage)
    return {row.name: _measure_row(row, stages, progress) for row in rows}


def warm_up(stage: Stage) -> None:
    """Publish without a limit for a while: a broker that has just started is slow, and would be so in the first row."""
    lane = LaneOrder(client="warm-up", topic=stage.topic(None).name, index=0, end_s=WARM_UP_S)
    with stage.trial([lane], drain_s=WARM_UP_DRAIN_S):
        pass


def _measure_row(row: Row, stages: tuple[Stage, Stage], progress: Progress) -> tuple[Samples, Samples]:
    found: tuple[Samples, Samples] = ({}, {})
    first = row.figures[0]
    # round by round, so that what the machine does beside this reaches both
    for number in range(1, row.rounds + 1):
        told = []
        for stage, book, samples in zip(stages, found, row.measure(stages), strict=True):
            told.append(f"{stage.peer.name} {first.shown(samples[first.key])}")
            for key, values in samples.items():
                book.setdefault(key, []).extend(values)
        progress(f"{row.name}, {number} of {row.rounds}: {first.text}: {', '.join(told)}")
    return found
