"""A token bucket whose balance may go negative, after Pulsar's AsyncTokenBucket (PIP-322)."""

from math import gcd

from limiter.rates import SMALLEST_BURST_NS, Rate


class TokenBucket:
    """Counts tokens; never sleeps, never schedules, never refuses, and is told the time.

    The caller asks (`holds`) and then takes; taking more than there is leaves a debt that later refills pay.

    The balance is kept in parts of a token, of which a nanosecond earns a whole number: of `tokens` in `period_ns` that
    would be `tokens` parts of `1 / period_ns`, but both are divided by what divides both. So nothing is ever rounded
    away, at one token a day or 10**12 a second, and at 10 GB/s, where a part is a byte of which a nanosecond earns ten,
    the numbers are as small as at any other rate. What a nanosecond earns and what a token costs stands in the bucket
    itself: it is read for each entry, and from the rate, another object, reading would cost as much as reckoning.

    Whoever waits for a token is woken late by some milliseconds. What a bucket earns meanwhile is kept even where the
    burst has no room for it, up to 20 ms' worth and always less than a token: else 19/s, whose burst is 1, would pass
    95 % of its limit. A bucket starts without it.

    Tokens that were taken but not used yet, because somebody elsewhere may use them at any later moment, are *lent*.
    Until he says what became of them they fill the bucket as if they were in it: so what he uses and what is taken
    here are, over any interval, no more than one bucket would have let pass.

        balance + lent ≤ capacity     (always, so `lend`, `come_back` … change nothing but where tokens are)

    Args:
        rate: Tokens per period, and the capacity.
        now: Nanoseconds of a monotonic clock, as everywhere below. The bucket starts full.

    Attributes:
        lent: Tokens that were taken and not used yet, as far as is known.
        going: Those of entries that are counted as passed, and have not left yet, as far as is known.
        ahead: Those that were lent to workers, and are neither counted as passed nor given back.
        lost: So many of those will never be counted, and are gone.
        unforeseen: So many were counted as passed, and were not taken: who let them pass did not know the rate yet.
    """

    __slots__ = (
        "_balance",
        "_capacity",
        "_earned_at",
        "_made_at",
        "_overflow",
        "_paid_at",
        "_per_ns",
        "_per_token",
        "ahead",
        "going",
        "lent",
        "lost",
        "rate",
        "unforeseen",
    )

    def __init__(self, rate: Rate, now: int) -> None:
        self.rate = rate
        self.lent = 0
        self.going = 0
        self.ahead = 0
        self.lost = 0
        self.unforeseen = 0
        self._per_ns, self._per_token = _parts(rate)
        self._capacity = _capacity(rate)
        self._balance = rate.burst * self._per_token
        self._earned_at = now
        self._made_at = rate
        self._overflow = 0
        self._paid_at = now

    def holds(self, tokens: int, now: int) -> bool:
        """Whether `tokens` are there."""
        return self._earn(now) >= tokens * self._per_token

    def tokens(self, now: int) -> int:
        """Whole tokens at hand; negative in debt."""
        return self._earn(now) // self._per_token

    def take(self, tokens: int, now: int) -> None:
        """Take `tokens`, going into debt if need be."""
        balance = self._balance
        elapsed = now - self._earned_at
        if elapsed > 0:  # as in `_earn`, spelled out: a call, and the balance stored twice, took a quarter of the time
            self._earned_at = now
            balance += elapsed * self._per_ns
            if balance > self._capacity:
                self._overflow += balance - self._capacity
                balance = self._capacity
        self._balance = balance - tokens * self._per_token

    def pay(self, tokens: int, now: int) -> bool:
        """Take `tokens`, if they are there; whether they were."""
        cost = tokens * self._per_token
        if self._earn(now) < cost:
            return False
        self._balance -= cost
        return True

    def give_back(self, tokens: int) -> None:
        """Undo a `take` of the same instant."""
        self._balance += tokens * self._per_token

    def lend(self, tokens: int) -> None:
        """Tokens that have just been taken are not used yet: he who has them says when they are, or gives them back."""
        self.lent += tokens
        self.ahead += tokens
        self._capacity -= tokens * self._per_token

    def release(self, tokens: int) -> None:
        """Tokens were taken for what has passed, and leaves later."""
        self.lent += tokens
        self.going += tokens
        self._capacity -= tokens * self._per_token

    def gone(self, tokens: int, now: int) -> None:
        """So much of that has left; but what passed at another rate is gone with that."""
        tokens = min(tokens, self.going)
        self._earn(now)
        self.going -= tokens
        self.lent -= tokens
        self._capacity += tokens * self._per_token

    def come_back(self, used: int, unused: int, now: int) -> None:
        """Of what was lent, so much has been used, and so much will not be; nobody can give back more than he has.

        Until now there was no room for it: what is earned up to now is earned first.
        """
        self._earn(now)
        used = min(used, self.lent - self.going)
        unused = min(unused, self.lent - self.going - used, self.ahead)
        self.lent -= used + unused
        self.ahead -= unused
        self._capacity += (used + unused) * self._per_token
        self._balance += unused * self._per_token

    def count_lent(self, tokens: int, lent: int) -> None:
        """So many are counted as passed, `lent` of them as lent.

        The others passed before it was known that they cost so much: as a debt they would make others wait for what
        nobody could know.
        """
        lent = min(lent, self.ahead)
        self.ahead -= lent
        self.unforeseen += tokens - lent

    def give_up(self, lent: int) -> None:
        """So much of what was lent will never be counted."""
        lent = min(lent, self.ahead)
        self.ahead -= lent
        self.lost += lent

    def wait_ns(self, tokens: int, now: int) -> int:
        """Nanoseconds until `tokens` (at most the burst) are there, if nobody takes any."""
        wanted = min(tokens, self.rate.burst) * self._per_token
        missing = wanted - self._earn(now)
        return max(0, -(-missing // self._per_ns))

    @property
    def has_room(self) -> bool:
        """Whether a token would find room."""
        return self._capacity >= self._per_token

    def loses_in_ns(self, now: int) -> int:
        """Nanoseconds until a token is there, or until what it earns is lost, as there is no room for a token.

        There is none while what is lent, or told to go and not known to have left, fills the bucket.
        """
        wanted = min(self._per_token, self._capacity)
        return max(0, -((self._earn(now) - wanted) // self._per_ns))

    def change(self, rate: Rate, now: int) -> None:
        """Go on at another rate, with neither amnesty nor a free burst.

        What is at hand stays, up to the new capacity. A debt stays in tokens at any rate above the one that it was
        made at, and in seconds at any below: so it never takes longer to pay than it would have, and to raise a rate
        and lower it again, or the other way round, forgives nothing.
        """
        old, balance = self.rate, self._held(now)
        if now >= self._paid_at:
            self._made_at = old
        _, per_token = _parts(rate)
        if balance < 0:
            before, after = _slower(old, self._made_at), _slower(rate, self._made_at)
            owed = -balance * per_token * after.tokens * before.period_ns
            balance = -(owed // (self._per_token * after.period_ns * before.tokens))
        else:
            balance = balance * per_token // self._per_token
        self._go_on(rate, balance)

    def follow(self, rate: Rate, now: int) -> None:
        """Go on at a rate that was measured anew: a debt, too, stays in tokens.

        So no interval, whatever changes within, sees more than burst, rates over time and one taking.
        """
        self._made_at = rate
        self._go_on(rate, self._held(now) * _parts(rate)[1] // self._per_token)

    def _held(self, now: int) -> int:
        """What is there or lent: what is lent is no debt, however much more it is than the bucket holds now."""
        return self._earn(now) + (self.lent - self.going) * self._per_token

    def _go_on(self, rate: Rate, held: int) -> None:
        self.rate = rate
        before = self._per_token
        self._per_ns, self._per_token = _parts(rate)
        self._overflow = self._overflow * self._per_token // before
        self.lent -= self.going
        self.going = 0
        # Of loans at a larger burst more may have been used than this one holds: that is no debt at this rate.
        beyond = max(0, self.lent - rate.burst)
        self.lent -= beyond
        self.ahead -= min(self.ahead, beyond)
        lent = self.lent * self._per_token
        self._capacity = _capacity(rate) - lent
        self._balance = min(held - lent, self._capacity)
        self._paid_at = self._earned_at + max(0, -(held // self._per_ns))

    def told(self, now: int) -> tuple[float, float, int, int]:
        """Tokens at hand, negative in debt; and since this was asked before, the overflow, `lost` and `unforeseen`.

        The overflow are tokens for which it had no room.
        Tokens that workers have ahead are still there. So a balance falls by what is counted as passed, when it is.
        """
        held, overflow = self._earn(now) + self.ahead * self._per_token, self._overflow
        lost, unforeseen = self.lost, self.unforeseen
        self._overflow = self.lost = self.unforeseen = 0
        return held / self._per_token, overflow / self._per_token, lost, unforeseen

    def is_full(self, now: int) -> bool:
        """Whether a new bucket would hold as much."""
        return self._earn(now) >= self.rate.burst * self._per_token

    def _earn(self, now: int) -> int:
        elapsed = now - self._earned_at
        if elapsed > 0:
            self._earned_at = now
            balance = self._balance + elapsed * self._per_ns
            if balance > self._capacity:
                self._overflow += balance - self._capacity
                balance = self._capacity
            self._balance = balance
        return self._balance


def _slower(one: Rate, other: Rate) -> Rate:
    return one if one.tokens * other.period_ns <= other.tokens * one.period_ns else other


def _parts(rate: Rate) -> tuple[int, int]:
    """What a nanosecond earns, and what a token costs, in parts of a token: the fewest that are whole numbers."""
    common = gcd(rate.tokens, rate.period_ns)
    return rate.tokens // common, rate.period_ns // common


def _capacity(rate: Rate) -> int:
    """The burst, and room for a late look at the clock; below one token more than the burst. In parts of a token."""
    per_ns, per_token = _parts(rate)
    full = rate.burst * per_token
    late = per_token + per_ns * SMALLEST_BURST_NS - full
    return full + max(0, min(late, per_token - 1))
