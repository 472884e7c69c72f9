"""Token leases of a worker, and the account of each of its streams.

A `StreamAccount` has what was passed or held of a stream and was not told the quota server yet.
"""

from collections import deque
from collections.abc import Callable, Iterable

from limiter.limiter import Answering, Entry, Stream
from limiter.workers.messages import Message, PassedByLease, Spent


class WorkerLease:
    """Counts down what was lent, and adds up what was used of it.

    Args:
        number: The limit's, as its judge says it.

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
"""EntryQueue of one stream that the judge has at one time: as many as go in some round trips, however much is held."""


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
        number: The stream's, for the judge.

    Attributes:
        tickets: Entries of which the judge has been told so far that they wait.
        settled: How many of them, from the first, have gone, were refused or were dropped.
        behind: Entries that wait and of which it has not been told yet.
        by_ticket: Whether each entry is the judge's; as long as it is not known what applies, it is.
        is_metered: Whether permits are the judge's, likewise.
        purses: What was lent of the stream's limits.
        is_rejected: Whether some limit refuses what is over it: then each entry gets its ticket at once, or the judge
            could not tell what came behind others that it holds from what it is to refuse.
        answering: Answers its client.
        is_leaving: Whether its client has gone, and what waits was withdrawn: nothing of it gets a ticket any more.
        grant: Passes permits on to the broker.
        entries: So many passed by what was lent, since that was told last; and messages and bytes.
    """

    __slots__ = (
        "answering",
        "behind",
        "by_ticket",
        "entries",
        "grant",
        "is_leaving",
        "is_metered",
        "is_rejected",
        "largest_messages",
        "largest_size",
        "messages",
        "number",
        "purses",
        "settled",
        "size",
        "tickets",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.tickets = 0
        self.behind: deque[Entry] = deque()
        self.settled = 0
        self.by_ticket = True
        self.is_metered = True
        self.purses: tuple[WorkerLease, ...] = ()
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
        """EntryQueue of which the judge has not said that they may go."""
        return self.tickets - self.settled

    @property
    def may_have_ticket(self) -> bool:
        """Whether the next entry gets one; where it must, what waits is bounded by the room for what is held."""
        return not self.behind and not self.is_leaving and (self.is_rejected or self.outstanding < WINDOW)

    @property
    def tickets_due(self) -> int:
        """For how many of those behind there are to be tickets now."""
        if self.is_rejected:
            return 0 if self.is_leaving else len(self.behind)
        if self.outstanding > WINDOW // 2 or (self.outstanding and self.has_credit):
            return 0
        return min(len(self.behind), WINDOW - self.outstanding)

    @property
    def has_credit(self) -> bool:
        """Whether something is lent of every limit, so that nobody is known to wait there."""
        return not self.by_ticket and all(purse.is_open for purse in self.purses)

    def behind_sums(self) -> tuple[int, int, int]:
        """Entries, messages and bytes that wait without tickets."""
        behind = self.behind
        return len(behind), sum([entry.messages for entry in behind]), sum([entry.size for entry in behind])

    def take(self, messages: int, size: int) -> bool:
        """Take so much of what was lent of every limit, if all of it fits; else nothing."""
        for position, purse in enumerate(self.purses):
            if not purse.fits(messages, size):
                for charged in self.purses[:position]:
                    charged.refund(messages, size)
                return False
            purse.charge(messages, size)
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
        limiters = [purse.number for purse in self.purses]
        largest = self.largest_messages, self.largest_size
        passed = PassedByLease(self.number, self.entries, self.messages, self.size, *largest, limiters)
        self.entries = self.messages = self.size = self.largest_messages = self.largest_size = 0
        return passed


class WorkerLeases:
    """One purse for each limit that some stream is within.

    Args:
        tell: Takes what is to be told the judge.
        give_back: Takes what ends a loan.
    """

    def __init__(self, tell: Callable[[Message], None], give_back: Callable[[Spent], None]) -> None:
        self._by_number: dict[int, WorkerLease] = {}
        self._tell = tell
        self._end = give_back

    @property
    def are_closed(self) -> bool:
        """Whether nothing is lent."""
        return not any(purse.is_open for purse in self._by_number.values())

    def use(self, account: StreamAccount, numbers: Iterable[int]) -> None:
        """These limits apply to a stream; what no stream is within any more is given back."""
        purses = tuple([self._of(number) for number in numbers])
        for purse in purses:
            purse.streams += 1
        before, account.purses = account.purses, purses
        for purse in before:
            purse.streams -= 1
            if purse.streams == 0:
                self._give_back(purse)
                del self._by_number[purse.number]

    def lent(self, number: int, messages: int | None, size: int | None) -> None:
        """More is there; of a limit that no stream is within any more, nothing is needed."""
        purse = self._by_number.get(number)
        if purse is None:
            self._end(Spent(number, 0, 0, messages or 0, size or 0))
        else:
            purse.lend(messages, size)

    def recalled(self, number: int) -> None:
        """The judge wants all back; it gets an answer whatever there is."""
        self._give_back(self._by_number.get(number) or WorkerLease(number), is_answer=True)

    def report(self) -> None:
        """Tell what was used; what was not, since this was asked last, is given back."""
        for purse in self._by_number.values():
            if purse.is_open and not purse.is_used:
                self._give_back(purse)
            elif purse.is_open:
                self._tell(Spent(purse.number, *purse.take_used(), 0, 0, wants_more=True))

    def _of(self, number: int) -> WorkerLease:
        purse = self._by_number.get(number)
        if purse is None:
            purse = self._by_number[number] = WorkerLease(number)
        return purse

    def _give_back(self, purse: WorkerLease, *, is_answer: bool = False) -> None:
        used = purse.take_used()
        self._end(Spent(purse.number, *used, *purse.empty(), is_answer=is_answer))
