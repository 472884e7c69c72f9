"""Anything may happen to a bucket, at any rate, in any order."""

from fractions import Fraction
from math import ceil, floor

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from limiter.token_bucket import NANOS_PER_SECOND, Rate, TokenBucket
from tests.limiter.ledger import capacity, grain, within_all
from tests.limiter.long_run import Counted, long_run

MINUTE, DAY = 60 * NANOS_PER_SECOND, 86_400 * NANOS_PER_SECOND
RATES = st.builds(
    Rate,
    tokens=st.integers(1, 10) | st.integers(1, 10**12),
    period_ns=st.sampled_from([1, NANOS_PER_SECOND, MINUTE, DAY]) | st.integers(1, DAY),
    burst=st.integers(1, 10) | st.integers(1, 10**12),
)
SPANS = st.integers(0, 10) | st.integers(0, NANOS_PER_SECOND) | st.integers(0, 365 * DAY)
AMOUNTS = st.integers(0, 10) | st.integers(0, 10**12)


class Bucket(Counted):
    """A bucket beside the same in rational numbers, straight from the definition.

    Proves: from one token a day to 10**12 a nanosecond, whatever is taken, undone and changed and however long it
    takes, the two are equal, exactly. Only another rate rounds: a debt, by less than the smallest part that the
    bucket counts in, down. A change makes no debt last longer than at the rate that it was made at, forgives none (in
    tokens above that rate, in time below) and gives no token that was not there. Between changes, but over all rates
    that are only followed, P2 holds over every interval for takers who look first, and for each of them tokens are
    there after the wait that was told, and not a nanosecond before.
    """

    @initialize(rate=RATES)
    def begin(self, rate: Rate) -> None:
        self.now = 0
        self.rate = rate
        self.bucket = TokenBucket(rate, 0)
        self.balance = Fraction(rate.burst)
        self.made_at = rate
        self.steps: list[tuple[int, Rate | int]] = [(0, rate)]

    @rule(tokens=AMOUNTS)
    def take(self, tokens: int) -> None:
        if self.bucket.holds(1, self.now):
            assert self.balance >= 1
            self.bucket.take(tokens, self.now)
            self.balance -= tokens
            self.steps.append((self.now, tokens))
            self.made_at = self.rate

    @rule(tokens=AMOUNTS)
    def take_and_give_back(self, tokens: int) -> None:
        self.bucket.take(tokens, self.now)
        self.bucket.give_back(tokens)

    @rule(span=SPANS)
    def pass_time(self, span: int) -> None:
        self.now += span
        earned = Fraction(span * self.rate.tokens, self.rate.period_ns)
        self.balance = min(capacity(self.rate), self.balance + earned)

    @rule(tokens=AMOUNTS)
    def wait_for(self, tokens: int) -> None:
        wanted = min(tokens, self.rate.burst)
        wait = self.bucket.wait_ns(tokens, self.now)
        assert wait == max(0, ceil((wanted - self.balance) * self.rate.period_ns / self.rate.tokens))
        if wait:
            self.pass_time(wait - 1)
            assert not self.bucket.holds(wanted, self.now)
            self.pass_time(1)
        assert self.bucket.holds(wanted, self.now)

    @rule(span=SPANS)
    def the_clock_steps_back(self, span: int) -> None:
        """It earns nothing, and nothing twice."""
        assert self.bucket.tokens(self.now) == self.bucket.tokens(self.now - span)

    @rule(rate=RATES)
    def change(self, rate: Rate) -> None:
        self.judge()
        old, before = self.rate, self.balance
        self.bucket.change(rate, self.now)
        left = self.bucket._balance * grain(rate)
        expected = min(capacity(rate), before * part(rate, self.made_at, before) / part(old, self.made_at, before))
        assert expected - grain(rate) < left < expected + grain(rate)
        assert left <= expected or before < 0, "no token that was not there"
        longest = -before / part(old, self.made_at, before) / speed(self.made_at)
        assert -left / speed(rate) <= max(longest, Fraction(0)), "no debt takes longer"
        self.rate, self.balance = rate, left
        self.steps = [(self.now, rate)]

    @rule(rate=RATES)
    def follow(self, rate: Rate) -> None:
        self.bucket.follow(rate, self.now)
        left = self.bucket._balance * grain(rate)
        expected = min(capacity(rate), self.balance)
        assert expected - grain(rate) < left <= expected
        self.rate, self.balance, self.made_at = rate, left, rate
        self.steps.append((self.now, rate))

    @rule()
    def put_the_same_value_in_force(self) -> None:
        self.bucket.change(self.rate, self.now)

    @invariant()
    def it_is_the_rational_model(self) -> None:
        if hasattr(self, "bucket"):
            assert self.bucket.tokens(self.now) == floor(self.balance)
            assert self.bucket._balance * grain(self.rate) == self.balance
            assert self.bucket.is_full(self.now) == (self.balance >= self.rate.burst)

    def judge(self) -> None:
        within_all(self.steps)

    def teardown(self) -> None:
        if hasattr(self, "bucket"):
            self.judge()


def part(rate: Rate, made_at: Rate, balance: Fraction) -> Fraction:
    """What of a debt that was made at another rate is left at this one, as long as nothing is paid."""
    return min(Fraction(1), speed(rate) / speed(made_at)) if balance < 0 else Fraction(1)


def speed(rate: Rate) -> Fraction:
    """Tokens per nanosecond."""
    return Fraction(rate.tokens, rate.period_ns)


TestBucket = long_run(Bucket, at_least=1_600)
