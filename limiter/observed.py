"""Limits in mode `observe`: what enforcing them would do, played beside the stream while everything passes.

    passed by the gate ─▶ client or broker
          └─ the same counts ─▶ a second gate, with the observed limits ─▶ nowhere

The second gate is the same code with entries that hold no bytes, so its numbers are those that enforcing would give for
the same arrivals. It holds at most as much as the connection might: beyond that enforcing would stop reading, and the
arrivals would be others. What is over that is counted as dropped.
"""

from collections.abc import Callable

from limiter.gate import Gate
from limiter.journal import Notes
from limiter.limiter import Limiter
from limiter.stream import Entry, Stream
from limiter.usage import StreamUsage

MOST_ENTRIES = 200_000
"""Entries that all streams of a process together play at holding."""


class Observed:
    """One stream's observed limits at work.

    Args:
        of: The stream.
        observer: Shared by all.
    """

    def __init__(self, of: Stream, observer: "Observer") -> None:
        self._gate = observer.gate
        self._observer = observer
        self._stream = Stream(of.name, (), self._release, of)

    @property
    def chain(self) -> tuple[Limiter, ...]:
        """The observed limits, outermost first."""
        return self._stream.chain

    @property
    def usage(self) -> StreamUsage:
        """What would have been passed, held and delayed; `dropped` is what would not even have been read."""
        return self._stream.usage

    @property
    def is_holding(self) -> bool:
        """Whether something would be held now."""
        return bool(self._stream.held)

    def rewire(self, chain: tuple[Limiter, ...], now: int) -> None:
        """Other limits are observed from now on."""
        self._gate.rewire(self._stream, chain, now)

    def leave(self, now: int) -> None:
        """The stream ends."""
        self._stream.is_open = False
        self._observer.room += len(self._gate.leave(self._stream, now))

    def admit(self, messages: int, size: int, now: int) -> bool:
        """Charge a chunk's worth if nobody would have held any of it; else it must be offered entry by entry."""
        return self._gate.admit(self._stream, messages, size, now)

    def withdraw(self, messages: int, size: int) -> None:
        """Undo an `admit` of the same instant."""
        self._gate.withdraw(self._stream, messages, size)

    def count_admitted(self, counts: tuple[int, int, int], largest: tuple[int, int]) -> None:
        """Note what was admitted: (entries, messages, bytes), and the largest entry's (messages, bytes)."""
        self._gate.count_admitted(self._stream, counts, largest)

    def offer(self, messages: int, size: int, now: int) -> None:
        """One entry passed the limits that are enforced: what would these do with it?"""
        stream, gate = self._stream, self._gate
        gate.count_offered(stream, 1, messages, size)
        if gate.pass_entry(stream, messages, size, now):
            return
        if self._observer.room == 0 or stream.usage.held_size + size > self._observer.most_size:
            gate.count_dropped(stream, messages, size)
            return
        self._observer.room -= 1
        gate.hold(stream, Entry([], messages, size, 0, now), now)

    def _release(self, _entry: Entry) -> None:
        self._observer.room += 1


class Observer:
    """The second gate, and the room that there is.

    Args:
        wake_at: As for `Gate`, but whom to wake is this one's `gate`.
        journal: Told of the streams that are observed.
        most_size: Metered bytes that one stream may play at holding.
        room: Entries that all together may.
    """

    def __init__(
        self, wake_at: Callable[[Limiter, int], None], journal: Notes, most_size: int, room: int = MOST_ENTRIES
    ) -> None:
        self.gate = Gate(wake_at, _Beside(journal))
        self.most_size = most_size
        self.room = room

    def watch(self, stream: Stream) -> Observed:
        """Observe a stream, so far without limits."""
        return Observed(stream, self)


class _Beside:
    """Notes the stream itself for what is played beside it."""

    def __init__(self, journal: Notes) -> None:
        self._journal = journal

    def note(self, stream: Stream) -> None:
        assert isinstance(stream.connection, Stream), "what is played belongs to a stream"
        self._journal.note(stream.connection)
