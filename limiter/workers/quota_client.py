"""The quota client of a worker enforces limits from token leases; entries beyond the leases wait for the quota server.

    offered ──fits what was lent──▶ passed, told later                       (`admit`, `pass_entry`)
       └─────else──▶ held here, queued at the quota server ──Released──▶ passed (`hold`, `EntryQueue`)
                                                        └──Rejected──▶ refused, its client is told

The quota server decides the order (`quota_server.py`). Nothing of a stream overtakes what is held of it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from limiter.limiter import Answering, Entry, RateLimiter, Stream
from limiter.permits import Permits
from limiter.workers.messages import (
    Answer,
    Asked,
    Batch,
    Behind,
    Closed,
    Confirmed,
    Discarded,
    Forgone,
    Granted,
    Lent,
    Message,
    Named,
    Opened,
    Overdrawn,
    Question,
    QueuedEntry,
    QuotaVerdict,
    Recalled,
    Rejected,
    Released,
    Rewound,
    Spent,
    Wired,
    Withdrawn,
)
from limiter.workers.worker_leases import StreamAccount, WorkerLease, WorkerLeases


class Alert(Protocol):
    """The worker's process, which sends what the quota client has to tell."""

    def soon(self) -> None:
        """Send at the end of the turn: a client, or another worker, waits for it."""

    def sometime(self) -> None:
        """Send before the next interval ends: only counts have changed."""


class WorkerOutbox:
    """Collects messages to the quota server in order: urgent ones are sent soon, counts before an interval ends.

    Args:
        alert: Told that there is something to send.
        tells_all: What consumers pass is told soon even where their permits are not metered.
    """

    def __init__(self, alert: Alert, *, tells_all: bool) -> None:
        self._alert = alert
        self._tells_all = tells_all
        self._messages: list[Message] = []
        self._asked: dict[tuple[int, bool], int] = {}
        """The place of a stream's last `Asked` among the messages, if only `Asked` and `Rewound` come after it."""
        self._rewound: set[int] = set()
        self._counted: dict[StreamAccount, None] = {}
        self._hasty: dict[StreamAccount, None] = {}
        self._low: dict[WorkerLease, None] = {}
        self._waiting: dict[StreamAccount, None] = {}

    @property
    def has_counts(self) -> bool:
        """True if there are counts to send that nobody waits for."""
        return bool(self._counted or self._waiting)

    def tell(self, message: Message) -> None:
        """Append a message."""
        if not self._messages:
            self._alert.soon()
        if self._asked or self._rewound:
            self._asked.clear()
            self._rewound.clear()
        self._messages.append(message)

    def ask(self, stream: int, permits: int, *, is_granted: bool) -> None:
        """Ask for permits of a consumer, in one message for all that it asks for in a turn of the loop.

        A client sends a million FLOWs in a second for as many bytes as a message has; the supervisor reads them all.
        """
        key = stream, is_granted
        place = self._asked.get(key)
        if place is None:
            if not self._messages:
                self._alert.soon()
            self._asked[key] = len(self._messages)
            self._messages.append(Asked(stream, permits, is_granted))
            return
        before = self._messages[place]
        assert isinstance(before, Asked), "its place is that of such a message"
        self._messages[place] = Asked(stream, before.permits + permits, is_granted)

    def rewind(self, stream: int) -> None:
        """Tell of redelivery to a consumer, once in a turn, if nothing else is told meanwhile."""
        if stream in self._rewound:
            return
        if not self._messages:
            self._alert.soon()
        for is_granted in (False, True):
            self._asked.pop((stream, is_granted), None)
        self._rewound.add(stream)
        self._messages.append(Rewound(stream))

    def give_back(self, message: Spent) -> None:
        """Append the end of a loan, behind all that passed by it."""
        for account in list(self._counted):
            self.settle(account)
        self.tell(message)

    def count(self, account: StreamAccount, *, is_consumer: bool) -> None:
        """Note that entries of a stream passed by its leases."""
        if is_consumer and (account.is_metered or self._tells_all):
            self._hasty[account] = None
            self._alert.soon()
        elif account not in self._counted:
            self._alert.sometime()
        self._counted[account] = None
        for lease in account.leases:
            if lease.is_low and lease not in self._low:
                self._low[lease] = None
                self._alert.soon()

    def settle(self, account: StreamAccount) -> None:
        """Tell what passed of a stream before anything later about it is told."""
        self._counted.pop(account, None)
        self._hasty.pop(account, None)
        if account.entries:
            self.tell(account.take_passed())

    def wait(self, account: StreamAccount) -> None:
        """Note that an entry of a stream waits here and is not queued."""
        self._waiting[account] = None

    def forget(self, account: StreamAccount) -> None:
        """Tell the last counts of a stream that ends."""
        self._waiting.pop(account, None)
        self.settle(account)

    def settle_all(self) -> None:
        """Tell all counts."""
        for account in list(self._counted):
            self.settle(account)
        for account in list(self._waiting):
            self._messages.append(Behind(account.number, *account.behind_sums()))
            if not account.behind:
                del self._waiting[account]
        self._low.clear()

    def take(self) -> list[Message]:
        """Remove and return the urgent messages."""
        for account in list(self._hasty):
            self.settle(account)
        for lease in self._low:
            if lease.is_open:
                self._messages.append(Spent(lease.number, *lease.take_used(), 0, 0, wants_more=True))
        self._low.clear()
        messages, self._messages = self._messages, []
        self._asked.clear()
        self._rewound.clear()
        return messages


LONGEST_NS = 1_000_000_000
"""An entry that has waited for longer was throttled, which is to be seen: the queue decides on it to the end."""


class Questions:
    """The open questions of a worker to its quota server, by number, each with what follows the answer.

    Args:
        tell: Takes messages to the quota server.
    """

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self._tell = tell
        self._open: dict[int, Callable[[], None]] = {}
        self._last = 0

    def ask(self, then: Callable[[], None]) -> None:
        """Call `then` once the quota server has taken all earlier messages and its replies have been obeyed."""
        self._last += 1
        self._open[self._last] = then
        self._tell(Question(self._last))

    def answered(self, number: int) -> None:
        """Act on the answer to a question."""
        self._open.pop(number)()


class EntryQueue:
    """Holds the waiting entries of all streams of a worker; the quota server decides on those that are queued there.

        held ──the quota server may have more of its stream──▶ queued ──decided──▶ passed, or refused
          └──else──▶ behind ──all queued entries have gone, and it fits what was lent──▶ passed
                        └──else, when others have gone──▶ queued

    Each stream's `StreamAccount` knows its queued entries, and what waits behind them.

    Args:
        outbox: Takes messages to the quota server.
        questions: Asks the quota server.
    """

    def __init__(self, outbox: WorkerOutbox, questions: Questions) -> None:
        self._outbox = outbox
        self._questions = questions

    def hold(self, account: StreamAccount, entry: Entry) -> None:
        """Let an entry wait behind all held entries of its stream."""
        self._outbox.settle(account)
        if account.may_queue:
            self._send(account, entry)
        else:
            account.behind.append(entry)
            self._outbox.wait(account)

    def settle(self, stream: Stream, account: StreamAccount, until: int, refusal: str, now: int) -> None:
        """Pass the queued entries up to number `until`, or refuse them if there is a refusal."""
        try:
            while account.settled < until:
                account.settled += 1
                _settle_first(stream, account, refusal)
        finally:  # whatever one entry's `release` raises, the others go on: nobody releases them again
            if account.settled < until:
                self.settle(stream, account, until, refusal, now)
            elif account.behind and not account.is_leaving:
                self._go_on(stream, account, now)

    def send_due(self, account: StreamAccount) -> None:
        """Queue entries that wait here, as many as the quota server may have now."""
        due = account.due if account.behind else 0
        if due > 0:
            self._outbox.settle(account)
        for _ in range(due):
            self._send(account, account.behind.popleft())

    def drop(self, account: StreamAccount) -> None:
        """Drop the held entries of a stream: withdraw those that are queued."""
        if account.outstanding:
            account.settled = account.queued
            self._outbox.tell(Withdrawn(account.number, 0))
        if account.behind:
            self._outbox.tell(Discarded(account.number, *account.behind_sums()))
            account.behind.clear()

    def when_decided(self, accounts: Iterable[StreamAccount], then: Callable[[], None]) -> None:
        """Call `then` once limits hold the held entries of these streams: none awaits a decision any more.

        As long as nothing of a stream had to wait, what came behind it is on its way, too. From one that had to, all
        that waits is withdrawn before; so what the quota server let go meanwhile, and has counted, still goes.
        """
        asked = [(account, account.queued) for account in accounts if account.outstanding]
        if asked:
            self._questions.ask(partial(self._decided, asked, then))
        else:
            then()

    def _decided(self, asked: list[tuple[StreamAccount, int]], then: Callable[[], None]) -> None:
        waiting = [account for account, queued in asked if account.settled < queued]
        going = [account for account, queued in asked if account.settled >= queued]
        if not waiting:
            self.when_decided(going, then)
            return
        for account in waiting:
            account.is_leaving = True
            self._outbox.tell(Withdrawn(account.number, 0))
        self._questions.ask(partial(self.when_decided, going, then))

    def _go_on(self, stream: Stream, account: StreamAccount, now: int) -> None:
        """Pass the entries behind the queue by lent tokens, once all queued ones have gone; else queue them.

        With the queue alone a stream that has waited once, as all do at first, would stay in it under full load.
        """
        try:
            self._pass_behind(stream, account, now)
        finally:
            self.send_due(account)

    def _pass_behind(self, stream: Stream, account: StreamAccount, now: int) -> None:
        while account.behind and not account.outstanding and not account.by_queue:
            entry = account.behind[0]
            if now - entry.since > LONGEST_NS or not account.take(entry.charged, entry.size, now):
                break
            account.behind.popleft()
            account.count(1, entry.messages, entry.size, (entry.messages, entry.size))
            self._outbox.count(account, is_consumer=stream.permits is not None)
            _settle_first(stream, account, "")

    def _send(self, account: StreamAccount, entry: Entry) -> None:
        account.queued += 1
        must_wait = account.by_queue and not account.answering.may_refuse(entry)
        self._outbox.tell(QueuedEntry(account.number, entry.messages, entry.size, entry.since, must_wait))


def _settle_first(stream: Stream, account: StreamAccount, refusal: str) -> None:
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


class QuotaClient(RateLimiter):
    """The rate limiter of a worker: passes what its leases cover, and lets the quota server decide on the rest.

    Its streams have no limiters here; so nothing is ever refused here, and `count_rejected` is not for it.

    Args:
        alert: Told that there is something to tell the quota server.
        tells_all: What consumers pass is told soon even where their permits are not metered, and what of it they want
            again.
    """

    def __init__(self, alert: Alert, *, tells_all: bool = False) -> None:
        self._alert = alert
        self._tells_all = tells_all
        self._outbox = WorkerOutbox(alert, tells_all=tells_all)
        self._accounts: dict[Stream, StreamAccount] = {}
        self._streams: dict[int, Stream] = {}
        self._leases = WorkerLeases(self._outbox.tell, self._outbox.give_back)
        self._questions = Questions(self._outbox.tell)
        self._entries = EntryQueue(self._outbox, self._questions)
        self._last = 0

    # ---- what sessions say

    def open(self, stream: Stream, topic: str, whose: tuple[int, str, str, str, bool]) -> None:
        """Open a stream; the quota server decides on each of its entries until it has sent the stream's limits."""
        self._last += 1
        self._accounts[stream] = StreamAccount(self._last)
        self._streams[self._last] = stream
        name = stream.name
        names = name.producer_name, name.subscription, name.consumer_name
        self._outbox.tell(Opened(self._last, name.direction, topic, name.stream_id, *names, whose))

    def meter(self, stream: Stream, grant: Callable[[int], None]) -> None:
        """Make an open stream a consumer's; `grant` passes its permits on."""
        self._accounts[stream].grant = grant

    def answer(self, stream: Stream, answering: Answering) -> None:
        """Make an open stream a producer's."""
        self._accounts[stream].answering = answering

    def name(self, stream: Stream, producer_name: str) -> None:
        """Tell the name that the broker gave a producer."""
        if stream in self._accounts:
            self._outbox.tell(Named(self._accounts[stream].number, producer_name))

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """Close a stream; return the entries that it held."""
        dropped = self.drop_held(stream, now)
        account = self._accounts.pop(stream, None)
        if account is None:
            return dropped
        del self._streams[account.number]
        self._outbox.forget(account)
        self._leases.use(account, [])
        self._outbox.tell(Closed(account.number))
        return dropped

    def is_metered(self, stream: Stream) -> bool:
        """Return whether the quota server meters a consumer's permits."""
        return self._accounts[stream].is_metered

    def ask(self, stream: Stream, permits: int, *, is_granted: bool) -> None:
        """Ask for permits of a consumer, or tell of permits that passed because nothing limits it."""
        self._outbox.ask(self._accounts[stream].number, permits, is_granted=is_granted)

    def overdraw(self, stream: Stream, permits: int) -> None:
        """Tell that the broker took more permits for a delivery than limits count for it."""
        self._outbox.tell(Overdrawn(self._accounts[stream].number, permits))

    def rewound(self, stream: Stream) -> None:
        """Tell that a consumer's client had the broker asked to deliver messages again."""
        account = self._accounts.get(stream)
        if account is not None and self._tells_all:
            self._outbox.rewind(account.number)

    def forgo(self, stream: Stream) -> None:
        """Stop asking for permits of a consumer, and grant it none that are on their way."""
        account = self._accounts.get(stream)
        if account is not None:
            account.grant = _nothing_granted
            self._outbox.tell(Forgone(account.number))

    def ask_again(self, stream: Stream, messages: int) -> None:
        """Ask again for permits of messages that were dropped and that the consumer's client still counts on."""
        self._outbox.tell(Withdrawn(self._accounts[stream].number, messages))

    def when_decided(self, streams: Iterable[Stream], then: Callable[[], None]) -> None:
        """Call `then` once limits hold the held entries of these streams: none awaits a decision any more."""
        accounts = [self._accounts.get(stream) for stream in streams]
        self._entries.when_decided([account for account in accounts if account is not None], then)

    # ---- the passage

    def admit(self, stream: Stream, messages: int, size: int, now: int) -> bool:
        """Charge a chunk's worth to the leases if all of it fits and nothing is held, else charge nothing."""
        account = self._accounts[stream]
        return not stream.held and not account.by_queue and account.take(messages, size, now)

    def withdraw(self, stream: Stream, messages: int, size: int) -> None:
        """Undo an `admit` of the same instant."""
        for lease in self._accounts[stream].leases:
            lease.refund(messages, size)

    def count_admitted(self, stream: Stream, counts: tuple[int, int, int], largest: tuple[int, int]) -> None:
        """Count what was admitted."""
        account = self._accounts[stream]
        account.count(counts[0], counts[1], counts[2], largest)
        self._outbox.count(account, is_consumer=stream.permits is not None)

    def pass_entry(self, stream: Stream, messages: int, size: int, now: int) -> bool:
        """Charge and count one entry if it fits the leases, else do nothing."""
        if not self.admit(stream, stream.charged(1, messages), size, now):
            return False
        self.count_admitted(stream, (1, messages, size), (messages, size))
        return True

    def count_offered(self, stream: Stream, entries: int, messages: int, size: int) -> None:
        """Do nothing: the quota server counts what is offered."""

    def count_dropped(self, stream: Stream, messages: int, size: int) -> None:
        """Count an entry of a stream that ended before the entry could be held."""
        account = self._accounts.get(stream)
        self._outbox.tell(Discarded(0 if account is None else account.number, 1, messages, size))

    def hold(self, stream: Stream, entry: Entry, now: int) -> None:  # noqa: ARG002 - as a Passage
        """Hold `entry` until the quota server releases it, or until the entries before it have gone."""
        stream.held.append(entry)
        if entry.is_free:
            return
        self._entries.hold(self._accounts[stream], entry)

    def drop_held(self, stream: Stream, now: int) -> list[Entry]:  # noqa: ARG002 - as a Passage
        """Drop and return a stream's held entries."""
        dropped = list(stream.held)
        stream.held.clear()
        account = self._accounts.get(stream)
        if account is not None:
            self._entries.drop(account)
        return dropped

    # ---- what the quota server says

    def obey(self, verdict: QuotaVerdict, now: int) -> None:  # noqa: C901 - one line for each
        """Obey one message of the quota server; messages about streams that have ended do nothing."""
        match verdict:
            case Released(number, queued):
                self._settle(number, queued, "", now)
            case Rejected(number, queued, reason):
                self._settle(number, queued, reason, now)
            case Lent(number, messages, size, until):
                self._leases.lent(number, messages, size, until)
                self._alert.sometime()
            case Batch(number):
                self._outbox.tell(Confirmed(number))
            case Answer(number):
                self._questions.answered(number)
            case Granted(number, permits):
                if number in self._streams:
                    self._accounts[self._streams[number]].grant(permits)
            case Recalled(number):
                self._leases.recalled(number)
            case Wired(number, limiters, by_queue, is_metered, is_rejected):
                if number in self._streams:
                    account = self._accounts[self._streams[number]]
                    account.by_queue, account.is_metered, account.is_rejected = by_queue, is_metered, is_rejected
                    self._outbox.settle(account)
                    self._leases.use(account, limiters)
                    if is_rejected:
                        self._entries.send_due(account)

    def _settle(self, number: int, queued: int, refusal: str, now: int) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            self._entries.settle(stream, self._accounts[stream], queued, refusal, now)

    # ---- what the quota server is told

    @property
    def is_at_rest(self) -> bool:
        """True if `report` would tell nothing."""
        return not self._outbox.has_counts and self._leases.are_closed

    def take(self) -> list[Message]:
        """Remove and return the urgent messages."""
        return self._outbox.take()

    def report(self) -> list[Message]:
        """Remove and return all messages, counts included, and give back loans not used since the last report."""
        self._outbox.settle_all()
        self._leases.report()
        return self._outbox.take()


def _nothing_granted(_permits: int) -> None:
    """Grant nothing: the consumer is about to end."""


class WorkerPermits(Permits):
    """The worker's side of a consumer's permits, which the quota server meters.

    Args:
        stream: The consumer.
        quota_client: Passes on what the consumer asks.
    """

    def __init__(self, stream: Stream, quota_client: QuotaClient) -> None:
        super().__init__(stream.usage, _no_permits_granted, _nothing)
        self._stream = stream
        self._quota_client = quota_client

    @property
    def is_metered(self) -> bool:
        """True if FLOW must be held back, as it must until the quota server has sent the limits."""
        return self._quota_client.is_metered(self._stream)

    def may_pass(self, permits: int) -> bool:  # noqa: ARG002 - as Permits; how much room there is, the quota server knows
        """Return whether a FLOW may pass as it came."""
        return not self.is_metered

    def ask(self, permits: int, *, as_it_came: bool = False) -> bool:
        """Ask for more permits; return whether the client's FLOW is to go on as it is."""
        is_granted = as_it_came and self.may_pass(permits)
        self._quota_client.ask(self._stream, permits, is_granted=is_granted)
        return is_granted

    def arrived(self, entries: int, messages: int, size: int) -> None:
        """Do nothing: the queued entry tells it."""

    def crossed(self, entries: int, messages: int, size: int) -> None:
        """Do nothing: the counts of what passed tell it."""

    def passed(self, messages: int, size: int) -> None:
        """Do nothing: the quota server knows."""

    def dropped(self, entries: int, messages: int, size: int, *, ask_again: bool) -> None:  # noqa: ARG002 - as Permits
        """Tell which of the dropped messages the client still counts on; the quota server knows of the drop."""
        if ask_again and messages:
            self._quota_client.ask_again(self._stream, messages)

    def overdraw(self, permits: int) -> None:
        """Tell that the broker took more permits than limits count."""
        self._quota_client.overdraw(self._stream, permits)

    def rewound(self) -> None:
        """Tell that the broker was asked to deliver messages again."""
        self._quota_client.rewound(self._stream)

    def forgo(self) -> None:
        """Stop asking: the consumer is about to end."""
        self._quota_client.forgo(self._stream)


def _nothing() -> None:
    """Do nothing: the quota client tells of changes."""


def _no_permits_granted(permits: int) -> None:
    """Grant nothing: the quota server grants permits."""
