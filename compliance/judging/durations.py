"""Durations held against the wall clock.

An honest clock is stepped now and then: one line is longer or shorter by its times than by its duration, by as much as
the step, and heartbeats tell of it. On Linux both clocks are slewed together. So a line that is off by anything else,
and lines that are off again and again, have durations that are not those of the clock.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compliance.judging.lines import OWED_WINDOW_S, SHORT_S, Line, StreamsLine
from compliance.judging.steps import FIT_US, STEP_US

_DRIFT_SHARE = 0.005
"""Share of the time by which durations may be off besides."""
_LEAST_LINES = 6
_SAME_S = 0.001
_BEAT_US = 30_000_000
"""Heartbeats are this far apart at the most: two steps that cancel between two of them are no farther apart."""
_MOST_OPEN = 100
"""Lines of one limiter that may wait for the second of such a pair; of more, the first are not explained."""


class _Open(NamedTuple):
    """A line that is off by what no step explains, unless a second step between the same heartbeats does."""

    line: Line
    off_us: int
    until_us: int


class Durations:
    """The check of one limiter's durations against the wall clock, line by line.

    Args:
        steps_us: Of each step that heartbeats or lines tell of, from when until when, microseconds on the axis, and its
            size, as `RunAxis.windows_us`.
    """

    def __init__(self, steps_us: Sequence[tuple[int, int, int]]) -> None:
        self._steps = sorted(steps_us)
        self._first = 0
        """The steps before this one are over."""
        self._shown: dict[int, tuple[int, int]] = {}
        """The end of the line that shows a step, by the step's place; microseconds, on the axis and by wall clock."""
        self._open: list[_Open] = []
        self._recent: deque[tuple[int, float]] = deque()
        self._off_us = self._whole_off_us = 0
        self._lasts_s = self._whole_s = 0.0

    def add(self, line: Line, streams: Sequence[StreamsLine]) -> Iterator[tuple[Line, str]]:
        """Check the next line; yields lines, this or earlier ones, and what of their durations cannot be true.

        Args:
            line: The next line.
            streams: What its streams' lines say of the same time.
        """
        own_s = line.duration_s
        same = [one for one in streams if one.wall_us == line.wall_us]
        said_s = [s for one in same for s in (one.duration_s, one.least_duration_s or own_s)]
        for theirs_s in said_s:
            if abs(theirs_s - own_s) > _SAME_S:
                yield line, f"it lasts {own_s:,.3f} s by its own line, and {theirs_s:,.3f} s by its streams' lines"
                break
        while self._first < len(self._steps) and _last_us(self._steps[self._first]) < line.at_us[0]:
            self._first += 1
        yield from self._expired(line.at_us[0])
        off_us = line.wall_us[1] - line.wall_us[0] - round(line.duration_s * 1e6)
        rest_us = off_us - self._explained_us(line, off_us) if abs(off_us) > FIT_US else off_us
        if said := self._drift(rest_us, line.duration_s):
            yield line, said

    def close(self) -> Iterator[tuple[Line, str]]:
        """Yields the lines whose durations are not explained at the end of the run, as `add`."""
        yield from self._expired(None)

    def _explained_us(self, line: Line, off_us: int) -> int:
        """The part of a line's deviation that is a step's, or may be one's."""
        known = self._steps_in(line)
        for first in range(len(known)):
            for last in range(first, len(known)):
                places = known[first : last + 1]
                sum_us = sum(self._steps[place][2] for place in places)
                if abs(off_us - sum_us) <= FIT_US:
                    self._show(places, line)
                    return sum_us
        if abs(off_us) <= STEP_US:
            return 0
        for one in self._open:
            # Two lines show steps of which heartbeats tell the sum, or nothing if they cancel.
            both = sorted({*known, *self._steps_in(one.line)})
            for places in ([], *([place] for place in both)):
                sum_us = sum(self._steps[place][2] for place in places)
                if abs(one.off_us + off_us - sum_us) <= (FIT_US if places else STEP_US):
                    self._open.remove(one)
                    self._show(places, line)
                    # The other one's deviation has been left out already.
                    return sum_us - one.off_us
        until_us = max((self._steps[place][1] for place in known), default=line.at_us[1])
        self._open.append(_Open(line, off_us, max(until_us, line.at_us[1] + _BEAT_US)))
        return off_us

    def _steps_in(self, line: Line) -> list[int]:
        """The places of the steps that the line may have in it, and that no line before it has shown."""
        begin_us, end_us = line.at_us
        found = []
        for place in range(self._first, len(self._steps)):
            since_us, _, us = self._steps[place]
            if since_us - abs(us) - FIT_US <= end_us and _last_us(self._steps[place]) >= begin_us:
                shown_us = self._shown.get(place)
                # A line that begins where another one ends, by the same clock, does not overlap it.
                if shown_us is None or (begin_us < shown_us[0] - FIT_US and line.wall_us[0] != shown_us[1]):
                    found.append(place)
        return found

    def _show(self, places: Sequence[int], line: Line) -> None:
        for place in places:
            self._shown[place] = max((line.at_us[1], line.wall_us[1]), self._shown.get(place, (0, 0)))

    def _expired(self, at_us: int | None) -> Iterator[tuple[Line, str]]:
        """Lines that nothing explains up to a moment; None: up to the end."""
        over = [
            one
            for place, one in enumerate(self._open)
            if at_us is None or one.until_us < at_us or place < len(self._open) - _MOST_OPEN
        ]
        for one in over:
            self._open.remove(one)
            wall_s = (one.line.wall_us[1] - one.line.wall_us[0]) / 1e6
            said = f"it lasts {one.line.duration_s:,.3f} s, and {wall_s:,.3f} s from its start to its end"
            yield one.line, f"{said}, and heartbeats tell of no step of the clock that explains the difference"

    def _drift(self, off_us: int, lasts_s: float) -> str:
        """Return whether durations are off besides steps: in ten seconds, or over the whole."""
        recent = self._recent
        recent.append((off_us, lasts_s))
        self._off_us += off_us
        self._lasts_s += lasts_s
        while len(recent) > _LEAST_LINES and self._lasts_s - recent[0][1] >= OWED_WINDOW_S:
            old_us, old_s = recent.popleft()
            self._off_us -= old_us
            self._lasts_s -= old_s
        self._whole_off_us += off_us
        self._whole_s += lasts_s
        if abs(self._whole_off_us) / 1e6 > SHORT_S + _DRIFT_SHARE * self._whole_s:
            return _said(self._whole_off_us / 1e6, self._whole_s)
        is_off = abs(self._off_us) / 1e6 > max(SHORT_S, _DRIFT_SHARE * self._lasts_s)
        return _said(self._off_us / 1e6, self._lasts_s) if is_off else ""


def _last_us(step: tuple[int, int, int]) -> int:
    """Return the latest time at which a line may begin that has the step in it.

    Where lines do not tell where a step lies, those around it may be off by its size on the axis.
    """
    return step[1] + abs(step[2]) + FIT_US


def _said(off_s: float, lasts_s: float) -> str:
    more = "longer" if off_s < 0 else "shorter"
    said = f"durations of {lasts_s:,.3f} s are {abs(off_s):,.3f} s {more} than from start to end"
    return f"{said}, besides the steps of the clock that heartbeats tell of"
