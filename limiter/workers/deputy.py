"""The gate of a worker: what fits what it was lent passes at once, of all else the judge says when it may go.

    offered ──fits what was lent──▶ passed, told later                       (`admit`, `pass_entry`)
       └─────else──▶ held here, its ticket at the judge ──Released──▶ passed (`hold`, `tickets.py`)
                                                        └──Rejected──▶ refused, its client is told

It decides nothing: whose turn it is, the judge says (`judge.py`). Nothing of a stream overtakes what is held of it.
"""

from collections.abc import Callable, Iterable

from limiter.limiter import Answering, Entry, RateLimiter, Stream
from limiter.workers.account import Account, Purses
from limiter.workers.letters import (
    Answer,
    Batch,
    Closed,
    Confirmed,
    Discarded,
    Forgone,
    Granted,
    Lent,
    Letter,
    Named,
    Opened,
    Overdrawn,
    Recalled,
    Rejected,
    Released,
    Verdict,
    Wired,
    Withdrawn,
)
from limiter.workers.mail import Alert, Mail
from limiter.workers.tickets import Questions, Tickets


class Deputy(RateLimiter):
    """Lets entries pass or wait as it was told.

    Its streams have no limiters here; so nothing is ever refused here, and `count_rejected` is not for it.

    Args:
        alert: Told that there is something to tell the judge.
        tells_all: What consumers pass is told soon even where their permits are not metered, and what of it they want
            again.
    """

    def __init__(self, alert: Alert, *, tells_all: bool = False) -> None:
        self._alert = alert
        self._tells_all = tells_all
        self._mail = Mail(alert, tells_all=tells_all)
        self._accounts: dict[Stream, Account] = {}
        self._streams: dict[int, Stream] = {}
        self._purses = Purses(self._mail.tell, self._mail.give_back)
        self._questions = Questions(self._mail.tell)
        self._tickets = Tickets(self._mail, self._questions)
        self._last = 0

    # ---- what sessions say

    def open(self, stream: Stream, topic: str, whose: tuple[int, str, str, str, bool]) -> None:
        """A stream begins; each of its entries is the judge's until that says what applies."""
        self._last += 1
        self._accounts[stream] = Account(self._last)
        self._streams[self._last] = stream
        name = stream.name
        names = name.producer_name, name.subscription, name.consumer_name
        self._mail.tell(Opened(self._last, name.direction, topic, name.stream_id, *names, whose))

    def meter(self, stream: Stream, grant: Callable[[int], None]) -> None:
        """A stream that was opened is a consumer's."""
        self._accounts[stream].grant = grant

    def answer(self, stream: Stream, answering: Answering) -> None:
        """A stream that was opened is a producer's."""
        self._accounts[stream].answering = answering

    def name(self, stream: Stream, producer_name: str) -> None:
        """The broker named a producer."""
        if stream in self._accounts:
            self._mail.tell(Named(self._accounts[stream].number, producer_name))

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """A stream is over. Gives back what it held."""
        dropped = self.drop_held(stream, now)
        account = self._accounts.pop(stream, None)
        if account is None:
            return dropped
        del self._streams[account.number]
        self._mail.forget(account)
        self._purses.use(account, [])
        self._mail.tell(Closed(account.number))
        return dropped

    def is_metered(self, stream: Stream) -> bool:
        """Whether a consumer's permits are the judge's."""
        return self._accounts[stream].is_metered

    def ask(self, stream: Stream, permits: int, *, is_granted: bool) -> None:
        """A consumer asks for permits, or has been given some as nothing limits it."""
        self._mail.ask(self._accounts[stream].number, permits, is_granted=is_granted)

    def overdraw(self, stream: Stream, permits: int) -> None:
        """For a delivery the broker took so many more permits of a consumer than limits count of it."""
        self._mail.tell(Overdrawn(self._accounts[stream].number, permits))

    def rewound(self, stream: Stream) -> None:
        """A consumer's client had the broker asked to deliver again what it had delivered."""
        account = self._accounts.get(stream)
        if account is not None and self._tells_all:
            self._mail.rewind(account.number)

    def forgo(self, stream: Stream) -> None:
        """A consumer wants no more permits, nor those that are on their way."""
        account = self._accounts.get(stream)
        if account is not None:
            account.grant = _nothing_granted
            self._mail.tell(Forgone(account.number))

    def ask_again(self, stream: Stream, messages: int) -> None:
        """Of what was dropped, a consumer's client still counts on so many messages."""
        self._mail.tell(Withdrawn(self._accounts[stream].number, messages))

    def when_decided(self, streams: Iterable[Stream], then: Callable[[], None]) -> None:
        """Call `then` when what is held of these streams is held by a limit, and not only on its way to be judged."""
        accounts = [self._accounts.get(stream) for stream in streams]
        self._tickets.when_decided([account for account in accounts if account is not None], then)

    # ---- the passage

    def admit(self, stream: Stream, messages: int, size: int, now: int) -> bool:  # noqa: ARG002 - as a Passage
        """Take a chunk's worth of what was lent, if all of it fits and nothing is held; else nothing."""
        account = self._accounts[stream]
        return not stream.held and not account.by_ticket and account.take(messages, size)

    def withdraw(self, stream: Stream, messages: int, size: int) -> None:
        """Undo an `admit` of the same instant."""
        for purse in self._accounts[stream].purses:
            purse.refund(messages, size)

    def count_admitted(self, stream: Stream, counts: tuple[int, int, int], largest: tuple[int, int]) -> None:
        """Note what was admitted."""
        account = self._accounts[stream]
        account.count(counts[0], counts[1], counts[2], largest)
        self._mail.count(account, is_consumer=stream.permits is not None)

    def pass_entry(self, stream: Stream, messages: int, size: int, now: int) -> bool:
        """Take what one entry needs of what was lent, and count it; or do nothing."""
        if not self.admit(stream, stream.charged(1, messages), size, now):
            return False
        self.count_admitted(stream, (1, messages, size), (messages, size))
        return True

    def count_offered(self, stream: Stream, entries: int, messages: int, size: int) -> None:
        """Counted where it is decided."""

    def count_dropped(self, stream: Stream, messages: int, size: int) -> None:
        """What arrived of a stream that ended before it could be held."""
        account = self._accounts.get(stream)
        self._mail.tell(Discarded(0 if account is None else account.number, 1, messages, size))

    def hold(self, stream: Stream, entry: Entry, now: int) -> None:  # noqa: ARG002 - as a Passage
        """Keep `entry` until the judge releases it, or until what is before it has gone."""
        stream.held.append(entry)
        if entry.is_free:
            return
        self._tickets.hold(self._accounts[stream], entry)

    def drop_held(self, stream: Stream, now: int) -> list[Entry]:  # noqa: ARG002 - as a Passage
        """Forget what is held of a stream, and give it back."""
        dropped = list(stream.held)
        stream.held.clear()
        account = self._accounts.get(stream)
        if account is not None:
            self._tickets.drop(account)
        return dropped

    # ---- what the judge says

    def obey(self, verdict: Verdict, now: int) -> None:  # noqa: C901 - one line for each
        """Do what one letter says; of a stream that is over, nothing."""
        match verdict:
            case Released(number, tickets):
                self._judged(number, tickets, "", now)
            case Rejected(number, tickets, reason):
                self._judged(number, tickets, reason, now)
            case Lent(number, messages, size):
                self._purses.lent(number, messages, size)
                self._alert.sometime()
            case Batch(number):
                self._mail.tell(Confirmed(number))
            case Answer(number):
                self._questions.answered(number)
            case Granted(number, permits):
                if number in self._streams:
                    self._accounts[self._streams[number]].grant(permits)
            case Recalled(number):
                self._purses.recalled(number)
            case Wired(number, limiters, by_ticket, is_metered, is_rejected):
                if number in self._streams:
                    account = self._accounts[self._streams[number]]
                    account.by_ticket, account.is_metered, account.is_rejected = by_ticket, is_metered, is_rejected
                    self._mail.settle(account)
                    self._purses.use(account, limiters)
                    if is_rejected:
                        self._tickets.send_due(account)

    def _judged(self, number: int, tickets: int, refusal: str, now: int) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            self._tickets.judged(stream, self._accounts[stream], tickets, refusal, now)

    # ---- what the judge is told

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing that `report` would tell."""
        return not self._mail.has_counts and self._purses.are_closed

    def take(self) -> list[Letter]:
        """What is to be told soon."""
        return self._mail.take()

    def report(self) -> list[Letter]:
        """All that there is to tell: also what only counts. Loans that were not used meanwhile are given back."""
        self._mail.settle_all()
        self._purses.report()
        return self._mail.take()


def _nothing_granted(_permits: int) -> None:
    """Who is about to end has no use for them."""
