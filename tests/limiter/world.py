"""A scheduler with simulated time, alarms and a journal: the base of the scheduler's tests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf

from limiter.activity import ActivityJournal, ActivityNotes
from limiter.levels import Setting
from limiter.limiter import Entry, Limiter, Scope, Stream, StreamName
from limiter.policies import Policies, Value
from limiter.registry import Registry
from limiter.restart import FirstBalances
from limiter.scheduler import Scheduler
from limiter.shadow import MOST_ENTRIES, ShadowLimiter
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from tests.manual_clock import ManualClock


@dataclass(frozen=True, slots=True)
class Passed:
    """One entry (or one chunk's worth of them) that went on."""

    at: int
    stream: Stream
    messages: int
    size: int


class Alarms:
    """An alarm clock for limiters that rings only when time is made to pass."""

    def __init__(self) -> None:
        self.due: dict[Limiter, int] = {}
        self.waited: dict[Limiter, int] = {}
        """How many did when it was set."""
        self._heap: list[tuple[int, int, Limiter]] = []
        self._order = count()

    def wake_at(self, limiter: Limiter, at: int) -> None:
        self.due[limiter] = at
        self.waited[limiter] = len(limiter.waiters)
        heappush(self._heap, (at, next(self._order), limiter))

    def soonest(self) -> float:
        """When the next alarm rings; never, if there is none."""
        while self._heap and self.due.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def next_before(self, end: int) -> tuple[int, Limiter] | None:
        """The next alarm up to `end`, taken out; replaced ones never ring."""
        while self._heap and self._heap[0][0] <= end:
            at, _, limiter = heappop(self._heap)
            if self.due.get(limiter) == at:
                del self.due[limiter]
                return at, limiter
        return None


class Telling(Scheduler):
    """A scheduler that tells what it lets pass and whose it is: so one sees what observed limits would let pass.

    Messages are those that limits count.
    """

    def __init__(
        self,
        on_pass: Callable[[Stream, int, int], None],
        wake_at: Callable[[Limiter, int], None],
        journal: ActivityNotes,
    ) -> None:
        super().__init__(wake_at, journal)
        self._told = on_pass

    def count_admitted(self, stream, *counts):
        super().count_admitted(stream, *counts)
        entries, messages, size, *_ = counts
        self._told(stream, stream.charged(entries, messages), size)

    def _pass(self, stream: Stream, messages: int, size: int, now: int) -> None:
        super()._pass(stream, messages, size, now)
        self._told(stream, stream.charged(1, messages), size)


class World:
    """Offers entries as the relay does, and lets time pass as the event loop does.

    Limits that are enforced ring `alarms`, those that are only observed ring `rehearsals`.
    """

    def __init__(self, most_size: int = 1 << 30, room: int = MOST_ENTRIES) -> None:
        self.clock = ManualClock()
        self.alarms = Alarms()
        self.journal = ActivityJournal()
        self.scheduler = Scheduler(self.alarms.wake_at, self.journal)
        self.rehearsals = Alarms()
        self.observer = ShadowLimiter(partial(Scheduler, self.rehearsals.wake_at), self.journal, most_size, 0, room)
        self.log: list[Passed] = []

    def stream(
        self, *chain: Limiter, release: Callable[[Stream, Entry], None] | None = None, by_entry: bool = False
    ) -> Stream:
        """A stream within `chain`, whose released entries are logged."""
        name = StreamName("publish", "t", "n", "x", 1)
        stream = Stream(name, chain, lambda _stream, _entry: None, by_entry=by_entry)
        stream.release = release or (lambda stream, entry: self.note(stream, entry.messages, entry.size))
        self.scheduler.join(stream)
        return stream

    def greedy(self, *chain: Limiter, entries: Iterator[tuple[int, int]]) -> Stream:
        """A stream that always has a next entry waiting."""
        stream = self.stream(*chain)
        self.keep_busy(stream, entries)
        return stream

    def keep_busy(self, stream: Stream, entries: Iterator[tuple[int, int]]) -> None:
        """From now on a next entry of this stream is always waiting."""

        def release(stream: Stream, entry: Entry) -> None:
            self.note(stream, entry.messages, entry.size)
            self.hold(stream, *next(entries))

        stream.release = release
        for _ in range(2):
            self.offer(stream, *next(entries))
        while not stream.held:
            self.offer(stream, *next(entries))

    def note(self, stream: Stream, messages: int, size: int) -> None:
        self.log.append(Passed(self.clock.now, stream, messages, size))

    def hold(self, stream: Stream, messages: int, size: int) -> None:
        self.scheduler.count_offered(stream, 1, messages, size)
        self.scheduler.hold(stream, Entry(b"", messages, size, size, self.clock.now), self.clock.now)

    def offer(self, stream: Stream, messages: int, size: int) -> bool:
        """One entry, as the relay offers it. Returns whether it passed at once."""
        now = self.clock.now
        self.scheduler.count_offered(stream, 1, messages, size)
        if self.scheduler.pass_entry(stream, messages, size, now):
            self.note(stream, messages, size)
            return True
        self.scheduler.hold(stream, Entry(b"", messages, size, size, now), now)
        return False

    def run_until(self, end: int) -> None:
        """Let time pass; every alarm rings at its time."""
        while (alarm := self.next_before(end)) is not None:
            at, limiter, scheduler = alarm
            self.clock.now = max(self.clock.now, at)
            scheduler.serve(limiter, self.clock.now)
        self.clock.now = max(self.clock.now, end)

    def next_before(self, end: int) -> tuple[int, Limiter, Scheduler] | None:
        """The next alarm of either scheduler."""
        both = ((self.alarms, self.scheduler), (self.rehearsals, self.observer.scheduler))
        alarms, scheduler = min(both, key=lambda each: each[0].soonest())
        alarm = alarms.next_before(end)
        return None if alarm is None else (*alarm, scheduler)

    def soonest(self) -> float:
        """When the next alarm of either rings; never, if there is none."""
        return min(self.alarms.soonest(), self.rehearsals.soonest())

    def run(self, seconds: float) -> None:
        self.run_until(self.clock.now + round(seconds * 1e9))

    def messages_of(self, stream: Stream) -> int:
        return sum(passed.messages for passed in self.log if passed.stream is stream)

    def bytes_of(self, stream: Stream) -> int:
        return sum(passed.size for passed in self.log if passed.stream is stream)


class Governed(World):
    """A world whose limits come from policies, as in the product."""

    def __init__(
        self, on_pass: Callable[[Stream, int, int], None] = lambda *passed: None, first: FirstBalances | None = None
    ) -> None:
        super().__init__()
        self.scheduler = Telling(on_pass, self.alarms.wake_at, self.journal)
        self.policies = Policies()
        self.registry = Registry(self.policies, self.scheduler, self.observer, first=first)

    def put(self, setting: tuple[Setting, str], limit: Limit) -> None:
        self.policies.put("publish", *setting, Value(limit, "file"))

    def open(self, topic: str, *, by_entry: bool = False) -> Stream:
        stream = self.stream(by_entry=by_entry)
        stream.name = StreamName("publish", "t", "n", topic, 1)
        self.registry.open(stream, parse_topic(f"t/n/{topic}"), self.clock.now)
        return stream

    def apply(self) -> None:
        self.registry.apply(self.clock.now)


def limiter(
    messages: int | None = None,
    size: int | None = None,
    name: str = "n",
    burst: int | None = None,
    now: int = 0,
) -> Limiter:
    """A limiter of so much a second."""
    limit = Limit(
        rate(messages, burst=burst) if messages else None,
        rate(size, burst=burst if not messages else None) if size else None,
    )
    return Limiter(Scope("publish", "topic", name, "t", "n"), limit, "test", now)
