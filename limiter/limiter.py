"""One limit at work: two token buckets, and the streams that wait for them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from limiter.rates import Direction, Limit, Rate
from limiter.token_bucket import TokenBucket
from limiter.usage import LimiterUsage
from limiter.wait_queue import Place, WaitQueue

if TYPE_CHECKING:
    from limiter.permits import PermitMeter
    from limiter.stream import Entry, Stream


@dataclass(frozen=True, slots=True)
class Scope:
    """What a limiter limits.

    `level` is `topic` (one topic or one partition) or `namespace` (the total of its topics); `name` is the topic's
    full name or `tenant/namespace`.
    """

    direction: Direction
    level: str
    name: str
    tenant: str
    namespace: str


class Limiter:
    """Passes entries while both of its buckets hold a token; who finds them empty waits here.

    Args:
        scope: What it limits.
        limit: Messages and bytes per period.
        source: Where that value came from, for people.
        now: Monotonic nanoseconds.
    """

    def __init__(self, scope: Scope, limit: Limit, source: str, now: int) -> None:
        self.scope = scope
        self.limit = limit
        self.source = source
        self.waiters = WaitQueue()
        self.claimant: Stream | None = None
        self.streams: set[Stream] = set()
        self.meter: PermitMeter | None = None
        self.usage = LimiterUsage()
        self.wakes_at: int | None = None
        self._messages = TokenBucket(limit.messages, now) if limit.messages else None
        self._size = TokenBucket(limit.size, now) if limit.size else None

    def fits(self, messages: int, size: int, now: int) -> bool:
        """Whether all of it can pass without a debt."""
        return (self._messages is None or self._messages.holds(messages, now)) and (
            self._size is None or self._size.holds(size, now)
        )

    def is_open(self, now: int) -> bool:
        """Whether the next entry, however large, may pass: there is a token, and the entry may leave a debt."""
        messages, size = self._messages, self._size
        return (messages is None or messages.holds(1, now)) and (size is None or size.holds(1, now))

    def charge(self, messages: int, size: int, now: int) -> None:
        """Take the tokens for what passes."""
        if self._messages is not None:
            self._messages.take(messages, now)
        if self._size is not None:
            self._size.take(size, now)

    def refund(self, messages: int, size: int) -> None:
        """Undo a charge of the same instant."""
        if self._messages is not None:
            self._messages.give_back(messages)
        if self._size is not None:
            self._size.give_back(size)

    def wait_ns(self, now: int) -> int:
        """Nanoseconds until `is_open`, if nobody passes before."""
        buckets = (self._messages, self._size)
        return max((bucket.wait_ns(1, now) for bucket in buckets if bucket is not None), default=0)

    def wait_behind_ns(self, entry: "Entry", now: int) -> int:
        """Nanoseconds until `is_open` again, if `entry` passes now and nobody after it."""
        self.charge(entry.messages, entry.size, now)
        wait = self.wait_ns(now)
        self.refund(entry.messages, entry.size)
        return wait

    def cost(self, entry: "Entry") -> int:
        """Nanoseconds of this limit that `entry` uses up: the unit in which waiting streams share it."""
        messages, size = self.limit.messages, self.limit.size
        by_count = entry.messages * messages.period_ns // messages.tokens if messages else 0
        by_size = entry.size * size.period_ns // size.tokens if size else 0
        return max(by_count, by_size, 1)

    def place(self, entry: "Entry", number: int, before: Place | None = None) -> Place:
        """The place in line of an entry that is the first of its stream from now on.

        Args:
            entry: That entry.
            number: Greater than all before.
            before: Where the stream's entry before it stood, if that has only just passed. A stream that could not use
                its turn here in time, because it also waits elsewhere, may catch up by one entry; never by more, or it
                could save up its turns.
        """
        cost, time = self.cost(entry), self.waiters.virtual_time
        return (time if before is None else max(before[0], time - cost)) + cost, number

    def retune(self, limit: Limit, source: str, now: int) -> None:
        """Put another value in force; see `TokenBucket.change` for what becomes of tokens and debts."""
        self._messages = _changed(self._messages, limit.messages, now)
        self._size = _changed(self._size, limit.size, now)
        self.limit = limit
        self.source = source
        self.wakes_at = None  # the alarm that is set may be too late; whoever waits next sets another
        for stream in self.streams:
            self._place_anew(stream)

    def _place_anew(self, stream: "Stream") -> None:
        """Places count nanoseconds of the old value: a slow limit's, on a fast one, would mean waiting for ever."""
        if self not in stream.places:
            return
        waits_here = stream.waits_on is self
        if waits_here:
            self.waiters.remove(stream, stream.places[self])
        stream.places[self] = self.place(stream.held[0], stream.places[self][1])
        if waits_here:
            self.waiters.add(stream, stream.places[self])

    def is_idle(self, now: int) -> bool:
        """Whether forgetting this limiter would change nothing."""
        return (
            not self.streams
            and (self._messages is None or self._messages.is_full(now))
            and (self._size is None or self._size.is_full(now))
        )


def _changed(bucket: TokenBucket | None, rate: Rate | None, now: int) -> TokenBucket | None:
    if rate is None:
        return None
    if bucket is None:
        return TokenBucket(rate, now)
    if bucket.rate != rate:
        bucket.change(rate, now)
    return bucket
