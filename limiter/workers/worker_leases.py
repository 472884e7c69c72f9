"""Token leases of a worker, and the account of each of its streams.

A `StreamAccount` has what was passed or held of a stream and was not told the quota server yet.
"""

from collections import deque
from collections.abc import Callable, Iterable

from limiter.limiter import Answering, Entry, Stream
from limiter.workers.messages import Message, PassedByLease, Spent

_FOR_EVER = 1 << 62


class WorkerLease:
    """The tokens of one limit that a worker may spend without asking. A lease earns nothing, and is never in debt.

    It counts down what was lent, and adds up what was used of it.

    Args:
        number: The quota server's number of the limit.

    Attributes:
        streams: Number of the worker's streams that are under the limit.
        is_low: Whether half of the last loan has been used.
        until: From this moment on nothing fits, until more is lent: others may have what was not used.
    """

    __slots__ = (
        "_is_open",
        "_low_messages",
        "_low_size",
        "counts",
        "is_low",
        "messages",
        "number",
        "size",
        "streams",
        "until",
        "used_messages",
        "used_size",
        "weighs",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.streams = 0
        self.messages = 0
        self.size = 0
        self.counts = False
        self.weighs = False
        self.used_messages = 0
        self.used_size = 0
        self.is_low = False
        self.until = _FOR_EVER
        self._is_open = False
        self._low_messages = 0
        self._low_size = 0

    @property
    def is_open(self) -> bool:
        """True if something was lent and not recalled."""
        return self._is_open

    @property
    def is_used(self) -> bool:
        """True if tokens were used since the last report."""
        return self.used_messages > 0 or self.used_size > 0

    def fits(self, messages: int, size: int, now: int) -> bool:
        """Return whether the lease covers all of it."""
        return (
            self._is_open
            and now < self.until
            and (not self.counts or messages <= self.messages)
            and (not self.weighs or size <= self.size)
        )

    def charge(self, messages: int, size: int) -> None:
        """Spend tokens; units that the limit does not bound are not counted, as none were lent."""
        if self.counts:
            self.messages -= messages
            self.used_messages += messages
            self.is_low = self.is_low or self.messages < self._low_messages
        if self.weighs:
            self.size -= size
            self.used_size += size
            self.is_low = self.is_low or self.size < self._low_size

    def refund(self, messages: int, size: int) -> None:
        """Undo a charge of the same instant."""
        if self.counts:
            self.messages += messages
            self.used_messages -= messages
        if self.weighs:
            self.size += size
            self.used_size -= size

    def lend(self, messages: int | None, size: int | None, until: int = 0) -> None:
        """Add lent tokens, to be used before `until` if that is not 0; None where the limit has no such bound."""
        self.counts, self.weighs = messages is not None, size is not None
        self.messages += messages or 0
        self.size += size or 0
        self._low_messages, self._low_size = self.messages // 2, self.size // 2
        self._is_open = True
        self.until = until or _FOR_EVER
        self.is_low = False

    def take_used(self) -> tuple[int, int]:
        """Return the messages and bytes used since the last call."""
        used = self.used_messages, self.used_size
        self.used_messages = self.used_size = 0
        self.is_low = False
        self._low_messages, self._low_size = self.messages // 2, self.size // 2
        return used

    def empty(self) -> tuple[int, int]:
        """Close the lease; return the messages and bytes that were not used."""
        left = self.messages, self.size
        self.messages = self.size = 0
        self._is_open = False
        self.is_low = False
        return left


WINDOW = 256
"""Queued entries of one stream at one time: as many as go in some round trips, however much is held."""


class _Nobody:
    def may_refuse(self, entry: Entry) -> bool:  # noqa: ARG002 - as Answering
        """Return True: the answer does not matter, as no limit refuses a delivery."""
        return True

    def accepted(self, stream: Stream, entry: Entry) -> None:
        """Do nothing: nobody awaits an answer."""

    def refused(self, stream: Stream, entry: Entry, reason: str) -> None:
        """Do nothing: nobody awaits an answer."""


NOBODY = _Nobody()
"""Stands in a consumer's account for who is told of refusals: deliveries are never refused, and await no answer."""


class StreamAccount:
    """The account of one stream of a worker: its leases, its queued entries, and what is not told yet.

    Args:
        number: The stream's number at the quota server.

    Attributes:
        queued: Number of entries queued at the quota server so far.
        settled: How many of them, from the first, have gone, were refused or were dropped.
        behind: Entries that wait here and are not queued yet.
        by_queue: Whether each entry is the quota server's; as long as it is not known what applies, it is.
        is_metered: Whether permits are the quota server's, likewise.
        leases: The leases of the stream's limits.
        is_rejected: Whether some limit refuses what is over it: then each entry is queued at once, or the quota server
            could not tell what came behind others that it holds from what it is to refuse.
        answering: Answers the client.
        is_leaving: The client has gone and the waiting entries were withdrawn: none is queued any more.
        grant: Passes permits on to the broker.
        entries: Number of entries that passed by leases since the last report; likewise messages and bytes.
    """

    __slots__ = (
        "answering",
        "behind",
        "by_queue",
        "entries",
        "grant",
        "is_leaving",
        "is_metered",
        "is_rejected",
        "largest_messages",
        "largest_size",
        "leases",
        "messages",
        "number",
        "queued",
        "settled",
        "size",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.queued = 0
        self.behind: deque[Entry] = deque()
        self.settled = 0
        self.by_queue = True
        self.is_metered = True
        self.leases: tuple[WorkerLease, ...] = ()
        self.is_rejected = False
        self.answering: Answering = NOBODY
        self.is_leaving = False
        self.grant: Callable[[int], None] = lambda _permits: None
        self.entries = 0
        self.messages = 0
        self.size = 0
        self.largest_messages = 0
        self.largest_size = 0

    @property
    def outstanding(self) -> int:
        """Number of queued entries that the quota server has not decided on."""
        return self.queued - self.settled

    @property
    def may_queue(self) -> bool:
        """True if the next entry may be queued; where each must be, the bound on held bytes bounds them."""
        return not self.behind and not self.is_leaving and (self.is_rejected or self.outstanding < WINDOW)

    @property
    def due(self) -> int:
        """Number of entries that wait behind the queued ones and are to be queued now."""
        if self.is_rejected:
            return 0 if self.is_leaving else len(self.behind)
        if self.outstanding > WINDOW // 2 or (self.outstanding and self.has_credit):
            return 0
        return min(len(self.behind), WINDOW - self.outstanding)

    @property
    def has_credit(self) -> bool:
        """True if something is lent of every limit, so that no stream is known to wait there."""
        return not self.by_queue and all(lease.is_open for lease in self.leases)

    def behind_sums(self) -> tuple[int, int, int]:
        """Return entries, messages and bytes that wait and are not queued."""
        behind = self.behind
        return len(behind), sum([entry.messages for entry in behind]), sum([entry.size for entry in behind])

    def take(self, messages: int, size: int, now: int) -> bool:
        """Spend tokens of every lease if all of it fits, else none."""
        for position, lease in enumerate(self.leases):
            if not lease.fits(messages, size, now):
                for charged in self.leases[:position]:
                    charged.refund(messages, size)
                return False
            lease.charge(messages, size)
        return True

    def count(self, entries: int, messages: int, size: int, largest: tuple[int, int]) -> None:
        """Count entries that passed by the leases; `largest` are messages and bytes of the largest one."""
        self.entries += entries
        self.messages += messages
        self.size += size
        self.largest_messages = max(self.largest_messages, largest[0])
        self.largest_size = max(self.largest_size, largest[1])

    def take_passed(self) -> PassedByLease:
        """Remove and return the counts since the last call, as a message."""
        limiters = [lease.number for lease in self.leases]
        largest = self.largest_messages, self.largest_size
        passed = PassedByLease(self.number, self.entries, self.messages, self.size, *largest, limiters)
        self.entries = self.messages = self.size = self.largest_messages = self.largest_size = 0
        return passed


class WorkerLeases:
    """The leases of a worker: one for each limit that some stream is under.

    Args:
        tell: Takes messages to the quota server.
        give_back: Takes the message that ends a loan.
    """

    def __init__(self, tell: Callable[[Message], None], give_back: Callable[[Spent], None]) -> None:
        self._by_number: dict[int, WorkerLease] = {}
        self._tell = tell
        self._end = give_back

    @property
    def are_closed(self) -> bool:
        """True if nothing is lent."""
        return not any(lease.is_open for lease in self._by_number.values())

    def use(self, account: StreamAccount, numbers: Iterable[int]) -> None:
        """Put a stream under these limits; give back leases that no stream needs any more."""
        leases = tuple([self._of(number) for number in numbers])
        for lease in leases:
            lease.streams += 1
        before, account.leases = account.leases, leases
        for lease in before:
            lease.streams -= 1
            if lease.streams == 0:
                self._give_back(lease)
                del self._by_number[lease.number]

    def lent(self, number: int, messages: int | None, size: int | None, until: int = 0) -> None:
        """Add lent tokens to a lease; give them back at once if no stream is under the limit any more."""
        lease = self._by_number.get(number)
        if lease is None:
            self._end(Spent(number, 0, 0, messages or 0, size or 0))
        else:
            lease.lend(messages, size, until)

    def recalled(self, number: int) -> None:
        """Give back all of a recalled lease; the quota server gets an answer whatever there is."""
        self._give_back(self._by_number.get(number) or WorkerLease(number), is_answer=True)

    def report(self) -> None:
        """Tell what was used, and give back leases not used since the last report."""
        for lease in self._by_number.values():
            if lease.is_open and not lease.is_used:
                self._give_back(lease)
            elif lease.is_open:
                self._tell(Spent(lease.number, *lease.take_used(), 0, 0, wants_more=True))

    def _of(self, number: int) -> WorkerLease:
        lease = self._by_number.get(number)
        if lease is None:
            lease = self._by_number[number] = WorkerLease(number)
        return lease

    def _give_back(self, lease: WorkerLease, *, is_answer: bool = False) -> None:
        used = lease.take_used()
        self._end(Spent(lease.number, *used, *lease.empty(), is_answer=is_answer))
