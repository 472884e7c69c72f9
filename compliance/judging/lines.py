"""The input of one limiter's replay: its lines, its streams' lines, and notes about the run."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from msgspec import Struct

from compliance.judging.changes import Changed, ChangeScope, SettingChange, own_values
from compliance.judging.facts import LinePlace
from compliance.schema import OBSERVED

BUCKETS = ("messages", "bytes", "peak_messages", "peak_bytes")
"""A limiter's buckets: two sustained rates, and the two that hold while a burst lasts."""
CLOCK_RESOLUTION_S = 1e-6
"""The record's times are exact to a microsecond: a microsecond's worth of a limit is no excess."""
CLOCKS_APART_S = 0.1
"""Seconds by which the clocks of two proxies may differ where no heartbeat shows a step of either."""
LATE_S = 0.02
"""Seconds by which a timer may be late; the proxy logs a longer delay."""
OWED_WINDOW_S = 10.0
SHORT_S = 0.1
"""Seconds' worth of a limit that may be lacking in ten seconds of the log."""
SHORT_SHARE = 0.01
"""Share of the time waited that may also be lacking in a whole day of a run."""
UNEXPLAINED_S = 0.005
"""Seconds that may be lacking beyond what the proxy itself calls late timers: rounding."""
UNSEEN_S = 0.5
"""Seconds. If more could be lacking in ten seconds without showing, the verdict is unknown."""
BEHIND_CHANGE_S = 1.0
"""Seconds after a change of limits in which some lines may still name the value before."""
SAME_WAIT_S = 0.002
"""Seconds by which two accounts of one wait may differ."""
CONTIGUOUS_S = 2e-6
"""Seconds between two lines that count as no time: rounding to a microsecond."""
CONTIGUOUS_US = round(CONTIGUOUS_S * 1e6)
ROUNDING = 1e-6
ROUNDED_TOKENS = 0.001
"""Lines have balances in thousandths of a token."""


def excess_tolerance(limit: float) -> float:
    """Return the rounding that is no excess: half a message or byte, and a microsecond's worth of the limit."""
    return 0.5 + CLOCK_RESOLUTION_S * limit


class Line(Struct, array_like=True, gc=False):
    """A line of the limiter. Times are microseconds on the axis of `clocks.py`, and by the wall clock.

    Values are in the order of `BUCKETS`. None means no limit, or not logged.
    """

    seq: int
    place: tuple[str, int | None]
    at_us: tuple[int, int]
    wall_us: tuple[int, int]
    duration_s: float
    source: str
    mode: str
    rates: tuple[float | None, ...]
    bursts: tuple[float | None, ...]
    published: tuple[float | None, float | None]
    passed: tuple[int, int]
    largest: tuple[int, int]
    waited_s: float
    idle_s: float
    reserved_s: float
    recovered_s: float
    tokens: tuple[float | None, ...]
    overflow: tuple[float, ...]
    rejected: int = 0
    shares: tuple[float | None, float | None] = (None, None)
    """The parts of a limit that a fleet shares; None: the limit is this proxy's alone."""

    began: tuple[float | None, ...] = (None,) * len(BUCKETS)
    """The balances when the limiter was made, before the line or in it; None: full, or the line is not the first."""

    @property
    def lacks_share(self) -> bool:
        """True if this proxy had no share of a limit, so it owed nothing: its rates are placeholders."""
        return 0.0 in self.shares

    @property
    def value(self) -> tuple[Any, ...]:
        """The value in force, and its source."""
        return self.source, self.mode, self.rates, self.bursts

    def is_before(self, change: SettingChange) -> bool:
        """Return whether the line may have the value before a change: it comes or begins before it."""
        return self.seq < change.seq or self.at_us[0] < change.at_us - CONTIGUOUS_US

    def begins_at(self, change: SettingChange) -> bool:
        """Return whether the line begins when the change was made, but for rounding."""
        return abs(self.at_us[0] - change.at_us) <= CONTIGUOUS_US

    @property
    def is_waited_through(self) -> bool:
        """True if a stream waited through the whole line."""
        return self.waited_s >= self.duration_s - CONTIGUOUS_S

    @property
    def is_in_force(self) -> bool:
        """True if the limit held streams back: it has a rate and is not only observed."""
        return self.mode != OBSERVED and self.rates.count(None) < len(self.rates)


class StreamsLine(Struct, array_like=True, gc=False):
    """The sum of the lines of all streams under the limiter, over one span."""

    seq: int
    place: tuple[str, int | None]
    at_us: tuple[int, int]
    wall_us: tuple[int, int]
    duration_s: float
    passed: tuple[int, int]
    """Messages and bytes that count against limits."""
    largest: tuple[int, int]
    """No entry was larger."""
    only_wait_s: float
    """Longest wait of a stream that is under no other limit."""
    named_wait_s: float
    """Longest wait of a stream that names this limit for its last wait."""
    limit: tuple[float | None, float | None]
    """The highest value of the limit in lines of streams for which it is the lowest limit."""
    members: int = 0
    """The number of streams that have a line."""
    is_alone: bool = True
    """No stream is under another limit."""
    largest_offered: tuple[int, int] = (0, 0)
    """No entry that came was larger."""
    most_served: tuple[str, int] | None = None
    """The stream that passed most messages, and their number."""
    least_limit: tuple[float | None, float | None] = (None, None)
    """The lowest value of the limit in a stream's line."""
    crossing_wait_s: float = 0.0
    """The sum of the waits of streams that are also under other limits."""
    elsewhere_wait_s: float = 0.0
    """The part of `crossing_wait_s` of streams that name another limit for their last wait."""
    starving: tuple[str, tuple[int, int], tuple[int, int], bool] | None = None
    """The stream that passed least among streams that waited on the limit in all of the span; of several, the one that
    has waited longest. Its name, messages and bytes held, messages and bytes passed, and whether it is under no other
    limit."""


_ROUNDED_US = 1
"""The end of a line is its begin and its duration, each rounded."""


@dataclass(frozen=True)
class RunNotes:
    """Notes of one run that hold for all its limiters: changes, holes, standstills.

    Args:
        has_begin: No line before its first is missing.
        changed: The changes after which limits may differ, in the order of their lines.
        holes: Numbers of the lines after missing ones, ascending.
        still_us: Begin and end of each time in which the proxy did nothing, microseconds on the axis, ascending.
        values: The changes that may be of the limiter's own value.
        complete_us: The time up to which all lines are there, of a run that was killed or goes on, microseconds on the
            axis; None: the run came to an orderly end.
    """

    has_begin: bool = True
    changed: Sequence[Changed] = ()
    holes: Sequence[int] = ()
    still_us: Sequence[tuple[int, int]] = ()
    values: Sequence[SettingChange] = ()
    complete_us: int | None = None

    def of_limiter(self, direction: str, level: str, name: str) -> "RunNotes":
        """Return the notes without the changes that concern other limits."""
        if not self.changed:
            return self
        limiter = ChangeScope.of_limiter(direction, level, name)
        own = [change for scope, changes in self._by_scope.items() if scope.concerns(limiter) for change in changes]
        own.sort(key=attrgetter("seq"))
        return replace(self, changed=own, values=own_values(own, direction, level, name))

    @cached_property
    def _by_scope(self) -> dict[ChangeScope, list[Changed]]:
        changes: dict[ChangeScope, list[Changed]] = {}
        for change in self.changed:
            changes.setdefault(change.scope, []).append(change)
        return changes

    def is_in_tail(self, line: "Line | StreamsLine") -> bool:
        """Return whether lines of other streams or limiters for the same time may not be there yet, or never."""
        return self.complete_us is not None and line.at_us[1] > self.complete_us

    def still_s(self, line: Line) -> float:
        """Return seconds of a line in which the proxy did nothing."""
        if not self.still_us:
            return 0.0
        begin_us, end_us = line.at_us
        first = bisect_right(self.still_us, begin_us, key=lambda span: span[1])
        last = bisect_left(self.still_us, end_us, key=lambda span: span[0])
        within = (min(end, end_us) - max(begin, begin_us) for begin, end in self.still_us[first:last])
        return sum(within) / 1e6

    def changes_between(self, after: int, until: int) -> int:
        """Return the number of lines of changes between the two."""
        return _between(self._numbers, after, until)

    def late_s(self, after: int, line: Line) -> float:
        """Return the longest part of a line in which the value before a change was still in force."""
        numbers = self._numbers
        changes = self.changed[bisect_right(numbers, after) : bisect_right(numbers, line.seq)]
        late_us = max((change.at_us - line.at_us[0] for change in changes), default=0)
        return min(line.duration_s, max(0.0, late_us / 1e6))

    def is_after_change(self, line: "Line | StreamsLine") -> bool:
        """Return whether limits changed within a line, or so shortly before it that some lines may lack the change."""
        begin_us, end_us = line.at_us
        place = bisect_right(self._times, end_us) - 1
        return place >= 0 and self._times[place] >= begin_us - round(BEHIND_CHANGE_S * 1e6)

    def has_change(self, line: "Line | StreamsLine") -> bool:
        """Return whether limits changed within a line or at its end, the time for which it names them."""
        begin_us, end_us = line.at_us
        at = bisect_right(self._times, begin_us)
        return at < len(self._times) and self._times[at] <= end_us + _ROUNDED_US

    @cached_property
    def _numbers(self) -> list[int]:
        return [change.seq for change in self.changed]

    @cached_property
    def _times(self) -> list[int]:
        return sorted(change.at_us for change in self.changed)

    def is_torn(self, after: int, until: int) -> bool:
        """Return whether lines between the two are missing."""
        return _between(self.holes, after, until) > 0


def _between(numbers: Sequence[int], after: int, until: int) -> int:
    return bisect_right(numbers, until) - bisect_right(numbers, after) if numbers else 0


@dataclass(frozen=True)
class Step:
    """The step from one line of a limiter to the next.

    Args:
        gap_s: Seconds in between; 0 for none.
        is_unsettled: The value changed in between.
        is_hidden: The value changed at an unknown moment, or to a value that no line has: perhaps to none.
        is_unknown: What the buckets hold is not known.
        follows: The measured part of a relative limit has changed, or the share of one that a fleet shares.
        late_s: The longest part of the next line in which the earlier value was in force.
        adds_up: The value stayed the same in between, as the balances prove.
    """

    gap_s: float = 0.0
    is_unsettled: bool = False
    is_hidden: bool = False
    is_unknown: bool = False
    follows: bool = False
    late_s: float = 0.0
    adds_up: bool = False


def place_of(line: Line | StreamsLine) -> LinePlace:
    """Return the place of a line in the log."""
    return LinePlace(file=line.place[0], seq=line.seq, line=line.place[1])


def in_force(line: Line, bucket: int) -> tuple[float | None, float | None]:
    """Return rate and burst of one of `BUCKETS`; None if not enforced."""
    return (None, None) if line.mode == OBSERVED else (line.rates[bucket], line.bursts[bucket])
