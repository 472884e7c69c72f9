"""One limiter's lines replayed: what it may have passed, what it owed, and whether its books balance.

Plain values in, plain values out; the rules stand in docs/compliance.md. Each bucket is replayed with two balances:

    room    the most that an exact bucket could hold: passing more than that and one entry is a violation
    least   the least that it could hold: while somebody waits it holds less than a token, or tokens were kept back

A line tells how much passed in its span and not when. So the two are bounds, and one value where the line tells what
the bucket holds at its end.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from msgspec import Struct

from compliance.judging.facts import LinePlace
from compliance.judging.spells import Spelling
from compliance.schema import OBSERVED, REJECTING

BUCKETS = ("messages", "bytes", "peak_messages", "peak_bytes")
"""A limiter's buckets: two sustained rates, and the two that hold while a burst lasts."""
CLOCK_RESOLUTION_S = 1e-6
"""The record's times are exact to a microsecond: so much of a limit is no excess."""
LATE_S = 0.02
"""By so much a timer may be late: the proxy tells what exceeds it."""
OWED_WINDOW_S = 10.0
SHORT_S = 0.1
"""So many seconds' worth of a limit may be lacking in ten seconds of the log ..."""
SHORT_SHARE = 0.01
"""... and of a whole run such a share of the time waited, besides."""
UNEXPLAINED_S = 0.005
"""What the proxy itself does not tell to be late timers is no more than rounding."""
UNSEEN_S = 0.5
"""Where more could be lacking in ten seconds without showing, the verdict is unknown."""
BEHIND_CHANGE_S = 1.0
"""So long behind a change of limits workers may tell what they let pass before they heard of it."""
CONTIGUOUS_S = 2e-6
"""Lines without time in between, but for what is cut off below a microsecond."""
_SAME_WAIT_S = 0.002
_DECISION_S = 0.02
_ROUNDING = 1e-6


def excess_tolerance(limit: float) -> float:
    """Half a message or byte, and a microsecond's worth of the limit."""
    return 0.5 + CLOCK_RESOLUTION_S * limit


class Line(Struct, array_like=True):
    """A line of the limiter. Times are microseconds on an axis that no step of the clock bends.

    Values stand in the order of `BUCKETS`; None is no limit, or not told.
    """

    seq: int
    place: tuple[str, int | None]
    at_us: tuple[int, int]
    wall_us: tuple[int, int]
    duration_s: float
    mode: str
    rates: tuple[float | None, ...]
    bursts: tuple[float | None, ...]
    published: tuple[float | None, float | None]
    passed: tuple[int, int]
    largest: tuple[int, int]
    waited_s: float
    idle_s: float | None
    """None: the line tells neither this nor balances."""
    reserved_s: float
    tokens: tuple[float | None, ...]
    overflow: tuple[float, ...]
    lent: tuple[int, ...] = (0, 0)
    """What workers had been lent at its end, and may have passed already."""
    left: tuple[int, int] = (0, 0)
    """What passed of streams that had left it by then."""
    lost: tuple[int, ...] = (0, 0, 0, 0)
    """What was lent and will never be counted."""
    unforeseen: tuple[int, ...] = (0, 0, 0, 0)
    """What passed before its worker knew that the bucket is there."""
    rejected: int = 0

    @property
    def is_in_force(self) -> bool:
        """Whether somebody was held to it."""
        return self.mode != OBSERVED and any(rate is not None for rate in self.rates)


class Streams(Struct, array_like=True):
    """What the lines of the streams under the limiter say of one span, together."""

    seq: int
    place: tuple[str, int | None]
    at_us: tuple[int, int]
    wall_us: tuple[int, int]
    duration_s: float
    passed: tuple[int, int]
    """What counts against limits."""
    largest: tuple[int, int]
    """No entry was larger."""
    only_wait_s: float
    """Longest wait of a stream that is under no other limit."""
    named_wait_s: float
    """Longest wait of a stream that names this limit for its last wait."""
    is_told: bool
    """The lines say that their streams are under this limit; else it is concluded from names."""
    said: tuple[float | None, float | None]
    """The limit's value as streams have it for which it is the lowest."""
    members: int = 0
    """How many streams have a line."""
    least_messages: int | None = None
    """So many messages count at the least: lines of older proxies do not tell whether entries count as one. None: all
    that passed."""
    is_alone: bool = True
    """Each of these streams is under no other limit."""
    largest_offered: tuple[int, int] = (0, 0)
    """No entry that came was larger."""
    charged: tuple[int, int] | None = None
    """What these lines say was charged to all limits of their streams; None: what passed."""
    crossed: tuple[int, int] | None = None
    """All that passed, whether or not it was charged; likewise."""
    starving: tuple[str, tuple[int, int], tuple[int, int], bool] | None = None
    """Of the streams that waited on it in all of the span the one that passed least, and of these the one that has
    waited longest: which, messages and bytes that it holds, that it passed, and whether it is under no other limit."""


class Window(Struct):
    """The worst window of one bucket by one account, as `ContainmentFacts`; times are microseconds since 1970."""

    unit: str
    is_peak: bool
    basis: str
    start_us: int
    end_us: int
    passed: float
    allowed: float
    limit: float
    excess: float
    first_line: LinePlace
    last_line: LinePlace


class Owed(Struct):
    """The worst ten seconds and the whole of what was owed, as `EntitlementFacts`; times likewise."""

    start_us: int
    end_us: int
    waited_s: float
    served_s: float
    deficit_s: float
    late_s: float
    passed_messages: int
    passed_bytes: int
    owed_messages: float | None
    owed_bytes: float | None
    first_line: LinePlace
    last_line: LinePlace
    whole_waited_s: float
    whole_served_s: float
    whole_deficit_s: float
    unseen_s: float
    still_s: float = 0.0


class Doubt(Struct):
    """Two things that the log says and that cannot both be true, as `DoubtFacts`; times likewise."""

    what: str
    said: str
    start_us: int
    end_us: int
    first_line: LinePlace
    last_line: LinePlace
    times: int = 1


@dataclass(frozen=True)
class RunNotes:
    """What is to be known of a run besides.

    Args:
        has_begin: No line before its first is missing.
        changes: Numbers of the lines that tell of a change, ascending; limits may be others behind them.
        changed_us: And when, microseconds since 1970: up to then what was before may have been in force.
        moved_us: When streams may have come under limits that were there before: by another file, or another group.
        holes: Numbers of the lines behind missing ones, ascending.
        still_us: From when until when the proxy did nothing, microseconds since 1970, ascending.
    """

    has_begin: bool = True
    changes: Sequence[int] = ()
    changed_us: Sequence[int] = ()
    moved_us: Sequence[int] = ()
    holes: Sequence[int] = ()
    still_us: Sequence[tuple[int, int]] = ()

    def still_s(self, line: Line) -> float:
        """For how long the proxy did nothing within a line."""
        if not self.still_us:
            return 0.0
        begin_us, end_us = line.wall_us
        first = bisect_right(self.still_us, begin_us, key=lambda one: one[1])
        last = bisect_left(self.still_us, end_us, key=lambda one: one[0])
        within = (min(end, end_us) - max(begin, begin_us) for begin, end in self.still_us[first:last])
        return sum(within) / 1e6

    def changes_between(self, after: int, until: int) -> int:
        """How many lines between the two tell of a change."""
        return _between(self.changes, after, until)

    def late_s(self, after: int, line: Line) -> float:
        """For how long of a line, at the most, what was before a change was in force."""
        known = self.changed_us[bisect_right(self.changes, after) : bisect_right(self.changes, line.seq)]
        late_us = max((at_us - line.wall_us[0] for at_us in known), default=0)
        return min(line.duration_s, max(0.0, late_us / 1e6))

    def is_behind_change(self, one: "Line | Streams") -> bool:
        """Whether limits were changed within a line, or so shortly before that workers may not have known it."""
        return _is_behind(self._times, one)

    def is_behind_move(self, one: "Line | Streams") -> bool:
        """The same of changes that move streams."""
        return _is_behind(self._moves, one)

    @cached_property
    def _times(self) -> list[int]:
        return sorted(self.changed_us)

    @cached_property
    def _moves(self) -> list[int]:
        return sorted(self.moved_us)

    def is_torn(self, after: int, until: int) -> bool:
        """Whether lines between the two are missing."""
        return _between(self.holes, after, until) > 0


def _is_behind(times: Sequence[int], one: Line | Streams) -> bool:
    begin_us, end_us = one.wall_us
    place = bisect_right(times, end_us) - 1
    return place >= 0 and times[place] >= begin_us - round(BEHIND_CHANGE_S * 1e6)


def _between(numbers: Sequence[int], after: int, until: int) -> int:
    return bisect_right(numbers, until) - bisect_right(numbers, after) if numbers else 0


@dataclass
class Minute:
    """Sums over lines that end in one minute; seconds."""

    judged_s: float = 0.0
    over_s: float = 0.0
    waited_s: float = 0.0
    short_s: float = 0.0
    lines: int = 0


@dataclass
class Judged:
    """What comes out for one limiter of one run."""

    windows: list[Window]
    entitlement: Owed | None
    minutes: dict[int, Minute]
    doubts: list[Doubt]
    over: Spelling
    """When more passed than is allowed."""
    short: Spelling
    """When less passed than was owed."""


@dataclass
class _Over:
    """Containment of one bucket, by one account."""

    unit: int
    is_peak: bool
    basis: str
    room: float = 0.0
    rate: float = 0.0
    burst: float = 0.0
    made_at: float = 0.0
    unpaid_s: float = 0.0
    is_on: bool = False
    begin: Line | Streams | None = None
    begin_passed: int = 0
    passed: int = 0
    record: float = -inf
    worst: Window | None = None
    meanwhile: float = 0.0
    """Earned between the lines, where workers may have used it: that counts in the next line."""
    extra: float = 0.0
    """Earned in the next line besides, before a change came into force."""
    is_unclear: bool = False
    """Workers may have been lent what passed in the last line, or it was too much: the lines do not tell."""

    def tune(self, rate: float | None, burst: float | None, step: "_Step") -> None:
        """What is in force in the next line."""
        if rate is None or burst is None:
            self.is_on = False
            return
        self.meanwhile = max(self.rate, rate) * step.gap_s if step.has_lent else 0.0
        if not self.is_on or step.is_unknown or step.is_hidden:
            self.room, self.record, self.made_at, self.unpaid_s = burst + self.meanwhile, -inf, rate, 0.0
        else:
            # When the value changed in a gap is not known: what is best for the limiter.
            self.room += max(self.rate, rate) * step.gap_s
            self.extra = max(0.0, self.rate - rate) * step.late_s
            self.unpaid_s -= step.gap_s
            if rate != self.rate or burst != self.burst:
                self._change(rate, follows=step.follows)
        self.is_on, self.rate, self.burst = True, rate, burst

    def _change(self, rate: float, *, follows: bool) -> None:
        """A debt stays in tokens at any rate above the one that it was made at, and in seconds at any below.

        One that follows from what was measured stays in tokens.

        Source: limiter.token_bucket.TokenBucket.change and follow
        """
        if follows:
            self.made_at = rate
        else:
            if self.unpaid_s <= 0:
                self.made_at = self.rate
            if self.room < 0:
                self.room *= min(rate, self.made_at) / min(self.rate, self.made_at)
        self.unpaid_s = max(0.0, -self.room / rate)

    def add(
        self, line: Line | Streams, earned_s: float, passed: int, largest: int, lent: tuple[float, bool] = (0, True)
    ) -> bool:
        """Replay a line; whether it drives what passed further above what is allowed.

        Args:
            line: The line.
            earned_s: So long it is.
            passed: What it passed.
            largest: The largest entry.
            lent: What workers may have passed of it by what they were lent before, and whether that is known.
        """
        self.is_unclear = False
        if not self.is_on:
            return False
        self.unpaid_s -= earned_s
        # What workers used of a loan is back in the bucket before it counts.
        full = self.burst + self.meanwhile + (lent[0] if lent[1] else 0)
        if self.begin is None or self.room >= full:
            self.begin, self.begin_passed, self.room = line, self.passed, full
        self.passed += passed
        self.room += self.rate * earned_s + self.extra - passed
        self.extra = 0.0
        if passed <= 0:
            return False
        excess = -self.room - largest
        if passed <= lent[0]:
            # It was taken from the bucket before: so it may pass while others' entry is paid for.
            self.is_unclear = not lent[1] and excess > excess_tolerance(self.rate)
            if self.is_unclear:
                self.room = max(self.room, float(-largest))
            return False
        tolerance = excess_tolerance(self.rate)
        window_passed = self.passed - self.begin_passed
        if self.worst is None or excess > self.worst.excess + _ROUNDING:
            self.worst = Window(
                unit=BUCKETS[self.unit],
                is_peak=self.is_peak,
                basis=self.basis,
                start_us=self.begin.wall_us[0],
                end_us=line.wall_us[1],
                passed=float(window_passed),
                allowed=window_passed - excess,
                limit=self.rate,
                excess=excess,
                first_line=_place(self.begin),
                last_line=_place(line),
            )
        is_over = excess > max(tolerance, self.record + _ROUNDING)
        self.record = max(self.record, excess) if excess > tolerance else -inf
        return is_over

    def go_on_from(self, other: "_Over") -> None:
        """Up to here the two accounts are the same."""
        for name in (
            "room",
            "rate",
            "burst",
            "made_at",
            "unpaid_s",
            "is_on",
            "begin",
            "begin_passed",
            "passed",
            "record",
            "extra",
        ):
            setattr(self, name, getattr(other, name))


def _place(line: Line | Streams) -> LinePlace:
    return LinePlace(file=line.place[0], seq=line.seq, line=line.place[1])


@dataclass
class _Held:
    """What one bucket holds, at least and at most.

    Attributes:
        told: What the line before told, where nothing lies in between.
    """

    least: float = -inf
    most: float = inf
    rate: float = 0.0
    burst: float = 0.0
    is_on: bool = False
    told: float | None = None
    gap_s: float = 0.0
    made_at: float = 0.0

    def tune(self, rate: float | None, burst: float | None, step: "_Step") -> None:
        """What is in force in the next line, and what became of the balance up to its begin."""
        self.gap_s = step.gap_s
        if rate is None or burst is None:
            self.is_on, self.told = False, None
            return
        if not self.is_on or step.is_unknown:
            # Full, unless it was made with another value: a change fills no bucket.
            full = min(burst, 1.0) if step.is_unsettled else burst
            # What passed before the change may count behind it, and was not taken from this bucket.
            self.most, self.told = (inf if step.is_unsettled else burst + 1), None
            self.least = -inf if step.is_unknown or step.is_hidden else full
            # A debt may be left that was made at any rate.
            self.made_at = inf if step.is_unknown or step.is_unsettled else 0.0
        else:
            self._go_on(rate, burst, step)
        self.is_on, self.rate, self.burst = True, rate, burst

    def _go_on(self, rate: float, burst: float, step: "_Step") -> None:
        if self.told is not None and step.adds_up:
            self.told += rate * step.gap_s
        elif step.gap_s or step.is_unsettled or rate != self.rate or burst != self.burst:
            self.told = None
        if step.is_unsettled:
            # It may have been any other value meanwhile: what is positive was clipped to that one's burst. Without a
            # stream a limit takes its new value when the next one joins.
            self.least = -inf if step.is_hidden else min(self.least, 1.0)
            self.most = burst + 1 if step.is_hidden else self.most
            # What workers used in the meantime is taken when it counts.
            self.most = inf if step.has_lent else self.most
        elif step.gap_s:
            slow, fast = sorted((rate, self.rate))
            self.least = max(self.least, min(self.least + slow * step.gap_s, self.burst))
            self.most += fast * step.gap_s
        if self.most < 0 and rate < self.rate:
            self.most *= rate / self.rate
        self.most += max(0.0, self.rate - rate) * step.late_s
        # A debt that was made at a higher rate stays in seconds up to that one.
        self.made_at = self.rate if self.least >= 0 else max(self.made_at, self.rate)
        if self.least < 0 and rate > self.rate:
            self.least *= min(rate, self.made_at) / self.rate
        self.least -= max(0.0, rate - self.rate) * step.late_s
        if rate != self.rate or burst != self.burst:
            self.least = min(self.least, burst)
        self.most = self.most if step.has_lent else min(self.most, burst + 1)

    def after(self, line: Line, passed: int, largest: int, closed_s: float | None) -> tuple[float, float]:
        """The least and the most that it may hold at the end of a line.

        Args:
            line: The line.
            passed: What it passed.
            largest: The largest entry.
            closed_s: For so long it had less than a token; None: it or another bucket.
        """
        earned = self.rate * line.duration_s
        least = min(self.burst, self.least + earned) - passed
        most = min(self.burst + 1, self.most + earned - passed)
        if closed_s:
            # What is more than a token and a late timer's worth was kept back, and is counted as such.
            kept = min(self.least + self.owed_rate * closed_s - passed, 1 + self.rate * LATE_S)
            least = max(least, kept)
            if closed_s > max(LATE_S, line.duration_s - CONTIGUOUS_S):
                most = min(most, 1 + self.rate * LATE_S)
        if passed > 0:
            least = max(least, 1.0 - max(largest, 1))
        return least, max(least, most)

    @property
    def width_s(self) -> float:
        """Between the least and the most, in seconds of the limit."""
        return (self.most - self.least) / self.rate

    @property
    def owed_rate(self) -> float:
        """What a burst that is smaller than a late timer's worth lets pass at the least."""
        return min(self.rate, max(self.burst, 1.0) / LATE_S)


@dataclass(frozen=True)
class _Step:
    """From one line of a limiter to the next.

    Args:
        gap_s: Time in between; 0 is none.
        is_unsettled: The value changed in between.
        is_hidden: And not at a known moment, or to a value that no line has: it may have been none.
        is_unknown: What the buckets hold is not known.
        follows: The measured part of a relative limit is another one.
        late_s: For so long of the next line the value of before was in force, at the most.
        has_lent: Workers had been lent something, and may have used it in between.
        adds_up: The value is the same, and so it was in between: the balances tell.
    """

    gap_s: float = 0.0
    is_unsettled: bool = False
    is_hidden: bool = False
    is_unknown: bool = False
    follows: bool = False
    late_s: float = 0.0
    has_lent: bool = False
    adds_up: bool = False


@dataclass
class _Starving:
    """A stream that waits and passes little, for as long as that is so; seconds, and seconds of the limit.

    `held_s` is as large as its first entry may be; `mine_s` is what it passed.
    """

    who: str
    held_s: float
    mine_s: float = 0.0
    passed: int = 0
    members: int = 0
    entry_s: float = 0.0
    served_s: float = 0.0
    waited_s: float = 0.0


class _Waited(Struct, array_like=True):
    """A line in which somebody waited, for the windows of entitlement."""

    line: Line
    waited_s: float
    short_s: float
    unexplained_s: float
    surplus_s: float
    passed: tuple[int, ...]
    late_s: float


class _Owing:
    """Sums over ten seconds and over all."""

    def __init__(self) -> None:
        self._recent: deque[_Waited] = deque()
        self._all = [0.0, 0.0, 0.0]
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._worst: tuple[float, list[_Waited]] | None = None
        self._entry_s = 0.0
        self.unseen_s = 0.0
        self.still_s = 0.0

    def add(self, waited: _Waited, entry_s: float) -> bool:
        """One more; whether the ten seconds that end with it lack something."""
        recent, sums = self._recent, self._sums
        recent.append(waited)
        self._entry_s = max(self._entry_s, entry_s)
        for place, value in enumerate((waited.waited_s, waited.short_s, waited.unexplained_s, waited.surplus_s)):
            sums[place] += value
            if place < 3:
                self._all[place] += value
        begin_us = waited.line.at_us[1] - round(OWED_WINDOW_S * 1e6)
        while recent[0].line.at_us[1] <= begin_us:
            old = recent.popleft()
            for place, value in enumerate((old.waited_s, old.short_s, old.unexplained_s, old.surplus_s)):
                sums[place] -= value
        if SHORT_SHARE * sums[0] + self._entry_s < sums[3]:
            self.unseen_s = OWED_WINDOW_S
        deficit = max(sums[1] - SHORT_S, sums[2] - UNEXPLAINED_S)
        if self._worst is None or deficit > self._worst[0] + _ROUNDING:
            self._worst = deficit, list(recent)
        return deficit > CLOCK_RESOLUTION_S

    def facts(self) -> Owed | None:
        """The worst ten seconds and the whole; None if nobody waited."""
        if self._worst is None:
            return None
        deficit, window = self._worst
        waited, short, unexplained = self._all
        lacking = sum(one.short_s for one in window)
        first, last = window[0].line, window[-1].line
        passed = [sum(one.passed[unit] for one in window) for unit in range(2)]
        return Owed(
            start_us=first.wall_us[0],
            end_us=last.wall_us[1],
            waited_s=sum(one.waited_s for one in window),
            served_s=sum(one.waited_s for one in window) - lacking,
            deficit_s=deficit,
            late_s=sum(one.late_s for one in window),
            passed_messages=passed[0],
            passed_bytes=passed[1],
            owed_messages=_owed(window, passed, 0),
            owed_bytes=_owed(window, passed, 1),
            first_line=_place(first),
            last_line=_place(last),
            whole_waited_s=waited,
            whole_served_s=waited - short,
            whole_deficit_s=max(short - SHORT_SHARE * waited - SHORT_S, unexplained - UNEXPLAINED_S),
            unseen_s=min(OWED_WINDOW_S, self.unseen_s + SHORT_S),
            still_s=self.still_s,
        )


def _owed(window: list[_Waited], passed: list[int], unit: int) -> float | None:
    if all(one.line.rates[unit] is None for one in window):
        return None
    return passed[unit] + sum((one.line.rates[unit] or 0) * one.short_s for one in window)


class Account:
    """Everything that is replayed of one limiter in one run.

    Args:
        notes: Of its run.
    """

    def __init__(self, notes: RunNotes) -> None:
        self._notes = notes
        self._over = [_Over(unit % 2, unit > 1, "limiter") for unit in range(len(BUCKETS))]
        self._streams = [_Over(unit, is_peak=False, basis="streams") for unit in range(2)]
        self._held = [_Held() for _ in BUCKETS]
        self._owing, self._perhaps = _Owing(), _Owing()
        self._before: Line | None = None
        self._until_us: int | None = None
        self._valued_us: int | None = None
        self._starving: _Starving | None = None
        self._largest_offered = (0, 0)
        self._has_streams = self._differs = self._is_named = self._overlaps = False
        self._minutes: dict[int, Minute] = {}
        self._when_over, self._when_short = Spelling(), Spelling()
        self._doubts: dict[str, Doubt] = {}

    # ---- in

    def add(self, lines: Sequence[Line], streams: Sequence[Streams]) -> None:
        """What lies in one stretch of time: most often one line, and the streams of its span."""
        if not lines:
            self._without_lines(streams)
            return
        self._has_streams = self._has_streams or bool(streams)
        self._look_at_values(lines, streams)
        self._look_at_value(lines[0])
        passed = _sums(lines)
        has_account = self._has_streams and all(line.is_in_force for line in lines)
        said = self._said_by_streams(lines, streams, passed) if has_account else passed
        said = self._as_entries(lines, streams, said, passed)
        differing = [unit for unit in range(2) if said[unit] != passed[unit] and _is_limited(lines, unit)]
        if differing:
            self._differ(lines, streams, [(BUCKETS[unit], said[unit], passed[unit]) for unit in differing])
        denied_s = self._denied(lines, streams)
        for line in lines:
            # Of what the two accounts say was served the less.
            served = tuple(map(min, line.passed, said)) if len(lines) == 1 else line.passed
            self._look_at_value(line)
            step = self._step(line)
            over = self._replay(line, step)
            if self._differs:
                is_last = line is lines[-1]
                over = self._replay_streams(line, step, said if is_last else (0, 0), streams) or over
            besides = denied_s, line.duration_s if self._starved(line, streams) else 0.0
            self._overlaps = any(not one.is_alone for one in streams)
            self._count(line, over=over, short=self._serve(line, step, served, besides))
            self._before = line
        self._until_us = max(line.at_us[1] for line in lines)

    def _said_by_streams(
        self, lines: Sequence[Line], streams: Sequence[Streams], passed: tuple[int, ...]
    ) -> tuple[int, ...]:
        """What passed by the lines of streams.

        Behind a change of limits a worker may tell of what passed for the limits of before. Then a stream's line tells
        what was charged to all of its limits, and this one may have been charged more; and the limit's own line tells
        what was of streams that are no longer under it.
        """
        several: tuple[Line | Streams, ...] = (*lines, *streams)
        if not any(self._notes.is_behind_change(one) for one in several):
            return _sums(streams)
        # Only what is new to its streams can have been unknown to their workers.
        is_new = self._is_new(lines[0]) or any(self._notes.is_behind_move(one) for one in several)
        said = []
        for unit in range(2):
            left = sum(line.left[unit] for line in lines)
            least = sum((one.charged if is_new and one.charged else one.passed)[unit] for one in streams)
            most = sum((one.crossed or one.passed)[unit] for one in streams)
            said.append(left + min(max(passed[unit] - left, least), most))
        return tuple(said)

    def _look_at_values(self, lines: Sequence[Line], streams: Sequence[Streams]) -> None:
        """What is in force by streams' lines is in force by its own, unless it was changed just then."""
        for one in streams:
            self._largest_offered = (
                max(self._largest_offered[0], one.largest_offered[0]),
                max(self._largest_offered[1], one.largest_offered[1]),
            )
            is_settled = self._before and not self._notes.changes_between(self._before.seq, lines[-1].seq)
            for unit, said in enumerate(one.said):
                if said is not None and is_settled and all(_in_force(line, unit)[0] is None for line in lines):
                    text = f"by its streams' lines {said:,.6g} {BUCKETS[unit]}/s are in force, and by its own line none"
                    self._doubt("value", text, (one, *lines))

    def _as_entries(
        self, lines: Sequence[Line], streams: Sequence[Streams], said: tuple[int, ...], passed: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Of older lines the streams' account, where it may be the limiter's own: entries may count as one."""
        least = sum(one.passed[0] if one.least_messages is None else one.least_messages for one in streams)
        if not least <= passed[0] < said[0] or not _is_limited(lines, 0):
            return said
        own = f"it passed {passed[0]:,} by its own line: whether each counts as one, the lines do not tell"
        self._doubt(
            "entries", f"its streams passed {said[0]:,} messages in {least:,} entries, and {own}", (*streams, *lines)
        )
        return (passed[0], said[1])

    def close(self) -> Judged:
        """What came out."""
        windows = [one.worst for one in (*self._over, *self._streams) if one.worst]
        owed, perhaps = self._owing.facts(), self._perhaps.facts()
        if (
            self._before
            and owed
            and perhaps
            and perhaps.whole_deficit_s > max(CLOCK_RESOLUTION_S, owed.whole_deficit_s)
        ):
            self._perhaps_reserved(self._before)
        doubts = list(self._doubts.values())
        return Judged(windows, owed, self._minutes, doubts, self._when_over, self._when_short)

    # ---- containment

    def _step(self, line: Line) -> _Step:
        before = self._before
        if before is None:
            is_known = self._notes.has_begin and not self._notes.is_torn(-1, line.seq)
            changes = self._notes.changes_between(-1, line.seq)
            return _Step(is_unknown=not is_known, is_unsettled=changes > 0, is_hidden=changes > 1)
        gap_s = (line.at_us[0] - before.at_us[1]) / 1e6
        gap_s = gap_s if gap_s > CONTIGUOUS_S else 0.0
        was, now = before.published, line.published
        is_relative = now != (None, None)
        follows = is_relative and was not in ((None, None), now)
        # Between its lines a relative limit may have been anything.
        changes = self._notes.changes_between(before.seq, line.seq) + int(is_relative and gap_s > 0)
        is_hidden = changes > 1 or (changes > 0 and gap_s > 0)
        is_unknown = before.mode == OBSERVED or self._notes.is_torn(before.seq, line.seq)
        late_s = self._notes.late_s(before.seq, line)
        has_lent = gap_s > 0 and any(before.lent)
        if changes and not is_unknown and self._adds_up(before, line, gap_s):
            return _Step(gap_s, has_lent=has_lent, adds_up=True)
        return _Step(gap_s, changes > 0, is_hidden, is_unknown, follows, late_s, has_lent)

    def _adds_up(self, before: Line, line: Line, gap_s: float) -> bool:
        """Whether changes between two lines were others': then each bucket's balance goes on as if there were none."""
        if (before.mode, before.rates, before.bursts) != (line.mode, line.rates, line.bursts):
            return False
        unforeseen = self._unforeseen(line)
        for bucket, rate in enumerate(line.rates):
            if rate is None:
                continue
            told, now = before.tokens[bucket], line.tokens[bucket]
            if told is None or now is None:
                return False
            taken = line.passed[bucket % 2] - unforeseen[bucket] + line.lost[bucket] + line.overflow[bucket]
            tolerance = 0.01 + 1e-8 * (rate + taken) + CONTIGUOUS_S * rate
            if abs(told + rate * (gap_s + line.duration_s) - taken - now) > tolerance:
                return False
        return True

    def _replay(self, line: Line, step: _Step) -> bool:
        is_over = False
        for bucket, over in enumerate(self._over):
            unit = bucket % 2
            over.tune(*_in_force(line, bucket), step)
            passed, lent = line.passed[unit] - self._unforeseen(line)[bucket], self._lent(line, bucket)
            is_over = over.add(line, line.duration_s, passed, line.largest[unit], lent) or is_over
            if over.is_unclear:
                over.room = max(over.room, line.tokens[bucket] or -inf)
                said = f"{passed:,} {BUCKETS[unit]} were too many, or passed before: workers tell a little later"
                self._doubt("lent", said, (line,))
        return is_over

    def _unforeseen(self, line: Line) -> tuple[int, ...]:
        """What of each bucket nobody knew; only behind a change of this limit's own value."""
        is_excused = self._is_new(line) and self._notes.is_behind_change(line)
        return line.unforeseen if is_excused else (0,) * len(BUCKETS)

    def _is_new(self, line: Line) -> bool:
        """Whether its value was another one, or none, just before."""
        return self._valued_us is not None and line.wall_us[0] <= self._valued_us + round(BEHIND_CHANGE_S * 1e6)

    def _look_at_value(self, line: Line) -> None:
        """Since when it has its value: where that is another one, or may have been meanwhile."""
        before = self._before
        if before is None:
            is_another = self._notes.changes_between(-1, line.seq) > 0
        else:
            is_same = (before.mode, before.rates, before.bursts) == (line.mode, line.rates, line.bursts)
            has_gap = (line.at_us[0] - before.at_us[1]) / 1e6 > CONTIGUOUS_S
            is_another = not is_same or (has_gap and self._notes.changes_between(before.seq, line.seq) > 0)
        if is_another:
            self._valued_us = line.wall_us[0]

    def _lent(self, line: Line, bucket: int) -> tuple[float, bool]:
        """What workers may have passed by what they were lent before, and whether the lines tell.

        Half of a burst is lent at the most. What passed before there was a limit may count in its first line.
        """
        if self._before is None and self._notes.changes_between(-1, line.seq):
            return inf, False
        if line.idle_s is None:
            return (line.bursts[bucket] or 0.0) / 2, False
        return (0 if self._before is None else self._before.lent[bucket % 2]), True

    def _replay_streams(self, line: Line, step: _Step, said: tuple[int, ...], streams: Sequence[Streams]) -> bool:
        is_over = False
        for unit, over in enumerate(self._streams):
            largest = (
                max([line.largest[unit], *(one.largest[unit] for one in streams)])
                if said != line.passed
                else (line.largest[unit])
            )
            over.tune(*_in_force(line, unit), step)
            passed = max(0, said[unit] - self._unforeseen(line)[unit])
            is_over = over.add(line, line.duration_s, passed, largest, self._lent(line, unit)) or is_over
        return is_over

    def _without_lines(self, streams: Sequence[Streams]) -> None:
        """Streams say that they are under the limit and passed something, and it has no line there."""
        for one in streams:
            if not any(one.passed) and one.named_wait_s <= 0:
                continue
            if not one.is_told and one.said == (None, None):
                continue
            in_force = [self._said(one, unit) for unit in range(2)]
            gap_s = max(0.0, (one.at_us[0] - self._until_us) / 1e6) if self._until_us is not None else 0.0
            self._differ([], [one], [(BUCKETS[unit], one.passed[unit], 0) for unit in range(2) if in_force[unit][0]])
            passed = one.charged or one.passed if self._notes.is_behind_change(one) else one.passed
            for unit, over in enumerate(self._streams):
                over.tune(*in_force[unit], _Step(gap_s))
                over.add(one, one.duration_s, passed[unit], one.largest[unit])
            self._until_us = max(self._until_us or 0, one.at_us[1])

    def _said(self, streams: Streams, unit: int) -> tuple[float | None, float | None]:
        """Rate and burst by streams' lines; where no line ever told the burst, a second's worth."""
        known = self._before
        if known is not None and known.is_in_force and streams.said[unit] in (None, known.rates[unit]):
            return known.rates[unit], known.bursts[unit]
        rate = streams.said[unit]
        return rate, None if rate is None else max(rate, 1.0)

    def _differ(self, lines: Sequence[Line], streams: Sequence[Streams], numbers: list[tuple[str, int, int]]) -> None:
        if not self._differs:
            self._differs = True
            for own, other in zip(self._streams, self._over, strict=False):
                own.go_on_from(other)
        what = "no lines" if not lines else "streams"
        says = "has no line" if not lines else "passed {:,} by its own line"
        said = [
            f"its streams passed {theirs:,} {unit}, and it " + says.format(own) for unit, theirs, own in numbers
        ] or ["a stream waited on it, and it has no line"]
        self._doubt(what, "; ".join(said), (*streams, *lines))

    # ---- entitlement

    def _starved(self, line: Line, streams: Sequence[Streams]) -> bool:
        """Whether a stream has waited so long that, at equal shares, twice what it was to get would have passed."""
        now = next((one.starving for one in streams if one.starving is not None), None)
        rates = [rate for rate in line.rates[:2] if rate]
        if now is None or not rates or line.mode == OBSERVED:
            self._starving = None
            return False
        who, held, mine, is_alone = now
        if self._starving is None or self._starving.who != who:
            self._starving = _Starving(who, _seconds_of(line, self._first_entry(held, is_alone=is_alone)))
        known = self._starving
        known.passed += mine[0]
        known.mine_s += _seconds_of(line, mine)
        known.members = max(known.members, sum(one.members for one in streams))
        known.entry_s = max(known.entry_s, _seconds_of(line, line.largest))
        known.served_s += _seconds_of(line, line.passed)
        known.waited_s += line.duration_s
        share_s = 2 * (known.members + 1) * (known.held_s + known.mine_s + 2 * known.entry_s)
        if known.waited_s < OWED_WINDOW_S or known.served_s < share_s:
            return False
        said = f"{known.who} waited {known.waited_s:,.0f} s on it and passed {known.passed or 'nothing'}"
        self._doubt("starved", f"{said}, while {known.served_s:,.0f} s' worth of it passed", (*streams, line))
        return True

    def _first_entry(self, held: tuple[int, int], *, is_alone: bool) -> tuple[int, ...]:
        """No larger than what came, nor than all that is held; where other limits may hold it, too, as large."""
        return tuple(map(min, held, self._largest_offered)) if is_alone else held

    def _denied(self, lines: Sequence[Line], streams: Sequence[Streams]) -> float:
        """For how long, by the streams' own lines, somebody waited of whom the limiter's lines know nothing."""
        if not streams or not all(line.is_in_force for line in lines):
            return 0.0
        waited_s = sum(line.waited_s for line in lines)
        alone = max(one.only_wait_s for one in streams)
        named = max(one.named_wait_s for one in streams)
        # A wait may begin with the very end of a line, but then it goes on in the next one.
        # Where a worker's stream is within a limit that refuses, each message waits for the supervisor's decision.
        same_s = _DECISION_S if any(line.mode == REJECTING for line in lines) else _SAME_WAIT_S
        is_named, self._is_named = self._is_named, waited_s <= 0 and named > same_s
        theirs = alone if alone > waited_s + same_s else named if is_named and self._is_named else 0.0
        if theirs <= waited_s + same_s:
            return 0.0
        said = f"a stream waited {theirs:.3f} s on it, and by its own line somebody waited {waited_s:.3f} s"
        self._doubt("waits", said, (*streams, *lines))
        return theirs - waited_s

    def _serve(self, line: Line, step: _Step, passed: tuple[int, ...], besides: tuple[float, float]) -> float | None:
        """Replay a line; None if nobody waited, else the seconds waited in the ten that lack something.

        `besides` is for how long streams waited of whom the limiter knows nothing, and for how long one starved.
        """
        denied_s, starved_s = besides
        on: list[tuple[int, _Held]] = []
        for bucket, held in enumerate(self._held):
            held.tune(*_in_force(line, bucket), step)
            if held.is_on:
                on.append((bucket, held))
        if not on:
            return None
        unforeseen = self._unforeseen(line)
        taken = tuple(max(0, passed[bucket % 2] - unforeseen[bucket]) for bucket in range(len(BUCKETS)))
        self._look_at_refusals(line, on, taken)
        waited_s = min(line.waited_s + denied_s, line.duration_s)
        closed_s = max(0.0, waited_s - line.reserved_s - (line.idle_s or 0.0))
        # What is lent at the end, or was lost, nobody else can have had.
        gone = tuple(taken[bucket] + line.lent[bucket % 2] + line.lost[bucket] for bucket in range(len(BUCKETS)))
        lacking_s = self._lacking(line, on, gone, closed_s)
        vanished_s = self._vanished(line, on, taken, closed_s if len(on) == 1 else None)
        if waited_s <= 0:
            return None
        is_told = line.idle_s is not None
        unexplained_s = max(min(lacking_s + vanished_s, waited_s), starved_s)
        late_s = self._late(line, on)
        short_s = min(waited_s, unexplained_s + late_s)
        served_s = max(passed[bucket % 2] / held.rate for bucket, held in on)
        if not is_told and len(on) == 1 and closed_s >= line.duration_s - CONTIGUOUS_S:
            # Within a wait that goes on, what would be lacking is what the bucket may hold.
            self._owing.unseen_s = max(self._owing.unseen_s, on[0][1].width_s)
        entry_s = max(max(line.largest[bucket % 2], 1) / held.rate for bucket, held in on)
        is_suspect = not is_told and len(on) > 1
        surplus_s = waited_s - served_s if is_suspect else -waited_s
        unexplained_s = unexplained_s if is_told else 0.0
        one = _Waited(line, waited_s, short_s, unexplained_s, surplus_s, passed, late_s)
        return waited_s if self._owe(one, entry_s, starved_s) else 0.0

    def _owe(self, one: _Waited, entry_s: float, certain_s: float) -> bool:
        """Whether something is lacking for certain.

        Older lines do not tell whether tokens were kept for a stream that waited on another limit, too.
        """
        is_perhaps = self._perhaps.add(one, entry_s)
        if one.line.idle_s is None and self._overlaps:
            one = _Waited(one.line, one.waited_s, certain_s, 0.0, -one.waited_s, one.passed, 0.0)
        is_certain = self._owing.add(one, entry_s)
        if is_perhaps and not is_certain:
            self._perhaps_reserved(one.line)
        return is_certain

    def _perhaps_reserved(self, line: Line) -> None:
        said = "it had tokens while somebody waited: perhaps for a stream that waited on another limit, too"
        self._doubt("reserved", f"{said}, which lines of this version do not tell", (line,))

    def _look_at_refusals(self, line: Line, on: list[tuple[int, _Held]], taken: tuple[int, ...]) -> None:
        """Refused is what finds some bucket without a token, or others waiting."""
        left = min(held.least - taken[bucket] for bucket, held in on)
        if line.rejected and line.waited_s <= 0 and left >= 1:
            self._doubt(
                "refused", f"it refused {line.rejected:,} messages, and held {left:,.1f} tokens all the time", (line,)
            )

    def _lacking(self, line: Line, on: list[tuple[int, _Held]], taken: tuple[int, ...], closed_s: float) -> float:
        """For how long the limiter must have had tokens while somebody waited, beyond a late timer."""
        if closed_s <= 0:
            return 0.0
        if len(on) == 1:
            ((bucket, held),) = on
            kept = held.least + held.owed_rate * closed_s - taken[bucket] - 1
            # Who waits for less than a timer may be late waits no longer than he may, whatever there is: perhaps for
            # what workers have, and give back.
            most_s = inf if line.idle_s is None else closed_s
            return max(0.0, min(kept / held.rate, most_s) - LATE_S)
        spans = ((taken[bucket] - held.least + 1) / held.owed_rate for bucket, held in on)
        return max(0.0, closed_s - sum(min(line.duration_s, max(0.0, span)) for span in spans) - LATE_S)

    def _late(self, line: Line, on: list[tuple[int, _Held]]) -> float:
        """For how long the limiter was late by its own account, but for what the proxy's standing still explains."""
        late_s = min(line.idle_s or 0.0, *(_lost_s(line, bucket, held) for bucket, held in on))
        still_s = min(late_s, self._notes.still_s(line))
        self._owing.still_s += still_s
        return late_s - still_s

    def _vanished(
        self, line: Line, on: list[tuple[int, _Held]], taken: tuple[int, ...], alone_s: float | None
    ) -> float:
        """Settles all buckets; gives the most seconds' worth of tokens that one of them lost."""
        unforeseen, most_s = self._unforeseen(line), 0.0
        for bucket, held in on:
            least, most = held.after(line, taken[bucket], line.largest[bucket % 2], alone_s)
            # It may have been lost before the line.
            bounds = least - line.lost[bucket], most
            own = line.passed[bucket % 2] - unforeseen[bucket] + line.lost[bucket]
            most_s = max(most_s, self._settle(line, bucket, held, own, bounds))
        return most_s

    def _settle(self, line: Line, bucket: int, held: _Held, taken: int, bounds: tuple[float, float]) -> float:
        """A bucket's balance behind the line; gives the seconds' worth of tokens that it says to have lost.

        Args:
            line: The line.
            bucket: Which of `BUCKETS`.
            held: Its balance before the line.
            taken: What was taken from it, by the line.
            bounds: As `_Held.after`.
        """
        told, before, (least, most) = line.tokens[bucket], held.told, bounds
        held.told = told
        if told is None:
            held.least, held.most = least, most
            return 0.0
        held.least = held.most = told
        if before is not None:
            expected = before + held.rate * line.duration_s - line.overflow[bucket] - taken
            tolerance = 0.01 + 1e-8 * (held.rate + taken + line.overflow[bucket]) + CONTIGUOUS_S * held.rate
            missing = expected - told
        else:
            tolerance = 0.01 + held.rate * (1e-4 + 1e-3 * held.gap_s)
            # Earned without room for it, perhaps before the line.
            least -= line.overflow[bucket]
            missing = least - told if told < least else min(0.0, most + line.lent[bucket % 2] - told)
            expected = told + missing
        if abs(missing) <= tolerance:
            return 0.0
        unit = BUCKETS[bucket].removeprefix("peak_")
        said = f"its bucket should hold {expected:,.2f} {unit} at the end of the line, and holds {told:,.2f}"
        self._doubt("books", said, (line,))
        return max(0.0, missing) / held.rate

    # ---- out

    def _count(self, line: Line, *, over: bool, short: float | None) -> None:
        is_judged = any(one.is_on for one in self._over)
        if not is_judged and short is None:
            return
        minute = self._minutes.setdefault(line.wall_us[1] // 60_000_000, Minute())
        self._when_over.add(line.wall_us[0], line.duration_s, is_broken=over)
        self._when_short.add(line.wall_us[0], short or 0.0, is_broken=bool(short))
        if is_judged:
            minute.judged_s += line.duration_s
            minute.over_s += line.duration_s if over else 0.0
            minute.lines += 1
        if short is not None:
            minute.waited_s += min(line.waited_s, line.duration_s)
            minute.short_s += short

    def _doubt(self, what: str, said: str, lines: Sequence[Line | Streams]) -> None:
        """Kept is the first of each kind, and how many there are."""
        known = self._doubts.get(what)
        if known is not None:
            known.times += 1
            return
        first = min(lines, key=lambda line: line.seq)
        last = max(lines, key=lambda line: line.seq)
        start_us, end_us = min(line.wall_us[0] for line in lines), max(line.wall_us[1] for line in lines)
        self._doubts[what] = Doubt(what, said, start_us, end_us, _place(first), _place(last))


def _in_force(line: Line, bucket: int) -> tuple[float | None, float | None]:
    return (None, None) if line.mode == OBSERVED else (line.rates[bucket], line.bursts[bucket])


def _lost_s(line: Line, bucket: int, held: _Held) -> float:
    """What a bucket had no room for, or still holds at the end: tokens that only came late are not lost."""
    told = line.tokens[bucket]
    if told is None:
        return inf
    return (line.overflow[bucket] + max(0.0, told - 1 - held.rate * LATE_S)) / held.rate


def _seconds_of(line: Line, amount: Sequence[int]) -> float:
    """How long a line's limit takes for so many messages and bytes."""
    return max((size / rate for size, rate in zip(amount, line.rates, strict=False) if rate), default=0.0)


def _sums(lines: Sequence[Line | Streams]) -> tuple[int, ...]:
    return tuple(sum(line.passed[unit] for line in lines) for unit in range(2))


def _is_limited(lines: Sequence[Line], unit: int) -> bool:
    return any(line.rates[unit] is not None for line in lines)


def judged(notes: RunNotes, items: Iterable[Line | Streams]) -> Judged:
    """Replays all of one limiter in one run.

    Args:
        notes: Of the run.
        items: In the order of their begins.
    """
    account = Account(notes)
    for lines, streams in stretches(items):
        account.add(lines, streams)
    return account.close()


def stretches(items: Iterable[Line | Streams]) -> Iterable[tuple[list[Line], list[Streams]]]:
    """Lines that overlap in time belong together: most often a line and the streams of its span."""
    lines: list[Line] = []
    streams: list[Streams] = []
    start_us = end_us = 0
    for item in items:
        overlaps = item.at_us[0] < end_us - 1000 or item.at_us == (start_us, end_us)
        if (lines or streams) and not overlaps:
            yield sorted(lines, key=lambda line: line.seq), streams
            lines, streams = [], []
        if not lines and not streams:
            start_us, end_us = item.at_us
        end_us = max(end_us, item.at_us[1])
        if isinstance(item, Line):
            lines.append(item)
        else:
            streams.append(item)
    if lines or streams:
        yield sorted(lines, key=lambda line: line.seq), streams
