"""The quota server of one worker decides about all that the worker's leases do not cover.

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
    Report,
    Rewound,
    Spent,
    Wired,
    Withdrawn,
)


class RemoteStream:
    """Represents one stream of the worker where the limits are.

    Args:
        number: The worker's for it.
        stream: What stands for it.

    Attributes:
        queued: Entries that waited so far.
        settled: How many of them, from the first, were released, refused or withdrawn.
        behind: Entries, messages and bytes behind these of which it was told so far, and which have not come up since.
        limiters: Those that the worker knows it to be within.
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
        """So many entries, messages and bytes are held besides that are not queued yet; all were offered."""
        self._offer_behind(behind[0] - self.behind[0], behind[1] - self.behind[1], behind[2] - self.behind[2])

    def comes_up(self, entries: int, messages: int, size: int) -> None:
        """So much more was offered; but first of all that comes what was behind, which is counted already."""
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
        """Its limits may have other modes now; the worker is told them."""
        if not self.stream.is_rejected:
            self.rejected_from = None
        elif self.rejected_from is None:
            self.rejected_from = now

    def wiring(self, numbers: Mapping[Limiter, int]) -> Wired:
        """What the worker is to know of its limits, which it knows by these numbers."""
        stream, is_rejected = self.stream, self.rejected_from is not None
        by_queue = is_rejected or (stream.observed is not None and bool(stream.observed.chain))
        is_metered = stream.permits is not None and stream.permits.is_metered
        limiters = [numbers[limiter] for limiter in self.limiters]
        return Wired(self.number, limiters, by_queue, is_metered, is_rejected)


class VerdictQueue:
    """Collects what the worker is to be told, until somebody takes it.

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
        """Tell this."""
        self._messages.append(message)
        self._woken()

    def wired(self, remote: RemoteStream) -> None:
        """A stream's limits are to be told, behind all that was decided by others before."""
        if self._released or self._messages:
            self._earlier += self._decided()
        self._wired[remote] = None
        self._woken()

    def released(self, remote: RemoteStream) -> None:
        """The next of a stream's queued entries may go."""
        remote.settled += 1
        self._released[remote] = None
        self._woken()

    def rejected(self, remote: RemoteStream, reason: str) -> None:
        """The next of a stream's queued entries is refused."""
        self.settle(remote)
        remote.settled += 1
        last = self._messages[-1] if self._messages else None
        if isinstance(last, Rejected) and last.stream == remote.number and last.reason == reason:
            last.queued = remote.settled
        else:
            self._messages.append(Rejected(remote.number, remote.settled, reason))
        self._woken()

    def settle(self, remote: RemoteStream) -> None:
        """What may go so far of a stream is told before what comes behind it."""
        if remote in self._released:
            del self._released[remote]
            self._messages.append(Released(remote.number, remote.settled))

    def granted(self, number: int, permits: int) -> None:
        """A consumer's permits go on."""
        self._granted[number] = self._granted.get(number, 0) + permits
        self._woken()

    def answered(self, question: int) -> None:
        """All that was asked about is told before this."""
        self._answers.append(Answer(question))
        self._woken()

    def forget(self, remote: RemoteStream) -> None:
        """A stream is over."""
        self._wired.pop(remote, None)
        self._released.pop(remote, None)
        self._granted.pop(remote.number, None)

    def take(self, batch: Message | None) -> list[Message]:
        """What is to be told; `batch` is about what of it may go."""
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
    """Defers what nobody can decide yet because tokens are lent; one object for the quota servers of all workers.

    A limit in mode `reject` refuses what is over it at once. One process would refuse, hold or pass the entry. While a
    limiter in its way has lent tokens, nobody knows which: the worker that has them may use them or give them back. So
    the case is adjourned: what was lent is recalled, and the entry waits at the scheduler as any held one. Entries that
    still wait when nothing is lent any more are judged as if they came now.

        entry ──lent in its way──▶ adjourned, waits at the scheduler ──all given back──▶ passed, refused or held
                                          └──tokens come first──▶ passed

    Args:
        gate: Where all streams wait.
        recall: Has all workers give back what they were lent of a limit (`QuotaServer.recall` of each).
            The scheduler does so wherever somebody begins to wait: nobody is to overtake him.
    """

    def __init__(self, gate: Scheduler, recall: Callable[[Limiter], None]) -> None:
        self.recall = recall
        self._gate = gate
        gate.recall_by(recall)
        self._cases: dict[Stream, Decide] = {}

    def adjourn(self, stream: Stream, decide: Decide, lent: list[Limiter]) -> None:
        """What is held of a stream from now on is to be judged when these limiters have back what they lent."""
        self._cases[stream] = decide
        for limiter in lent:
            self.recall(limiter)

    def close(self, stream: Stream) -> None:
        """What is held of a stream waits, as what any limit holds; or it is over."""
        self._cases.pop(stream, None)

    def returned(self, limiter: Limiter, now: int) -> None:
        """Nothing is lent of this one any more, if it has no borrowers: in the order of arrival all cases are judged.

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
"""What has waited for less has only been on its way."""


class Departures:
    """What was released and has not left its worker yet, as far as is known: in batches that the worker confirms.

    A released entry counts as lent: between this decision and the moment that the entry leaves some time passes, and in
    that moment it counts (`TokenBucket.lend`).
    """

    def __init__(self) -> None:
        self._going: dict[Limiter, list[int]] = {}
        self._unconfirmed: dict[int, dict[Limiter, list[int]]] = {}
        self._batch = 0

    @property
    def is_any(self) -> bool:
        """Whether there are some."""
        return bool(self._going or self._unconfirmed)

    def add(self, limiters: Iterable[Limiter], messages: int, size: int) -> None:
        """An entry that was charged to these is told to go."""
        for limiter in limiters:
            limiter.release(messages, size)
            going = self._going.setdefault(limiter, [0, 0])
            going[0] += messages
            going[1] += size

    def batch(self) -> Batch | None:
        """What was released since the last one is to be confirmed under this number; None if nothing was."""
        if not self._going:
            return None
        self._batch += 1
        self._unconfirmed[self._batch], self._going = self._going, {}
        return Batch(self._batch)

    def confirmed(self, batch: int, now: int) -> None:
        """All of a batch has gone on, or never will."""
        _gone(self._unconfirmed.pop(batch, {}), now)

    def lose(self, now: int) -> None:
        """The worker is no more: nothing of it goes on later than now."""
        for batch in [*self._unconfirmed.values(), self._going]:
            _gone(batch, now)
        self._unconfirmed.clear()
        self._going = {}


def _gone(batch: dict[Limiter, list[int]], now: int) -> None:
    for limiter, (messages, size) in batch.items():
        limiter.gone(messages, size, now)


class QuotaServer:
    """Decides for one worker.

    Args:
        registry: All limits.
        gate: Where all streams wait.
        woken: Called when there is something to tell the worker; the caller then takes it in its own time.
        deferred: What it has in common with those of other workers.
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
        """Whether nothing of the worker is open, lent, or released and not confirmed."""
        return not (self._remote_streams or self.lending.loans or self._departures.is_any)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether something was released and not confirmed."""
        return self._departures.is_any

    def stream(self, number: int) -> Stream | None:
        """The RemoteStream of one of the worker's streams."""
        remote = self._remote_streams.get(number)
        return None if remote is None else remote.stream

    def open(self, number: int, stream: Stream, topic: Topic, client: Client, now: int) -> None:
        """A stream begins; `stream` stands for it here from now on."""
        remote = RemoteStream(number, stream)
        stream.release = self._release
        stream.is_accepted = True
        self._remote_streams[number] = self._by_stream[stream] = remote
        self._registry.open(stream, topic, now, client)
        if stream.name.direction == "dispatch":
            self._registry.meter(stream, partial(self._verdicts.granted, number))
        self.wired(stream, 0)  # what came before its limits were found is judged by them, too

    def close(self, number: int, now: int) -> None:
        """A stream is over."""
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
        """An entry waits for its turn, which may have come; since when, and now. Perhaps nothing may refuse it."""
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
        """So many entries, messages and bytes are held of a stream besides."""
        remote = self._remote_streams.get(number)
        if remote is not None:
            remote.hold_behind(counts)
            self._gate.note(remote.stream)

    def withdrawn(self, number: int, asked: int, now: int) -> None:
        """What waits of a stream is dropped; the client of a consumer still counts on `asked` messages of it."""
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
        """So many entries, messages and bytes passed by what was lent of these limits."""
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
        """The broker named a producer."""
        remote = self._remote_streams.get(number)
        if remote is not None:
            self._registry.name(remote.stream, producer_name, now)

    def discarded(self, number: int, counts: tuple[int, int, int]) -> None:
        """Entries, messages and bytes came, and were dropped before they were queued."""
        remote = self._remote_streams.get(number)
        if remote is not None:
            stream, (_, messages, size) = remote.stream, counts
            self._gate.count_offered(stream, *counts)
            remote.comes_up(*counts)
            if stream.permits is not None:
                stream.permits.dropped(*counts, ask_again=False)
            self._gate.count_dropped(stream, messages, size)

    def asked(self, number: int, permits: int, *, is_granted: bool) -> None:
        """A consumer asks for permits, or has been given them."""
        remote = self._remote_streams.get(number)
        if remote is None or remote.stream.permits is None:
            return
        if is_granted:
            remote.stream.permits.pass_through(permits)
        else:
            remote.stream.permits.ask(permits)

    def overdrawn(self, number: int, permits: int) -> None:
        """The broker took more of a consumer's permits than limits count."""
        remote = self._remote_streams.get(number)
        if remote is not None and remote.stream.permits is not None:
            remote.stream.permits.overdraw(permits)

    def rewound(self, number: int) -> None:
        """The broker is to deliver to a consumer again what it had delivered."""
        remote = self._remote_streams.get(number)
        if remote is not None and remote.stream.permits is not None:
            remote.stream.permits.rewound()

    def forgone(self, number: int) -> None:
        """A consumer wants no more."""
        remote = self._remote_streams.get(number)
        if remote is not None and remote.stream.permits is not None:
            remote.stream.permits.forgo()

    def spent(self, message: Spent, now: int) -> None:
        """What became of a loan."""
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
        """What was released in a batch has gone on, or never will."""
        self._departures.confirmed(batch, now)

    def asked_about(self, question: int) -> None:
        """The worker wants to know when it has been told of all queued entries that may go at once."""
        self._verdicts.answered(question)

    def wired(self, stream: Stream, now: int) -> None:
        """A stream may be within other limits now; nothing, if it is another worker's. What it holds waits there."""
        remote = self._by_stream.get(stream)
        if remote is not None:
            self._verdicts.wired(remote)
            self._deferred.close(stream)
            self._use(remote, stream.chain)
            remote.heed_modes(now)

    def tuned(self, limiter: Limiter, now: int) -> None:
        """A limit has another value, and perhaps begins or ends to refuse."""
        self.recall(limiter)
        for stream in limiter.streams:
            remote = self._by_stream.get(stream)
            if remote is not None and stream.is_rejected != (remote.rejected_from is not None):
                self.wired(stream, now)

    def recall(self, limiter: Limiter) -> None:
        """What is left of a loan is wanted back, if there is one: somebody waits, or the limit is another one."""
        if self.lending.recall(limiter):
            self._verdicts.say(Recalled(self._numbers[limiter]))

    def take(self) -> list[Message]:
        """What is to be told."""
        return self._verdicts.take(self._departures.batch())

    def lose(self, now: int) -> Amount:
        """The worker is no more. What it was lent, or was released and not confirmed, is lost; returns how much."""
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
        """What was behind the queued entries of a worker that is no more."""
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
        """Called by the gate."""
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
        """Where one waits, the gate recalls; what he must still pass may be closed only because of what was lent."""
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


def hear(quota_server: QuotaServer, message: Report, now: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one line for each
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
            raise ValueError("who opens a stream is for the caller to find out")
