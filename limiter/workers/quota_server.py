"""The limits of one worker's streams, where all workers' limits are: its streams are mirrored here.

A worker lets pass by itself what it was lent tokens for (`lease_issuer.py`). All else is a ticket: the same gate that would
hold the entry, if there were but one process, holds an entry without bytes in its place, and says whose turn it is;
so everything that is true of the gate is true over all workers.

    ticket ──▶ mirror ──gate──▶ released: lent, until the worker confirms that the entry has gone on (`Departures`)
                  └──over a limit that refuses──▶ rejected, as soon as nothing is lent in its way (`DeferredRejections`)
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
    """One stream of the worker.

    Args:
        number: The worker's for it.
        stream: What stands for it.

    Attributes:
        tickets: Entries that waited so far.
        settled: How many of them, from the first, were released, refused or withdrawn.
        behind: Entries, messages and bytes behind these of which it was told so far, and which have not come up since.
        limiters: Those that the worker knows it to be within.
        rejected_from: Since when some of them refuses what is over it, as far as the worker knows; None if none does.
        is_followed: Whether the worker knows the last message under way, behind whose receipt an error has its place:
            it does if nothing has passed or been withdrawn yet, and else if what passed last was released while a limit
            refused.
    """

    __slots__ = ("behind", "is_followed", "limiters", "number", "rejected_from", "settled", "stream", "tickets")

    def __init__(self, number: int, stream: Stream) -> None:
        self.number = number
        self.stream = stream
        self.tickets = 0
        self.settled = 0
        self.limiters: tuple[Limiter, ...] = ()
        self.rejected_from: int | None = None
        self.is_followed = True
        self.behind: Passed = (0, 0, 0)

    def hold_behind(self, behind: Passed) -> None:
        """So many entries, messages and bytes are held besides of which there are no tickets yet; all were offered."""
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
        by_ticket = is_rejected or (stream.observed is not None and bool(stream.observed.chain))
        is_metered = stream.permits is not None and stream.permits.is_metered
        limiters = [numbers[limiter] for limiter in self.limiters]
        return Wired(self.number, limiters, by_ticket, is_metered, is_rejected)


class VerdictQueue:
    """Collects it.

    Args:
        numbers: Of limiters, as the worker knows them.
        woken: Called when there is something.
    """

    def __init__(self, numbers: Mapping[Limiter, int], woken: Callable[[], None]) -> None:
        self._numbers = numbers
        self._woken = woken
        self._earlier: list[Message] = []
        self._wired: dict[RemoteStream, None] = {}
        self._letters: list[Message] = []
        self._released: dict[RemoteStream, None] = {}
        self._granted: dict[int, int] = {}
        self._answers: list[Message] = []

    def say(self, letter: Message) -> None:
        """Tell this."""
        self._letters.append(letter)
        self._woken()

    def wired(self, mirror: RemoteStream) -> None:
        """A stream's limits are to be told, behind all that was decided by others before."""
        if self._released or self._letters:
            self._earlier += self._decided()
        self._wired[mirror] = None
        self._woken()

    def released(self, mirror: RemoteStream) -> None:
        """The next of a stream's tickets may go."""
        mirror.settled += 1
        self._released[mirror] = None
        self._woken()

    def rejected(self, mirror: RemoteStream, reason: str) -> None:
        """The next of a stream's tickets is refused."""
        self.settle(mirror)
        mirror.settled += 1
        last = self._letters[-1] if self._letters else None
        if isinstance(last, Rejected) and last.stream == mirror.number and last.reason == reason:
            last.tickets = mirror.settled
        else:
            self._letters.append(Rejected(mirror.number, mirror.settled, reason))
        self._woken()

    def settle(self, mirror: RemoteStream) -> None:
        """What may go so far of a stream is told before what comes behind it."""
        if mirror in self._released:
            del self._released[mirror]
            self._letters.append(Released(mirror.number, mirror.settled))

    def granted(self, number: int, permits: int) -> None:
        """A consumer's permits go on."""
        self._granted[number] = self._granted.get(number, 0) + permits
        self._woken()

    def answered(self, question: int) -> None:
        """All that was asked about is told before this."""
        self._answers.append(Answer(question))
        self._woken()

    def forget(self, mirror: RemoteStream) -> None:
        """A stream is over."""
        self._wired.pop(mirror, None)
        self._released.pop(mirror, None)
        self._granted.pop(mirror.number, None)

    def take(self, batch: Message | None) -> list[Message]:
        """What is to be told; `batch` is about what of it may go."""
        letters, self._earlier = self._earlier, []
        letters += self._decided()
        letters += [Granted(number, permits) for number, permits in self._granted.items()]
        self._granted.clear()
        if batch is not None:
            letters.append(batch)
        letters += self._answers
        self._answers.clear()
        return letters

    def _decided(self) -> list[Message]:
        letters: list[Message] = [mirror.wiring(self._numbers) for mirror in self._wired]
        self._wired.clear()
        letters += self._letters
        self._letters.clear()
        letters += [Released(mirror.number, mirror.settled) for mirror in self._released]
        self._released.clear()
        return letters


Decide = Callable[[Entry, int], None]
"""Judges an entry, at a moment."""


class DeferredRejections:
    """One for all judges.

    Args:
        gate: Where all streams wait.
        recall: Has all workers give back what they were lent of a limit (`recall` of each one's judge). The gate does
            so wherever somebody begins to wait: nobody is to overtake him.
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
        court: What it has in common with those of other workers.
    """

    def __init__(
        self, registry: Registry, gate: Scheduler, woken: Callable[[], None], court: DeferredRejections
    ) -> None:
        self.lending = LeaseIssuer()
        self._registry = registry
        self._gate = gate
        self._court = court
        self._mirrors: dict[int, RemoteStream] = {}
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
        return not (self._mirrors or self.lending.loans or self._departures.is_any)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether something was released and not confirmed."""
        return self._departures.is_any

    def stream(self, number: int) -> Stream | None:
        """The mirror of one of the worker's streams."""
        mirror = self._mirrors.get(number)
        return None if mirror is None else mirror.stream

    def open(self, number: int, stream: Stream, topic: Topic, client: Client, now: int) -> None:
        """A stream begins; `stream` stands for it here from now on."""
        mirror = RemoteStream(number, stream)
        stream.release = self._release
        stream.is_accepted = True
        self._mirrors[number] = self._by_stream[stream] = mirror
        self._registry.open(stream, topic, now, client)
        if stream.name.direction == "dispatch":
            self._registry.meter(stream, partial(self._verdicts.granted, number))
        self.wired(stream, 0)  # what came before its limits were found is judged by them, too

    def close(self, number: int, now: int) -> None:
        """A stream is over."""
        mirror = self._mirrors.pop(number, None)
        if mirror is None:
            return
        self._drop_behind(mirror)
        del self._by_stream[mirror.stream]
        self._verdicts.forget(mirror)
        self._court.close(mirror.stream)
        self._use(mirror, ())
        self._registry.close(mirror.stream, now)

    def offered(self, number: int, messages: int, size: int, when: tuple[int, int], *, must_wait: bool = False) -> None:
        """An entry waits for its turn, which may have come; since when, and now. Perhaps nothing may refuse it."""
        mirror = self._mirrors.get(number)
        if mirror is None:
            return
        stream, gate, (since, now) = mirror.stream, self._gate, when
        mirror.tickets += 1
        gate.count_offered(stream, 1, messages, size)
        mirror.comes_up(1, messages, size)
        if now - since < NO_DELAY_NS and gate.pass_entry(stream, messages, size, now):
            self._let_go(mirror, stream.charged(1, messages), size)
        else:
            entry = Entry(b"", messages, size, 0, since, charged=stream.charged(1, messages), must_wait=must_wait)
            self._refuse_or_hold(mirror, entry, now)
        if stream.held:
            self._recall_for(stream, now)
        elif mirror.rejected_from is None:
            self._lend(stream.chain, now)

    def behind(self, number: int, counts: Passed) -> None:
        """So many entries, messages and bytes are held of a stream besides."""
        mirror = self._mirrors.get(number)
        if mirror is not None:
            mirror.hold_behind(counts)
            self._gate.note(mirror.stream)

    def withdrawn(self, number: int, asked: int, now: int) -> None:
        """What waits of a stream is dropped; the client of a consumer still counts on `asked` messages of it."""
        mirror = self._mirrors.get(number)
        if mirror is None:
            return
        dropped = self._gate.drop_held(mirror.stream, now)
        self._court.close(mirror.stream)
        self._verdicts.settle(mirror)
        mirror.settled, mirror.is_followed = mirror.tickets, False
        permits = mirror.stream.permits
        if permits is not None:
            messages, size = (sum(entry.messages for entry in dropped), sum(entry.size for entry in dropped))
            permits.dropped(len(dropped), messages, size, ask_again=False)
            permits.ask_again(asked)

    def passed(self, number: int, counts: Passed, largest: Amount, limiters: list[int]) -> None:
        """So many entries, messages and bytes passed by what was lent of these limits."""
        mirror = self._mirrors.get(number)
        if mirror is None:
            return
        stream, mirror.is_followed = mirror.stream, False
        charged = tuple([self._limiters[limiter] for limiter in limiters if limiter in self._limiters])
        if charged == stream.chain:
            self._gate.count_admitted(stream, counts, largest)
        else:
            self._gate.count_charged(stream, charged, counts, largest)
        entries, messages, size = counts
        mirror.comes_up(entries, messages, size)
        for limiter in charged:
            self.lending.counted(limiter, stream.charged(entries, messages), size)
        if stream.permits is not None:
            stream.permits.crossed(*counts)

    def named(self, number: int, producer_name: str, now: int) -> None:
        """The broker named a producer."""
        mirror = self._mirrors.get(number)
        if mirror is not None:
            self._registry.name(mirror.stream, producer_name, now)

    def discarded(self, number: int, counts: tuple[int, int, int]) -> None:
        """Entries, messages and bytes came, and were dropped before they had tickets."""
        mirror = self._mirrors.get(number)
        if mirror is not None:
            stream, (_, messages, size) = mirror.stream, counts
            self._gate.count_offered(stream, *counts)
            mirror.comes_up(*counts)
            if stream.permits is not None:
                stream.permits.dropped(*counts, ask_again=False)
            self._gate.count_dropped(stream, messages, size)

    def asked(self, number: int, permits: int, *, is_granted: bool) -> None:
        """A consumer asks for permits, or has been given them."""
        mirror = self._mirrors.get(number)
        if mirror is None or mirror.stream.permits is None:
            return
        if is_granted:
            mirror.stream.permits.pass_through(permits)
        else:
            mirror.stream.permits.ask(permits)

    def overdrawn(self, number: int, permits: int) -> None:
        """The broker took more of a consumer's permits than limits count."""
        mirror = self._mirrors.get(number)
        if mirror is not None and mirror.stream.permits is not None:
            mirror.stream.permits.overdraw(permits)

    def rewound(self, number: int) -> None:
        """The broker is to deliver to a consumer again what it had delivered."""
        mirror = self._mirrors.get(number)
        if mirror is not None and mirror.stream.permits is not None:
            mirror.stream.permits.rewound()

    def forgone(self, number: int) -> None:
        """A consumer wants no more."""
        mirror = self._mirrors.get(number)
        if mirror is not None and mirror.stream.permits is not None:
            mirror.stream.permits.forgo()

    def spent(self, letter: Spent, now: int) -> None:
        """What became of a loan."""
        limiter = self._limiters.get(letter.limiter)
        if limiter is None:
            return
        used, unused = ((letter.messages, letter.size), (letter.unused_messages, letter.unused_size))
        self.lending.spent(limiter, used, unused, now, is_answer=letter.is_answer)
        if not letter.wants_more:
            self.lending.all_is_counted(limiter)
        self._forget_unused(limiter)
        self._court.returned(limiter, now)
        if limiter.waiters and any(unused):
            self._gate.serve(limiter, now)
        elif letter.wants_more:
            self._lend((limiter,), now)

    def confirmed(self, batch: int, now: int) -> None:
        """What was released in a batch has gone on, or never will."""
        self._departures.confirmed(batch, now)

    def asked_about(self, question: int) -> None:
        """The worker wants to know when it has been told of all tickets that may go at once."""
        self._verdicts.answered(question)

    def wired(self, stream: Stream, now: int) -> None:
        """A stream may be within other limits now; nothing, if it is another worker's. What it holds waits there."""
        mirror = self._by_stream.get(stream)
        if mirror is not None:
            self._verdicts.wired(mirror)
            self._court.close(stream)
            self._use(mirror, stream.chain)
            mirror.heed_modes(now)

    def tuned(self, limiter: Limiter, now: int) -> None:
        """A limit has another value, and perhaps begins or ends to refuse."""
        self.recall(limiter)
        for stream in limiter.streams:
            mirror = self._by_stream.get(stream)
            if mirror is not None and stream.is_rejected != (mirror.rejected_from is not None):
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
        mirrors = list(self._mirrors)
        for number in mirrors:
            self.close(number, now)
        for limiter in limiters:
            self._court.returned(limiter, now)
        return lost

    def _drop_behind(self, mirror: RemoteStream) -> None:
        """What was behind the tickets of a worker that is no more."""
        entries, messages, size = mirror.behind
        if entries:
            self._gate.count_offered(mirror.stream, entries, messages, size)
            mirror.comes_up(entries, messages, size)
            self._gate.count_dropped(mirror.stream, messages, size)

    def _refuse_or_hold(self, mirror: RemoteStream, entry: Entry, now: int) -> None:
        """An entry may not pass, or has waited already. Refused is what comes while a limit refuses, and no other."""
        stream, rejected_from = mirror.stream, None if entry.must_wait else mirror.rejected_from
        if rejected_from is not None and not stream.held and rejected_from <= entry.since and mirror.is_followed:
            limiter, lent = rejecting(stream, now), lent_in_the_way(stream, now)
            if limiter is not None and (not lent or not (limiter.borrowers or limiter.is_open(now))):
                self._gate.count_rejected(stream, limiter, entry.messages, entry.size)
                self._verdicts.rejected(mirror, refusal_of(limiter))
                return
            if lent:
                self._court.adjourn(stream, partial(self._refuse_or_hold, mirror), lent)
            else:
                self._court.close(stream)
        self._gate.hold(stream, entry, now)

    def _release(self, stream: Stream, entry: Entry) -> None:
        """Called by the gate."""
        self._let_go(self._by_stream[stream], entry.charged, entry.size)

    def _let_go(self, mirror: RemoteStream, messages: int, size: int) -> None:
        mirror.is_followed = mirror.rejected_from is not None
        self._verdicts.released(mirror)
        self._departures.add(mirror.stream.chain, messages, size)

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
                self._court.recall(limiter)

    def _use(self, mirror: RemoteStream, chain: tuple[Limiter, ...]) -> None:
        """The worker knows those limits by number that its streams are within, or that it has a loan of."""
        for limiter in chain:
            if limiter not in self._numbers:
                self._last_limiter += 1
                self._numbers[limiter] = self._last_limiter
                self._limiters[self._last_limiter] = limiter
            self._used_by[limiter] = self._used_by.get(limiter, 0) + 1
        before, mirror.limiters = mirror.limiters, chain
        for limiter in before:
            self._used_by[limiter] -= 1
            self._forget_unused(limiter)

    def _forget_unused(self, limiter: Limiter) -> None:
        if not self._used_by.get(limiter) and limiter not in self.lending.loans:
            self._used_by.pop(limiter, None)
            del self._limiters[self._numbers.pop(limiter)]


def hear(judge: QuotaServer, letter: Report, now: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one line for each
    """Take a letter; what it says of a stream that is over does nothing."""
    match letter:
        case QueuedEntry(number, messages, size, since, must_wait):
            judge.offered(number, messages, size, (min(since, now), now), must_wait=must_wait)
        case Confirmed(batch):
            judge.confirmed(batch, now)
        case PassedByLease(number, entries, messages, size, largest_messages, largest_size, limiters):
            judge.passed(number, (entries, messages, size), (largest_messages, largest_size), limiters)
        case Spent():
            judge.spent(letter, now)
        case Asked(number, permits, is_granted):
            judge.asked(number, permits, is_granted=is_granted)
        case Withdrawn(number, asked):
            judge.withdrawn(number, asked, now)
        case Named(number, producer_name):
            judge.named(number, producer_name, now)
        case Forgone(number):
            judge.forgone(number)
        case Overdrawn(number, permits):
            judge.overdrawn(number, permits)
        case Rewound(number):
            judge.rewound(number)
        case Discarded(number, entries, messages, size):
            judge.discarded(number, (entries, messages, size))
        case Behind(number, entries, messages, size):
            judge.behind(number, (entries, messages, size))
        case Question(number):
            judge.asked_about(number)
        case Closed(number):
            judge.close(number, now)
        case Opened():
            raise ValueError("who opens a stream is for the caller to find out")
