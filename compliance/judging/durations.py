"""Durations compared with the wall clock.

An honest clock is stepped now and then: then a line's times and its duration differ by the step, and heartbeats show
that step. On Linux both clocks are slewed together. So durations are wrong if a line differs by another amount, or if
lines differ repeatedly.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compliance.judging.lines import OWED_WINDOW_S, SHORT_S, Line, StreamsLine
from compliance.judging.steps import FIT_US, STEP_US

_DRIFT_SHARE = 0.005
"""Share of the time by which durations may be off without a step."""
_LEAST_LINES = 6
_SAME_S = 0.001
_BEAT_US = 30_000_000
"""The longest time between two heartbeats, and so between two steps that cancel."""
_MOST_OPEN = 100
"""Lines of one limiter that may wait for the second of such a pair; of more, the first are not explained."""


class _Open(NamedTuple):
    """A line with a difference that no step explains, unless a second step between the same heartbeats does."""

    line: Line
    off_us: int
    until_us: int


class Durations:
    """The check of one limiter's durations against the wall clock, line by line.

    Args:
        steps_us: Begin and end of the time of each step that heartbeats or lines show, microseconds on the axis, and
            its size, as `RunAxis.windows_us`.
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
        """Check the next line; yields lines, this or earlier ones, with the reason why their durations are wrong.

        Args:
            line: The next line.
            streams: Its streams' lines of the same time.
        """
        own_s = line.duration_s
        same = [stream for stream in streams if stream.wall_us == line.wall_us]
        durations_s = [s for stream in same for s in (stream.duration_s, stream.least_duration_s or own_s)]
        for stream_s in durations_s:
            if abs(stream_s - own_s) > _SAME_S:
                yield line, f"it lasts {own_s:,.3f} s by its own line, and {stream_s:,.3f} s by its streams' lines"
                break
        while self._first < len(self._steps) and _last_us(self._steps[self._first]) < line.at_us[0]:
            self._first += 1
        yield from self._expired(line.at_us[0])
        off_us = line.wall_us[1] - line.wall_us[0] - round(line.duration_s * 1e6)
        rest_us = off_us - self._explained_us(line, off_us) if abs(off_us) > FIT_US else off_us
        if fault := self._drift(rest_us, line.duration_s):
            yield line, fault

    def close(self) -> Iterator[tuple[Line, str]]:
        """Yield the lines whose durations are not explained at the end of the run, as `add`."""
        yield from self._expired(None)

    def _explained_us(self, line: Line, off_us: int) -> int:
        """Return the part of a line's difference that a step explains, or may explain."""
        steps = self._steps_in(line)
        for first in range(len(steps)):
            for last in range(first, len(steps)):
                places = steps[first : last + 1]
                sum_us = sum(self._steps[place][2] for place in places)
                if abs(off_us - sum_us) <= FIT_US:
                    self._show(places, line)
                    return sum_us
        if abs(off_us) <= STEP_US:
            return 0
        for earlier in self._open:
            # Two lines show steps; heartbeats show their sum, or nothing if they cancel.
            both = sorted({*steps, *self._steps_in(earlier.line)})
            for places in ([], *([place] for place in both)):
                sum_us = sum(self._steps[place][2] for place in places)
                if abs(earlier.off_us + off_us - sum_us) <= (FIT_US if places else STEP_US):
                    self._open.remove(earlier)
                    self._show(places, line)
                    # The other line's difference has been left out already.
                    return sum_us - earlier.off_us
        until_us = max((self._steps[place][1] for place in steps), default=line.at_us[1])
        self._open.append(_Open(line, off_us, max(until_us, line.at_us[1] + _BEAT_US)))
        return off_us

    def _steps_in(self, line: Line) -> list[int]:
        """Return the places of the steps that may be within the line, and that no earlier line has shown."""
        begin_us, end_us = line.at_us
        places = []
        for place in range(self._first, len(self._steps)):
            since_us, _, us = self._steps[place]
            if since_us - abs(us) - FIT_US <= end_us and _last_us(self._steps[place]) >= begin_us:
                shown_us = self._shown.get(place)
                # A line that begins where another one ends, by the same clock, does not overlap it.
                if shown_us is None or (begin_us < shown_us[0] - FIT_US and line.wall_us[0] != shown_us[1]):
                    places.append(place)
        return places

    def _show(self, places: Sequence[int], line: Line) -> None:
        for place in places:
            self._shown[place] = max((line.at_us[1], line.wall_us[1]), self._shown.get(place, (0, 0)))

    def _expired(self, at_us: int | None) -> Iterator[tuple[Line, str]]:
        """Yield the lines that nothing explains up to a moment; None: up to the end."""
        over = [
            deviation
            for place, deviation in enumerate(self._open)
            if at_us is None or deviation.until_us < at_us or place < len(self._open) - _MOST_OPEN
        ]
        for deviation in over:
            self._open.remove(deviation)
            wall_s = (deviation.line.wall_us[1] - deviation.line.wall_us[0]) / 1e6
            lasts = f"it lasts {deviation.line.duration_s:,.3f} s, and {wall_s:,.3f} s from its start to its end"
            yield deviation.line, f"{lasts}, and heartbeats show no step of the clock that explains the difference"

    def _drift(self, off_us: int, lasts_s: float) -> str:
        """Return the reason if durations are off without steps, in ten seconds or over the run; else an empty text."""
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
            return _difference(self._whole_off_us / 1e6, self._whole_s)
        is_off = abs(self._off_us) / 1e6 > max(SHORT_S, _DRIFT_SHARE * self._lasts_s)
        return _difference(self._off_us / 1e6, self._lasts_s) if is_off else ""


def _last_us(step: tuple[int, int, int]) -> int:
    """Return the latest time at which a line with the step may begin.

    Where no line shows the place of a step, lines around it may be off by its size on the axis.
    """
    return step[1] + abs(step[2]) + FIT_US


def _difference(off_s: float, lasts_s: float) -> str:
    more = "longer" if off_s < 0 else "shorter"
    text = f"durations of {lasts_s:,.3f} s are {abs(off_s):,.3f} s {more} than from start to end"
    return f"{text}, beyond the steps of the clock that heartbeats show"
