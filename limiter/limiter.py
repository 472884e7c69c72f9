"""One limit at work: its token buckets, and the streams that wait for them."""

from typing import TYPE_CHECKING, Final, NamedTuple

from limiter.rates import SMALLEST_BURST_NS, Direction, Limit, Rate
from limiter.token_bucket import TokenBucket
from limiter.usage import LimiterUsage
from limiter.wait_queue import Place, WaitQueue

if TYPE_CHECKING:
    from limiter.permit_meter import PermitMeter
    from limiter.stream import Entry, Stream

MOST_GATHERING_NS: Final = 5_000_000
"""Those whose turn it is wait so much longer at most, so that more of them go at one time; and never longer than a
quarter of a burst, which must have room for a late timer besides."""
_CALM_NS: Final = 1_000_000_000
"""For so long after turns here and elsewhere have crossed, nobody is gathered."""


Amount = tuple[int, int]
"""Messages and bytes."""


class Scope(NamedTuple):
    """What a limiter limits; limiters are found by it, so it is made often.

    Args:
        direction: `publish` or `dispatch`.
        level: `proxy`, `tenant`, `namespace`, `resource_group`, `partitioned_topic`, `topic` (or one partition),
            `subscription`, `producer`, `role`, `address`, `exempt`.
        name: Of what: a full topic name, `tenant/namespace`, `producer@topic`, an address …; empty for the proxy.
        tenant: Whose it is; empty where a limit spans tenants.
        namespace: Whose it is, without the tenant; empty where a limit spans namespaces.
    """

    direction: Direction
    level: str
    name: str
    tenant: str
    namespace: str


class Limiter:
    """Passes entries while all of its buckets hold a token; who finds one empty waits here.

    Args:
        scope: What it limits.
        limit: Messages and bytes per period, sustained and at most.
        source: Where that value came from, for people.
        now: Monotonic nanoseconds.

    Attributes:
        is_rejecting: Whether it refuses what is over it, instead of holding it.
        is_observed: Whether it holds nobody, but says what it would hold.
        made_at: Since when there is this limiter.
        crossed_at: When somebody last waited here who also waits elsewhere.
        borrowers: Workers that have been lent something of it, which they may use or give back.
        ahead_messages: What they were lent, and is neither counted as passed nor given back: what they used of it is
            counted when they tell.
        ahead_size: The same in bytes.
    """

    def __init__(self, scope: Scope, limit: Limit, source: str, now: int) -> None:
        self.scope = scope
        self.source = source
        self.made_at = now
        self.waiters = WaitQueue()
        self.claimant: Stream | None = None
        self.streams: set[Stream] = set()
        self.meters: tuple[PermitMeter, ...] = ()
        self.usage = LimiterUsage()
        self.wakes_at: int | None = None
        self.crossed_at = now - _CALM_NS
        self.borrowers = 0
        self.ahead_messages = 0
        self.ahead_size = 0
        self._idle_from = -1
        self._is_reserved = False
        self._buckets: tuple[TokenBucket | None, ...] = (None,) * 4
        self._counting: tuple[TokenBucket, ...] = ()
        self._weighing: tuple[TokenBucket, ...] = ()
        self._put_in_force(limit, now)

    def pay(self, messages: int, size: int, now: int) -> bool:
        """Take the tokens for all of it, if they are there, so that no debt is left; else none. Whether they were."""
        for position, bucket in enumerate(self._counting):
            if not bucket.pay(messages, now):
                _give_back(self._counting[:position], messages)
                return False
        for position, bucket in enumerate(self._weighing):
            if not bucket.pay(size, now):
                _give_back(self._weighing[:position], size)
                _give_back(self._counting, messages)
                return False
        return True

    def is_open(self, now: int) -> bool:
        """Whether the next entry, however large, may pass: there is a token, and the entry may leave a debt."""
        for bucket in self._counting:
            if not bucket.holds(1, now):
                return False
        for bucket in self._weighing:  # noqa: SIM110 - a generator costs more than the buckets
            if not bucket.holds(1, now):
                return False
        return True

    def charge(self, messages: int, size: int, now: int) -> None:
        """Take the tokens for what passes."""
        self._take(messages, size, now)
        if self._idle_from >= 0:
            self._waited_on_until(now, is_reserved=self._is_reserved)

    def count_lent(self, passed: Amount, lent: Amount) -> None:
        """So much is counted as passed, of what was lent to workers.

        More it is where the worker did not know yet that bytes are limited, too, or a peak.
        """
        for bucket in self._counting:
            bucket.count_lent(passed[0], lent[0])
        for bucket in self._weighing:
            bucket.count_lent(passed[1], lent[1])

    def give_up_lent(self, lent: Amount) -> None:
        """So much of what was lent to workers will never be counted, and is gone."""
        for bucket in self._counting:
            bucket.give_up(lent[0])
        for bucket in self._weighing:
            bucket.give_up(lent[1])

    def _take(self, messages: int, size: int, now: int) -> None:
        for bucket in self._counting:
            bucket.take(messages, now)
        for bucket in self._weighing:
            bucket.take(size, now)

    def refund(self, messages: int, size: int) -> None:
        """Undo a charge of the same instant."""
        _give_back(self._counting, messages)
        _give_back(self._weighing, size)

    def release(self, messages: int, size: int) -> None:
        """What was charged for so much leaves later; see `TokenBucket`."""
        for bucket in self._counting:
            bucket.release(messages)
        for bucket in self._weighing:
            bucket.release(size)

    def gone(self, messages: int, size: int, now: int) -> None:
        """So much of that has left."""
        for bucket in self._counting:
            bucket.gone(messages, now)
        for bucket in self._weighing:
            bucket.gone(size, now)
        if self._idle_from >= 0:
            self._waited_on_until(now, is_reserved=self._is_reserved)

    def lend(self, messages: int, size: int) -> None:
        """What was charged for so much was lent to a worker, and is not used yet."""
        self.ahead_messages += messages
        self.ahead_size += size
        for bucket in self._counting:
            bucket.lend(messages)
        for bucket in self._weighing:
            bucket.lend(size)

    def come_back(self, used: Amount, unused: Amount, now: int) -> None:
        """Of what was lent, these messages and bytes were used, and those will not be."""
        for bucket in self._counting:
            bucket.come_back(used[0], unused[0], now)
        for bucket in self._weighing:
            bucket.come_back(used[1], unused[1], now)
        if self._idle_from >= 0:
            self._waited_on_until(now, is_reserved=self._is_reserved)

    def spare(self, now: int) -> tuple[int | None, int | None]:
        """Messages and bytes of which half may be lent: what is at hand, up to half a burst less what is lent already.

        None is what is not limited.
        """
        return _spare(self._counting, now), _spare(self._weighing, now)

    def wait_ns(self, now: int) -> int:
        """Nanoseconds until `is_open`, if nobody passes before."""
        longest = 0
        for bucket in (*self._counting, *self._weighing):
            longest = max(longest, bucket.wait_ns(1, now))
        return longest

    def gathering_ns(self, now: int) -> int:
        """How much longer to wait than for the first token, so that several of those who wait go in one go.

        Each wake-up costs, and so does each write: one entry for each of them is too few where many wait at a high
        rate. Not where streams wait in several queues: their turns come when two limiters are open at the same moment.
        """
        if not self.waiters or self.claimant is not None or now - self.crossed_at < _CALM_NS:
            return 0
        first = self.waiters.first()
        if any(other.waiters for other in first.chain if other is not self):
            return 0
        cost = self.cost(first.held[0])
        return max(0, min(len(self.waiters), self._gathers_ns // cost) - 1) * cost

    def is_waited_on(self, now: int, *, is_due: bool = False, is_reserved: bool = False) -> None:
        """From now on somebody waits, until he is served: what that takes beyond a late timer is told as idle time.

        Where a bucket has no room for a token no timer helps: who was told to go is late to say that he has left.

        Args:
            now: Monotonic nanoseconds.
            is_due: Whose turn it is has tokens already, and waits for other turns: no timer has to ring.
            is_reserved: The first that waits leaves its tokens to a stream that waits elsewhere; nor here.
        """
        self._is_reserved = is_reserved
        longest, has_room = 0, True
        for bucket in (*self._counting, *self._weighing):
            longest = max(longest, bucket.loses_in_ns(now))
            has_room = has_room and bucket.has_room
        self._idle_from = now + longest + (SMALLEST_BURST_NS if has_room and not (is_due or is_reserved) else 0)

    def count_idle(self, now: int) -> None:
        """Note for how long somebody has waited up to now although each bucket had a token."""
        if 0 <= self._idle_from < now:
            if self._is_reserved:
                self.usage.reserved_ns += now - self._idle_from
            else:
                self.usage.idle_ns += now - self._idle_from
            self._idle_from = now

    def is_attended(self, now: int) -> None:
        """Nobody waits any more, or who waits is being served."""
        self.count_idle(now)
        self._idle_from = -1

    def _waited_on_until(self, now: int, *, is_reserved: bool) -> None:
        self.count_idle(now)
        self.is_waited_on(now, is_reserved=is_reserved)

    def balances(self, now: int) -> tuple[tuple[float, float, int, int] | None, ...]:
        """Of the buckets of messages, of their peak, of bytes and of theirs: `TokenBucket.told`, or None."""
        return tuple([None if bucket is None else bucket.told(now) for bucket in self._buckets])

    def wait_behind_ns(self, entry: "Entry", now: int) -> int:
        """Nanoseconds until `is_open` again, if `entry` passes now and nobody after it."""
        self._take(entry.charged, entry.size, now)
        wait = self.wait_ns(now)
        self.refund(entry.charged, entry.size)
        return wait

    def cost(self, entry: "Entry") -> int:
        """Nanoseconds of this limit that `entry` uses up: the unit in which waiting streams share it."""
        messages, size = self.limit.messages, self.limit.size
        by_count = entry.charged * messages.period_ns // messages.tokens if messages else 0
        by_size = entry.size * size.period_ns // size.tokens if size else 0
        return max(max(by_count, by_size), 1)  # noqa: PLW3301 - mypyc knows max of two; of three it is a call of Python

    def line_up(self, place: Place, entry: "Entry", number: int) -> None:
        """An entry is the first of its stream from now on, behind the one that stood there and has only just passed.

        A stream that could not use its turn here in time, because it also waits elsewhere, may catch up by one entry;
        never by more, or it could save up its turns.

        Args:
            place: Where its stream stands.
            entry: That entry.
            number: Greater than all before.
        """
        cost = self.cost(entry)
        place.time = max(place.time, self.waiters.virtual_time - cost) + cost
        place.number = number

    def retune(self, limit: Limit, source: str, now: int) -> None:
        """Put another value in force; for what becomes of tokens and debts see `TokenBucket.change`.

        And `TokenBucket.follow`, where the measured part of the value is another one.
        """
        known = self.limit.published
        self.count_idle(now)
        self._put_in_force(limit, now, follows=known is not None and limit.published not in (None, known))
        self.source = source
        self.wakes_at = None  # the alarm that is set may be too late; whoever waits next sets another
        if self._idle_from >= 0:
            self.is_waited_on(now)
        for stream in self.streams:
            self._place_anew(stream)

    def _place_anew(self, stream: "Stream") -> None:
        """Places count nanoseconds of the old value: a slow limit's, on a fast one, would mean waiting for ever."""
        if not stream.places:
            return
        place, waits_here = stream.place_at(self), stream.waits_on is self
        if waits_here:
            self.waiters.remove(place)
        place.time = self.waiters.virtual_time
        self.line_up(place, stream.held[0], place.number)
        if waits_here:
            self.waiters.add(place)

    def is_idle(self, now: int) -> bool:
        """Whether forgetting this limiter would change nothing."""
        return not self.streams and all(bucket.is_full(now) for bucket in (*self._counting, *self._weighing))

    def inherit(self, other: "Limiter", now: int) -> None:
        """Go on with the tokens and debts of a limiter in whose place this one stands."""
        self._buckets = other._buckets  # noqa: SLF001 - its own kind
        self._put_in_force(self.limit, now)

    def _put_in_force(self, limit: Limit, now: int, *, follows: bool = False) -> None:
        """The mode, and one bucket for each rate: a known one changes, a new one starts full."""
        self.limit = limit
        self.is_rejecting = limit.mode == "reject"
        self.is_observed = limit.mode == "observe"
        rates = (limit.messages, limit.peak_messages, limit.size, limit.peak_size)
        both = zip(self._buckets, rates, strict=True)
        self._buckets = tuple([_changed(known, rate, now, follows=follows) for known, rate in both])
        counting, weighing = self._buckets[:2], self._buckets[2:]
        self._counting = tuple([bucket for bucket in counting if bucket is not None])
        self._weighing = tuple([bucket for bucket in weighing if bucket is not None])
        bursts = [rate.burst * rate.period_ns // rate.tokens for rate in rates if rate is not None]
        self._gathers_ns = min([MOST_GATHERING_NS, *(burst // 4 for burst in bursts)])


def _changed(bucket: TokenBucket | None, rate: Rate | None, now: int, *, follows: bool) -> TokenBucket | None:
    if rate is None:
        return None
    if bucket is None:
        return TokenBucket(rate, now)
    if bucket.rate != rate and follows:
        bucket.follow(rate, now)
    elif bucket.rate != rate:
        bucket.change(rate, now)
    return bucket


def _give_back(buckets: tuple[TokenBucket, ...], tokens: int) -> None:
    for bucket in buckets:
        bucket.give_back(tokens)


def _spare(buckets: tuple[TokenBucket, ...], now: int) -> int | None:
    return min((min(bucket.tokens(now), bucket.rate.burst // 2 - bucket.lent) for bucket in buckets), default=None)
