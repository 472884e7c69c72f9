"""The quota server decides on all entries of one worker that the worker's leases do not cover.

A worker passes by itself what it was lent tokens for (`lease_issuer.py`). Each other entry is queued here: the
scheduler that would hold the entry in a proxy of one process holds an entry without bytes in its place, and gives
turns to all. So everything that is true of the scheduler is true over all workers. Each stream of the worker has a
`RemoteStream`.

    QueuedEntry ──▶ scheduler ──▶ Released: lent, until the worker confirms that the entry has gone on (`Departures`)
                        └──over a limit that refuses──▶ Rejected, once nothing is lent in its way (`DeferredRejections`)

`hear` does what the worker's messages say. Only an `Opened` is the caller's: the connection of a new stream is known to
the process, not to this package.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from limiter.levels import Client, Topic
from limiter.limiter import Amount, Entry, Limiter, Stream, refusal_of, rejecting
from limiter.registry import Registry
from limiter.scheduler import Scheduler, lent_in_the_way
from limiter.usage import Passed
from limiter.workers.lease_issuer import LeaseIssuer
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
    PassedByLease,
    Question,
    QueuedEntry,
    Recalled,
    Rejected,
    Released,
    Rewound,
    Spent,
    Wired,
    Withdrawn,
    WorkerReport,
)


class RemoteStream:
    """Represents one stream of a worker in the process that has the limits.

    Args:
        number: The worker's number of the stream.
        stream: The stream that stands for it here.

    Attributes:
        queued: Entries that waited so far.
        settled: How many of them, from the first, were released, refused or withdrawn.
        behind: Entries, messages and bytes behind these of which it was told so far, and which have not come up since.
        limiters: The limits that the worker knows of the stream.
        rejected_from: Since when some of them refuses what is over it, as far as the worker knows; None if none does.
        is_followed: Whether the worker knows the last message under way, behind whose receipt an error has its place:
            it does if nothing has passed or been withdrawn yet, and else if what passed last was released while a limit
            refused.
    """

    __slots__ = ("behind", "is_followed", "limiters", "number", "queued", "rejected_from", "settled", "stream")

    def __init__(self, number: int, stream: Stream) -> None:
        self.number = number
        self.stream = stream
        self.queued = 0
        self.settled = 0
        self.limiters: tuple[Limiter, ...] = ()
        self.rejected_from: int | None = None
        self.is_followed = True
        self.behind: Passed = (0, 0, 0)

    def hold_behind(self, behind: Passed) -> None:
        """Set what waits in the worker and is not queued yet; all of it counts as offered."""
        self._offer_behind(behind[0] - self.behind[0], behind[1] - self.behind[1], behind[2] - self.behind[2])

    def comes_up(self, entries: int, messages: int, size: int) -> None:
        """Count queued entries as offered, those first that were counted while they waited in the worker."""
        if entries >= self.behind[0]:
            entries, messages, size = self.behind
        self._offer_behind(-entries, -messages, -size)

    def _offer_behind(self, entries: int, messages: int, size: int) -> None:
        usage, behind = self.stream.usage, self.behind
        usage.add_offered(entries, messages, size)
        usage.held_messages += messages
        usage.held_size += size
        self.behind = behind[0] + entries, behind[1] + messages, behind[2] + size

    def heed_modes(self, now: int) -> None:
        """Note whether a limit of the stream rejects now; the worker is told."""
        if not self.stream.is_rejected:
            self.rejected_from = None
        elif self.rejected_from is None:
            self.rejected_from = now

    def wiring(self, numbers: Mapping[Limiter, int]) -> Wired:
        """Return the message that tells the worker the stream's limits, by these numbers."""
        stream, is_rejected = self.stream, self.rejected_from is not None
        by_queue = is_rejected or (stream.observed is not None and bool(stream.observed.chain))
        is_metered = stream.permits is not None and stream.permits.is_metered
        limiters = [numbers[limiter] for limiter in self.limiters]
        return Wired(self.number, limiters, by_queue, is_metered, is_rejected)


class VerdictQueue:
    """Collects the messages for the worker until the connection takes them.

    Decisions about one stream keep their order. Several of one kind about one stream are told once.

    Args:
        numbers: Of limiters, as the worker knows them.
        woken: Called when there is something.
    """

    def __init__(self, numbers: Mapping[Limiter, int], woken: Callable[[], None]) -> None:
        self._numbers = numbers
        self._woken = woken
        self._earlier: list[Message] = []
        self._wired: dict[RemoteStream, None] = {}
        self._messages: list[Message] = []
        self._released: dict[RemoteStream, None] = {}
        self._granted: dict[int, int] = {}
        self._answers: list[Message] = []

    def say(self, message: Message) -> None:
        """Append a message."""
        self._messages.append(message)
        self._woken()

    def wired(self, remote: RemoteStream) -> None:
        """Have a stream's limits told, behind all earlier decisions about other streams."""
        if self._released or self._messages:
            self._earlier += self._decided()
        self._wired[remote] = None
        self._woken()

    def released(self, remote: RemoteStream) -> None:
        """Release the next queued entry of a stream."""
        remote.settled += 1
        self._released[remote] = None
        self._woken()

    def rejected(self, remote: RemoteStream, reason: str) -> None:
        """Refuse the next queued entry of a stream."""
        self.settle(remote)
        remote.settled += 1
        last = self._messages[-1] if self._messages else None
        if isinstance(last, Rejected) and last.stream == remote.number and last.reason == reason:
            last.queued = remote.settled
        else:
            self._messages.append(Rejected(remote.number, remote.settled, reason))
        self._woken()

    def settle(self, remote: RemoteStream) -> None:
        """Tell what is released of a stream before anything later about it is told."""
        if remote in self._released:
            del self._released[remote]
            self._messages.append(Released(remote.number, remote.settled))

    def granted(self, number: int, permits: int) -> None:
        """Pass permits on to a consumer."""
        self._granted[number] = self._granted.get(number, 0) + permits
        self._woken()

    def answered(self, question: int) -> None:
        """Answer a question, behind all decisions made so far."""
        self._answers.append(Answer(question))
        self._woken()

    def forget(self, remote: RemoteStream) -> None:
        """Drop the messages about a stream that has ended."""
        self._wired.pop(remote, None)
        self._released.pop(remote, None)
        self._granted.pop(remote.number, None)

    def take(self, batch: Message | None) -> list[Message]:
        """Remove and return all messages, with `batch` behind the releases that it numbers."""
        messages, self._earlier = self._earlier, []
        messages += self._decided()
        messages += [Granted(number, permits) for number, permits in self._granted.items()]
        self._granted.clear()
        if batch is not None:
            messages.append(batch)
        messages += self._answers
        self._answers.clear()
        return messages

    def _decided(self) -> list[Message]:
        messages: list[Message] = [remote.wiring(self._numbers) for remote in self._wired]
        self._wired.clear()
        messages += self._messages
        self._messages.clear()
        messages += [Released(remote.number, remote.settled) for remote in self._released]
        self._released.clear()
        return messages


Decide = Callable[[Entry, int], None]
"""Decides about an entry, at a moment."""


class DeferredRejections:
    """Defers rejections that depend on tokens lent to workers; the quota servers of all workers share it.

    A limit in mode `reject` refuses what is over it at once. One process would refuse, hold or pass the entry. While a
    limiter in its way has lent tokens, nobody knows which: the worker that has them may use them or give them back. So
    the case is adjourned: what was lent is recalled, and the entry waits at the scheduler as any held one. Entries that
    still wait when nothing is lent any more are judged as if they came now.

        entry ──lent in its way──▶ adjourned, waits at the scheduler ──all given back──▶ passed, refused or held
                                          └──tokens come first──▶ passed

    Args:
        gate: The scheduler of all streams.
        recall: Has all workers give back what they were lent of a limit (`QuotaServer.recall` of each).
            The scheduler does so wherever a stream begins to wait: no other is to overtake it.
    """

    def __init__(self, gate: Scheduler, recall: Callable[[Limiter], None]) -> None:
        self.recall = recall
        self._gate = gate
        gate.recall_by(recall)
        self._cases: dict[Stream, Decide] = {}

    def adjourn(self, stream: Stream, decide: Decide, lent: list[Limiter]) -> None:
        """Decide on a stream's entries only once these limiters have their lent tokens back."""
        self._cases[stream] = decide
        for limiter in lent:
            self.recall(limiter)

    def close(self, stream: Stream) -> None:
        """End the deferral of a stream: its entries wait as under any limit, or it has ended."""
        self._cases.pop(stream, None)

    def returned(self, limiter: Limiter, now: int) -> None:
        """Decide all deferred entries under a limiter in the order of arrival, if nothing of it is lent any more.

        First all of them leave the gate, or they would be in each other's way.
        """
        if limiter.borrowers or not self._cases:
            return
        ready: list[tuple[int, Entry, Decide]] = []
        for stream in [stream for stream in self._cases if limiter in stream.chain]:
            decide = self._cases.pop(stream)
            ready += [(entry.since, entry, decide) for entry in self._gate.take_back(stream, now)]
        ready.sort(key=_since)
        for _, entry, decide in ready:
            decide(entry, now)


def _since(one: tuple[int, Entry, Decide]) -> int:
    return one[0]


NO_DELAY_NS = 5_000_000
"""An entry that has waited for less has only been on its way."""


class Departures:
    """The entries that were released and may not have left their worker yet, in batches that the worker confirms.

    A released entry counts as lent: between this decision and the moment that the entry leaves some time passes, and in
    that moment it counts (`TokenBucket.lend`).
    """

    def __init__(self) -> None:
        self._going: dict[Limiter, list[int]] = {}
        self._unconfirmed: dict[int, dict[Limiter, list[int]]] = {}
        self._batch = 0

    @property
    def is_any(self) -> bool:
        """True if some entry may not have left yet."""
        return bool(self._going or self._unconfirmed)

    def add(self, limiters: Iterable[Limiter], messages: int, size: int) -> None:
        """Add a released entry that was charged to these limiters."""
        for limiter in limiters:
            limiter.release(messages, size)
            going = self._going.setdefault(limiter, [0, 0])
            going[0] += messages
            going[1] += size

    def batch(self) -> Batch | None:
        """Number the entries released since the last batch, to be confirmed; return None if there are none."""
        if not self._going:
            return None
        self._batch += 1
        self._unconfirmed[self._batch], self._going = self._going, {}
        return Batch(self._batch)

    def confirmed(self, batch: int, now: int) -> None:
        """Remove a batch: its entries have gone on, or never will."""
        _gone(self._unconfirmed.pop(batch, {}), now)

    def lose(self, now: int) -> None:
        """Count all entries as gone now, because the worker has ended."""
        for batch in [*self._unconfirmed.values(), self._going]:
            _gone(batch, now)
        self._unconfirmed.clear()
        self._going = {}


def _gone(batch: dict[Limiter, list[int]], now: int) -> None:
    for limiter, (messages, size) in batch.items():
        limiter.gone(messages, size, now)


class QuotaServer:
    """Decides for one worker which entries pass, wait or are refused.

    Args:
        registry: All limits.
        gate: The scheduler of all streams.
        woken: Called when there is something to tell the worker; the caller then takes it in its own time.
        deferred: The deferred rejections, which the quota servers of all workers share.
    """

    def __init__(
        self, registry: Registry, gate: Scheduler, woken: Callable[[], None], deferred: DeferredRejections
    ) -> None:
        self.lending = LeaseIssuer()
        self._registry = registry
        self._gate = gate
        self._deferred = deferred
        self._remote_streams: dict[int, RemoteStream] = {}
        self._by_stream: dict[Stream, RemoteStream] = {}
        self._numbers: dict[Limiter, int] = {}
        self._limiters: dict[int, Limiter] = {}
        self._used_by: dict[Limiter, int] = {}
        self._last_limiter = 0
        self._verdicts = VerdictQueue(self._numbers, woken)
        self._departures = Departures()

    @property
    def is_at_rest(self) -> bool:
        """True if nothing of the worker is open, lent, or released and not confirmed."""
        return not (self._remote_streams or self.lending.loans or self._departures.is_any)

    @property
    def awaits_confirmation(self) -> bool:
        """True if some release is not confirmed."""
        return self._departures.is_any

    def stream(self, number: int) -> Stream | None:
        """Return the stream that stands here for one of the worker's; None if that has ended."""
        remote = self._remote_streams.get(number)
        return None if remote is None else remote.stream

    def open(self, number: int, stream: Stream, topic: Topic, client: Client, now: int) -> None:
        """Open a stream of the worker, for which `stream` stands here."""
        remote = RemoteStream(number, stream)
        stream.release = self._release
        stream.is_accepted = True
        self._remote_streams[number] = self._by_stream[stream] = remote
        self._registry.open(stream, topic, now, client)
        if stream.name.direction == "dispatch":
            self._registry.meter(stream, partial(self._verdicts.granted, number))
        self.wired(stream, 0)  # what came before its limits were found is judged by them, too

    def close(self, number: int, now: int) -> None:
        """Close a stream."""
        remote = self._remote_streams.pop(number, None)
        if remote is None:
            return
        self._drop_behind(remote)
        del self._by_stream[remote.stream]
        self._verdicts.forget(remote)
        self._deferred.close(remote.stream)
        self._use(remote, ())
        self._registry.close(remote.stream, now)

    def offered(self, number: int, messages: int, size: int, when: tuple[int, int], *, must_wait: bool = False) -> None:
        """Pass, refuse or hold a queued entry; `when` is since when it waits, and now."""
        remote = self._remote_streams.get(number)
        if remote is None:
            return
        stream, gate, (since, now) = remote.stream, self._gate, when
        remote.queued += 1
        gate.count_offered(stream, 1, messages, size)
        remote.comes_up(1, messages, size)
        if now - since < NO_DELAY_NS and gate.pass_entry(stream, messages, size, now):
            self._let_go(remote, stream.charged(1, messages), size)
        else:
            entry = Entry(b"", messages, size, 0, since, charged=stream.charged(1, messages), must_wait=must_wait)
            self._refuse_or_hold(remote, entry, now)
        if stream.held:
            self._recall_for(stream, now)
        elif remote.rejected_from is None:
            self._lend(stream.chain, now)

    def behind(self, number: int, counts: Passed) -> None:
        """Count entries, messages and bytes of a stream that wait in the worker and are not queued."""
        remote = self._remote_streams.get(number)
        if remote is not None:
            remote.hold_behind(counts)
            self._gate.note(remote.stream)

    def withdrawn(self, number: int, asked: int, now: int) -> None:
        """Drop what waits of a stream; a consumer's client still counts on `asked` messages of it."""
        remote = self._remote_streams.get(number)
        if remote is None:
            return
        dropped = self._gate.drop_held(remote.stream, now)
        self._deferred.close(remote.stream)
        self._verdicts.settle(remote)
        remote.settled, remote.is_followed = remote.queued, False
        permits = remote.stream.permits
        if permits is not None:
            messages, size = (sum(entry.messages for entry in dropped), sum(entry.size for entry in dropped))
            permits.dropped(len(dropped), messages, size, ask_again=False)
            permits.ask_again(asked)

    def passed(self, number: int, counts: Passed, largest: Amount, limiters: list[int]) -> None:
        """Count entries that passed by leases of these limits."""
        remote = self._remote_streams.get(number)
        if remote is None:
            return
        stream, remote.is_followed = remote.stream, False
        charged = tuple([self._limiters[limiter] for limiter in limiters if limiter in self._limiters])
        if charged == stream.chain:
            self._gate.count_admitted(stream, counts, largest)
        else:
            self._gate.count_charged(stream, charged, counts, largest)
        entries, messages, size = counts
        remote.comes_up(entries, messages, size)
        for limiter in charged:
            self.lending.counted(limiter, stream.charged(entries, messages), size)
        if stream.permits is not None:
            stream.permits.crossed(*counts)

    def named(self, number: int, producer_name: str, now: int) -> None:
        """Note the name that the broker gave a producer."""
        remote = self._remote_streams.get(number)
        if remote is not None:
            self._registry.name(remote.stream, producer_name, now)

    def discarded(self, number: int, counts: tuple[int, int, int]) -> None:
        """Count entries that were dropped before they were queued."""
        remote = self._remote_streams.get(number)
        if remote is not None:
            stream, (_, messages, size) = remote.stream, counts
            self._gate.count_offered(stream, *counts)
            remote.comes_up(*counts)
            if stream.permits is not None:
                stream.permits.dropped(*counts, ask_again=False)
            self._gate.count_dropped(stream, messages, size)

    def asked(self, number: int, permits: int, *, is_granted: bool) -> None:
        """Ask for a consumer's permits, or count those that it was given."""
        remote = self._remote_streams.get(number)
        if remote is None or remote.stream.permits is None:
            return
        if is_granted:
            remote.stream.permits.pass_through(permits)
        else:
            remote.stream.permits.ask(permits)

    def overdrawn(self, number: int, permits: int) -> None:
        """Note that the broker took more of a consumer's permits than limits count."""
        remote = self._remote_streams.get(number)
        if remote is not None and remote.stream.permits is not None:
            remote.stream.permits.overdraw(permits)

    def rewound(self, number: int) -> None:
        """Note that the broker is to deliver messages to a consumer again."""
        remote = self._remote_streams.get(number)
        if remote is not None and remote.stream.permits is not None:
            remote.stream.permits.rewound()

    def forgone(self, number: int) -> None:
        """Stop granting permits to a consumer."""
        remote = self._remote_streams.get(number)
        if remote is not None and remote.stream.permits is not None:
            remote.stream.permits.forgo()

    def spent(self, message: Spent, now: int) -> None:
        """Account for lent tokens that were used or given back."""
        limiter = self._limiters.get(message.limiter)
        if limiter is None:
            return
        used, unused = ((message.messages, message.size), (message.unused_messages, message.unused_size))
        self.lending.spent(limiter, used, unused, now, is_answer=message.is_answer)
        if not message.wants_more:
            self.lending.all_is_counted(limiter)
        self._forget_unused(limiter)
        self._deferred.returned(limiter, now)
        if limiter.waiters and any(unused):
            self._gate.serve(limiter, now)
        elif message.wants_more:
            self._lend((limiter,), now)

    def confirmed(self, batch: int, now: int) -> None:
        """Note that a batch of released entries has gone on, or never will."""
        self._departures.confirmed(batch, now)

    def asked_about(self, question: int) -> None:
        """Answer the worker once it has been told of all queued entries that may go at once."""
        self._verdicts.answered(question)

    def wired(self, stream: Stream, now: int) -> None:
        """Put a stream of this worker under its new limits, where its held entries wait on; ignore other streams."""
        remote = self._by_stream.get(stream)
        if remote is not None:
            self._verdicts.wired(remote)
            self._deferred.close(stream)
            self._use(remote, stream.chain)
            remote.heed_modes(now)

    def tuned(self, limiter: Limiter, now: int) -> None:
        """Recall loans of a limit that has another value, and tell streams if it begins or ends to reject."""
        self.recall(limiter)
        for stream in limiter.streams:
            remote = self._by_stream.get(stream)
            if remote is not None and stream.is_rejected != (remote.rejected_from is not None):
                self.wired(stream, now)

    def recall(self, limiter: Limiter) -> None:
        """Recall the loan of a limiter, if there is one: a stream waits there, or its value has changed."""
        if self.lending.recall(limiter):
            self._verdicts.say(Recalled(self._numbers[limiter]))

    def take(self) -> list[Message]:
        """Remove and return the messages for the worker."""
        return self._verdicts.take(self._departures.batch())

    def lose(self, now: int) -> Amount:
        """Close all streams because the worker has ended; return the tokens that it was lent or left unconfirmed."""
        limiters = list(self.lending.loans)
        lost = self.lending.lose(now)
        self._departures.lose(now)
        remotes = list(self._remote_streams)
        for number in remotes:
            self.close(number, now)
        for limiter in limiters:
            self._deferred.returned(limiter, now)
        return lost

    def _drop_behind(self, remote: RemoteStream) -> None:
        """Count as dropped what waited in a worker that has ended."""
        entries, messages, size = remote.behind
        if entries:
            self._gate.count_offered(remote.stream, entries, messages, size)
            remote.comes_up(entries, messages, size)
            self._gate.count_dropped(remote.stream, messages, size)

    def _refuse_or_hold(self, remote: RemoteStream, entry: Entry, now: int) -> None:
        """An entry may not pass, or has waited already. Refused is what comes while a limit refuses, and no other."""
        stream, rejected_from = remote.stream, None if entry.must_wait else remote.rejected_from
        if rejected_from is not None and not stream.held and rejected_from <= entry.since and remote.is_followed:
            limiter, lent = rejecting(stream, now), lent_in_the_way(stream, now)
            if limiter is not None and (not lent or not (limiter.borrowers or limiter.is_open(now))):
                self._gate.count_rejected(stream, limiter, entry.messages, entry.size)
                self._verdicts.rejected(remote, refusal_of(limiter))
                return
            if lent:
                self._deferred.adjourn(stream, partial(self._refuse_or_hold, remote), lent)
            else:
                self._deferred.close(stream)
        self._gate.hold(stream, entry, now)

    def _release(self, stream: Stream, entry: Entry) -> None:
        """Release a held entry; called by the scheduler."""
        self._let_go(self._by_stream[stream], entry.charged, entry.size)

    def _let_go(self, remote: RemoteStream, messages: int, size: int) -> None:
        remote.is_followed = remote.rejected_from is not None
        self._verdicts.released(remote)
        self._departures.add(remote.stream.chain, messages, size)

    def _lend(self, limiters: Iterable[Limiter], now: int) -> None:
        for limiter in limiters:
            if limiter not in self._numbers:
                continue
            lent = self.lending.lend(limiter, now)
            if lent is not None:
                self._verdicts.say(Lent(self._numbers[limiter], *lent))

    def _recall_for(self, stream: Stream, now: int) -> None:
        """Recall loans of limiters ahead of a waiting stream, which may be closed only because of them."""
        for limiter in stream.chain:
            if limiter.borrowers and not limiter.is_open(now):
                self._deferred.recall(limiter)

    def _use(self, remote: RemoteStream, chain: tuple[Limiter, ...]) -> None:
        """The worker knows those limits by number that its streams are within, or that it has a loan of."""
        for limiter in chain:
            if limiter not in self._numbers:
                self._last_limiter += 1
                self._numbers[limiter] = self._last_limiter
                self._limiters[self._last_limiter] = limiter
            self._used_by[limiter] = self._used_by.get(limiter, 0) + 1
        before, remote.limiters = remote.limiters, chain
        for limiter in before:
            self._used_by[limiter] -= 1
            self._forget_unused(limiter)

    def _forget_unused(self, limiter: Limiter) -> None:
        if not self._used_by.get(limiter) and limiter not in self.lending.loans:
            self._used_by.pop(limiter, None)
            del self._limiters[self._numbers.pop(limiter)]


def hear(quota_server: QuotaServer, message: WorkerReport, now: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one line for each
    """Take a message; what it says of a stream that is over does nothing."""
    match message:
        case QueuedEntry(number, messages, size, since, must_wait):
            quota_server.offered(number, messages, size, (min(since, now), now), must_wait=must_wait)
        case Confirmed(batch):
            quota_server.confirmed(batch, now)
        case PassedByLease(number, entries, messages, size, largest_messages, largest_size, limiters):
            quota_server.passed(number, (entries, messages, size), (largest_messages, largest_size), limiters)
        case Spent():
            quota_server.spent(message, now)
        case Asked(number, permits, is_granted):
            quota_server.asked(number, permits, is_granted=is_granted)
        case Withdrawn(number, asked):
            quota_server.withdrawn(number, asked, now)
        case Named(number, producer_name):
            quota_server.named(number, producer_name, now)
        case Forgone(number):
            quota_server.forgone(number)
        case Overdrawn(number, permits):
            quota_server.overdrawn(number, permits)
        case Rewound(number):
            quota_server.rewound(number)
        case Discarded(number, entries, messages, size):
            quota_server.discarded(number, (entries, messages, size))
        case Behind(number, entries, messages, size):
            quota_server.behind(number, (entries, messages, size))
        case Question(number):
            quota_server.asked_about(number)
        case Closed(number):
            quota_server.close(number, now)
        case Opened():
            raise ValueError("the caller opens streams: this package does not know connections")
