"""`python -m loadgen.quota_sharing`: simulate, print the goals, write the page and its plots."""

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from loadgen.bench.harness import PageError, page_text
from loadgen.quota_sharing.page import LOSSES, SIZES, SharingFigures, goals, page, plots
from loadgen.quota_sharing.schemes import SCHEMES
from loadgen.quota_sharing.size import FleetScale, measure
from loadgen.quota_sharing.trials import (
    EVENTS,
    TAKEOVER,
    SharingEvent,
    TrialSetting,
    streams_jain,
    tried,
    whole_messages,
)

BAD_INPUT = 2
SEEDS = {5: 5, 100: 1}
SETTINGS = {5: TrialSetting(5, cycles=(24, 60)), 100: TrialSetting(100, cycles=(20, 30), steps=20)}
MANY_LOSSES = LOSSES[:2]
"""Of 100 members: the half that is lost is told by 5 members alone."""


def main() -> int:
    """Run the command line; returns the exit code, which says nothing about goals."""
    arguments = _parser().parse_args()
    if arguments.write:
        try:
            page_text(arguments.write)  # before the minutes of simulation
        except PageError as error:
            print(f"--write {arguments.write}: {error}", file=sys.stderr)  # noqa: T201 - what the command is for
            return BAD_INPUT
    found = simulate(arguments.jobs)
    for line in goals(found):
        print(f"{'met   ' if line.is_met else 'MISSED'} {line.name}: {line.measured} (goal: {line.goal})")  # noqa: T201
    if arguments.write:
        arguments.write.write_text(page(found), encoding="utf-8")
        for name, image in plots().items():
            arguments.write.with_name(name).write_text(image, encoding="utf-8")
    return 0


def simulate(jobs: int) -> SharingFigures:
    """Try all events under all schemes, in so many processes, then measure the large fleet alone."""
    with ProcessPoolExecutor(jobs) as pool:
        outcomes = {
            case: pool.submit(tried, case[0], event, setting, seeds) for case, event, setting, seeds in _cases()
        }
        streams = {(name, loss): pool.submit(streams_jain, name, 5, loss) for name in SCHEMES for loss in LOSSES[:2]}
        whole = {name: pool.submit(whole_messages, name, 3, 4, 60) for name in SCHEMES}
        every: list[Future[object]] = [*outcomes.values(), *streams.values(), *whole.values()]  # type: ignore[list-item]
        for done, future in enumerate(every):
            future.result()
            _tell(f"{done + 1} of {len(every)} simulated")
        scale = FleetScale()
        return SharingFigures(
            {case: future.result() for case, future in outcomes.items()},
            {case: future.result() for case, future in streams.items()},
            {name: future.result() for name, future in whole.items()},
            scale,
            measure(scale, _tell),
        )


def _cases() -> Iterator[tuple[tuple[str, str, int, float], SharingEvent, TrialSetting, int]]:
    for members in SIZES:
        for loss in LOSSES if members == SIZES[0] else MANY_LOSSES:
            base = SETTINGS[members]
            setting = TrialSetting(members, loss, cycles=base.cycles, steps=base.steps)
            for event in (*EVENTS, TAKEOVER):
                for name in SCHEMES:
                    yield (name, event.name, members, loss), event, setting, SEEDS[members]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m loadgen.quota_sharing", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write this page, and the plots beside it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to simulate in")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
