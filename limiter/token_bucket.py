"""A token bucket whose balance may go negative, after Pulsar's AsyncTokenBucket (PIP-322)."""

from math import gcd

from limiter.rates import SMALLEST_BURST_NS, Rate


class TokenBucket:
    """Counts tokens. A bucket never sleeps, schedules or refuses, and the caller tells it the time.

    The caller asks (`holds`) and then takes. Taking more than the balance leaves a debt that later refills pay.

    The balance is kept in parts of a token, chosen so that a nanosecond earns a whole number of parts. For `tokens` in
    `period_ns` that would be `tokens` parts of `1 / period_ns`, but both are divided by their greatest common divisor.
    So nothing is ever rounded away, at one token a day or 10**12 a second. At 10 GB/s a part is a byte, and a
    nanosecond earns ten: the numbers are as small as at any other rate. The parts that a nanosecond earns and that a
    token costs are kept in the bucket itself. They are read for each entry, and to read them from the rate, another
    object, would cost as much as the arithmetic.

    A stream that waits for a token is woken late by some milliseconds. The tokens earned meanwhile are kept even where
    the burst has no room for them, up to 20 ms' worth and always less than a token. Else 19/s, whose burst is 1, would
    pass 95 % of its limit. A bucket starts without this surplus.

    Tokens that were taken but not used yet, because a borrower elsewhere may use them at any later moment, are *lent*.
    Until the borrower reports what became of them, they fill the bucket as if they were in it. So the tokens that the
    borrower uses and those taken here are, over any interval, no more than one bucket would have let pass.

        balance + lent ≤ capacity     (always, so `lend`, `come_back` … change nothing but where tokens are)

    Args:
        rate: Tokens per period, and the capacity.
        now: Nanoseconds of a monotonic clock, as everywhere below. The bucket starts full.

    Attributes:
        lent: Tokens taken that are not known to be used.
        going: The part of `lent` for entries that are counted as passed and not known to have left.
        ahead: Tokens lent to workers that are neither counted as passed nor given back.
        lost: Tokens lent to workers that will never be counted, since `told` was last called.
        unforeseen: Tokens counted as passed that were never taken, since `told` was last called: the worker that passed
            the entries did not know the rate yet.
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
        """Return whether the balance is at least `tokens`."""
        return self._earn(now) >= tokens * self._per_token

    def tokens(self, now: int) -> int:
        """Return the whole tokens at hand; negative in debt."""
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
        """Take `tokens` if the balance holds them; return whether they were taken."""
        cost = tokens * self._per_token
        if self._earn(now) < cost:
            return False
        self._balance -= cost
        return True

    def give_back(self, tokens: int) -> None:
        """Undo a `take` of the same instant."""
        self._balance += tokens * self._per_token

    def lend(self, tokens: int) -> None:
        """Mark tokens just taken as lent: the borrower reports when they are used, or gives them back."""
        self.lent += tokens
        self.ahead += tokens
        self._capacity -= tokens * self._per_token

    def release(self, tokens: int) -> None:
        """Mark tokens as taken for entries that have passed and leave later."""
        self.lent += tokens
        self.going += tokens
        self._capacity -= tokens * self._per_token

    def gone(self, tokens: int, now: int) -> None:
        """Record that entries worth so many tokens have left; a change of rate has settled those before it."""
        tokens = min(tokens, self.going)
        self._earn(now)
        self.going -= tokens
        self.lent -= tokens
        self._capacity += tokens * self._per_token

    def come_back(self, used: int, unused: int, now: int) -> None:
        """Record that of the lent tokens `used` were used, and take `unused` back; at most what is lent.

        The tokens earned up to now are added first, as there was no room for the returned ones until now.
        """
        self._earn(now)
        used = min(used, self.lent - self.going)
        unused = min(unused, self.lent - self.going - used, self.ahead)
        self.lent -= used + unused
        self.ahead -= unused
        self._capacity += (used + unused) * self._per_token
        self._balance += unused * self._per_token

    def count_lent(self, tokens: int, lent: int) -> None:
        """Count `tokens` as passed, of which `lent` were lent.

        The others passed before their cost was known. As a debt they would make other streams wait for what no worker
        could know.
        """
        lent = min(lent, self.ahead)
        self.ahead -= lent
        self.unforeseen += tokens - lent

    def give_up(self, lent: int) -> None:
        """Count lent tokens as lost: they will never be counted as passed."""
        lent = min(lent, self.ahead)
        self.ahead -= lent
        self.lost += lent

    def wait_ns(self, tokens: int, now: int) -> int:
        """Return the wait in nanoseconds until `tokens` (at most the burst) are there, if none are taken."""
        wanted = min(tokens, self.rate.burst) * self._per_token
        missing = wanted - self._earn(now)
        return max(0, -(-missing // self._per_ns))

    @property
    def has_room(self) -> bool:
        """True if the bucket has room for one more token beside those lent."""
        return self._capacity >= self._per_token

    def loses_in_ns(self, now: int) -> int:
        """Return the nanoseconds until a token is there, or until earned tokens are lost for lack of room.

        There is no room for a token while lent tokens, and those of entries not known to have left, fill the bucket.
        """
        wanted = min(self._per_token, self._capacity)
        return max(0, -((self._earn(now) - wanted) // self._per_ns))

    def change(self, rate: Rate, now: int) -> None:
        """Change the rate, with neither amnesty nor a free burst.

        The tokens at hand stay, up to the new capacity. A debt keeps its tokens at any rate above the one that it was
        made at, and its seconds at any rate below. So it never takes longer to pay than it would have. To raise a rate
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
        """Change to a rate that was measured anew: a debt, too, keeps its tokens.

        So in no interval, whatever changes within it, more passes than burst, rates over time and one taking.
        """
        self._made_at = rate
        self._go_on(rate, self._held(now) * _parts(rate)[1] // self._per_token)

    def _held(self, now: int) -> int:
        """Return the balance plus the lent tokens that are not `going`: a loan is no debt, even beyond the capacity."""
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
        """Return the tokens at hand, negative in debt; and, since the last call, the overflow, `lost` and `unforeseen`.

        The overflow are earned tokens for which the bucket had no room. Tokens that workers have ahead count as still
        there: a balance falls by the tokens that are counted as passed, when they are.
        """
        held, overflow = self._earn(now) + self.ahead * self._per_token, self._overflow
        lost, unforeseen = self.lost, self.unforeseen
        self._overflow = self.lost = self.unforeseen = 0
        return held / self._per_token, overflow / self._per_token, lost, unforeseen

    def is_full(self, now: int) -> bool:
        """Return whether the balance is at least that of a new bucket."""
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
    """Return the parts of a token that a nanosecond earns and that a token costs: the fewest that are whole numbers."""
    common = gcd(rate.tokens, rate.period_ns)
    return rate.tokens // common, rate.period_ns // common


def _capacity(rate: Rate) -> int:
    """Return the capacity in parts of a token: the burst, and room for a late look at the clock.

    The capacity is below one token more than the burst.
    """
    per_ns, per_token = _parts(rate)
    full = rate.burst * per_token
    late = per_token + per_ns * SMALLEST_BURST_NS - full
    return full + max(0, min(late, per_token - 1))
