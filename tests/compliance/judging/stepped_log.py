"""A log of the product's own gate whose wall clock is stepped: what its lines say then, on the axis that is found."""

from bisect import bisect_right
from collections.abc import Callable
from random import Random

import msgspec

from compliance.judging.lines import Line, RunNotes, StreamsLine
from compliance.judging.steps import TimedLines, run_axis
from tests.compliance.judging.pure import placed, steps_of, told_by
from tests.compliance.judging.scheduler_log import START_US, Item, SchedulerLog

SIZES_S = (0.15, 0.4, 1.0, 2.5, 3.0, 5.0, 9.0, 15.0, 40.0, 3600.0)


def stepped(log: SchedulerLog, chance: Random) -> tuple[RunNotes, dict[tuple[str, str], list[Item]]]:
    """Step the clock at some moments; heartbeats are 1 to 30 s apart.

    One step of two may undo the other one between the same two heartbeats. Then a line was under way in one of them:
    nothing tells of two steps in moments without a line.
    """
    apart_us = chance.choice((1, 2, 5, 10, 30)) * 1_000_000
    beats: list[tuple[int, int]] = []
    for seq, at_us in log.ends:
        if at_us - (beats[-1][1] if beats else START_US) >= apart_us or (seq, at_us) == log.ends[-1]:
            beats.append((seq, at_us))
    windows = list(zip([START_US, *(at_us for _, at_us in beats)], (at_us for _, at_us in beats), strict=False))
    windows = [window for window in windows if window[1] > window[0]]
    steps: list[tuple[int, int]] = []
    chosen = chance.sample(windows, min(len(windows), chance.choice((1, 1, 2))))
    for window in chosen:
        size_us = round(chance.choice((-1, 1)) * chance.choice(SIZES_S) * 1e6)
        several = sorted(_moment(log, window, chance) for _ in range(chance.choice((1, 2)) if len(chosen) == 1 else 1))
        is_shown = any(_is_under_way(log, at_us) for at_us in several)
        steps += zip(several if is_shown else several[:1], (size_us, -size_us), strict=False)
    steps.sort()
    moments = [at_us for at_us, _ in steps]

    def wall(at_us: int) -> int:
        return at_us + sum(us for _, us in steps[: bisect_right(moments, at_us)])

    told, before = [], START_US
    for seq, at_us in beats:
        told.append((seq, wall(before), wall(at_us), at_us - before))
        before = at_us
    every = [one for items in log.items.values() for one in items]
    axis = run_axis(steps_of(told), [TimedLines(one.seq, *_times(one, wall)) for one in every])

    def moved(one: Item) -> Item:
        start_us, end_us, duration_us = _times(one, wall)
        at_us = placed(axis, one.seq, start_us, end_us, duration_us)
        return msgspec.structs.replace(one, wall_us=(start_us, end_us), at_us=at_us)

    changed = [placed(axis, seq, wall(at), wall(at), 0)[0] for seq, at in zip(log.changes, log.changed_us, strict=True)]
    notes = RunNotes(changes=log.changes, changed_us=changed, **told_by(axis))
    items = {key: [moved(one) for one in of] for key, of in log.items.items()}
    return notes, {key: sorted(of, key=lambda one: (one.at_us[0], one.seq)) for key, of in items.items()}


def _moment(log: SchedulerLog, window: tuple[int, int], chance: Random) -> int:
    """Any moment in a window, or one at which lines end."""
    ends = [at_us for _, at_us in log.ends if window[0] < at_us <= window[1]]
    return chance.choice(ends) if chance.random() < 0.2 else chance.randint(window[0] + 1, window[1])


def _is_under_way(log: SchedulerLog, at_us: int) -> bool:
    return any(one.at_us[0] < at_us < one.at_us[1] for items in log.items.values() for one in items)


def _times(one: Line | StreamsLine, wall: Callable[[int], int]) -> tuple[int, int, int]:
    return wall(one.at_us[0]), wall(one.at_us[1]), one.at_us[1] - one.at_us[0]
