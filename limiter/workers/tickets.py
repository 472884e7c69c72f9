"""What a worker holds, and how it goes: each entry by its ticket, as the judge says, or behind those that have one.

    held ──the judge may have more of its stream──▶ ticket ──judged──▶ passed, or refused
      └──else──▶ behind ──all tickets have gone, and it fits what was lent──▶ passed
                    └──else, when others have gone──▶ ticket

Of which tickets the judge has been told, and what waits behind them, each stream's `Account` knows.
"""

from collections.abc import Callable, Iterable
from functools import partial

from limiter.limiter import Entry, Stream
from limiter.workers.account import Account
from limiter.workers.letters import Discarded, Letter, Question, Ticket, Withdrawn
from limiter.workers.mail import Mail

LONGEST_NS = 1_000_000_000
"""What has waited for longer was throttled, which is to be seen: it goes by ticket to the end."""


class Questions:
    """What a worker has asked its judge, by number, and what it does when that has answered.

    Args:
        tell: Takes what is to be told the judge.
    """

    def __init__(self, tell: Callable[[Letter], None]) -> None:
        self._tell = tell
        self._open: dict[int, Callable[[], None]] = {}
        self._last = 0

    def ask(self, then: Callable[[], None]) -> None:
        """Call `then` when the judge has heard all that was told so far, and what it said to that has been heard."""
        self._last += 1
        self._open[self._last] = then
        self._tell(Question(self._last))

    def answered(self, number: int) -> None:
        """It says so."""
        self._open.pop(number)()


class Tickets:
    """Those of all streams of a worker.

    Args:
        mail: Takes what the judge is to be told.
        questions: Asks the judge.
    """

    def __init__(self, mail: Mail, questions: Questions) -> None:
        self._mail = mail
        self._questions = questions

    def hold(self, account: Account, entry: Entry) -> None:
        """An entry waits, behind all that its stream holds."""
        self._mail.settle(account)
        if account.may_have_ticket:
            self._send(account, entry)
        else:
            account.behind.append(entry)
            self._mail.wait(account)

    def judged(self, stream: Stream, account: Account, until: int, refusal: str, now: int) -> None:
        """All up to the ticket with this number go, or are refused for a reason if there is one."""
        try:
            while account.settled < until:
                account.settled += 1
                _settle_first(stream, account, refusal)
        finally:  # whatever one entry's `release` raises, the others go on: nobody releases them again
            if account.settled < until:
                self.judged(stream, account, until, refusal, now)
            elif account.behind and not account.is_leaving:
                self._go_on(stream, account, now)

    def send_due(self, account: Account) -> None:
        """Those that are behind get their tickets, as many as the judge may have now."""
        due = account.tickets_due if account.behind else 0
        if due > 0:
            self._mail.settle(account)
        for _ in range(due):
            self._send(account, account.behind.popleft())

    def drop(self, account: Account) -> None:
        """What is held of a stream will not go: its tickets are taken back."""
        if account.outstanding:
            account.settled = account.tickets
            self._mail.tell(Withdrawn(account.number, 0))
        if account.behind:
            self._mail.tell(Discarded(account.number, *account.behind_sums()))
            account.behind.clear()

    def when_decided(self, accounts: Iterable[Account], then: Callable[[], None]) -> None:
        """Call `then` when what is held of these streams is held by a limit, and not only on its way to be judged.

        As long as nothing of a stream had to wait, what came behind it is on its way, too. From one that had to, all
        that waits is withdrawn before; so what the judge let go meanwhile, and has counted, still goes.
        """
        asked = [(account, account.tickets) for account in accounts if account.outstanding]
        if asked:
            self._questions.ask(partial(self._decided, asked, then))
        else:
            then()

    def _decided(self, asked: list[tuple[Account, int]], then: Callable[[], None]) -> None:
        waiting = [account for account, tickets in asked if account.settled < tickets]
        going = [account for account, tickets in asked if account.settled >= tickets]
        if not waiting:
            self.when_decided(going, then)
            return
        for account in waiting:
            account.is_leaving = True
            self._mail.tell(Withdrawn(account.number, 0))
        self._questions.ask(partial(self.when_decided, going, then))

    def _go_on(self, stream: Stream, account: Account, now: int) -> None:
        """What is behind goes by what was lent, if anything is, once all tickets have gone; else it gets tickets.

        With tickets alone a stream that once had to wait, as all do at first, would stay in that under full load.
        """
        try:
            self._pass_behind(stream, account, now)
        finally:
            self.send_due(account)

    def _pass_behind(self, stream: Stream, account: Account, now: int) -> None:
        while account.behind and not account.outstanding and not account.by_ticket:
            entry = account.behind[0]
            if now - entry.since > LONGEST_NS or not account.take(entry.charged, entry.size):
                break
            account.behind.popleft()
            account.count(1, entry.messages, entry.size, (entry.messages, entry.size))
            self._mail.count(account, is_consumer=stream.permits is not None)
            _settle_first(stream, account, "")

    def _send(self, account: Account, entry: Entry) -> None:
        account.tickets += 1
        must_wait = account.by_ticket and not account.answering.may_refuse(entry)
        self._mail.tell(Ticket(account.number, entry.messages, entry.size, entry.since, must_wait))


def _settle_first(stream: Stream, account: Account, refusal: str) -> None:
    """The first held entry goes, or is refused for that reason if there is one; the commands behind it go."""
    entry = stream.held.popleft()
    try:
        if refusal:
            account.answering.refused(stream, entry, refusal)
        else:
            if account.is_rejected:
                account.answering.accepted(stream, entry)
            stream.release(stream, entry)
    finally:
        while stream.held and stream.held[0].is_free:
            stream.release(stream, stream.held.popleft())
