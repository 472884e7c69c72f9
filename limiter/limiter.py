"""One limit at work: its token buckets, the streams within it, and the fair queue of the streams that wait."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from limiter.permits import CreditWindow, Permits, Unit, horizon_of
from limiter.token_bucket import (
    SMALLEST_BURST_NS,
    WHOLE,
    Direction,
    Lease,
    LeftBalance,
    Limit,
    Rate,
    TokenBucket,
)
from limiter.usage import LimiterUsage, StreamUsage


class FinishTag:
    """The finish tag of a stream at one limiter: the virtual time at which its first entry would be done.

    A tag changes only while it is in no queue, or before its queue is put in order again (`FairQueue.reorder`).

    Attributes:
        time: Virtual time at which that entry would be done.
        number: Grows from entry to entry: of two equal times the earlier goes first.
    """

    __slots__ = ("limiter", "number", "stream", "time")

    def __init__(self, stream: "Stream", limiter: "Limiter") -> None:
        self.stream = stream
        self.limiter = limiter
        self.time = limiter.waiters.virtual_time
        self.number = 0

    def precedes(self, other: "FinishTag") -> bool:
        """Return whether this tag's turn comes before the other's."""
        return self.time < other.time or (self.time == other.time and self.number < other.number)

    def __lt__(self, other: "FinishTag") -> bool:
        return self.precedes(other)


MOST_COUNTED: Final = 1000
"""Most waiting streams whose held entries are counted for a report; those of more are estimated."""


class FairQueue:
    """The streams that wait on one limiter, in the order of their finish tags; each at most once.

    A tag is the virtual time at which the stream's next entry would be done if all waiting streams were served at the
    same time, at the same pace. The entry that would be done first goes first. Virtual time is the tag of the entry
    that went last. So a stream that is new, or comes back after a pause, starts there, with neither arrears nor a debt.

        tag = virtual time on arrival + cost of the entry        (cost: nanoseconds of the limiter that it uses up)

    So in the long run every stream gets equal time of the limiter, whatever its entries cost, and at no time is a
    stream ahead of another by more than one entry.

    Source: self-clocked fair queuing, S. J. Golestani, INFOCOM 1994
    """

    __slots__ = ("_gone", "_row", "virtual_time")

    def __init__(self) -> None:
        self.virtual_time = 0
        self._row: list[FinishTag] = []
        self._gone = 0
        """Removed tags at the front, under half of the row: to delete each at once would move all later tags."""

    def __len__(self) -> int:
        return len(self._row) - self._gone

    def first(self) -> "Stream":
        """Return the stream that has the next turn; the queue must not be empty."""
        return self._row[self._gone].stream

    def held(self) -> tuple[int, int]:
        """Return the messages and bytes that the waiting streams hold; for many, those of the first, scaled to all."""
        waiting = [tag.stream.usage for tag in self._row[self._gone : self._gone + MOST_COUNTED]]
        messages, size = sum([usage.held_messages for usage in waiting]), sum([usage.held_size for usage in waiting])
        if len(waiting) < len(self):
            return messages * len(self) // len(waiting), size * len(self) // len(waiting)
        return messages, size

    def is_before_all(self, tag: FinishTag) -> bool:
        """Return whether no waiting stream would go before this tag. The tag need not be in the queue."""
        return not self or not self._row[self._gone].precedes(tag)

    def add(self, tag: FinishTag) -> None:
        """Add a stream's tag; no two tags are equal."""
        row = self._row
        if len(row) > self._gone and tag.precedes(row[-1]):
            insort(row, tag, lo=self._gone)
        else:  # if all entries cost the same, each new tag is the last
            row.append(tag)

    def remove(self, tag: FinishTag) -> None:
        """Remove a stream's tag."""
        row, first = self._row, self._gone
        at = first if row[first] is tag else bisect_left(row, tag, lo=first)
        assert row[at] is tag, "a tag does not change while it is in a row"
        if at > first:
            del row[at]
        else:
            self._gone = first + 1
        if self._gone * 2 >= len(row):
            del row[: self._gone]
            self._gone = 0

    def reorder(self) -> None:
        """Put the streams in order by tags that have changed."""
        del self._row[: self._gone]
        self._gone = 0
        self._row.sort()

    def went(self, tag: FinishTag) -> None:
        """Advance virtual time to this tag: its entry passed."""
        self.virtual_time = max(self.virtual_time, tag.time)


@mypyc_attr(acyclic=True)
class Entry:
    """A whole frame that is held.

    An entry without messages is a command that refers to its stream and must not overtake it; it passes for free.

    Tens of thousands of entries are held at a time. Compiled, they are invisible to Python's garbage collector, which
    otherwise took a tenth of the time, and blocked the loop.

    Args:
        frame: The frame's bytes.
        messages: Number of messages in it, as the broker counts.
        size: Metered bytes.
        memory: Bytes of memory that the entry takes.
        since: When the entry was offered, monotonic nanoseconds.
        charged: Messages to charge to limits; below 0: all that are in the entry.
    """

    __slots__ = ("charged", "frame", "memory", "messages", "since", "size")

    def __init__(
        self,
        frame: bytes,
        messages: int,
        size: int,
        memory: int,
        since: int,
        *,
        charged: int = -1,
    ) -> None:
        self.frame = frame
        self.messages = messages
        self.size = size
        self.memory = memory
        self.since = since
        self.charged = messages if charged < 0 else charged

    @property
    def is_free(self) -> bool:
        """True if the entry is a command, which passes for free."""
        return self.messages == 0 and self.size == 0


class Shadow(Protocol):
    """Limits in mode `observe` beside one stream (`shadow.py`): they simulate enforcement."""

    @property
    def chain(self) -> tuple["Limiter", ...]:
        """The observed limits, outermost first."""

    @property
    def usage(self) -> StreamUsage:
        """Entries that would have been passed, held and delayed."""

    @property
    def is_holding(self) -> bool:
        """True while an entry would be held."""

    def rewire(self, chain: tuple["Limiter", ...], now: int) -> None:
        """Observe the limiters of `chain` from now on."""

    def leave(self, now: int) -> None:
        """Remove the stream, which ends."""

    def admit(self, messages: int, size: int, now: int) -> bool:
        """Charge a chunk's worth if no entry would have been held."""

    def withdraw(self, messages: int, size: int) -> None:
        """Undo an `admit` of the same instant."""

    def count_admitted(self, entries: int, messages: int, size: int, largest_messages: int, largest_size: int) -> None:
        """Record an admitted chunk: its entries, messages and bytes, and the largest entry's messages and bytes."""

    def offer(self, messages: int, size: int, now: int) -> None:
        """Simulate the observed limits for an entry that the enforced limits passed."""


@dataclass(frozen=True, slots=True)
class StreamName:
    """The names of a stream in logs and reports."""

    direction: Direction
    tenant: str
    namespace: str
    topic: str
    stream_id: int
    producer_name: str = ""
    subscription: str = ""
    consumer_name: str = ""


class NotingPeriod:
    """A period in which each stream is noted in the journal once. When it is closed, each stream must be noted again.

    So the end of a period costs the same for one stream and for 20,000.
    """

    __slots__ = ("is_open",)

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open


NOT_NOTED: Final = NotingPeriod(is_open=False)


class Stream:
    """A producer's entries towards the broker, or a consumer's towards the client: the limits and the held entries.

    Args:
        name: The stream's names.
        chain: The limiters that the stream is within, outermost first. Empty: unlimited.
        release: Called with the stream and each held entry that may pass, in order.
        connection: An object of the caller's; for a simulated stream, the stream that it shadows (`shadow.py`).
        by_entry: Limits of messages count an entry as one message (dispatchThrottlingOnBatchMessageEnabled).

    Attributes:
        is_accepted: Whether entries are passed on. Of a producer, from the broker's acceptance on. Of a consumer, from
            the start (brokers deliver only to accepted consumers) until it asks to be closed. Other entries are charged
            to no stream.
        noted_in: While this is open, the stream is in the journal with all of its limiters: its actions need no note.
        tags: While the stream waits: its place at each limiter of the chain.
        waits_on: The limiter that refused the first held entry.
        last_reason: The level of the limiter that held or rejected an entry last; empty before the first.
        last_rejecting: The level of the limiter that rejected an entry last; empty before the first.
    """

    __slots__ = (
        "by_entry",
        "chain",
        "connection",
        "held",
        "is_accepted",
        "is_open",
        "is_passing",
        "last_reason",
        "last_rejecting",
        "name",
        "noted_in",
        "observed",
        "permits",
        "release",
        "tags",
        "usage",
        "waits_on",
        "waits_since",
    )

    def __init__(
        self,
        name: StreamName,
        chain: tuple["Limiter", ...],
        release: Callable[["Stream", Entry], None],
        connection: object = None,
        *,
        by_entry: bool = False,
        is_accepted: bool = False,
    ) -> None:
        self.chain = chain
        self.held: deque[Entry] = deque()
        self.tags: tuple[FinishTag, ...] = ()
        self.waits_on: Limiter | None = None
        self.release = release
        self.usage = StreamUsage()
        self.permits: Permits | None = None
        self.observed: Shadow | None = None
        self.by_entry = by_entry
        self.is_accepted = is_accepted
        self.noted_in = NOT_NOTED
        self.is_open = True
        self.is_passing = False  # each held entry reads the attributes up to here: two cache lines, compiled
        self.name = name
        self.connection = connection
        self.waits_since = 0
        self.last_reason = self.last_rejecting = ""

    def come_within(self, chain: tuple["Limiter", ...]) -> None:
        """Have other limiters; the next action is noted with them."""
        self.chain = chain
        self.noted_in = NOT_NOTED

    def line_up(self, number: int) -> None:
        """Give the first held entry a tag at every limiter of the chain; `number` is greater than all before."""
        if not self.tags:
            self.tags = tuple([FinishTag(self, limiter) for limiter in self.chain])
        for tag in self.tags:
            tag.limiter.line_up(tag, self.held[0], number)

    def wait_on(self, limiter: "Limiter", now: int) -> None:
        """Wait on a limiter, which refuses the first held entry."""
        self.waits_on = limiter
        self.waits_since = now
        self.last_reason = limiter.scope.level

    def stop_waiting(self) -> None:
        """Wait on no limiter; the tags stay, for the wait on another one."""
        self.waits_on = None

    def give_up_tags(self) -> None:
        """Have no place in line any more."""
        self.tags = ()

    def tag_at(self, limiter: "Limiter") -> "FinishTag":
        """Return the stream's tag at a limiter of its chain; the stream must be waiting, there or elsewhere."""
        for tag in self.tags:
            if tag.limiter is limiter:
                return tag
        raise AssertionError("a waiting stream has a tag at every limiter of its chain")

    def charged(self, entries: int, messages: int) -> int:
        """Return the messages to charge for `entries` entries that hold `messages` messages."""
        return entries if self.by_entry else messages

    @property
    def is_rejected(self) -> bool:
        """True if a limit of the chain refuses entries that are over it, instead of holding them."""
        for limiter in self.chain:  # noqa: SIM110 - asked for each entry; a generator costs more than the answer
            if limiter.is_rejecting:
                return True
        return False

    @property
    def holds(self) -> bool:
        """True while an entry is held, or would be by an observed limit."""
        return bool(self.held) or (self.observed is not None and self.observed.is_holding)


MOST_GATHERING_NS: Final = 5_000_000
"""Longest time that streams wait after their turn has come, so that more entries go at once; and never longer than a
quarter of a burst, which must also have room for a late timer."""
_CALM_NS: Final = 1_000_000_000
"""Time after turns at two limiters have crossed in which `gathering_ns` is 0."""


class Scope(NamedTuple):
    """The subject of a limiter: direction, level and name. Limiters are found by it, so it is made often.

    Args:
        direction: `publish` or `dispatch`.
        level: `proxy`, `tenant`, `namespace`, `resource_group`, `partitioned_topic`, `topic` (or one partition),
            `subscription`, `producer`, `role`, `address`, `exempt`.
        name: A full topic name, `tenant/namespace`, `producer@topic`, an address …; empty for the proxy.
        tenant: The tenant of the name; empty where a limit spans tenants.
        namespace: The namespace, without its tenant; empty where a limit spans namespaces.
    """

    direction: Direction
    level: str
    name: str
    tenant: str
    namespace: str


class Limiter:
    """Passes entries while each of its buckets holds a token; a stream that finds one empty waits here.

    Args:
        scope: The subject of the limit.
        limit: Messages and bytes per period, sustained and peak.
        source: The origin of the limit's value, for people.
        now: Monotonic nanoseconds.
        lease: The lease of a limit that is shared with other processes; None: this process enforces the whole limit.
        on_activity: For a shared limiter: called with it at the first use since `expect_use`, and at the first wait
            (`sharing.py`).

    Attributes:
        is_quiet: Whether the next use calls `on_activity`. Always false if the limiter is not shared.
        is_calm: Whether the next wait calls `on_activity`. Always false if the limiter is not shared.
        shared_units: Units whose demand was last reported to other processes. `SharedLimits` keeps it here, where it
            takes the least memory.
        shares: Parts per million of messages and of bytes that this process has: those of a lease, or those that are
            left where another process takes over (`handing.py`).
        quota: Lower rates of messages, peak messages, bytes and peak bytes that hold beside those of `limit`, as
            another process has these for the same limit.
        is_rejecting: Whether entries over the limit are refused instead of held.
        is_observed: Whether entries over the limit are only counted, and pass.
        made_at: When this limiter was made.
        began: The balances of messages, peak messages, bytes and peak bytes with which this limiter began, for its
            first line in the log; None for a full one, and None in place of all once the line has them.
        crossed_at: When the turn of a stream within this limiter last depended on another limiter as well.
        claimant: The stream for which room is reserved here (`WaitLists`).
        wakes_at: The time of the alarm that is set for this limiter; None if none is, or it may come too late.
    """

    def __init__(
        self,
        scope: Scope,
        limit: Limit,
        source: str,
        now: int,
        lease: Lease | None = None,
        on_activity: "Callable[[Limiter], None] | None" = None,
    ) -> None:
        self.scope = scope
        self.lease = lease
        self.on_activity: Callable[[Limiter], None] = on_activity or _ignore
        self.is_quiet = self.is_calm = False
        self.shared_units: tuple[Unit, ...] = ()
        self.shares = (WHOLE, WHOLE) if lease is None else (0, 0)
        self.quota: LimitRates = (None,) * 4
        self.source = source
        self.made_at = now
        self.began: tuple[float | None, ...] | None = None
        self.waiters = FairQueue()
        self.claimant: Stream | None = None
        self.streams: set[Stream] = set()
        self.windows: tuple[CreditWindow, ...] = ()
        self.usage = LimiterUsage()
        self.wakes_at: int | None = None
        self.crossed_at = now - _CALM_NS
        self._idle_from = -1
        self._is_reserved = False
        self._priced_by: Prices = (limit.messages, limit.size)
        """The value by which tags count the costs of entries."""
        self._buckets: tuple[TokenBucket | None, ...] = (None,) * 4
        self._counting: tuple[TokenBucket, ...] = ()
        self._weighing: tuple[TokenBucket, ...] = ()
        self._put_in_force(limit, now)

    def expect_use(self) -> None:
        """Call `on_activity` at the next use, and at the next wait."""
        self.is_quiet = self.is_calm = True

    def used(self) -> None:
        """Call `on_activity` at no further use."""
        self.is_quiet = False

    def waited(self) -> None:
        """Call `on_activity` at no further wait."""
        self.is_calm = False

    def pay(self, messages: int, size: int, now: int) -> bool:
        """Take the tokens for `messages` and `size` if all are there, without debt; return whether they were taken."""
        if self.is_quiet:
            self.on_activity(self)
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
        """Return whether the next entry, however large, may pass: each bucket holds a token. It may leave a debt."""
        for bucket in self._counting:
            if not bucket.holds(1, now):
                return False
        for bucket in self._weighing:  # noqa: SIM110 - a generator costs more than the buckets
            if not bucket.holds(1, now):
                return False
        return True

    def charge(self, messages: int, size: int, now: int) -> None:
        """Take the tokens for an entry that passes, going into debt if need be."""
        if self.is_quiet:
            self.on_activity(self)
        if self._idle_from < 0:
            self._take(messages, size, now)
            return
        self.count_idle(now)
        self._take(messages, size, now)
        self.is_waited_on(now, is_reserved=self._is_reserved)

    def _take(self, messages: int, size: int, now: int) -> None:
        for bucket in self._counting:
            bucket.take(messages, now)
        for bucket in self._weighing:
            bucket.take(size, now)

    def refund(self, messages: int, size: int) -> None:
        """Undo a charge of the same instant."""
        _give_back(self._counting, messages)
        _give_back(self._weighing, size)

    def wait_ns(self, now: int) -> int:
        """Return the wait in nanoseconds until `is_open`, if nothing passes before."""
        longest = 0
        for bucket in (*self._counting, *self._weighing):
            longest = max(longest, bucket.wait_ns(1, now))
        return longest

    def gathering_ns(self, now: int) -> int:
        """Return the nanoseconds to wait after the first token, so that several entries go at once.

        Each wake-up and each write costs: one entry per wake-up is too few if many streams wait at a high rate. The
        result is 0 if streams wait in several queues: their turns come when two limiters are open at the same moment.
        """
        if not self.waiters or self.claimant is not None or now - self.crossed_at < _CALM_NS:
            return 0
        first = self.waiters.first()
        if any(other.waiters for other in first.chain if other is not self):
            return 0
        cost = cost_of(first.held[0], self.limit.messages, self.limit.size)
        return max(0, min(len(self.waiters), self._gathers_ns // cost) - 1) * cost

    def cross(self, other: "Limiter", now: int) -> None:
        """Note that the turn of a stream depends on this limiter and on another one."""
        self.crossed_at = other.crossed_at = now

    def is_waited_on(self, now: int, *, is_due: bool = False, is_reserved: bool = False) -> None:
        """Note that a stream waits from now on; from when a late timer no longer explains the wait, it is idle time.

        Args:
            now: Monotonic nanoseconds.
            is_due: The first stream has tokens already and waits for other turns: no timer has to ring.
            is_reserved: The first stream leaves its tokens to a stream that waits elsewhere; no timer has to ring,
                either.
        """
        if self.is_calm:
            self.on_activity(self)
        self._is_reserved = is_reserved
        self._idle_from = now + self.wait_ns(now) + (0 if is_due or is_reserved else SMALLEST_BURST_NS)

    def count_idle(self, now: int) -> None:
        """Add the time up to now in which streams waited although each bucket had a token."""
        if 0 <= self._idle_from < now:
            if self.lease is not None and not self.is_open(now):  # the lease ended before the token came
                self._idle_from = -1
                self.is_waited_on(now, is_reserved=self._is_reserved)
                return
            if self._is_reserved:
                self.usage.reserved_ns += now - self._idle_from
            else:
                self.usage.idle_ns += now - self._idle_from
                if self._has_lost_nothing(now):
                    self.usage.recovered_ns += now - self._idle_from
            self._idle_from = now

    def _has_lost_nothing(self, now: int) -> bool:
        """Return whether some bucket has had room for its tokens all the time that a stream has waited."""
        lease = self.lease
        if lease is not None and not lease.since <= self._idle_from <= now <= lease.until:  # its end takes tokens
            return False
        return not self.is_full(now)  # nothing is taken while a stream waits

    def is_attended(self, now: int) -> None:
        """Note that no stream waits any more, or that waiting streams are being served."""
        self.count_idle(now)
        self._idle_from = -1

    def balances(self, now: int) -> tuple[tuple[float, float] | None, ...]:
        """Return `TokenBucket.report` of the buckets of messages, peak messages, bytes and peak bytes, or None."""
        return tuple([None if bucket is None else bucket.report(now) for bucket in self._buckets])

    def wait_after_ns(self, entry: "Entry", now: int) -> int:
        """Return the wait in nanoseconds until `is_open` again, if `entry` passes now and none after it."""
        self._take(entry.charged, entry.size, now)
        wait = self.wait_ns(now)
        self.refund(entry.charged, entry.size)
        return wait

    def line_up(self, tag: FinishTag, entry: "Entry", number: int) -> None:
        """Set the tag of a stream's new first entry, after the entry that has only just passed.

        A stream that could not use its turn here in time, because it also waits elsewhere, may catch up by one entry,
        and never by more: else it could save up its turns.

        Args:
            tag: The stream's tag here.
            entry: The new first entry.
            number: Greater than all numbers before.
        """
        cost = cost_of(entry, *self._priced_by)
        tag.time = max(tag.time, self.waiters.virtual_time - cost) + cost
        tag.number = number

    def retune(self, limit: Limit, source: str, now: int) -> None:
        """Put another value in force. Tokens and debts change as in `TokenBucket.change`.

        If the measured part of the value has changed, they change as in `TokenBucket.follow`.
        """
        published = self.limit.published
        self.count_idle(now)
        self._put_in_force(limit, now, follows=published is not None and limit.published not in (None, published))
        self.source = source
        self.wakes_at = None  # the alarm that is set may be too late; the next waiting stream sets another
        if self._idle_from >= 0:
            self.is_waited_on(now)
        if not _is_alike(self._priced_by, (limit.messages, limit.size)):
            self._reset_tags()

    def _reset_tags(self) -> None:
        """Set the tags of all streams for the new value.

        With an old tag of a slow limit, a stream would wait on a fast one for ever.
        """
        self._priced_by = self.limit.messages, self.limit.size
        waiters = self.waiters
        for stream in self.streams:
            if stream.tags:
                tag = stream.tag_at(self)
                tag.time = waiters.virtual_time
                self.line_up(tag, stream.held[0], tag.number)
        waiters.reorder()

    def is_idle(self, now: int) -> bool:
        """Return whether forgetting this limiter would change nothing."""
        return not self.streams and self.is_full(now)

    def is_full(self, now: int) -> bool:
        """Return whether every bucket is full."""
        return all(bucket.is_full(now) for bucket in (*self._counting, *self._weighing))

    def inherit(self, other: "Limiter", now: int) -> None:
        """Continue with the tokens and debts of the limiter that this one replaces."""
        self._buckets = other._buckets  # noqa: SLF001 - of the same class
        self.shares, self.quota = other.shares, other.quota
        self._put_in_force(self.limit, now)

    def left(self, now: int) -> "LeftBalances | None":
        """Return the balances for the limiter of the next process; None if all are those of a new limiter."""
        balances = tuple([None if bucket is None else bucket.left(now) for bucket in self._buckets])
        return balances if balances != (None,) * len(balances) else None

    def begin(self, balances: "LeftBalances", since: int, now: int) -> None:
        """Go on, as a new limiter, from the balances that the limiter of the process before had at `since`."""
        for bucket, balance in zip(self._buckets, balances, strict=True):
            if bucket is not None and balance is not None:
                bucket.begin(balance, since, now)
        self._note_began(now)
        if (
            self.is_quiet and self.began is not None
        ):  # other processes leave it a share, or its debt would never be paid
            self.on_activity(self)

    def begin_empty(self, since: int, now: int) -> None:
        """Have no more, as a new limiter, than the rates have given since a moment at which all buckets were empty.

        A shared limiter keeps the one token with which it begins: shares follow from that.
        """
        if self.lease is None:
            for bucket in (*self._counting, *self._weighing):
                bucket.begin(LeftBalance(bucket.rate, 0, bucket.rate), since, now)
            self._note_began(now)

    def take_began(self) -> tuple[float | None, ...] | None:
        """Return `began` for the first line behind its moment; None for others."""
        began, self.began = self.began, None
        return began

    def _note_began(self, now: int) -> None:
        if not self.is_full(now):
            self.began = tuple(
                [None if bucket is None or bucket.is_full(now) else bucket.report(now)[0] for bucket in self._buckets]
            )

    def _note_moved(self, now: int) -> None:
        """Note all balances for the line that begins now: tokens went to another process, or came from it."""
        self.began = tuple([None if bucket is None else bucket.report(now)[0] for bucket in self._buckets])

    def share(self, shares: tuple[int, int], quota: "LimitRates", now: int) -> None:
        """Put shares in force: parts per million of the messages and of the bytes, of at most `quota`.

        A peak has the share of its unit. Tokens and debts change as in `TokenBucket.share`. The caller then serves the
        waiting streams.
        """
        self.count_idle(now)
        self.shares = shares
        if quota != self.quota:
            self.quota = quota
            self._put_in_force(self.limit, now)
        self._share_out(now)
        self._share_changed(now)

    def _share_changed(self, now: int) -> None:
        self.wakes_at = None  # as in `retune`
        if self._idle_from >= 0:
            self.is_waited_on(now)

    def hand(self, ppm: int, now: int) -> "LeftBalances":
        """Keep a share, and return the balances that another process gets with the rest; see `TokenBucket.hand`."""
        self.count_idle(now)
        self.shares = (ppm, ppm)
        balances = tuple([None if bucket is None else bucket.hand(ppm, now) for bucket in self._buckets])
        self._note_moved(now)
        self._share_changed(now)
        return balances

    def receive(self, ppm: int, balances: "LeftBalances", now: int, *, fills: bool) -> None:
        """Have a larger share, and the balances that come with it; see `TokenBucket.receive`.

        Args:
            ppm: The whole share of this process from now on.
            balances: The tokens or debts that come.
            now: Monotonic nanoseconds.
            fills: Whether a bucket is full for which none come; else it gets none.
        """
        self.count_idle(now)
        self.shares = (ppm, ppm)
        for bucket, left in zip(self._buckets, balances, strict=True):
            if bucket is not None and (fills or left is not None):
                bucket.receive(left, ppm, now)
        self._share_out(now)
        self._note_moved(now)
        self._share_changed(now)

    def update_windows(self) -> None:
        """Give a limit of deliveries the credit windows that its values and shares need: for messages and for bytes.

        For a shared limit they have this process' share: the broker should send messages to consumers that may have
        them.
        """
        if self.scope.direction != "dispatch" or self.is_observed:
            return
        by_unit: dict[Unit, CreditWindow] = {window.unit: window for window in self.windows}
        messages, _, size, _ = self.rates()
        limited: tuple[tuple[Unit, Rate | None, int], ...] = (
            ("messages", messages, self.shares[0]),
            ("bytes", size, self.shares[1]),
        )
        for unit, limit, ppm in limited:
            if limit is None:
                by_unit.pop(unit, None)
            else:
                by_unit.setdefault(unit, CreditWindow(1, unit)).horizon = max(1, horizon_of(limit) * ppm // WHOLE)
        self.windows = tuple(by_unit.values())

    def rates(self) -> tuple[Rate | None, Rate | None, Rate | None, Rate | None]:
        """Return the rates in force of messages, peak messages, bytes and peak bytes: the quota's where it is lower."""
        limit, quota = self.limit, self.quota
        return (
            _lower(limit.messages, quota[0]),
            _lower(limit.peak_messages, quota[1]),
            _lower(limit.size, quota[2]),
            _lower(limit.peak_size, quota[3]),
        )

    def lacks(self, now: int) -> tuple[bool, bool]:
        """Return whether a bucket of messages, and one of bytes, is below one token."""
        counting = [bucket for bucket in self._counting if not bucket.holds(1, now)]
        weighing = [bucket for bucket in self._weighing if not bucket.holds(1, now)]
        return bool(counting), bool(weighing)

    def _share_out(self, now: int) -> None:
        for bucket in self._counting:
            bucket.share(self.shares[0], now)
        for bucket in self._weighing:
            bucket.share(self.shares[1], now)

    def _put_in_force(self, limit: Limit, now: int, *, follows: bool = False) -> None:
        """Set the mode, and a bucket for each rate: an existing bucket changes, a new one starts full."""
        self.limit = limit
        self.is_rejecting = limit.mode == "reject"
        self.is_observed = limit.mode == "observe"
        rates = self.rates()
        pairs = zip(self._buckets, rates, strict=True)
        self._buckets = tuple([_changed(bucket, rate, now, self.lease, follows=follows) for bucket, rate in pairs])
        counting, weighing = self._buckets[:2], self._buckets[2:]
        self._counting = tuple([bucket for bucket in counting if bucket is not None])
        self._weighing = tuple([bucket for bucket in weighing if bucket is not None])
        self._share_out(now)
        bursts = [rate.burst * rate.period_ns // rate.tokens for rate in rates if rate is not None]
        self._gathers_ns = min([MOST_GATHERING_NS, *(burst // 4 for burst in bursts)])


LeftBalances = tuple[LeftBalance | None, ...]
"""Balances of messages, peak messages, bytes and peak bytes; None where a new bucket has as much."""
LimitRates = tuple[Rate | None, Rate | None, Rate | None, Rate | None]
"""Lower rates that hold because another process has these for the shared limit: of messages, their peak, bytes and
their peak; None where this process' own holds."""


Prices = tuple[Rate | None, Rate | None]
"""The rates of messages and of bytes by which costs are counted."""
_MOST_APART: Final = 1000
"""Tags go on at a value up to so many times as high or low: the turns of streams depend on the ratio of their costs.
Tags of a value that is further off would be coarse, or exceed a machine's integers."""


def cost_of(entry: Entry, messages: Rate | None, size: Rate | None) -> int:
    """Return the nanoseconds of a limit that an entry uses up: the unit in which waiting streams share the limit."""
    by_count = entry.charged * messages.period_ns // messages.tokens if messages else 0
    by_size = entry.size * size.period_ns // size.tokens if size else 0
    return max(max(by_count, by_size), 1)  # noqa: PLW3301 - mypyc compiles max of two; max of three calls Python


def _is_alike(before: Prices, now: Prices) -> bool:
    """Return whether the costs of all entries have changed by one factor, which is not too large."""
    (messages, size), (new_messages, new_size) = before, now
    if (messages is None) != (new_messages is None) or (size is None) != (new_size is None):
        return False
    old, new = messages or size, new_messages or new_size
    if (messages and size) or old is None or new is None:
        return before == now
    slow, fast = old.tokens * new.period_ns, new.tokens * old.period_ns
    return fast <= slow * _MOST_APART and slow <= fast * _MOST_APART


def _ignore(limiter: Limiter) -> None:
    """Do nothing: the limiter is not shared."""


def _lower(own: Rate | None, other: Rate | None) -> Rate | None:
    if own is None or other is None:
        return own
    return own.within(other)


def _changed(
    bucket: TokenBucket | None, rate: Rate | None, now: int, lease: Lease | None, *, follows: bool
) -> TokenBucket | None:
    if rate is None:
        return None
    if bucket is None:
        return TokenBucket(rate, now, lease)
    if bucket.rate != rate and follows:
        bucket.follow(rate, now)
    elif bucket.rate != rate:
        bucket.change(rate, now)
    return bucket


def _give_back(buckets: tuple[TokenBucket, ...], tokens: int) -> None:
    for bucket in buckets:
        bucket.give_back(tokens)


def rejecting(stream: Stream, now: int) -> Limiter | None:
    """Return the limiter in mode `reject` that a new entry is over; None if the entry may pass or be held.

    A stream that holds entries is not refused: its held entries, which were within this limit when they came, also wait
    for it. An entry after them is held as well: its refusal would have to wait for all their answers.
    """
    if stream.held:
        return None
    for limiter in stream.chain:
        if limiter.is_rejecting and (limiter.waiters or not limiter.is_open(now)):
            return limiter
    return None


def refusal_of(limiter: Limiter) -> str:
    """Return the error message for a client whose message this limiter refuses."""
    scope, limit = limiter.scope, limiter.limit
    values = [_words(limit.messages, "messages"), _words(limit.size, "bytes")]
    subject = f"{scope.level} {scope.name}".strip()
    return f"over the publish limit of {subject}: {' and '.join([value for value in values if value])}"


def _words(rate: Rate | None, unit: str) -> str:
    return "" if rate is None else f"{rate.tokens} {unit} per {rate.period_ns / 1e9:g} s"
