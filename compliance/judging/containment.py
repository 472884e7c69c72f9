"""Containment of one bucket: the amount passed is compared with a bucket that is replayed from full."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from compliance.judging.facts import ContainmentFacts, moment
from compliance.judging.lines import (
    BUCKETS,
    ROUNDED_TOKENS,
    ROUNDING,
    Line,
    Step,
    StreamsLine,
    excess_tolerance,
    place_of,
)


@dataclass
class ContainmentReplay:
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
    begin: Line | StreamsLine | None = None
    begin_passed: int = 0
    passed: int = 0
    record: float = -inf
    worst: tuple[float, Line | StreamsLine, Line | StreamsLine, int, float] | None = None
    """The window with the largest excess: the excess, its first and last line, the amount passed, and the rate."""
    largest: int = 0
    """The largest entry of the line that passed something last."""
    extra: float = 0.0
    """Tokens also earned in the next line, before a change came into force."""

    def tune(self, rate: float | None, burst: float | None, step: "Step", moved: float | None = None) -> None:
        """Set the rate and burst that are in force in the next line.

        Args:
            rate: The rate; None for none.
            burst: The burst.
            step: The step from the line before.
            moved: The tokens that came from another process with a share of the limit; negative: that went to it.
        """
        if rate is None or burst is None:
            self.is_on = False
            return
        if not self.is_on or step.is_unknown or step.is_hidden:
            self.room, self.record, self.made_at, self.unpaid_s = burst, -inf, rate, 0.0
        else:
            # The time of a change within a gap is not known: the larger rate counts.
            self.room += max(self.rate, rate) * step.gap_s
            self.extra = max(0.0, self.rate - rate) * step.late_s
            self.unpaid_s -= step.gap_s
            if moved is not None:
                self.room = min(self.room, self.burst) + moved
            if rate != self.rate or burst != self.burst:
                self._change(rate, follows=step.follows or moved is not None)
        self.is_on, self.rate, self.burst = True, rate, burst

    def _change(self, rate: float, *, follows: bool) -> None:
        """A debt stays in tokens at any rate above the one that it was made at, and in seconds at any below.

        A change that follows from a measurement (of a publish rate, or of shares) leaves the debt in tokens.

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

    def add(self, line: Line | StreamsLine, earned_s: float, passed: int, largest: int) -> bool:
        """Replay a line; return whether it drives the amount passed further above the amount allowed.

        Args:
            line: The line.
            earned_s: Length of the line.
            passed: Amount that it passed.
            largest: The largest entry.
        """
        if not self.is_on:
            return False
        self.unpaid_s -= earned_s
        if self.begin is None or self.room >= self.burst:
            self.begin, self.begin_passed, self.room = line, self.passed, min(self.room, self.burst)
        self.passed += passed
        self.room += self.rate * earned_s + self.extra - passed
        self.extra = 0.0
        if passed <= 0:
            return False
        excess, self.largest = -self.room - largest, largest
        tolerance = excess_tolerance(self.rate)
        if self.worst is None or excess > self.worst[0] + ROUNDING:
            self.worst = excess, self.begin, line, self.passed - self.begin_passed, self.rate
        is_over = excess > max(tolerance, self.record + ROUNDING)
        self.record = max(self.record, excess) if excess > tolerance else -inf
        return is_over

    def begin_day(self, balance: float | None) -> None:
        """Forget all windows, and go on with no more room than the bucket's own balance.

        An amount that was too much counts on the day on which it passed alone.

        Args:
            balance: At the end of the last line, as the books of that line confirm; None: not logged.
        """
        was_over = self.record > -inf
        self.begin, self.worst, self.record = None, None, -inf
        if not self.is_on:
            return
        if balance is not None:
            balance += ROUNDED_TOKENS
            self.room = balance if was_over else min(self.room, balance)
        if was_over:
            self.room = max(self.room, -float(self.largest))
        self.unpaid_s, self.made_at = max(0.0, -self.room / self.rate), self.rate

    def facts(self, limiter: Mapping[str, Any]) -> ContainmentFacts | None:
        """Return the worst window; None if nothing passed."""
        if self.worst is None:
            return None
        excess, first, last, passed, rate = self.worst
        return ContainmentFacts(
            **limiter,
            unit=BUCKETS[self.unit],
            is_peak=self.is_peak,
            basis=self.basis,
            start=moment(first.wall_us[0]),
            end=moment(last.wall_us[1]),
            passed=float(passed),
            allowed=passed - excess,
            limit=rate,
            excess=excess,
            first_line=place_of(first),
            last_line=place_of(last),
        )

    def go_on_from(self, other: "ContainmentReplay") -> None:
        """Go on from a line up to which the two accounts are the same."""
        unit, is_peak, basis, worst = self.unit, self.is_peak, self.basis, self.worst
        vars(self).update(vars(other) | {"unit": unit, "is_peak": is_peak, "basis": basis, "worst": worst})
