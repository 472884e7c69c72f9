"""The limits of one worker's streams, where all workers' limits are: its streams are mirrored here.

A worker lets pass by itself what it was lent tokens for (`lending.py`). All else is a ticket: the same gate that would
hold the entry, if there were but one process, holds an entry without bytes in its place, and says whose turn it is;
so everything that is true of the gate is true over all workers.

    ticket ──▶ mirror ──gate──▶ released: lent, until the worker confirms that the entry has gone on

A released entry counts as lent, too: between this decision and the moment that the entry leaves some time passes, and
in that moment it counts (`TokenBucket.lend`).
"""

from collections.abc import Callable, Iterable
from functools import partial

from limiter.gate import Gate
from limiter.levels import Client, Topic
from limiter.limiter import Amount, Limiter
from limiter.registry import Registry
from limiter.stream import Entry, Stream
from limiter.workers.lending import Lending
from limiter.workers.letters import Answer, Batch, Granted, Lent, Letter, Recalled, Released, Spent
from limiter.workers.mirror import Mirror

NO_DELAY_NS = 5_000_000
"""What has waited for less has only been on its way."""


class Judge:
    """Decides for one worker.

    Args:
        registry: All limits.
        gate: Where all streams wait.
        woken: Called when there is something to tell the worker; the caller then takes it in its own time.
        recall: Has all workers give back what they were lent of a limit (`recall` of each one's judge).
    """

    def __init__(
        self, registry: Registry, gate: Gate, woken: Callable[[], None], recall: Callable[[Limiter], None]
    ) -> None:
        self.lending = Lending()
        self._registry = registry
        self._gate = gate
        self._woken = woken
        self._recall = recall
        self._mirrors: dict[int, Mirror] = {}
        self._by_stream: dict[Stream, Mirror] = {}
        self._numbers: dict[Limiter, int] = {}
        self._limiters: dict[int, Limiter] = {}
        self._used_by: dict[Limiter, int] = {}
        self._last_limiter = 0
        self._wired: dict[Mirror, None] = {}
        self._letters: list[Letter] = []
        self._released: dict[Mirror, None] = {}
        self._granted: dict[int, int] = {}
        self._going: dict[Limiter, list[int]] = {}
        self._unconfirmed: dict[int, dict[Limiter, list[int]]] = {}
        self._batch = 0
        self._answers: list[Letter] = []

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing of the worker is open, lent, or released and not confirmed."""
        return not (self._mirrors or self.lending.loans or self._unconfirmed or self._going)

    def stream(self, number: int) -> Stream | None:
        """The mirror of one of the worker's streams."""
        mirror = self._mirrors.get(number)
        return None if mirror is None else mirror.stream

    def open(self, number: int, stream: Stream, topic: Topic, client: Client, now: int) -> None:
        """A stream begins; `stream` stands for it here from now on."""
        mirror = Mirror(number, stream)
        stream.release = partial(self._release, mirror)
        stream.is_accepted = True
        self._mirrors[number] = self._by_stream[stream] = mirror
        self._registry.open(stream, topic, now, client)
        if stream.name.direction == "dispatch":
            self._registry.meter(stream, partial(self._grant, number))
        self.wired(stream)

    def close(self, number: int, now: int) -> None:
        """A stream is over."""
        mirror = self._mirrors.pop(number, None)
        if mirror is None:
            return
        mirror.hold_behind(0, 0)
        del self._by_stream[mirror.stream]
        self._wired.pop(mirror, None)
        self._released.pop(mirror, None)
        self._granted.pop(number, None)
        self._use(mirror, ())
        self._registry.close(mirror.stream, now)

    def offered(self, number: int, messages: int, size: int, when: tuple[int, int]) -> None:
        """An entry waits for its turn, which may have come; since when, and now."""
        mirror = self._mirrors.get(number)
        if mirror is None:
            return
        stream, gate, (since, now) = mirror.stream, self._gate, when
        mirror.tickets += 1
        gate.count_offered(stream, 1, messages, size)
        if now - since < NO_DELAY_NS and gate.pass_entry(stream, messages, size, now):
            self._let_go(mirror, stream.charged(1, messages), size)
        else:
            charged = stream.charged(1, messages)
            gate.hold(stream, Entry(b"", messages, size, 0, since, charged=charged), now)
        if stream.held:
            self._recall_contended(stream.chain)
        else:
            self._lend(stream.chain, now)

    def behind(self, number: int, messages: int, size: int) -> None:
        """So much is held of a stream besides."""
        mirror = self._mirrors.get(number)
        if mirror is not None:
            mirror.hold_behind(messages, size)

    def withdrawn(self, number: int, asked: int, now: int) -> None:
        """What waits of a stream is dropped; the client of a consumer still counts on `asked` messages of it."""
        mirror = self._mirrors.get(number)
        if mirror is None:
            return
        mirror.hold_behind(0, 0)
        dropped = self._gate.drop_held(mirror.stream, now)
        if mirror in self._released:
            del self._released[mirror]
            self._letters.append(Released(number, mirror.settled))
        mirror.settled = mirror.tickets
        permits = mirror.stream.permits
        if permits is not None:
            messages, size = (sum(entry.messages for entry in dropped), sum(entry.size for entry in dropped))
            permits.dropped(len(dropped), messages, size, ask_again=False)
            permits.ask_again(asked)

    def passed(self, number: int, counts: tuple[int, int, int], largest: Amount) -> None:
        """So many entries, messages and bytes passed by what was lent."""
        mirror = self._mirrors.get(number)
        if mirror is None:
            return
        stream = mirror.stream
        self._gate.count_admitted(stream, counts, largest)
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
        self._forget_unused(limiter)
        self._recall_contended((limiter,))
        if limiter.waiters and any(unused):
            self._gate.serve(limiter, now)
        elif letter.wants_more:
            self._lend((limiter,), now)

    def confirmed(self, batch: int, now: int) -> None:
        """What was released in a batch has gone on, or never will."""
        for limiter, (messages, size) in self._unconfirmed.pop(batch, {}).items():
            limiter.come_back((messages, size), (0, 0), now)

    def asked_about(self, question: int) -> None:
        """The worker wants to know when it has been told of all tickets that may go at once."""
        self._answers.append(Answer(question))
        self._woken()

    def wired(self, stream: Stream) -> None:
        """A stream may be within other limits now; nothing, if it is another worker's."""
        mirror = self._by_stream.get(stream)
        if mirror is not None:
            self._use(mirror, stream.chain)
            self._wired[mirror] = None
            self._woken()

    def recall(self, limiter: Limiter) -> None:
        """What is left of a loan is wanted back, if there is one: somebody waits, or the limit is another one."""
        if self.lending.recall(limiter):
            self._letters.append(Recalled(self._numbers[limiter]))
            self._woken()

    def take(self) -> list[Letter]:
        """What is to be told."""
        letters: list[Letter] = [mirror.wiring(self._numbers) for mirror in self._wired]
        self._wired.clear()
        letters += self._letters
        self._letters.clear()
        letters += [Released(mirror.number, mirror.settled) for mirror in self._released]
        self._released.clear()
        letters += [Granted(number, permits) for number, permits in self._granted.items()]
        self._granted.clear()
        if self._going:
            self._batch += 1
            self._unconfirmed[self._batch], self._going = self._going, {}
            letters.append(Batch(self._batch))
        letters += self._answers
        self._answers.clear()
        return letters

    def lose(self, now: int) -> Amount:
        """The worker is no more. What it was lent, or was released and not confirmed, is lost; returns how much."""
        lost = self.lending.lose(now)
        for batch in [*self._unconfirmed.values(), self._going]:
            for limiter, (messages, size) in batch.items():
                limiter.come_back((messages, size), (0, 0), now)
        self._unconfirmed.clear()
        self._going = {}
        mirrors = list(self._mirrors)
        for number in mirrors:
            self.close(number, now)
        return lost

    def _release(self, mirror: Mirror, entry: Entry) -> None:
        """Called by the gate."""
        self._let_go(mirror, entry.charged, entry.size)

    def _let_go(self, mirror: Mirror, messages: int, size: int) -> None:
        mirror.settled += 1
        self._released[mirror] = None
        for limiter in mirror.stream.chain:
            limiter.lend(messages, size)
            going = self._going.setdefault(limiter, [0, 0])
            going[0] += messages
            going[1] += size
        self._woken()

    def _grant(self, number: int, permits: int) -> None:
        self._granted[number] = self._granted.get(number, 0) + permits
        self._woken()

    def _lend(self, limiters: Iterable[Limiter], now: int) -> None:
        for limiter in limiters:
            if limiter not in self._numbers:
                continue
            lent = self.lending.lend(limiter, now)
            if lent is not None:
                self._letters.append(Lent(self._numbers[limiter], *lent))
                self._woken()

    def _recall_contended(self, limiters: Iterable[Limiter]) -> None:
        """Nobody is to overtake those who wait, by what he was lent before."""
        for limiter in limiters:
            if limiter.waiters or limiter.claimant is not None:
                self._recall(limiter)

    def _use(self, mirror: Mirror, chain: tuple[Limiter, ...]) -> None:
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
