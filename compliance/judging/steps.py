"""Steps of a run's wall clock, located by the numbers of its lines and by their durations.

Two heartbeats show a step and its size. The lines between them show its place: lines are numbered in the order of time,
and a line's times and its duration differ if the clock was stepped within the line. If no line was under way, the step
lies between two lines. Where several places are possible, each is unclear.

Several steps may lie between two heartbeats, which show only their sum, perhaps nothing. So every line counts whose
times and duration differ. If the steps in lines have another sum, and no place without a line is left for the rest,
lines and heartbeats contradict each other.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

STEP_US = 100_000
"""Microseconds of the smallest step of a clock: clocks are slewed by less."""
FIT_US = 50_000
"""Microseconds by which equal times may differ: two clocks are not read at one instant."""

_READ_US = 1_000
"""Microseconds by which a line that follows another one may seem to begin before that one ends."""
_MOST_LEFT = 10
"""Steps before which a line may have begun."""


class ClockStep(NamedTuple):
    """The steps between two heartbeats, as the heartbeats show them: one, several, or none.

    Args:
        from_seq: Number of the first line that may be of the new time.
        to_seq: Number of the heartbeat that shows the step.
        us: By how many microseconds the wall clock was set ahead in all; up to `STEP_US` it may be rounding.
        since_us: When the heartbeat before ends, by the clock of that time.
        until_us: When the one that shows it ends, by the clock of that time.
    """

    from_seq: int
    to_seq: int
    us: int
    since_us: int
    until_us: int


class TimedLines(NamedTuple):
    """Lines of streams or limiters that have the same times; `seq` is the lowest of their numbers."""

    seq: int
    start_us: int
    end_us: int
    duration_us: int

    @property
    def off_us(self) -> int:
        """Microseconds by which the wall clock was set ahead within the lines; below `STEP_US` it was not."""
        return self.end_us - self.start_us - self.duration_us


@dataclass(frozen=True)
class RunAxis:
    """The axis of one run, on which time goes on through steps: a moment of the wall clock less what that is ahead.

    Args:
        ahead: From which line on the wall clock is ahead by how many microseconds, ascending.
        windows_us: Begin and end of the time in which each step lies, on the axis, and its size.
        unclear: Of steps with several possible places, the numbers of the lines after these, ascending.
        contradicted: First and last number of all that lies between two heartbeats which contradict the lines there.
    """

    ahead: Sequence[tuple[int, int]] = ()
    windows_us: Sequence[tuple[int, int, int]] = ()
    unclear: Sequence[int] = ()
    contradicted: Sequence[tuple[int, int]] = ()


def run_axis(steps: Iterable[ClockStep], lines: Iterable[TimedLines]) -> RunAxis:
    """Find the axis of a run.

    Args:
        steps: Of the run; those without a step, in heartbeats or lines, count for nothing.
        lines: Those between the heartbeats of each step, at the least.
    """
    ahead: list[tuple[int, int]] = []
    windows: list[tuple[int, int, int]] = []
    unclear: list[int] = []
    contradicted: list[tuple[int, int]] = []
    left: list[tuple[int, int]] = []
    in_order, total = sorted(lines), 0
    for step in sorted(steps):
        first, last = (bisect_left(in_order, seq, key=attrgetter("seq")) for seq in (step.from_seq, step.to_seq))
        ends = _ends(in_order[first:last])
        placed = _placed(step, ends, [(level - total, until_us + total) for level, until_us in left[-_MOST_LEFT:]])
        until_us = step.until_us - total - step.us
        # A window excuses lines; heartbeats without a step excuse no line that contradicts them.
        if placed.is_contradicted:
            contradicted.append((step.from_seq, step.to_seq))
            sizes = [step.us] if abs(step.us) > STEP_US else []
        else:
            sizes = [us for _, us in placed.shifts]
        windows += [(step.since_us - total, until_us, us) for us in sizes]
        for seq, us in placed.shifts:
            left.append((total, until_us))
            total += us
            ahead.append((seq, total))
        unclear += placed.unclear
    return RunAxis(ahead, windows, unclear, contradicted)


class _End(NamedTuple):
    """Lines that end at one moment: the earliest begin, and by how much the clock was set ahead within.

    `duration_us` is the longest.
    """

    seq: int
    start_us: int
    end_us: int
    off_us: int
    duration_us: int
    at_us: int = 0
    """When the lines end, without the steps before them and in them."""


@dataclass
class _Placed:
    """The places where the steps of one log may lie: from which line on, by how many microseconds; most often one."""

    shifts: list[tuple[int, int]] = field(default_factory=list)
    unclear: list[int] = field(default_factory=list)
    is_contradicted: bool = False


def _end_of(line: TimedLines) -> tuple[int, bool, int]:
    is_stepped = abs(line.off_us) > STEP_US
    return line.end_us, is_stepped, round(line.off_us / STEP_US) if is_stepped else 0


def _ends(lines: Sequence[TimedLines]) -> list[_End]:
    ends = []
    # After two steps a line may end at the same time as the one before it.
    for (end_us, is_stepped, _), group in groupby(lines, key=_end_of):
        members = list(group)
        longest = max(members, key=lambda line: line.duration_us)
        start_us = min(line.start_us for line in members)
        ends.append(_End(members[0].seq, start_us, end_us, longest.off_us if is_stepped else 0, longest.duration_us))
    return ends


def _placed(step: ClockStep, ends: list[_End], left: list[tuple[int, int]]) -> _Placed:
    shifts = _shown(step, ends, left)
    rest_us = step.us - sum(us for _, us in shifts)
    if abs(rest_us) <= STEP_US:
        return _Placed([*shifts[:-1], (shifts[-1][0], shifts[-1][1] + rest_us)] if shifts else [])
    is_shown = abs(step.us) > STEP_US
    for shown in (shifts, []) if shifts and is_shown else (shifts,):
        rest_us = step.us - sum(us for _, us in shown)
        places, is_free = _places(step, ends, shown, rest_us)
        if places:
            numbers = [ends[place].seq if place < len(ends) else step.to_seq for place in places]
            # A step between two lines comes before a step within the second line.
            placed = sorted([(numbers[0], rest_us), *shown], key=itemgetter(0))
            return _Placed(placed, numbers if len(numbers) > 1 else [], shown != shifts or not is_free)
    return _Placed([(step.from_seq, step.us)] if is_shown else [], [end.seq for end in ends], is_contradicted=True)


def _shown(step: ClockStep, ends: list[_End], left: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The steps within lines. A line may begin before a step that another one has shown already.

    `left` is by how much the clock was ahead before each of the last steps, and until when it may have been.
    """
    shifts: list[tuple[int, int]] = []
    # By how much the clock was ahead, and what showed that it no longer is.
    levels: list[tuple[int, _End]] = []
    ahead_us, last_us = 0, step.since_us
    for several in _moments(ends):
        end_us, least_us = several[0].end_us, last_us - FIT_US
        stepped = next((end for end in several if end.off_us), several[0])
        off_us, begin_us = stepped.off_us, end_us - ahead_us - stepped.duration_us
        # It may have begun before the heartbeat, and before a step there.
        before = [level for level, until_us in left if begin_us < min(step.since_us, until_us + FIT_US)]
        before += [level for level, by in levels if begin_us < by.at_us - _READ_US and not _follows(stepped, by)]
        is_shown = any(abs(ahead_us - level - off_us) <= FIT_US for level in before)
        if off_us and not (is_shown and end_us - ahead_us >= least_us):
            # By a clock that was set back, lines before and after the step may end at the same time.
            is_before = off_us < 0 and end_us - ahead_us >= least_us
            first = next(end for end in several if end.off_us or not is_before)
            shifts.append((first.seq, off_us))
            levels.append((ahead_us, stepped._replace(at_us=end_us - ahead_us - off_us)))
            ahead_us += off_us
        last_us = max(last_us, end_us - ahead_us)
    return shifts


def _follows(later: _End, earlier: _End) -> bool:
    """Return whether one goes on where the other ended, by the same clock."""
    return later.start_us == earlier.end_us != earlier.start_us


def _moments(ends: list[_End]) -> list[list[_End]]:
    """Group lines that end at one moment; lines that show different steps are apart."""
    groups: list[list[_End]] = []
    for end in ends:
        same = groups[-1] if groups and groups[-1][0].end_us == end.end_us else []
        if not same or any(
            member.off_us and end.off_us and abs(member.off_us - end.off_us) > FIT_US for member in same
        ):
            groups.append([end])
        else:
            same.append(end)
    return groups


def _places(step: ClockStep, ends: list[_End], shifts: list[tuple[int, int]], rest_us: int) -> tuple[list[int], bool]:
    """Return the places of a step of `rest_us` that no line shows: the ends before which it may lie, or behind all.

    The second value says whether no line was under way there.
    """
    since_us, until_us = step.since_us, step.until_us - step.us
    on_axis: list[int] = []
    levels: list[int] = []
    for end in ends:
        levels.append(sum(us for seq, us in shifts if seq <= end.seq))
        on_axis.append(end.end_us - levels[-1])
    # How many of the first fit without the step, and from which one on all fit with it.
    most, last_us = 0, since_us
    before_us = [since_us]
    for at_us in on_axis:
        if not last_us - FIT_US <= at_us <= until_us + FIT_US:
            break
        most, last_us = most + 1, max(last_us, at_us)
        before_us.append(last_us)
    least, next_us = len(ends), until_us
    for at_us in reversed(on_axis):
        if not since_us - FIT_US <= at_us - rest_us <= next_us + FIT_US:
            break
        least, next_us = least - 1, min(next_us, at_us - rest_us)
    possible = [
        place
        for place in range(least, most + 1)
        if place == len(ends)
        or ends[place].start_us - (levels[place] - ends[place].off_us) - rest_us >= before_us[place] - FIT_US
    ]
    # Lines that go on where others ended, by the same clock: there was no step in between.
    wall_us = [step.since_us, *(end.end_us for end in ends)]
    starts_us = [*(end.start_us for end in ends), step.until_us]
    free = [place for place in possible if starts_us[place] != wall_us[place]]
    return free or possible, bool(free)
