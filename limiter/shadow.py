"""Limits in mode `observe`: a second scheduler simulates their enforcement, while everything passes.

    passed by the scheduler ─▶ client or broker
          └─ the same counts ─▶ a second scheduler, with the observed limits ─▶ nowhere

The second scheduler is the same code with entries that hold no bytes. So its numbers are those that enforcing would
give for the same arrivals. It holds at most as much as the connection might. Beyond that, enforcing would pause reading
and the arrivals would differ: such entries are counted as dropped.
"""

from collections.abc import Callable

from limiter.activity import ActivityNotes
from limiter.limiter import Entry, Limiter, Stream
from limiter.scheduler import Scheduler
from limiter.usage import StreamUsage

MOST_ENTRIES = 200_000
"""Most simulated entries that all streams of a process together hold."""


class ShadowStream:
    """The observed limits of one stream at work.

    Args:
        of: The observed stream.
        shadow: The second scheduler, shared by all streams.
    """

    def __init__(self, of: Stream, shadow: "ShadowLimiter") -> None:
        self._scheduler = shadow.scheduler
        self._shadow = shadow
        self._of = of
        self._holder = of.connection or of, of.name.direction
        self._stream = Stream(of.name, (), self._release, of, by_entry=of.by_entry)

    @property
    def chain(self) -> tuple[Limiter, ...]:
        """The observed limits, outermost first."""
        return self._stream.chain

    @property
    def usage(self) -> StreamUsage:
        """Entries that would have been passed, held and delayed; `dropped` ones would not have been read."""
        return self._stream.usage

    @property
    def is_holding(self) -> bool:
        """True while an entry would be held."""
        return bool(self._stream.held)

    def rewire(self, chain: tuple[Limiter, ...], now: int) -> None:
        """Observe the limiters of `chain` from now on."""
        self._of.come_within(self._of.chain)  # first, as entries may pass at once and note the stream with them
        self._scheduler.rewire(self._stream, chain, now)

    def leave(self, now: int) -> None:
        """Remove the stream, which ends."""
        self._stream.is_open = False
        for entry in self._scheduler.leave(self._stream, now):
            self._release(self._stream, entry)

    def admit(self, messages: int, size: int, now: int) -> bool:
        """Charge a chunk's worth if no entry would have been held; else the caller offers each entry."""
        return self._scheduler.admit(self._stream, messages, size, now)

    def withdraw(self, messages: int, size: int) -> None:
        """Undo an `admit` of the same instant."""
        self._scheduler.withdraw(self._stream, messages, size)

    def count_admitted(self, entries: int, messages: int, size: int, largest_messages: int, largest_size: int) -> None:
        """Record an admitted chunk: its entries, messages and bytes, and the largest entry's messages and bytes."""
        self._scheduler.count_admitted(self._stream, entries, messages, size, largest_messages, largest_size)

    def offer(self, messages: int, size: int, now: int) -> None:
        """Simulate the observed limits for an entry that the enforced limits passed."""
        stream, scheduler = self._stream, self._scheduler
        scheduler.count_offered(stream, 1, messages, size)
        if scheduler.pass_entry(stream, messages, size, now):
            return
        memory = size + self._shadow.overhead
        if self._shadow.take(self._holder, memory):
            scheduler.hold(stream, Entry(b"", messages, size, memory, now, charged=stream.charged(1, messages)), now)
        else:
            scheduler.count_dropped(stream, messages, size)

    def _release(self, _stream: Stream, entry: Entry) -> None:
        self._shadow.give(self._holder, entry.memory)


class ShadowLimiter:
    """The second scheduler of all observed limits, and the bounds on its held entries.

    Args:
        scheduled: Makes the scheduler for a journal.
        journal: Notes observed streams whose simulated counts change.
        most: Bytes held at which reading one direction of a connection would be paused.
        overhead: Bytes of memory that a held entry takes beyond its metered bytes.
        room: Most simulated entries that all streams together hold.
    """

    def __init__(
        self,
        scheduled: Callable[[ActivityNotes], Scheduler],
        journal: ActivityNotes,
        most: int,
        overhead: int,
        room: int = MOST_ENTRIES,
    ) -> None:
        self.scheduler = scheduled(_Beside(journal))
        self.room = room
        self.overhead = overhead
        self._most = most
        self._held: dict[object, int] = {}

    def take(self, holder: object, memory: int) -> bool:
        """Count one more simulated entry as held; return False if reading its connection would have been paused."""
        held = self._held.get(holder, 0)
        if self.room == 0 or held >= self._most:
            return False
        self.room -= 1
        self._held[holder] = held + memory
        return True

    def give(self, holder: object, memory: int) -> None:
        """Record that a simulated entry is no longer held."""
        self.room += 1
        self._held[holder] -= memory
        if self._held[holder] == 0:
            del self._held[holder]

    def watch(self, stream: Stream) -> ShadowStream:
        """Return the shadow of a stream, so far without limits."""
        return ShadowStream(stream, self)


class _Beside:
    """Passes notes of simulated streams on as notes of the observed streams."""

    def __init__(self, journal: ActivityNotes) -> None:
        self._journal = journal

    def note(self, stream: Stream) -> None:
        assert isinstance(stream.connection, Stream), "a simulated stream belongs to an observed one"
        self._journal.note(stream.connection)

    def touched(self, limiter: Limiter) -> None:
        self._journal.touched(limiter)

    def ended(self, stream: Stream) -> None:
        """Do nothing: a simulated stream ends with the observed one."""

    def rewired(self, stream: Stream, now: int) -> None:
        """Do nothing: the report of the observed stream ends then."""

    def retuned(self, limiter: Limiter, now: int) -> None:
        """Do nothing: the registry calls the journal itself."""

    def left(self, limiter: Limiter, now: int) -> None:
        """Do nothing: the registry calls the journal itself."""

    def forgotten(self, limiter: Limiter) -> None:
        """Do nothing: the registry calls the journal itself."""
