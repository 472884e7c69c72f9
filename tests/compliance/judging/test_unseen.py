"""Shortfalls that late timers may hide: a bound on them, and each token in it once."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.judging.entitlement import BalanceBounds, OwedSums
from compliance.judging.lines import LATE_S, OWED_WINDOW_S, Line, Step

NONE = (None,) * 3
VALUES = [(50.0, 1.0), (100.0, 3.0), (1000.0, 20.0)]
"""Rates and bursts; timers that are late may fill each of them."""


class Kept(NamedTuple):
    """Tokens that were in the bucket while a stream waited, and that no stream has got yet."""

    at_us: int
    tokens: float
    rate: float

    @property
    def seconds(self) -> float:
        return self.tokens / self.rate


class Limit:
    """A bucket whose timers are late as a strategy says, and the judge's replay of its lines."""

    def __init__(self) -> None:
        self.held, self.owed = BalanceBounds(), OwedSums()
        self.now_us, self.balance, self.kept, self.lost = 0, 0.0, list[Kept](), list[Kept]()

    def add(self, rate: float, burst: float, milliseconds: int, *, late_ms: int, waited_ms: int, passed: int) -> bool:
        """Add a line, perhaps with another value.

        Args:
            rate: The value.
            burst: The value's burst, which is lower than the balance where the value takes tokens away.
            milliseconds: The length of the line.
            late_ms: For so long a stream waited though there were tokens.
            waited_ms: For so long streams waited in all.
            passed: Messages that streams got, in so far as there are tokens.

        Returns:
            Whether something may have been kept back in it; then `owed.unseen_s` is of the ten seconds up to now.
        """
        self._lose(burst)
        begin_us, self.now_us = self.now_us, self.now_us + 1000 * milliseconds
        self.balance += rate * milliseconds / 1e3
        if late_ms:
            self.kept.append(Kept(self.now_us, rate * late_ms / 1e3, rate))
        passed = min(passed, max(0, int(self.balance)))
        self.balance -= passed
        self._fit()
        overflow = self._lose(burst)
        values = (rate, *NONE)
        line = Line(
            seq=self.now_us,
            place=("log", 1),
            at_us=(begin_us, self.now_us),
            wall_us=(begin_us, self.now_us),
            duration_s=milliseconds / 1e3,
            source="file",
            mode="enforce",
            rates=values,
            bursts=(burst, *NONE),
            published=(None, None),
            passed=(passed, 0),
            largest=(1, 0),
            waited_s=waited_ms / 1e3,
            idle_s=0.0,
            reserved_s=0.0,
            recovered_s=0.0,
            tokens=(round(self.balance, 3), *NONE),
            overflow=(round(overflow, 3), 0.0, 0.0, 0.0),
        )
        self.held.tune(rate, burst, Step(follows=True))
        self.owed.unseen_s = 0.0
        seconds = min(LATE_S, waited_ms / 1e3, self.held.unspent_s(line))
        if seconds > 0:
            self.owed.hide(line, seconds, self.held)
        self.held.settle(line, *self.held.after(line, passed, 1, None))
        return seconds > 0

    def _lose(self, room: float) -> float:
        """Lose the tokens without room: those that were kept back first of all."""
        lost = max(0.0, self.balance - room)
        self.balance -= lost
        left = lost
        while left > 1e-9 and self.kept:
            kept = self.kept.pop(0)
            gone = min(left, kept.tokens)
            left -= gone
            self.lost.append(kept._replace(tokens=gone))
            if kept.tokens > gone:
                self.kept.insert(0, kept._replace(tokens=kept.tokens - gone))
        self._fit()
        return lost

    def _fit(self) -> None:
        """What is kept is in the bucket; streams have got the rest, of which the fewest seconds were kept back."""
        over = sum(kept.tokens for kept in self.kept) - max(0.0, self.balance)
        for kept in sorted(self.kept, key=lambda kept: -kept.rate):
            if over > 0:
                self.kept.remove(kept)
                if kept.tokens > over:
                    self.kept.append(kept._replace(tokens=kept.tokens - over))
                over -= kept.tokens
        self.kept.sort()

    @property
    def kept_back_s(self) -> float:
        """The seconds' worth of the limit that were kept back in the last ten seconds, and that no stream has got."""
        since = self.now_us - OWED_WINDOW_S * 1e6
        return sum(kept.seconds for kept in (*self.kept, *self.lost) if kept.at_us > since)


@given(st.data())
def test_no_more_is_kept_back_than_is_said_to_be_unseen(data: st.DataObject) -> None:
    limit, value = Limit(), VALUES[0]
    for _ in range(data.draw(st.integers(1, 60))):
        if data.draw(st.booleans()):
            value = data.draw(st.sampled_from(VALUES))
        milliseconds, late_ms = data.draw(st.integers(30, 1000)), data.draw(st.sampled_from([0, 0, 5, 20]))
        waited_ms = data.draw(st.integers(late_ms, milliseconds - 1))
        earned = int(value[0] * milliseconds / 1e3)
        passed = data.draw(st.sampled_from([earned, earned + 1]) | st.integers(0, earned + 20))
        if limit.add(*value, milliseconds, late_ms=late_ms, waited_ms=waited_ms, passed=passed):
            assert limit.kept_back_s <= limit.owed.unseen_s + 1e-3


def test_tokens_kept_back_once_may_be_kept_back_much_later() -> None:
    limit = Limit()
    limit.add(*VALUES[0], 1000, late_ms=0, waited_ms=20, passed=49)
    for _ in range(20):
        limit.add(*VALUES[0], 1000, late_ms=0, waited_ms=0, passed=50)
    assert limit.add(*VALUES[0], 1000, late_ms=20, waited_ms=20, passed=50)
    assert limit.kept_back_s == pytest.approx(0.02)
    assert limit.owed.unseen_s >= limit.kept_back_s - 1e-4


def test_a_token_counts_once_in_however_many_lines_it_stays() -> None:
    limit = Limit()
    for _ in range(40):
        limit.add(*VALUES[0], 100, late_ms=0, waited_ms=20, passed=5)
        assert limit.owed.unseen_s <= 0.1 + 1e-4
