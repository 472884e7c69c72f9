"""Schedule reading: fair among client addresses, and one resumed connection per turn of the loop."""

import asyncio
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from mypy_extensions import mypyc_attr

from proxy.counters import Counters
from proxy.slices import ByTurns

MANY: Final = 32
"""Most connections of an address that is not watched: so few cannot make a turn long."""
SLICE_NS: Final = 100_000
"""Nanoseconds of a turn that the crowded addresses get together while they are read in turns. Sending their bytes at
the end of the turn takes about as much again, and so does the slice of sessions whose broker has just been connected.
"""
CALM_S: Final = 1.0
"""Seconds without an overrun after which an address is read by the loop itself again."""
_FIRST_BATCH: Final = 8
_LARGEST_BATCH: Final = 512
_READABLE_ONCE: Final = getattr(select, "EPOLLIN", 0) | getattr(select, "EPOLLONESHOT", 0)


class Reader(Protocol):
    """A connection of a session, to its client or to its broker, as the read scheduler sees it."""

    def descriptor(self) -> int:
        """Return the socket's descriptor; -1 if there is none, or if it does not show whether bytes can be read."""

    def may_be_read(self) -> bool:
        """Return whether the peer is connected, has not ended its side, and no reason not to read exists."""

    def start_reading(self) -> None:
        """Have the loop read this connection."""

    def stop_reading(self) -> None:
        """Have the loop stop reading this connection."""


@mypyc_attr(acyclic=True)
class AddressGroup:
    """The connections of all sessions of one client address.

    Args:
        scheduler: The scheduler of all addresses.
        address: The address or network that clients are counted as (`limiter.names.counted_as`).

    Attributes:
        is_crowded: Whether reading time is measured, with `begin` before and `end` after each read.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, scheduler: "ReadScheduler", address: str) -> None:
        self.is_crowded = False
        self.clock = scheduler.clock
        self._scheduler = scheduler
        self._address = address
        self._readers: set[Reader] = set()
        self._spent = 0
        """Nanoseconds that the connections have taken in this turn of the loop."""
        self._number_read = 0
        self._epoll: Any = None
        """Set while the address is read in turns."""
        self._by_descriptor: dict[int, Reader] = {}
        self._descriptors: dict[Reader, int] = {}
        self._admitted: dict[Reader, None] = {}
        """Connections that the loop reads next."""
        self._left_over: list[Reader] = []
        """Connections still to be read when the slice was used up: the first of the next turn."""
        self._batch = _FIRST_BATCH
        self._is_busy = False
        self._connected: deque[Callable[[], None]] = deque()
        """Continuations of sessions whose broker is connected; never more than there are sessions."""

    def join(self, reader: Reader) -> None:
        """Add a connection that begins; the loop reads it."""
        self._readers.add(reader)
        self._count()
        if self._epoll is not None:
            reader.stop_reading()
            self._await(reader)

    def leave(self, reader: Reader) -> None:
        """Remove a connection that ends; its descriptor is still open."""
        self._readers.discard(reader)
        self._admitted.pop(reader, None)
        self._count()
        descriptor = self._descriptors.pop(reader, -1)
        if descriptor >= 0:
            del self._by_descriptor[descriptor]
            if self._epoll is not None:
                self._epoll.unregister(descriptor)
        if not self._readers:
            self._scheduler.forget(self._address)
            self._read_all()

    def begin(self, reader: Reader) -> int:
        """Begin to measure a connection that has been read, and return the time, for `end`."""
        if self._epoll is not None:
            self._admitted.pop(reader, None)
            reader.stop_reading()
        return self.clock()

    def end(self, reader: Reader, began: int) -> None:
        """End the measurement: the bytes read are passed on."""
        self._number_read += 1
        self.resume(reader)
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._spent += max(1, self.clock() - began)
        if self._spent >= self._scheduler.slice_ns:
            self._overrun()

    def resume(self, reader: Reader) -> bool:
        """Read the connection in its turn, if the address is read in turns; return whether it is."""
        if self._epoll is None:
            return False
        if reader.may_be_read():
            self._await(reader)
        return True

    @property
    def is_in_turns(self) -> bool:
        """True while the address is read in turns."""
        return self._epoll is not None

    def go_on_later(self, go_on: Callable[[], None]) -> None:
        """Schedule a session whose broker is connected: in each turn as many go on as fit into the slice."""
        if not self._connected:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._connected.append(go_on)

    def _go_on(self) -> None:
        over = self.clock() + self._scheduler.slice_ns
        try:
            while self._connected:
                self._connected.popleft()()
                if self._epoll is not None and self.clock() >= over:
                    break
        finally:  # whatever is wrong with one, the others go on
            if self._connected:
                asyncio.get_running_loop().call_soon(self._go_on)

    def _count(self) -> None:
        self.is_crowded = self._epoll is not None or len(self._readers) > 2 * MANY

    def _overrun(self) -> None:
        """Handle a used-up slice: connections still to be read in this turn wait for one of the next."""
        if self._epoll is None:
            self._read_in_turns()
            return
        self._is_busy = True
        self._batch = min(self._number_read, self._batch)
        for reader in self._admitted:
            if reader.may_be_read():
                reader.stop_reading()
        self._left_over += self._admitted
        self._admitted.clear()

    def _next_turn(self) -> None:
        left_over, self._left_over = self._left_over, []
        for reader in left_over:
            self._admit(reader)
        if self._number_read >= self._batch and 2 * self._spent < self._scheduler.slice_ns:
            self._batch = min(2 * self._batch, _LARGEST_BATCH)
        self._spent = self._number_read = 0

    def _read_in_turns(self) -> None:
        if not self._scheduler.has_others or not _READABLE_ONCE:
            return
        try:
            self._epoll = select.epoll()
        except OSError:  # no descriptor is left: fairness is the least of this process' troubles
            return
        self._scheduler.in_turns += 1
        self._scheduler.counters.address_overruns += 1
        loop = asyncio.get_running_loop()
        loop.add_reader(self._epoll.fileno(), self._admit_some)
        loop.call_later(CALM_S, self._look)
        self._batch, self._is_busy = _FIRST_BATCH, False
        for reader in self._readers:
            if reader.may_be_read():
                reader.stop_reading()
                self._await(reader)

    def _await(self, reader: Reader) -> None:
        """Have the epoll report once when the connection can be read."""
        descriptor = self._descriptors.get(reader, -1)
        if descriptor >= 0:
            self._epoll.modify(descriptor, _READABLE_ONCE)
            return
        descriptor = reader.descriptor()
        if descriptor < 0:
            reader.start_reading()
            return
        self._epoll.register(descriptor, _READABLE_ONCE)
        self._descriptors[reader] = descriptor
        self._by_descriptor[descriptor] = reader

    def _admit_some(self) -> None:
        """Admit readable connections to the next turn; the loop calls this once in a turn when there are any."""
        room = self._batch - len(self._left_over)
        if room <= 0:
            return
        ready = self._epoll.poll(0, room)
        self._is_busy = self._is_busy or len(ready) == room
        for descriptor, _ in ready:
            self._admit(self._by_descriptor[descriptor])

    def _admit(self, reader: Reader) -> None:
        if reader in self._readers and reader.may_be_read():
            self._admitted[reader] = None
            reader.start_reading()

    def _look(self) -> None:
        if self._epoll is None:
            return
        if self._is_busy and self._scheduler.has_others:
            self._is_busy = False
            asyncio.get_running_loop().call_later(CALM_S, self._look)
        else:
            self._read_all()

    def _read_all(self) -> None:
        if self._epoll is None:
            return
        asyncio.get_running_loop().remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._epoll = None
        self._scheduler.in_turns -= 1
        self._by_descriptor.clear()
        self._descriptors.clear()
        self._admitted.clear()
        self._left_over.clear()
        self._count()
        for reader in self._readers:
            if reader.may_be_read():
                reader.start_reading()


class ReadScheduler:
    """Fair reading among client addresses: while others are there, a crowded one gets a slice of each loop turn.

    The loop serves every readable connection before it polls again. A thousand connections that speak at once make such
    a turn as long as their thousand chunks, and all others wait for its end. So:

        turn shorter than the slice   all are read by the loop itself; nothing is done for fairness
        longer, and other addresses   the address is read in turns: its connections wait in an epoll of its own, and
                                      each turn of the loop reads as many connections as fit into the slice
        calm for a second             all are read by the loop itself again

    The epoll returns the connections that became readable first, so no connection of the address starves another. There
    is one scheduler in a process.

    Args:
        counters: Count how often an address begins to be read in turns.
        clock: Monotonic nanoseconds.

    Attributes:
        in_turns: Number of addresses that are read in turns.
        groups: The connections of each address that has any.
    """

    def __init__(self, counters: Counters, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.counters = counters
        self.clock = clock
        self.in_turns = 0
        self.groups: dict[str, AddressGroup] = {}

    @property
    def has_others(self) -> bool:
        """True if clients of several addresses are connected."""
        return len(self.groups) > 1

    @property
    def slice_ns(self) -> int:
        """Nanoseconds of a turn for each address: an equal part of SLICE_NS for those read in turns."""
        return SLICE_NS // max(1, self.in_turns)

    def group(self, address: str) -> AddressGroup:
        """Return the group of one address; each of its connections is to `join` it."""
        group = self.groups.get(address)
        if group is None:
            group = self.groups[address] = AddressGroup(self, address)
        return group

    def forget(self, address: str) -> None:
        """Forget an address whose last connection has ended."""
        self.groups.pop(address, None)


class ResumedReader(Protocol):
    """A connection that waits in a `ResumeQueue`.

    Attributes:
        group: The connections of the same client address.
    """

    group: AddressGroup | None

    def turn_came(self) -> bool:
        """Read on if no other reason not to read exists by now; return whether reading goes on."""


_MOST_STOPPED: Final = 32
"""Connections that are stopped again, or gone, and are looked at in one turn of the loop."""


class ResumeQueue:
    """Resumes connections one in each turn of the loop, where many may be read again at the same moment.

    There is one queue in a process. When a tenant has room again, all its connections may be read on. Each read gives
    up to 256 KiB, up to 2 MiB in a row where not all passes (`FULL_READS`), and each entry is held by itself. If all
    connections were read in the same turn, timers would fire late, and most of the bytes would find no room.

        reasons gone ─▶ no connection waits ─▶ read on at once
                    └─▶ else it waits ─▶ its turn ─▶ read on
                                              └─▶ stopped again: next time it goes before those that were not

    Client addresses have turns: 400 busy clients of one address delay a client of another address by one turn only.
    Within an address the connections that were stopped again go first: so the last connection of an address is not
    always the one for which no room is left.
    """

    def __init__(self) -> None:
        self._row: ByTurns[ResumedReader] = ByTurns()
        self._in_row: set[ResumedReader] = set()
        self._waiting: set[ResumedReader] = set()
        """Connections that want a turn: those in the row that have not left, and those that were stopped again."""
        self._stopped: set[ResumedReader] = set()
        """Connections that were stopped again."""
        self._is_busy = False

    @property
    def is_any(self) -> bool:
        """True if connections wait."""
        return bool(self._waiting)

    def goes_first(self, reader: ResumedReader) -> bool:
        """Return whether the connection may read on now, as none is before it; else it joins the queue."""
        if self._is_busy or self._waiting:
            self.join(reader)
            return False
        self._begin_turn()
        return True

    def join(self, reader: ResumedReader) -> None:
        """Put a connection in the queue of its address: first if it was stopped again, else last."""
        self._waiting.add(reader)
        if reader not in self._in_row:
            self._in_row.add(reader)
            self._row.add(reader.group, reader, goes_first=reader in self._stopped)
        if not self._is_busy:
            self._begin_turn()

    def leave(self, reader: ResumedReader) -> None:
        """Remove a connection that will not be read again."""
        self._waiting.discard(reader)
        self._stopped.discard(reader)

    def _begin_turn(self) -> None:
        self._is_busy = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        if not self._row:
            self._is_busy = False
            return
        self._begin_turn()  # before anything that may fail
        for _ in range(_MOST_STOPPED):
            if not self._row or self._has_its_turn():
                return

    def _has_its_turn(self) -> bool:
        """Return whether the first connection used its turn; one that is stopped again, or gone, costs others none."""
        reader = self._row.pop()
        self._in_row.discard(reader)
        if reader not in self._waiting:
            return False
        self._waiting.discard(reader)
        self._stopped.discard(reader)
        has_gone = reader.turn_came()
        if not has_gone:
            self._waiting.add(reader)
            self._stopped.add(reader)
        return has_gone
