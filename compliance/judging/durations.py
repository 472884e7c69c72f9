"""Durations held against the wall clock.

An honest clock is stepped now and then: one line is longer or shorter by its times than by its duration, and heartbeats
tell of it. On Linux both clocks are slewed together. So durations that differ from the times of their lines again and
again are not those of the clock.
"""

from collections import deque
from collections.abc import Sequence
from heapq import nlargest

from compliance.judging.lines import OWED_WINDOW_S, SHORT_S, Line, StreamsLine

_DRIFT_SHARE = 0.005
"""Share of the time by which durations may be off besides."""
_LEAST_LINES = 6
_MOST_STEPS = 2
"""Steps of the clock that may lie in one window."""
_UNLISTED_S = 0.2
"""A longer step is one that heartbeats tell of, though they were cut at other moments."""
_SAME_S = 0.001


class Durations:
    """The check of one limiter's durations against the wall clock, line by line.

    Args:
        steps_us: From when until when the wall clock was stepped, microseconds on the axis; None: nobody looked.
    """

    def __init__(self, steps_us: Sequence[tuple[int, int]] | None) -> None:
        self._steps_us = steps_us
        self._recent: deque[tuple[int, float]] = deque()
        self._off_us = 0
        self._lasts_s = 0.0
        self._whole_off_s = self._whole_s = 0.0

    def add(self, line: Line, streams: Sequence[StreamsLine]) -> str:
        """Check the next line; returns what of its duration cannot be true, or an empty text.

        Args:
            line: The next line.
            streams: What its streams' lines say of the same time.
        """
        own_s = line.duration_s
        same = [one for one in streams if one.wall_us == line.wall_us]
        said_s = [s for one in same for s in (one.duration_s, one.least_duration_s or own_s)]
        for theirs_s in said_s:
            if abs(theirs_s - own_s) > _SAME_S:
                return f"it lasts {own_s:,.3f} s by its own line, and {theirs_s:,.3f} s by its streams' lines"
        wall_s = (line.wall_us[1] - line.wall_us[0]) / 1e6
        off_s = wall_s - line.duration_s
        if abs(off_s) > _UNLISTED_S and not self._is_stepped(line, abs(off_s)):
            said = f"it lasts {own_s:,.3f} s, and {wall_s:,.3f} s from its start to its end"
            return f"{said}, and heartbeats tell of no step of the clock"
        return self._drift(off_s, line.duration_s)

    def _is_stepped(self, line: Line, off_s: float) -> bool:
        if self._steps_us is None:
            return True
        begin_us, end_us = line.at_us[0] - off_s * 1e6, line.at_us[1] + off_s * 1e6
        return any(since_us <= end_us and until_us >= begin_us for since_us, until_us in self._steps_us)

    def _drift(self, off_s: float, lasts_s: float) -> str:
        """Whether durations are off all the time: in ten seconds without the steps, or over the whole."""
        off_us = round(off_s * 1e6)
        recent = self._recent
        recent.append((off_us, lasts_s))
        self._off_us += off_us
        self._lasts_s += lasts_s
        while len(recent) > _LEAST_LINES and self._lasts_s - recent[0][1] >= OWED_WINDOW_S:
            old_us, old_s = recent.popleft()
            self._off_us -= old_us
            self._lasts_s -= old_s
        most_s = 2 * _DRIFT_SHARE * lasts_s
        self._whole_off_s += min(most_s, max(-most_s, off_s))
        self._whole_s += lasts_s
        if abs(self._whole_off_s) > SHORT_S + _DRIFT_SHARE * self._whole_s:
            return _said(self._whole_off_s, self._whole_s)
        allowed_s = max(SHORT_S, _DRIFT_SHARE * self._lasts_s)
        if abs(self._off_us) / 1e6 <= allowed_s:
            return ""
        steps = nlargest(_MOST_STEPS, (off for off, _ in recent), key=abs)
        drift_s = (self._off_us - sum(steps)) / 1e6
        return _said(drift_s, self._lasts_s) if abs(drift_s) > allowed_s else ""


def _said(off_s: float, lasts_s: float) -> str:
    more = "longer" if off_s < 0 else "shorter"
    said = f"durations of {lasts_s:,.3f} s are {abs(off_s):,.3f} s {more} than from start to end"
    return f"{said}, and no step of the clock explains that"
