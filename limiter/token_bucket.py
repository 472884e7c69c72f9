"""A token bucket whose balance may go negative, after Pulsar's AsyncTokenBucket (PIP-322)."""

from limiter.rates import SMALLEST_BURST_NS, Rate


class TokenBucket:
    """Counts tokens; never sleeps, never schedules, never refuses, and is told the time.

    The caller asks (`holds`) and then takes; taking more than there is leaves a debt that later refills pay.

    The balance is kept in tokens times nanoseconds of the period: in `t` nanoseconds a bucket of `rate.tokens` earns
    exactly `t · rate.tokens` of these, so nothing is ever rounded away, at one token a day or 10**12 a second.

    Whoever waits for a token is woken late by some milliseconds. What a bucket earns meanwhile is kept even where the
    burst has no room for it, up to 20 ms' worth and always less than a token: else 19/s, whose burst is 1, would pass
    95 % of its limit. A bucket starts without it.

    Args:
        rate: Tokens per period, and the capacity.
        now: Nanoseconds of a monotonic clock, as everywhere below. The bucket starts full.
    """

    __slots__ = ("_balance", "_capacity", "_earned_at", "rate")

    def __init__(self, rate: Rate, now: int) -> None:
        self.rate = rate
        self._capacity = _capacity(rate)
        self._balance = rate.burst * rate.period_ns
        self._earned_at = now

    def holds(self, tokens: int, now: int) -> bool:
        """Whether `tokens` are there."""
        return self._earn(now) >= tokens * self.rate.period_ns

    def tokens(self, now: int) -> int:
        """Whole tokens at hand; negative in debt."""
        return self._earn(now) // self.rate.period_ns

    def take(self, tokens: int, now: int) -> None:
        """Take `tokens`, going into debt if need be."""
        self._earn(now)
        self._balance -= tokens * self.rate.period_ns

    def give_back(self, tokens: int) -> None:
        """Undo a `take` of the same instant."""
        self._balance += tokens * self.rate.period_ns

    def wait_ns(self, tokens: int, now: int) -> int:
        """Nanoseconds until `tokens` (at most the burst) are there, if nobody takes any."""
        wanted = min(tokens, self.rate.burst) * self.rate.period_ns
        missing = wanted - self._earn(now)
        return max(0, -(-missing // self.rate.tokens))

    def change(self, rate: Rate, now: int) -> None:
        """Go on at another rate, with neither amnesty nor a free burst.

        What is at hand stays, up to the new capacity. A debt stays in tokens if the rate rises and in seconds if it
        falls, so that it never takes longer to pay than it would have.
        """
        old, balance = self.rate, self._earn(now)
        rises = rate.tokens * old.period_ns >= old.tokens * rate.period_ns
        if balance < 0 and not rises:
            balance = -(-balance * rate.tokens // old.tokens)
        elif balance < 0:
            balance = -(-balance * rate.period_ns // old.period_ns)
        else:
            balance = balance * rate.period_ns // old.period_ns
        self.rate = rate
        self._capacity = _capacity(rate)
        self._balance = min(balance, self._capacity)

    def is_full(self, now: int) -> bool:
        """Whether a new bucket would hold as much."""
        return self._earn(now) >= self.rate.burst * self.rate.period_ns

    def _earn(self, now: int) -> int:
        elapsed = now - self._earned_at
        if elapsed > 0:
            self._earned_at = now
            self._balance = min(self._capacity, self._balance + elapsed * self.rate.tokens)
        return self._balance


def _capacity(rate: Rate) -> int:
    """The burst, and room for a late look at the clock; below one token more than the burst."""
    full = rate.burst * rate.period_ns
    late = rate.period_ns + rate.tokens * SMALLEST_BURST_NS - full
    return full + max(0, min(late, rate.period_ns - 1))
