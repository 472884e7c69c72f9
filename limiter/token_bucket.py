"""Values of limits (rates, bursts, modes), and the token bucket that earns by a rate; its balance may go negative.

Source of the bucket: Pulsar's AsyncTokenBucket (PIP-322)
"""

from dataclasses import dataclass, replace
from math import gcd
from typing import Final, Literal, NamedTuple

NANOS_PER_SECOND = 1_000_000_000
SMALLEST_BURST_NS = 20_000_000
"""Nanoseconds. A timer that is no later than that, on a busy machine, costs no throughput."""
PUBLISH_WINDOW_NS = 10 * NANOS_PER_SECOND
"""Time over which a topic's publish rate is averaged."""

Direction = Literal["publish", "dispatch"]
DIRECTIONS: tuple[Direction, ...] = ("publish", "dispatch")
"""All directions."""
Mode = Literal["enforce", "observe", "reject"]


@dataclass(frozen=True, slots=True)
class Rate:
    """`tokens` per period, and the capacity of the bucket: `burst` tokens.

    Raises:
        ValueError: If one of the three is not positive.
    """

    tokens: int
    period_ns: int
    burst: int

    def __post_init__(self) -> None:
        if self.tokens <= 0 or self.period_ns <= 0 or self.burst <= 0:
            raise ValueError(f"tokens, period and burst must be above 0, not {self}")

    @property
    def per_second(self) -> float:
        """The rate in tokens per second."""
        return self.tokens * NANOS_PER_SECOND / self.period_ns

    def is_above(self, other: "Rate") -> bool:
        """Return whether this rate is higher; bursts do not count."""
        return self.tokens * other.period_ns > other.tokens * self.period_ns

    def within(self, other: "Rate") -> "Rate":
        """Return the slower of two rates, with the smaller of both bursts."""
        slower, burst = other if self.is_above(other) else self, min(self.burst, other.burst)
        return slower if slower.burst <= burst else replace(slower, burst=burst)


def rate(tokens: int, period_ns: int = NANOS_PER_SECOND, burst: int | None = None) -> Rate:
    """Return a rate with Sluice's default burst where none is given.

    The default is a tenth of a period's worth, so that no second sees more than 1.1 times the limit (Pulsar's whole
    period lets twice the limit pass); but never under 20 ms' worth, or the event loop's own lag would cost
    throughput, and never under one token.
    """
    if burst is None:
        burst = max(tokens // 10, tokens * SMALLEST_BURST_NS // period_ns, 1)
    return Rate(tokens, period_ns, burst)


@dataclass(frozen=True, slots=True)
class Published:
    """A topic's publish rate, rounded up, per `PUBLISH_WINDOW_NS`: per second all slow rates would become 1/s."""

    messages: int = 0
    size: int = 0


NOTHING_PUBLISHED = Published()


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits on messages and bytes; None: not limited.

    Args:
        messages: The sustained rate of messages.
        size: The sustained rate of bytes.
        peak_messages: A second, higher rate that holds while the sustained one's burst is being used up.
        peak_size: The peak rate of bytes.
        mode: `enforce`: entries over the limit are held. `observe`: nothing is held, but entries that would have been
            held are counted. `reject`: entries over the limit are refused at once (publish only).
        published: The topic's publish rate that the rates here include (relativeToPublishRate); in a configured limit
            it is still zero. None: the limit is not relative.
    """

    messages: Rate | None = None
    size: Rate | None = None
    peak_messages: Rate | None = None
    peak_size: Rate | None = None
    mode: Mode = "enforce"
    published: Published | None = None

    def __bool__(self) -> bool:
        return self.messages is not None or self.size is not None


class LeftBalance(NamedTuple):
    """The balance that a bucket had at the end of a process, for a bucket of the next one.

    Args:
        rate: The bucket's rate.
        parts: The balance, in the parts of a token in which a bucket with the whole rate counts; negative: a debt.
        made_at: The rate at which the debt was made; see `TokenBucket.change`.
    """

    rate: Rate
    parts: int
    made_at: Rate


WHOLE: Final = 1_000_000
"""A whole limit, in the unit of shares: parts per million."""
NEVER_NS: Final = 3_600 * 1_000_000_000
"""The wait for a token without a share, or after the lease has ended. A new share or lease serves the waiting streams,
so the alarm that this sets is only a precaution, and rings once an hour."""
_FINE: Final = 10_000
_SMALL: Final = 1 << 31


class Lease:
    """The time in which leased buckets earn tokens; one for all buckets that a process shares with other processes.

    A process that is stopped, or cut off, earns nothing after the end. That takes no timer: its buckets compare the end
    with the time of each call.

    Attributes:
        since: Nothing is earned before; monotonic nanoseconds, as everywhere.
        until: Nothing is earned afterwards.
    """

    __slots__ = ("since", "until")

    def __init__(self, since: int = 0, until: int = 0) -> None:
        self.since = since
        self.until = until

    def renew(self, until: int, now: int) -> bool:
        """Let the lease last until `until`, which may be earlier than before; a time up to `now` ends it.

        Returns:
            Whether the lease had ended by `now`, so that waits reckoned since then are endless.
        """
        had_ended = now >= self.until
        if now > self.until:
            self.since = now
        self.until = until
        return had_ended

    def end(self, now: int) -> None:
        """End the lease at `now`, if it lasts longer: the process leaves."""
        self.until = min(self.until, now)


class TokenBucket:
    """Counts tokens. A bucket never sleeps, schedules or refuses, and the caller passes the time.

    The caller asks (`holds`) and then takes. Taking more than the balance leaves a debt that later refills pay.

    The balance is kept in parts of a token, chosen so that a nanosecond earns a whole number of parts. For `tokens` in
    `period_ns` that would be `tokens` parts of `1 / period_ns`, but both are divided by their greatest common divisor.
    So nothing is ever rounded away, at one token a day or 10**12 a second. At 10 GB/s a part is a byte, and a
    nanosecond earns ten: the numbers are as small as at any other rate. The parts that a nanosecond earns and that a
    token costs are kept in the bucket itself. They are read for each entry, and to read them from the rate, another
    object, would cost as much as the arithmetic.

    A stream that waits for a token is woken late by some milliseconds. The tokens earned in this time are kept even if
    the burst has no room for them, up to 20 ms' worth and always less than a token. Else 19/s, whose burst is 1, would
    pass 95 % of its limit. A bucket starts without this surplus.

    A *leased* bucket is one of several in different processes that together pass no more than one bucket would. It has
    a share of the rate and of the burst, and earns only while its lease lasts. It starts with a single token and no
    share, so that the first message of a newcomer need not wait. As each has room for at most a token more than its
    share of the burst, all together pass over any interval at most burst + rate * time + an entry each.

    The bucket of a process that another one takes over has a share as well (`hand`, `receive`), without a lease.

    Args:
        rate: Tokens per period, and the capacity.
        now: Nanoseconds of a monotonic clock, as everywhere below. The bucket starts full, if it is not leased.
        lease: The lease of a leased bucket; None: the whole rate belongs to this bucket, for ever.

    Attributes:
        ppm: The share, in parts per million; see `share`.
    """

    __slots__ = (
        "_balance",
        "_capacity",
        "_earned_at",
        "_full",
        "_lease",
        "_made_at",
        "_overflow",
        "_paid_at",
        "_per_ns",
        "_per_token",
        "ppm",
        "rate",
    )

    def __init__(self, rate: Rate, now: int, lease: Lease | None = None) -> None:
        self.rate = rate
        self.ppm = WHOLE if lease is None else 0
        self._lease = lease
        self._per_ns, self._per_token = _parts(rate, self.ppm)
        self._full, self._capacity = _capacity(rate, self.ppm)
        self._balance = self._full
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
            if self._lease is not None:
                elapsed = self._leased(now)
                balance = self._balance
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

    def wait_ns(self, tokens: int, now: int) -> int:
        """Return the wait in nanoseconds until the bucket holds `tokens` (at most the burst), if none are taken.

        The lease is expected to be renewed in time; once it has ended, or without a share, the wait is `NEVER_NS`.
        """
        cost = min(tokens * self._per_token, max(self._full, self._per_token))
        return self._ns_for(cost - self._earn(now), now)

    def _ns_for(self, missing: int, now: int) -> int:
        if missing <= 0:
            return 0
        if self._per_ns == 0 or (self._lease is not None and now >= self._lease.until):
            return NEVER_NS
        return -(-missing // self._per_ns)

    def _leased(self, now: int) -> int:
        """Return the nanoseconds since the previous call in which the lease held.

        If the lease ended in that time, all but one token are lost: another process may have had that burst since.
        Lost tokens, and those that a lease would have earned, count as overflow.
        """
        lease = self._lease
        assert lease is not None
        if self._earned_at < lease.since:
            self._lose()
        held = max(0, min(now, lease.until) - max(self._earned_at, lease.since))
        self._overflow += (now - self._earned_at - held) * self._per_ns
        if now <= lease.until:
            return held
        self._balance += held * self._per_ns
        self._lose()
        return 0

    def _lose(self) -> None:
        if self._balance > self._per_token:
            self._overflow += self._balance - self._per_token
            self._balance = self._per_token

    def share(self, ppm: int, now: int) -> None:
        """Let a leased bucket have `ppm` parts per million of its rate and burst from now on.

        A raise adds no tokens, as another process had those; it only makes room. A lowering takes the tokens that have
        no room any more. A debt keeps its tokens, so with a smaller share it takes longer to pay.
        """
        if ppm == self.ppm:
            return
        balance, before = self._earn(now), self._per_token
        if now >= self._paid_at:
            self._made_at = self.rate
        self.ppm = ppm
        self._per_ns, self._per_token = _parts(self.rate, ppm)
        self._overflow = self._overflow * self._per_token // before
        self._full, self._capacity = _capacity(self.rate, ppm)
        self._balance = min(balance * self._per_token // before, self._capacity)
        self._note_payday()

    def change(self, rate: Rate, now: int) -> None:
        """Change the rate, with neither amnesty nor a free burst.

        The tokens at hand stay, up to the new capacity. A debt keeps its tokens at any rate above the one that it was
        made at, and its seconds at any rate below. So it never takes longer to pay than without the change. To raise a
        rate and lower it again, or the other way round, forgives nothing.
        """
        old, balance = self.rate, self._earn(now)
        if now >= self._paid_at:
            self._made_at = old
        _, per_token = _parts(rate, self.ppm)
        if balance < 0:
            before, after = old.within(self._made_at), rate.within(self._made_at)
            owed = -balance * per_token * after.tokens * before.period_ns
            balance = -(owed // (self._per_token * after.period_ns * before.tokens))
        else:
            balance = balance * per_token // self._per_token
        self._go_on(rate, balance)

    def follow(self, rate: Rate, now: int) -> None:
        """Change to a newly measured rate: tokens at hand and debts keep their number of tokens.

        So in no interval, whatever changes within it, more passes than burst, rates over time and one taking.
        """
        self._made_at = rate
        self._go_on(rate, self._earn(now) * _parts(rate, self.ppm)[1] // self._per_token)

    def _go_on(self, rate: Rate, balance: int) -> None:
        self.rate = rate
        before = self._per_token
        self._per_ns, self._per_token = _parts(rate, self.ppm)
        self._overflow = self._overflow * self._per_token // before
        self._full, self._capacity = _capacity(rate, self.ppm)
        self._balance = min(balance, self._capacity)
        self._note_payday()

    def _note_payday(self) -> None:
        """Note when a debt will have been paid; without a share, an hour from now."""
        balance = self._balance
        wait = -(balance // self._per_ns) if self._per_ns else (NEVER_NS if balance < 0 else 0)
        self._paid_at = self._earned_at + max(0, wait)

    def report(self, now: int) -> tuple[float, float]:
        """Return the tokens at hand, negative in debt; and the overflow since the last call.

        The overflow is the earned tokens for which there was no room.

        `now` may be before the time of the last call, if nothing was taken since. The tokens earned since `now` belong
        to the next report, also those without room.
        """
        balance, overflow, later = self._earn(now), self._overflow, 0
        if now < self._earned_at:
            earned = (self._earned_at - now) * self._per_ns
            if self._lease is not None or self._balance >= self._capacity:
                later = min(earned, overflow)
            balance += later - earned
        self._overflow = later
        return balance / self._per_token, (overflow - later) / self._per_token

    def left(self, now: int) -> LeftBalance | None:
        """Return the balance at the end of the process; None if a new bucket has as much.

        Of a leased bucket no more than the token remains with which a new one begins: others have its share by then.
        """
        balance = self._earn(now)
        if balance >= (self._full if self._lease is None else self._per_token):
            return None
        whole = _parts(self.rate, WHOLE)[1]
        made_at = self._made_at if now < self._paid_at else self.rate
        return LeftBalance(self.rate, balance * whole // self._per_token, made_at)

    def begin(self, left: LeftBalance, since: int, now: int) -> None:
        """Go on, as a new bucket, from the balance that another bucket had at `since`.

        If the rate has changed, the balance changes as in `change`. A leased bucket has earned nothing since.
        """
        rate = self.rate
        self.rate = left.rate
        self._per_ns, self._per_token = _parts(left.rate, self.ppm)
        self._full, self._capacity = _capacity(left.rate, self.ppm)
        self._balance = min(left.parts * self._per_token // _parts(left.rate, WHOLE)[1], self._full)
        self._earned_at = min(since, now)
        self._made_at = left.made_at
        self._note_payday()
        if rate != left.rate:
            self.change(rate, self._earned_at)
        self._earn(now)
        self._overflow = 0

    def hand(self, ppm: int, now: int) -> LeftBalance:
        """Keep `ppm` parts per million, fewer than before; return the tokens that another process gets with the rest.

        A part keeps the tokens that it has room for, and the whole debt. Without any, the other process gets both.
        """
        whole = _parts(self.rate, WHOLE)[1]
        tokens = self._earn(now) * whole // self._per_token
        made_at = self._made_at if now < self._paid_at else self.rate
        self.share(ppm, now)
        if ppm == 0:
            self._balance = 0
            self._note_payday()
        else:
            tokens = max(0, tokens + -self._balance * whole // self._per_token)
        return LeftBalance(self.rate, tokens, made_at)

    def receive(self, left: LeftBalance | None, ppm: int, now: int) -> None:
        """Have `ppm` parts per million, more than before, and the tokens or the debt that come with them.

        Args:
            left: These, at the rate of the other process; where that is another one, see `change`. None: a full bucket.
            ppm: The whole share of this process from now on.
            now: Monotonic nanoseconds.
        """
        self._earn(now)
        self.share(ppm, now)
        if left is None:
            self._balance = max(self._balance, self._full)
        else:
            other = TokenBucket(left.rate, now)
            other.begin(left, now, now)
            if left.rate != self.rate:
                other.change(self.rate, now)
            if other._balance < 0:
                self._made_at = left.made_at
            come = other._balance * self._per_token // other._per_token
            self._balance = min(self._balance + come, self._capacity)
        self._note_payday()

    def is_full(self, now: int) -> bool:
        """Return whether the balance is at least that of a new bucket; for a leased one, whether its share is full."""
        return self._earn(now) >= self._full

    def _earn(self, now: int) -> int:
        elapsed = now - self._earned_at
        if elapsed > 0:
            if self._lease is not None:
                elapsed = self._leased(now)
            self._earned_at = now
            balance = self._balance + elapsed * self._per_ns
            if balance > self._capacity:
                self._overflow += balance - self._capacity
                balance = self._capacity
            self._balance = balance
        return self._balance


def _parts(rate: Rate, ppm: int) -> tuple[int, int]:
    """Return the parts of a token that a nanosecond earns and that a token costs: the fewest that are whole numbers.

    A share of the rate may need numbers of more than 62 bits, with which compiled code is slow. Then the rate is
    rounded down, by less than one part in 10,000 (`_FINE`): the shares of all are never more than the whole.
    """
    tokens, period = rate.tokens, rate.period_ns
    if ppm == 0:
        return 0, period // gcd(tokens, period)
    if ppm < WHOLE:
        tokens, period = tokens * ppm, period * WHOLE
    common = gcd(tokens, period)
    tokens, period = tokens // common, period // common
    if ppm == WHOLE or max(tokens, period) < _SMALL:
        return tokens, period
    if period >= tokens * _FINE:  # below 100,000 tokens a second: a part per nanosecond is fine enough
        return 1, -(-period // tokens)
    per_token = -(-period * _FINE // tokens)
    return tokens * per_token // period, per_token


def _capacity(rate: Rate, ppm: int) -> tuple[int, int]:
    """Return the full balance and the capacity, in parts of a token: the burst, without and with room for a late timer.

    The capacity is at most one token more than the share of the burst. Both are never below one token: else a small
    share could never pass anything.
    """
    per_ns, per_token = _parts(rate, ppm)
    full = rate.burst * per_token if ppm == WHOLE else rate.burst * ppm * per_token // WHOLE
    late = per_token + per_ns * SMALLEST_BURST_NS - full
    return max(full, per_token), max(per_token, full + max(0, min(late, per_token - 1)))
