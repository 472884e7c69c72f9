"""What a worker's gate knows of one stream, and has not told its judge yet."""

from collections import deque
from collections.abc import Callable, Iterable

from limiter.limiter import Answering, Entry, Stream
from limiter.workers.letters import Letter, Passed, Spent
from limiter.workers.purse import Purse

WINDOW = 256
"""Tickets of one stream that the judge has at one time: as many as go in some round trips, however much is held."""


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


class Account:
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
        self.purses: tuple[Purse, ...] = ()
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
        """Tickets of which the judge has not said that they may go."""
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

    def take_passed(self) -> Passed:
        """What that was since the last time."""
        limiters = [purse.number for purse in self.purses]
        largest = self.largest_messages, self.largest_size
        passed = Passed(self.number, self.entries, self.messages, self.size, *largest, limiters)
        self.entries = self.messages = self.size = self.largest_messages = self.largest_size = 0
        return passed


class Purses:
    """One purse for each limit that some stream is within.

    Args:
        tell: Takes what is to be told the judge.
        give_back: Takes what ends a loan.
    """

    def __init__(self, tell: Callable[[Letter], None], give_back: Callable[[Spent], None]) -> None:
        self._by_number: dict[int, Purse] = {}
        self._tell = tell
        self._end = give_back

    @property
    def are_closed(self) -> bool:
        """Whether nothing is lent."""
        return not any(purse.is_open for purse in self._by_number.values())

    def use(self, account: Account, numbers: Iterable[int]) -> None:
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
        self._give_back(self._by_number.get(number) or Purse(number), is_answer=True)

    def report(self) -> None:
        """Tell what was used; what was not, since this was asked last, is given back."""
        for purse in self._by_number.values():
            if purse.is_open and not purse.is_used:
                self._give_back(purse)
            elif purse.is_open:
                self._tell(Spent(purse.number, *purse.take_used(), 0, 0, wants_more=True))

    def _of(self, number: int) -> Purse:
        purse = self._by_number.get(number)
        if purse is None:
            purse = self._by_number[number] = Purse(number)
        return purse

    def _give_back(self, purse: Purse, *, is_answer: bool = False) -> None:
        used = purse.take_used()
        self._end(Spent(purse.number, *used, *purse.empty(), is_answer=is_answer))
