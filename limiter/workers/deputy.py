"""The gate of a worker: what fits what it was lent passes at once, of all else the judge says when it may go.

    offered ──fits what was lent──▶ passed, told later                       (`admit`, `pass_entry`)
       └─────else──▶ held here, its ticket at the judge ──Released──▶ passed (`hold`, `_judged`)
                                                        └──Rejected──▶ refused, its client is told

It decides nothing: whose turn it is, the judge says (`judge.py`). Nothing of a stream overtakes what is held of it.
"""

from collections.abc import Callable, Iterable
from functools import partial

from limiter.gate import Gate
from limiter.journal import Unnoted
from limiter.limiter import Limiter
from limiter.stream import Answering, Entry, Stream
from limiter.workers.account import Account, settle_first
from limiter.workers.letters import (
    Answer,
    Asked,
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
    Recalled,
    Rejected,
    Released,
    Ticket,
    Verdict,
    Wired,
    Withdrawn,
)
from limiter.workers.mail import Alert, Mail
from limiter.workers.purses import Purses
from limiter.workers.questions import Questions

LONGEST_NS = 1_000_000_000
"""What has waited for longer was throttled, which is to be seen: it goes by ticket to the end."""


class Deputy(Gate):
    """Lets entries pass or wait as it was told.

    Args:
        alert: Told that there is something to tell the judge.
        tells_all: What consumers pass is told soon even where their permits are not metered.
    """

    def __init__(self, alert: Alert, *, tells_all: bool = False) -> None:
        super().__init__(_never, Unnoted())
        self._alert = alert
        self._mail = Mail(alert, tells_all=tells_all)
        self._accounts: dict[Stream, Account] = {}
        self._streams: dict[int, Stream] = {}
        self._purses = Purses(self._mail.tell)
        self._questions = Questions(self._mail.tell)
        self._last = 0

    # ---- what sessions say

    def open(self, stream: Stream, topic: str, whose: tuple[int, str, str, str]) -> None:
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
        dropped, account = self.drop_held(stream, now), self._accounts.pop(stream, None)
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
        self._mail.tell(Asked(self._accounts[stream].number, permits, is_granted))

    def forgo(self, stream: Stream) -> None:
        """A consumer wants no more permits, nor those that are on their way."""
        account = self._accounts.get(stream)
        if account is not None:
            account.grant = _nothing_granted
            self._mail.tell(Forgone(account.number))

    def ask_again(self, stream: Stream, messages: int) -> None:
        """Of what was dropped, a consumer's client still counts on so many messages."""
        self._mail.tell(Withdrawn(self._accounts[stream].number, messages))

    # ---- the gate

    def admit(self, stream: Stream, messages: int, size: int, now: int) -> bool:  # noqa: ARG002 - as the gate's
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

    def hold(self, stream: Stream, entry: Entry, now: int) -> None:  # noqa: ARG002 - as the gate's
        """Keep `entry` until the judge releases it, or until what is before it has gone."""
        stream.held.append(entry)
        if entry.is_free:
            return
        account = self._accounts[stream]
        self._mail.settle(account)
        if account.may_have_ticket:
            self._send_ticket(account, entry)
        else:
            account.behind.append(entry)
            self._mail.wait(account)

    def when_decided(self, streams: Iterable[Stream], then: Callable[[], None]) -> None:
        """Call `then` when what is held of these streams is held by a limit, and not only on its way to be judged.

        As long as nothing of a stream had to wait, what came behind it is on its way, too. From one that had to, all
        that waits is withdrawn before; so what the judge let go meanwhile, and has counted, still goes.
        """
        asked = [(account, account.tickets) for account in map(self._accounts.get, streams) if account is not None]
        asked = [(account, tickets) for account, tickets in asked if account.outstanding]
        if asked:
            self._questions.ask(partial(self._decided, asked, then))
        else:
            then()

    def _decided(self, asked: list[tuple[Account, int]], then: Callable[[], None]) -> None:
        present = [(account, tickets) for account, tickets in asked if account.number in self._streams]
        waiting = [account for account, tickets in present if account.settled < tickets]
        going = [self._streams[account.number] for account, tickets in present if account.settled >= tickets]
        if not waiting:
            self.when_decided(going, then)
            return
        for account in waiting:
            account.is_leaving = True
            self._mail.tell(Withdrawn(account.number, 0))
        self._questions.ask(partial(self.when_decided, going, then))

    def drop_held(self, stream: Stream, now: int) -> list[Entry]:  # noqa: ARG002 - as the gate's
        """Forget what is held of a stream, and give it back."""
        dropped = list(stream.held)
        stream.held.clear()
        account = self._accounts.get(stream)
        if account is not None and account.outstanding:
            account.settled = account.tickets
            self._mail.tell(Withdrawn(account.number, 0))
        if account is not None and account.behind:
            messages, size = account.behind_sums()
            self._mail.tell(Discarded(account.number, len(account.behind), messages, size))
            account.behind.clear()
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
                    self._purses.use(account, limiters)
                    if is_rejected:
                        self._send_tickets(account)

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing that `report` would tell."""
        return not self._mail.only_counts and self._purses.are_closed

    def take(self) -> list[Letter]:
        """What is to be told soon."""
        return self._mail.take()

    def report(self) -> list[Letter]:
        """All that there is to tell: also what only counts. Loans that were not used meanwhile are given back."""
        self._mail.settle_all()
        self._purses.report()
        return self._mail.take()

    def _judged(self, number: int, tickets: int, refusal: str, now: int) -> None:
        """All up to this ticket go, or are refused for a reason."""
        stream = self._streams.get(number)
        if stream is None:
            return
        account = self._accounts[stream]
        try:
            while account.settled < tickets:
                account.settled += 1
                settle_first(stream, account, refusal)
        finally:  # whatever one entry's `release` raises, the others go on: nobody releases them again
            if account.settled < tickets:
                self._judged(number, tickets, refusal, now)
            elif account.behind and not account.is_leaving:
                self._go_on(stream, account, now)

    def _go_on(self, stream: Stream, account: Account, now: int) -> None:
        """What is behind goes by what was lent, if anything is, once all tickets have gone; else it gets tickets.

        With tickets alone a stream that once had to wait, as all do at first, would stay in that under full load.
        """
        try:
            self._pass_behind(stream, account, now)
        finally:
            self._send_tickets(account)

    def _pass_behind(self, stream: Stream, account: Account, now: int) -> None:
        while account.behind and not account.outstanding and not account.by_ticket:
            entry = account.behind[0]
            if now - entry.since > LONGEST_NS or not account.take(entry.charged, entry.size):
                break
            account.behind.popleft()
            self.count_admitted(stream, (1, entry.messages, entry.size), (entry.messages, entry.size))
            settle_first(stream, account, "")

    def _send_tickets(self, account: Account) -> None:
        due = account.tickets_due if account.behind else 0
        if due > 0:
            self._mail.settle(account)
        for _ in range(due):
            self._send_ticket(account, account.behind.popleft())

    def _send_ticket(self, account: Account, entry: Entry) -> None:
        account.tickets += 1
        self._mail.tell(Ticket(account.number, entry.messages, entry.size, entry.since))


def _nothing_granted(_permits: int) -> None:
    """Who is about to end has no use for them."""


def _never(limiter: Limiter, at_ns: int) -> None:
    """A worker waits for nothing but its judge."""
