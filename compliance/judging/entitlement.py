"""Entitlement: the least balance of each bucket while a stream waits, and the sums of amounts kept back."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from operator import add, sub
from typing import Any

from msgspec import Struct

from compliance.judging.facts import EntitlementFacts, moment
from compliance.judging.lines import (
    BUCKETS,
    CLOCK_RESOLUTION_S,
    CONTIGUOUS_S,
    LATE_S,
    OWED_WINDOW_S,
    ROUNDED_TOKENS,
    ROUNDING,
    SHORT_S,
    SHORT_SHARE,
    UNEXPLAINED_S,
    Line,
    Step,
    place_of,
)

HANDED_OVER = 1.01e-6
"""The part of a limit, and a rounding, in the lines of a process that has none of it: a millionth, which it does not
earn."""
ROUNDED_DOWN = 1e-4
"""The part by which the rate of a share may be rounded down.

Source: limiter.token_bucket._parts"""
_OWED_WINDOW_US = round(OWED_WINDOW_S * 1e6)


def rounding_of(rate: float) -> float:
    """Return the tokens by which a balance may differ from the sum of the line's other fields, at this rate."""
    return 0.01 + CONTIGUOUS_S * rate


@dataclass(slots=True)
class BalanceBounds:
    """The least and the most that one bucket may hold.

    Attributes:
        bucket: The place among `BUCKETS`.
        logged: The balance in the line before, where nothing lies in between.
        made_at: The highest rate at which a debt may have been made.
        made_low: The lowest rate at which a debt may have been made; 0: not known.
        goes_on: The limit's value is that of the line before, and was the same in between.
        has_none: The process has handed the limit over to the one that takes its place.
        unseen_s: Seconds' worth of the tokens that may still be there, and count as a shortfall that does not show.
        owed_rate: The least rate that the bucket owes: a burst smaller than a late timer's worth lets less pass.
    """

    bucket: int = 0
    least: float = -inf
    most: float = inf
    rate: float = 0.0
    burst: float = 0.0
    is_on: bool = False
    logged: float | None = None
    gap_s: float = 0.0
    made_at: float = 0.0
    made_low: float = 0.0
    goes_on: bool = False
    has_none: bool = False
    unseen_s: float = 0.0
    owed_rate: float = 0.0

    def tune(self, rate: float | None, burst: float | None, step: Step, began: float | None = None) -> None:
        """Set rate and burst of the next line, and carry the balance to its begin.

        Args:
            rate: The rate; None for none.
            burst: The burst.
            step: The step from the line before.
            began: The balance of a bucket that was made after a restart, and was not full; or the balance after tokens
                went to another process, or came from it.
        """
        self.gap_s = step.gap_s
        is_same = rate == self.rate and burst == self.burst
        self.goes_on = self.is_on and is_same and not (step.is_unknown or step.is_unsettled)
        self._keep_unseen(rate, burst, step, began)
        if rate is None or rate != self.rate:
            self.has_none = self.is_on and rate is not None and rate <= self.rate * HANDED_OVER
        if rate is None or burst is None:
            self.is_on, self.logged = False, None
            return
        if not self.is_on or step.is_unknown:
            # Full, unless it was made with another value: a change fills no bucket.
            full = min(burst, 1.0) if step.is_unsettled else burst
            self.most, self.logged = (inf if step.is_unsettled else burst + 1), None
            self.least = -inf if step.is_unknown or step.is_hidden else full
            # A debt may be left that was made at any rate.
            self.made_at = inf if step.is_unknown or step.is_unsettled else 0.0
            self.made_low = 0.0 if step.is_unknown or step.is_unsettled else rate
        else:
            self._go_on(rate, burst, step)
        if began is not None:
            # It was made at some time before the line ends, and may have earned since. With a change in between, a debt
            # may have grown.
            least = -inf if began < 0 and step.is_unsettled else began
            self.least, self.logged, self.made_at, self.made_low = min(self.least, least), None, inf, 0.0
            self.most = max(self.most, began + 1)
        self.is_on, self.rate, self.burst = True, rate, burst
        self.owed_rate = min(rate, max(burst, 1.0) / LATE_S)

    def _keep_unseen(self, rate: float | None, burst: float | None, step: Step, began: float | None) -> None:
        """Forget the tokens that another value, share or process took away.

        They may have been kept back for longer, at a lower rate.
        """
        if not self.unseen_s:
            return
        if rate is None or burst is None or step.is_unknown or step.is_unsettled:
            self.unseen_s = 0.0
            return
        if rate > self.rate:
            self.unseen_s *= self.rate / rate
        if rate != self.rate or burst != self.burst or began is not None:
            taken = self.most - (burst if began is None else min(burst, began))
            self.unseen_s = max(0.0, self.unseen_s - max(0.0, taken) / rate)

    def go_on(self) -> None:
        """Carry the balance to the begin of a line that follows at once, with the same value."""
        self.gap_s, self.goes_on = 0.0, True
        if self.least >= 0:
            self.made_at = self.made_low = self.rate
        else:
            self.made_at = max(self.made_at, self.rate)
        self.most = min(self.most, self.burst + 1)

    def _go_on(self, rate: float, burst: float, step: Step) -> None:
        if self.logged is not None and step.adds_up:
            self.logged += rate * step.gap_s
        elif step.gap_s or step.is_unsettled or rate != self.rate or burst != self.burst:
            self.logged = None
        if step.is_unsettled:
            # Any other value may have been in force: its burst bounded a positive balance. Without a
            # stream a limit takes its new value when the next one joins.
            self.least = -inf if step.is_hidden else min(self.least, 1.0)
            self.most = burst + 1 if step.is_hidden else self.most
        elif step.gap_s:
            slow, fast = sorted((rate, self.rate))
            self.least = max(self.least, min(self.least + slow * step.gap_s, self.burst))
            self.most += fast * step.gap_s
        if self.most < 0 and rate < self.rate:
            self.most *= rate / self.rate
        self.most += max(0.0, self.rate - rate) * step.late_s
        # A debt that was made at a higher rate stays in seconds up to that one.
        self.made_at = self.rate if self.least >= 0 else max(self.made_at, self.rate)
        if self.least >= 0:
            self.made_low = rate
        elif rate > self.rate:
            self.least = (self.least - ROUNDED_TOKENS) * min(rate, self.made_at) / self.rate
        elif rate < self.rate and self.made_low and not step.follows:
            self.least *= min(rate, self.made_low) / min(self.rate, self.made_low)
        self.least -= max(0.0, rate - self.rate) * step.late_s
        if rate != self.rate or burst != self.burst:
            self.least = min(self.least, burst)
        self.most = min(self.most, burst + 1)

    def after(self, line: Line, passed: int, largest: int, closed_s: float | None) -> tuple[float, float]:
        """Return the least and the most that the bucket may hold at the end of a line.

        Args:
            line: The line.
            passed: Amount that it passed.
            largest: The largest entry.
            closed_s: Seconds for which this bucket had less than a token; None if it may have been another bucket.
        """
        earned = self.rate * line.duration_s
        least = min(self.burst, self.least + earned) - passed
        most = min(self.burst + 1, self.most + earned - passed)
        if closed_s:
            # More than a token and a late timer's worth was kept back, and is counted as such.
            kept = min(self.least + self.owed_rate * closed_s - passed, 1 + self.rate * LATE_S)
            least = max(least, kept)
            if closed_s > max(LATE_S, line.duration_s - CONTIGUOUS_S):
                most = min(most, 1 + self.rate * LATE_S)
        if passed > 0:
            least = max(least, 1.0 - max(largest, 1))
        return least, max(least, most)

    @property
    def unit(self) -> int:
        """0 for messages, 1 for bytes."""
        return self.bucket % 2

    def with_room_s(self, line: Line) -> float:
        """Return the longest time for which the bucket had room for tokens in a line and since the one before.

        If that is not known, or a late timer's time uses up a burst, the whole time counts.
        """
        lasts_s = line.duration_s + self.gap_s
        is_known = self.goes_on and line.tokens[self.bucket] is not None and self.burst >= self.rate * LATE_S
        return max(0.0, lasts_s - line.overflow[self.bucket] / self.rate) if is_known else lasts_s

    def lost_s(self, line: Line) -> float:
        """Return the seconds' worth without room, and that it still holds at the end: late tokens are not lost."""
        balance = line.tokens[self.bucket]
        if balance is None:
            return inf
        return (line.overflow[self.bucket] + max(0.0, balance - 1 - self.rate * LATE_S)) / self.rate

    def unspent_s(self, line: Line) -> float:
        """Return the seconds' worth that no stream may have got: without room, and the rest where none waits."""
        balance = line.tokens[self.bucket]
        if line.is_waited_through:
            return line.overflow[self.bucket] / self.rate
        return inf if balance is None else (line.overflow[self.bucket] + max(0.0, balance)) / self.rate

    def newly_unseen_s(self, line: Line, seconds: float) -> float:
        """Return the part of a shortfall that may be, and does not show, of tokens that count in no earlier line.

        Args:
            line: The line.
            seconds: The shortfall that may be in it.
        """
        balance = line.tokens[self.bucket]
        if balance is None:
            return seconds
        kept = max(0.0, balance) + line.overflow[self.bucket] + ROUNDED_TOKENS
        new_s = min(seconds, max(0.0, kept / self.rate - self.unseen_s))
        self.unseen_s += new_s
        return new_s

    def settle(self, line: Line, least: float, most: float) -> tuple[float, str]:
        """Settle the balance after a line.

        Args:
            line: The line.
            least: The least that the bucket may hold then, as `after` returns it.
            most: The most.

        Returns:
            The seconds' worth of tokens that it lost, and the contradiction in words; empty for none.
        """
        taken, balance, before = line.passed[self.unit], line.tokens[self.bucket], self.logged
        self.logged = balance
        if balance is None:
            self.least, self.most, self.unseen_s = least, most, 0.0
            return 0.0, ""
        if self.unseen_s:
            left_s = self.unseen_s - line.overflow[self.bucket] / self.rate
            self.unseen_s = max(0.0, min(left_s, balance / self.rate))
        self.least = self.most = balance
        if balance >= 0:
            self.made_low = self.rate
        elif taken:
            self.made_low = min(self.made_low, self.rate)
        if self.has_none:
            return 0.0, ""
        if before is not None:
            expected = before + self.rate * line.duration_s - line.overflow[self.bucket] - taken
            tolerance = rounding_of(self.rate) + ROUNDED_DOWN * self.rate * line.duration_s
            missing = expected - balance
        else:
            tolerance = 0.01 + self.rate * (1e-4 + 1e-3 * self.gap_s)
            # Tokens without room may have come before the line.
            least -= line.overflow[self.bucket]
            missing = least - balance if balance < least else min(0.0, most - balance)
            expected = balance + missing
        if abs(missing) <= tolerance:
            return 0.0, ""
        unit = BUCKETS[self.unit]
        text = f"its bucket should hold {expected:,.2f} {unit} at the end of the line, and holds {balance:,.2f}"
        return max(0.0, missing) / self.rate, text


class WaitedLine(Struct, array_like=True, gc=False):
    """One line in which a stream waited, for the windows of entitlement: seconds waited, and seconds' worth lacking."""

    line: Line
    passed: tuple[int, ...]
    waited_s: float
    unexplained_s: float
    """Lacking, and not explained by late timers."""
    late_s: float
    """Lacking because the limiter was late, by its own line."""
    perhaps_s: float
    """Lacking if tokens were not reserved, as no other line confirms."""

    @property
    def short_s(self) -> float:
        """The shortfall that is certain."""
        return min(self.waited_s, self.unexplained_s + self.late_s)

    @property
    def sums(self) -> "Sums":
        """Waited; short; unexplained; short if no token was reserved."""
        perhaps_s = min(self.waited_s, self.unexplained_s + self.perhaps_s)
        return self.waited_s, self.short_s, self.unexplained_s, perhaps_s


class OwedSums:
    """Sums of amounts owed and lacking, over ten seconds and over the whole day."""

    def __init__(self) -> None:
        self._recent: deque[tuple[WaitedLine, Sums]] = deque()
        self._sums: Sums = (0.0, 0.0, 0.0, 0.0)
        self._hidden: deque[tuple[int, float]] = deque()
        """Of each line with a possible shortfall in the last ten seconds: its end, and what was unseen before it."""
        self._hidden_s: deque[float] = deque()
        """The further shortfall that each of them may have."""
        self.begin_day()

    def begin_day(self) -> None:
        """Forget what was found; the last ten seconds stay."""
        self._all: Sums = (0.0, 0.0, 0.0, 0.0)
        self._worst: tuple[float, list[WaitedLine]] | None = None
        self.unseen_s = 0.0
        self.still_s = 0.0

    def add(self, waited: WaitedLine) -> tuple[bool, bool]:
        """Add a line; returns whether the ten seconds that end with it have a shortfall, and may have one."""
        own, recent, begin_us = waited.sums, self._recent, waited.line.at_us[1] - _OWED_WINDOW_US
        self._all = tuple(map(add, self._all, own))
        sums = tuple(map(add, self._sums, own))
        recent.append((waited, own))
        while recent[0][0].line.at_us[1] <= begin_us:
            sums = tuple(map(sub, sums, recent.popleft()[1]))
        self._sums = sums
        deficit, perhaps = _deficits(sums, 0.0)
        if self._worst is None or deficit > self._worst[0] + ROUNDING:
            self._worst = deficit, [line for line, _ in recent]
        return deficit > CLOCK_RESOLUTION_S, perhaps > CLOCK_RESOLUTION_S

    @property
    def is_perhaps_short(self) -> bool:
        """True if the whole may have a shortfall, and no certain one."""
        certain, perhaps = _deficits(self._all, SHORT_SHARE)
        return certain <= CLOCK_RESOLUTION_S < perhaps

    def hide(self, line: Line, seconds: float, held: BalanceBounds | None = None) -> None:
        """Note a line with a possible shortfall that does not show.

        Args:
            line: The line.
            seconds: The possible shortfall, in seconds of the limit.
            held: The only bucket: tokens that count in earlier lines do not count again, though they may be kept back
                in this one instead. None: each line counts for itself.
        """
        before_s = 0.0
        if held is not None:
            before_s, seconds = held.unseen_s, held.newly_unseen_s(line, seconds)
        hidden, begin_us = self._hidden, line.at_us[1] - _OWED_WINDOW_US
        hidden.append((line.at_us[1], before_s))
        self._hidden_s.append(seconds)
        while hidden[0][0] <= begin_us:
            hidden.popleft()
            self._hidden_s.popleft()
        self.unseen_s = max(self.unseen_s, hidden[0][1] + sum(self._hidden_s))
        if self._worst is None:
            self._worst = -UNEXPLAINED_S, [WaitedLine(line, line.passed, 0.0, 0.0, 0.0, 0.0)]

    def facts(self, limiter: Mapping[str, Any]) -> EntitlementFacts | None:
        """Return the worst ten seconds and the whole; None without waits and hidden shortfalls."""
        if self._worst is None:
            return None
        deficit, window = self._worst
        waited, short, *_ = self._all
        lacking = sum(line.short_s for line in window)
        first, last = window[0].line, window[-1].line
        passed = [sum(line.passed[unit] for line in window) for unit in range(2)]
        return EntitlementFacts(
            **limiter,
            start=moment(first.wall_us[0]),
            end=moment(last.wall_us[1]),
            waited_s=sum(line.waited_s for line in window),
            served_s=sum(line.waited_s for line in window) - lacking,
            deficit_s=deficit,
            late_s=sum(line.late_s for line in window),
            passed_messages=passed[0],
            passed_bytes=passed[1],
            owed_messages=_owed(window, passed, 0),
            owed_bytes=_owed(window, passed, 1),
            first_line=place_of(first),
            last_line=place_of(last),
            whole_waited_s=waited,
            whole_served_s=waited - short,
            whole_deficit_s=_deficits(self._all, SHORT_SHARE)[0],
            unseen_s=min(OWED_WINDOW_S, self.unseen_s + SHORT_S),
            still_s=self.still_s,
        )


Sums = tuple[float, ...]


def _deficits(sums: Sums, share: float) -> tuple[float, float]:
    """Return by how much more is lacking than may be, for certain and perhaps; a share of the time waited may be."""
    waited, short, unexplained, perhaps = sums
    allowed = share * waited + SHORT_S
    return max(short - allowed, unexplained - UNEXPLAINED_S), max(perhaps - allowed, unexplained - UNEXPLAINED_S)


def _owed(window: list[WaitedLine], passed: list[int], unit: int) -> float | None:
    if all(waited.line.rates[unit] is None for waited in window):
        return None
    return passed[unit] + sum((waited.line.rates[unit] or 0) * waited.short_s for waited in window)
