"""Token leases of a worker, and the account of each of its streams.

A `StreamAccount` has what was passed or held of a stream and was not told the quota server yet.
"""

from collections import deque
from collections.abc import Callable, Iterable

from limiter.limiter import Answering, Entry, Stream
from limiter.workers.messages import Message, PassedByLease, Spent


class WorkerLease:
    """What a worker may pass of one limit without asking. A lease earns nothing, and is never in debt.

    It counts down what was lent, and adds up what was used of it.

    Args:
        number: The limit's, as its quota server says it.

    Attributes:
        streams: How many of the worker's streams are within the limit.
        is_low: Whether half of the last loan has been used.
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
        self._is_open = False
        self._low_messages = 0
        self._low_size = 0

    @property
    def is_open(self) -> bool:
        """Whether something was lent and not wanted back."""
        return self._is_open

    @property
    def is_used(self) -> bool:
        """Whether something was used since it was told last."""
        return self.used_messages > 0 or self.used_size > 0

    def fits(self, messages: int, size: int) -> bool:
        """Whether all of it may pass."""
        return (
            self._is_open and (not self.counts or messages <= self.messages) and (not self.weighs or size <= self.size)
        )

    def charge(self, messages: int, size: int) -> None:
        """It passes; what is not limited is not counted, as nothing of it was lent."""
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

    def lend(self, messages: int | None, size: int | None) -> None:
        """So much more may pass; None is what is not limited."""
        self.counts, self.weighs = messages is not None, size is not None
        self.messages += messages or 0
        self.size += size or 0
        self._low_messages, self._low_size = self.messages // 2, self.size // 2
        self._is_open = True
        self.is_low = False

    def take_used(self) -> tuple[int, int]:
        """Messages and bytes that were used since the last time."""
        used = self.used_messages, self.used_size
        self.used_messages = self.used_size = 0
        self.is_low = False
        self._low_messages, self._low_size = self.messages // 2, self.size // 2
        return used

    def empty(self) -> tuple[int, int]:
        """Close it; what was not used."""
        left = self.messages, self.size
        self.messages = self.size = 0
        self._is_open = False
        self.is_low = False
        return left


WINDOW = 256
"""Queued entries of one stream at one time: as many as go in some round trips, however much is held."""


class _Nobody:
    def may_refuse(self, entry: Entry) -> bool:  # noqa: ARG002 - as Answering
        """Nothing refuses it."""
        return True

    def accepted(self, stream: Stream, entry: Entry) -> None:
        """Nobody awaits an answer."""

    def refused(self, stream: Stream, entry: Entry, reason: str) -> None:
        """The same."""


NOBODY = _Nobody()
"""What is delivered is never refused, and its consumer awaits no answer."""


class StreamAccount:
    """One stream's.

    Args:
        number: The stream's, for the quota server.

    Attributes:
        queued: Entries of which the quota server has been told so far that they wait.
        settled: How many of them, from the first, have gone, were refused or were dropped.
        behind: Entries that wait and of which it has not been told yet.
        by_queue: Whether each entry is the quota server's; as long as it is not known what applies, it is.
        is_metered: Whether permits are the quota server's, likewise.
        leases: What was lent of the stream's limits.
        is_rejected: Whether some limit refuses what is over it: then each entry is queued at once, or the quota server
            could not tell what came behind others that it holds from what it is to refuse.
        answering: Answers its client.
        is_leaving: Whether its client has gone, and what waits was withdrawn: nothing of it is queued any more.
        grant: Passes permits on to the broker.
        entries: So many passed by what was lent, since that was told last; and messages and bytes.
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
        """Queued entries of which the quota server has not said that they may go."""
        return self.queued - self.settled

    @property
    def may_queue(self) -> bool:
        """Whether the next entry gets one; where it must, what waits is bounded by the room for what is held."""
        return not self.behind and not self.is_leaving and (self.is_rejected or self.outstanding < WINDOW)

    @property
    def due(self) -> int:
        """For how many of those behind there are to be queued entries now."""
        if self.is_rejected:
            return 0 if self.is_leaving else len(self.behind)
        if self.outstanding > WINDOW // 2 or (self.outstanding and self.has_credit):
            return 0
        return min(len(self.behind), WINDOW - self.outstanding)

    @property
    def has_credit(self) -> bool:
        """Whether something is lent of every limit, so that nobody is known to wait there."""
        return not self.by_queue and all(lease.is_open for lease in self.leases)

    def behind_sums(self) -> tuple[int, int, int]:
        """Entries, messages and bytes that wait and are not queued."""
        behind = self.behind
        return len(behind), sum([entry.messages for entry in behind]), sum([entry.size for entry in behind])

    def take(self, messages: int, size: int) -> bool:
        """Take so much of what was lent of every limit, if all of it fits; else nothing."""
        for position, lease in enumerate(self.leases):
            if not lease.fits(messages, size):
                for charged in self.leases[:position]:
                    charged.refund(messages, size)
                return False
            lease.charge(messages, size)
        return True

    def count(self, entries: int, messages: int, size: int, largest: tuple[int, int]) -> None:
        """So much passed by what was lent; and the largest entry's messages and bytes."""
        self.entries += entries
        self.messages += messages
        self.size += size
        self.largest_messages = max(self.largest_messages, largest[0])
        self.largest_size = max(self.largest_size, largest[1])

    def take_passed(self) -> PassedByLease:
        """What that was since the last time."""
        limiters = [lease.number for lease in self.leases]
        largest = self.largest_messages, self.largest_size
        passed = PassedByLease(self.number, self.entries, self.messages, self.size, *largest, limiters)
        self.entries = self.messages = self.size = self.largest_messages = self.largest_size = 0
        return passed


class WorkerLeases:
    """One lease for each limit that some stream is within.

    Args:
        tell: Takes what is to be told the quota server.
        give_back: Takes what ends a loan.
    """

    def __init__(self, tell: Callable[[Message], None], give_back: Callable[[Spent], None]) -> None:
        self._by_number: dict[int, WorkerLease] = {}
        self._tell = tell
        self._end = give_back

    @property
    def are_closed(self) -> bool:
        """Whether nothing is lent."""
        return not any(lease.is_open for lease in self._by_number.values())

    def use(self, account: StreamAccount, numbers: Iterable[int]) -> None:
        """These limits apply to a stream; what no stream is within any more is given back."""
        leases = tuple([self._of(number) for number in numbers])
        for lease in leases:
            lease.streams += 1
        before, account.leases = account.leases, leases
        for lease in before:
            lease.streams -= 1
            if lease.streams == 0:
                self._give_back(lease)
                del self._by_number[lease.number]

    def lent(self, number: int, messages: int | None, size: int | None) -> None:
        """More is there; of a limit that no stream is within any more, nothing is needed."""
        lease = self._by_number.get(number)
        if lease is None:
            self._end(Spent(number, 0, 0, messages or 0, size or 0))
        else:
            lease.lend(messages, size)

    def recalled(self, number: int) -> None:
        """The quota server wants all back; it gets an answer whatever there is."""
        self._give_back(self._by_number.get(number) or WorkerLease(number), is_answer=True)

    def report(self) -> None:
        """Tell what was used; what was not, since this was asked last, is given back."""
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
