"""The TCP connection of a session to its client or to its broker: reading, writing, pausing, half-close.

Bytes are read into memory that all connections share (`ReadBuffer`), and go to the connection's `Receiver`. Reading is
paused while there are pause reasons (`Throttled`). Bytes are written to the kernel at once as long as it takes them
(`SocketWriter`). Small frames of one turn of the loop leave in one system call (`WriteCoalescer`).

Where the peer uses TLS, a `TlsTransport` (`proxy.tls.transport`) is between the loop and the `PeerTransport`: it reads
in its place, and calls `take` with the bytes of opened records. The rest is as without TLS.
"""

import asyncio
import ctypes
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from os import dup, write, writev
from typing import Final, Protocol, cast

from mypy_extensions import i64, mypyc_attr

from protocol.endpoint import host_port
from protocol.frames import ProtocolError
from proxy.counters import Counters
from proxy.read_scheduler import AddressGroup, ReadScheduler, ResumeQueue
from proxy.runtime import Heap
from proxy.session.keep_alive import Vitals, set_options, vitals_of
from proxy.slices import Slices, Work
from proxy.timers import LARGE_READ
from proxy.tls.transport import MOST_RECORDS, TlsBuffers, TlsFailure, TlsTransport

LEAST_READ: Final = 256 * 1024
STEPS: Final = 2
"""Number of times that the size of a read doubles."""
MOST_READ: Final = LEAST_READ << STEPS
_WRITABLE: Final = 0x200  # PyBUF_WRITE


class ReadBuffer:
    """The memory that all connections of a process read into: one buffer, scanned in place and used again.

    The loop's own reading takes new memory for each read, and copies the bytes into it from a buffer of its own. Here
    the kernel's copy is the only one, as long as the bytes go on at once.

    The size of reads grows with the bytes that come, and is small again where entries are held (`PeerTransport`). Large
    reads cost less, above all in a virtual machine, where waking both ends is dear. Small reads bring fewer bytes for
    which there is no room.

    Source: the C interface of Python. The caller of PyBytes_FromStringAndSize without a string may fill the new object.

    The buffer is `bytes`, because compiled modules read only these without a call. So `data` itself must not be kept,
    only slices, which are copies: `data` is longer than the longest read.

    Attributes:
        data: The buffer; the bytes read are at its beginning.
        views: Writable views of the same memory: the first has LEAST_READ bytes, each next one twice as many.
    """

    __slots__ = ("data", "views")

    def __init__(self) -> None:
        self.data: bytes = _new(None, MOST_READ + 1)
        whole: memoryview = _view_of(_address_of(self.data), MOST_READ, _WRITABLE)
        self.views = tuple(whole[: LEAST_READ << step] for step in range(STEPS + 1))


_new = ctypes.pythonapi.PyBytes_FromStringAndSize
_new.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_new.restype = ctypes.py_object
_address_of = ctypes.pythonapi.PyBytes_AsString
_address_of.argtypes = (ctypes.py_object,)
_address_of.restype = ctypes.c_void_p
_view_of = ctypes.pythonapi.PyMemoryView_FromMemory
_view_of.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view_of.restype = ctypes.py_object


class PauseReason(StrEnum):
    """A reason why a connection is not read; each is a label of `sluice_pauses_total`."""

    __hash__ = str.__hash__  # an enumeration's own is a call of Python

    CONNECTING = "connecting"
    """The broker is not connected yet."""
    HOLD_CONNECTION = "hold_connection"
    """This connection holds as many bytes as a connection may."""
    HOLD_PROCESS = "hold_process"
    """The connection holds entries of a tenant that is over its share of the memory of all connections
    (maxMessagePublishBufferSizeInMB)."""
    PUBLISH_RATE = "publish_rate"
    """A producer is over its limit, and `publish.mode` is `pause`."""
    PENDING_PUBLISHES = "pending_publishes"
    """The broker has not answered as many publishes as it may have (maxPendingPublishRequestsPerConnection)."""
    REFUSALS = "refusals"
    """Errors to its client wait for receipts that the broker has not sent."""
    WRITE_BUFFER = "write_buffer"
    """The other peer does not take the bytes read."""
    TURN = "turn"
    """The peer sent many small frames or many bytes in a row, many may be read on at once, or peers have sent more than
    a turn of the loop has time for: others go first."""
    REPLIES = "replies"
    """The client does not take the proxy's own answers, or the broker does not end the frame that is before them."""


_NONE: frozenset[PauseReason] = frozenset()


class Pausable(Protocol):
    """The part of a transport that pauses need."""

    def pause_reading(self) -> None:
        """Stop delivering bytes."""

    def resume_reading(self) -> None:
        """Deliver bytes again."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Throttled:
    """A connection with reasons not to read: reading stops at the first one, and resumes when the last is gone.

    A flag is not enough: two reasons may overlap, and the first to end would resume reading. This is a base class and
    not a part: each idle connection has two transports, and the callbacks of a part would be four objects more.

    Attributes:
        pause_reasons: The reasons why the connection is not read now.

    Source: org.apache.pulsar.broker.service.ServerCnxThrottleTracker (PIP-322, PIP-434)
    """

    def __init__(self) -> None:
        self.pause_reasons: frozenset[PauseReason] = _NONE  # shared: an empty set is as large as all else here together

    def is_throttled(self) -> bool:
        """Return whether there is a reason not to read."""
        return bool(self.pause_reasons)

    def add_pause_reason(self, reason: PauseReason, transport: Pausable) -> None:
        """Add a reason, and pause the transport at the first; adding a reason twice changes nothing."""
        if reason in self.pause_reasons:
            return
        self.pause_reasons |= {reason}
        if len(self.pause_reasons) == 1:
            transport.pause_reading()
        self.on_pause_reason(reason, True)

    def remove_pause_reason(self, reason: PauseReason) -> None:
        """Remove a reason; if it was the last one, call `on_last_reason_gone`."""
        if reason not in self.pause_reasons:
            return
        self.pause_reasons -= {reason}
        self.on_pause_reason(reason, False)
        if not self.pause_reasons:
            self.on_last_reason_gone(reason)

    def remove_all_pause_reasons(self) -> None:
        """Remove all reasons without reading on: the connection ends."""
        for reason in self.pause_reasons:
            self.pause_reasons -= {reason}
            self.on_pause_reason(reason, False)

    def on_pause_reason(self, reason: PauseReason, is_added: bool) -> None:  # noqa: FBT001 - the new state
        """Handle a reason that came or went."""
        raise NotImplementedError

    def yield_turn(self) -> None:
        """Read on when the loop has served all other connections."""
        raise NotImplementedError

    def on_last_reason_gone(self, last: PauseReason) -> None:
        """Handle the end of the last reason, `last`; there may be work to do before reading resumes."""
        raise NotImplementedError


_LEFT = frozenset({7, 8})
"""TCP_CLOSE and TCP_CLOSE_WAIT, as Linux numbers a connection's states."""


_MAPPED: Final = "::ffff:"
"""Before an IPv4 address, the address of a peer that came by IPv4 to a socket of IPv6 (RFC 4291, section 2.5.5.2)."""


def address_of(peername: object) -> str:
    """`host:port` of a socket's peer, or empty."""
    if not isinstance(peername, tuple) or len(peername) < 2:
        return ""
    host: str = peername[0]
    return host_port(host.removeprefix(_MAPPED) if "." in host else host, peername[1])


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """Return the descriptor for plain writes; -1 if there is none, as with TLS or a transport that is no socket."""
    connection = transport.get_extra_info("socket")
    if connection is None or transport.get_extra_info("sslcontext") is not None:
        return -1
    descriptor: int = connection.fileno()
    return descriptor


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer has closed or reset the connection. Known on Linux only; elsewhere always False."""
    connection = transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    if connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return False
    state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state in _LEFT


class WriteCoalescer:
    """Flushes all writers that have gathered frames with one call, at the end of the loop's turn.

    There is one in a process: to schedule a call costs more than the call itself, and many writers gather in one turn.
    """

    def __init__(self) -> None:
        self._gatherers: deque[SocketWriter] = deque()
        self._is_asked = False

    def await_by(self, gatherer: "SocketWriter") -> None:
        """Flush this writer when the turn ends; writers are flushed in the order in which they came."""
        self._gatherers.append(gatherer)
        if not self._is_asked:
            self._call_soon()

    def _flush(self) -> None:
        """Flush all writers; those that gather frames during this are flushed in the next turn."""
        self._is_asked = False
        try:
            for _ in range(len(self._gatherers)):
                self._gatherers.popleft().flush()
        finally:
            if self._gatherers and not self._is_asked:  # one failed: the others still send
                self._call_soon()

    def _call_soon(self) -> None:
        self._is_asked = True
        asyncio.get_running_loop().call_soon(self._flush)


LOOK_S: Final = 2.0
_AT_ONCE: Final = 500
"""Most clients that are looked at in one turn of the loop."""


class UnsentWatch:
    """Finds clients that have taken none of the bytes sent to them since the last look.

    There is one in a process. It looks two seconds after something was sent, and again as long as any client has bytes
    left. Nothing wakes a process in which nothing is sent.
    """

    def __init__(self) -> None:
        self._sent_lately: deque[SocketWriter] = deque()
        self._waiting: dict[SocketWriter, tuple[int, float]] = {}
        """Writers with bytes left: the bytes taken in all, and the time at which that number last grew."""
        self._is_armed = False

    @property
    def size(self) -> int:
        """Bytes that were sent and are not taken yet, of all clients that had some left at the last look."""
        return sum(sending.unsent() for sending in self._waiting)

    def watch(self, sending: "SocketWriter") -> None:
        """Watch a writer that sends something for the first time since all was taken."""
        self._sent_lately.append(sending)
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        lately, self._sent_lately = self._sent_lately, deque()
        self._look_at(deque([*self._waiting, *lately]))

    def _look_at(self, writers: "deque[SocketWriter]") -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for _ in range(min(len(writers), _AT_ONCE)):
            self._look_at_one(writers.popleft(), now)
        if writers:
            loop.call_soon(self._look_at, writers)
            return
        self._is_armed = False
        if self._waiting or self._sent_lately:
            self._arm()

    def _look_at_one(self, sending: "SocketWriter", now: float) -> None:
        unsent, taken = sending.unsent(), sending.taken()
        before = self._waiting.get(sending)
        if unsent == 0:
            self._waiting.pop(sending, None)
            sending.rest()
        elif before is None or taken > before[0]:
            self._waiting[sending] = taken, now
        else:
            sending.report(unsent, now - before[1])
            return
        if before is not None:
            sending.report(0, 0.0)


Bytes = bytes | bytearray | memoryview

WRITE_BUFFER_HIGH: Final = 512 * 1024
WRITE_BUFFER_LOW: Final = 128 * 1024
"""Bytes waiting for a slow reader at which the other peer is no longer read, and is read again."""
MOST_PIECES: Final = 4096
"""Waiting pieces, of however few bytes, at which the other peer is not read until all are taken. Each takes up to 200
bytes of the transport's beside its own, and a peer may send byte by byte."""
GATHER_MOST: Final = 256 * 1024
"""Gathered bytes at which a writer is flushed before the end of the loop's turn."""
_UNKNOWN: Final = -2
_COPIED_AT_ONCE: Final = 64 * 1024
"""Most bytes of a copy. From `runtime.LARGE` on, each would be new memory of the system, which costs for every page."""
_LONG_PART: Final = 4096
"""Mean bytes of a part from which on parts are not joined, but given to the kernel in one `writev`."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)  # tests put others in its place; `shut` ends all cycles
class SocketWriter:
    """Sends the bytes of one transport in order: to the kernel as long as it takes them, the rest through the loop.

    While there is no connection, or none that takes more, bytes to be written are discarded.

    Args:
        coalescer: Flushes this writer at the end of a turn.
        unsent: Watches whether the peer takes the bytes sent; None for a peer that may take any time.
    """

    __slots__ = (
        "_coalescer",
        "_descriptor",
        "_gathered",
        "_gathered_size",
        "_is_watched",
        "_pieces",
        "_sent",
        "_transport",
        "_unsent",
    )

    def __init__(self, coalescer: WriteCoalescer, unsent: UnsentWatch | None) -> None:
        self._coalescer = coalescer
        self._unsent = unsent
        self._is_watched = unsent is None
        self._sent: i64 = 0
        self._pieces: i64 = 0
        self._transport: asyncio.Transport | None = None
        self._descriptor = _UNKNOWN
        self._gathered: list[Bytes] = []
        self._gathered_size = 0

    def open(self, transport: asyncio.Transport) -> None:
        """Begin to write to a connection."""
        self._transport = transport
        self._descriptor = _UNKNOWN

    def shut(self) -> None:
        """Discard all further bytes."""
        self._transport = None

    def write_little(self, frame: bytes) -> None:
        """Send a frame in this turn of the loop, without setting anything up for more.

        Where thousands of connections come at once, their frames are sent one after the other: receivers on the same
        cores wake once for several.
        """
        self._gather(frame)

    def write(self, part: Bytes) -> None:
        """Send bytes at once. The memory of a view may change after this."""
        if self._descriptor == _UNKNOWN and self._transport is not None:
            self._begin(self._transport)
        if self._gathered:
            self._gather(part)
            self.flush()
        elif self._transport is not None:
            if isinstance(part, bytes):
                self._count(len(part))
                self._transport.write(part)
            else:
                self._send(self._transport, [part], len(part))

    def write_soon(self, part: bytes) -> None:
        """Send bytes together with the others of this turn of the loop; they are kept until then.

        Each write is a system call, which costs more than all other work for a frame.
        """
        if self._descriptor == _UNKNOWN and self._transport is not None:
            self._begin(self._transport)
        self._gather(part)
        if self._gathered_size >= GATHER_MOST:
            self.flush()

    def flush(self) -> None:
        """Send the gathered bytes now."""
        if not self._gathered:
            return
        parts, self._gathered = self._gathered, []
        size, self._gathered_size = self._gathered_size, 0
        if self._transport is not None:
            self._send(self._transport, parts if size >= _LONG_PART * len(parts) else [b"".join(parts)], size)

    def end_at_once(self) -> None:
        """Send the gathered bytes, and the end of this direction, in this turn of the loop if the kernel takes them.

        The transport sends an end in the next turn: a peer might answer the last bytes meanwhile.
        """
        if self._transport is None or self._descriptor < 0 or self.unsent():
            return
        parts, self._gathered = self._gathered, []
        size, self._gathered_size = self._gathered_size, 0
        if parts:
            self._send(self._transport, [memoryview(b"".join(parts))], size)
        if not self.unsent():
            with suppress(OSError), socket.socket(fileno=dup(self._descriptor)) as same:
                same.shutdown(socket.SHUT_WR)

    def _send(self, transport: asyncio.Transport, parts: list[Bytes], size: int) -> None:
        """Send the parts, `size` bytes in all; the transport keeps what the kernel does not take at once.

        The transport gets whole `bytes` objects as they are, and all else as copies. A single `bytes` object uvloop's
        transport also writes to the kernel at once, at a lower cost.
        """
        self._count(size)
        only = parts[0] if len(parts) == 1 else None
        if isinstance(only, bytes):
            transport.write(only)
            return
        sent = 0
        if self._descriptor >= 0 and transport.get_write_buffer_size() == 0 and not transport.is_closing():
            try:
                sent = writev(self._descriptor, parts) if len(parts) > 1 else write(self._descriptor, parts[0])
            except OSError:  # it has no room; or the connection is broken, which the transport also finds
                sent = 0
        for part in parts if sent < size else ():
            if sent < len(part):
                _copy(transport, part, sent)
            sent = max(0, sent - len(part))

    def resumed(self) -> None:
        """Record that the transport has room for more."""
        if self._pieces >= MOST_PIECES and self._transport is not None:
            self._pieces = 0
            _set_limits(self._transport)

    def rest(self) -> None:
        """Stop watching, as all bytes sent are taken; the next write begins it again."""
        self._is_watched = False

    def unsent(self) -> int:
        """Return the bytes that were sent and that the kernel has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def taken(self) -> int:
        """Return the bytes that the kernel has taken, in all."""
        return self._sent - self.unsent()

    def report(self, unsent: int, seconds: float) -> None:
        """Report that the peer has taken nothing of `unsent` bytes for `seconds`; 0 of both if it took something."""
        if self._transport is not None:
            self._transport.get_protocol().not_taken(unsent, seconds)  # type: ignore[attr-defined] # it is the PeerTransport

    def _count(self, size: i64) -> None:
        self._sent += size
        self._pieces += 1
        if self._pieces == MOST_PIECES:
            self._look_at_pieces()
        if not self._is_watched:
            self._is_watched = True
            if self._unsent is not None:
                self._unsent.watch(self)

    def _look_at_pieces(self) -> None:
        """Reset the number of pieces if all are taken; else stop reading the other peer until they are."""
        if self.unsent() == 0:
            self._pieces = 0
        elif self._transport is not None:
            self._transport.set_write_buffer_limits(high=0, low=0)

    def _gather(self, part: Bytes) -> None:
        if not self._gathered:
            self._coalescer.await_by(self)
        self._gathered.append(part)
        self._gathered_size += len(part)

    def _begin(self, transport: asyncio.Transport) -> None:
        """Prepare for traffic: set the bounds on waiting bytes, and find the socket's descriptor."""
        self._descriptor = descriptor_of(transport)
        _set_limits(transport)


def _set_limits(transport: asyncio.Transport) -> None:
    transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH, low=WRITE_BUFFER_LOW)


def _copy(transport: asyncio.Transport, part: Bytes, sent: int) -> None:
    """Write the rest of a part to the transport: a copy, unless it is a whole `bytes` object or becomes TLS records."""
    given: object = transport  # no subclass of asyncio's: compiled, its own type would rule the other out
    is_taken_whole = isinstance(part, bytes) or isinstance(given, TlsTransport)
    if is_taken_whole and not sent:
        transport.write(part)
        return
    for at in range(sent, len(part), _COPIED_AT_ONCE):
        transport.write(bytes(part[at : at + _COPIED_AT_ONCE]))


class TransportContext:
    """The objects that all connections of a process share, as one loop serves them.

    Args:
        counters: The counters of the process.
        slices: Does work that is too much for one turn of the loop.

    Attributes:
        heap: Gives memory back to the system; called when much comes free.
        heartbeat: Notes how late the loop is while it reads.
        slow_reads: The time of slow reads in this turn of the loop.
        line: The queue of connections that wait to be read on.
        buffer: The memory that all connections read into.
        reads: Shares the turns of the loop among the addresses of clients.
        coalescer: Sends gathered frames at the end of a turn.
        unsent: Watches whether clients take the bytes sent to them.
    """

    __slots__ = ("_slices", "_tls", "buffer", "coalescer", "heap", "heartbeat", "line", "reads", "slow_reads", "unsent")

    def __init__(self, counters: Counters, slices: Slices) -> None:
        self._slices = slices
        self.heartbeat = slices.heartbeat
        self.heap = Heap(
            partial(slices.measure, Work.MEMORY),
            is_freeing=lambda: slices.waiting(Work.ENDINGS) > 0 or slices.waiting(Work.LINES) > 0,
        )
        self.slow_reads = slices.slow_reads
        self.line = ResumeQueue()
        self.reads = ReadScheduler(counters)
        self.buffer = ReadBuffer()
        self.coalescer = WriteCoalescer()
        self.unsent = UnsentWatch()
        self._tls: TlsBuffers | None = None

    def tls_buffers(self) -> TlsBuffers:
        """Return the memory that all TLS connections share, made for the first one."""
        if self._tls is None:
            records = ReadBuffer()
            self._tls = TlsBuffers(
                self.buffer.data,
                self.buffer.views[-1],
                records.data,
                records.views[-1][:MOST_RECORDS],
                self._slices,
            )
        return self._tls


FULL_READS: Final = 8
"""Full reads in a row, each of the longest kind or with bytes that do not pass at once, after which others are read."""

_TURN = frozenset({PauseReason.TURN})
_OF_MANY = frozenset({PauseReason.HOLD_CONNECTION, PauseReason.HOLD_PROCESS})
"""Reasons that end for many connections in one turn of the loop, when tokens come."""


@mypyc_attr(
    allow_interpreted_subclasses=True
)  # base classes and no `Protocol`s: compiled code looks up the methods of a `Protocol` by name
class Receiver:
    """Takes the bytes that one transport reads.

    Attributes:
        passes: Whether the bytes fed last went on at once, as they came; not if that was slow.
    """

    def __init__(self) -> None:
        self.passes = False

    def feed(self, data: bytes, size: int) -> None:
        """Take the bytes read: the first `size` bytes of `data`. The memory may change after the call.

        Raises:
            ProtocolError: If the peer broke the protocol; nothing more can be fed.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class TransportOwner:
    """Handles the events of transports. This base class, the owner after a session's end, does nothing."""

    def arrived(self, transport: "PeerTransport", chunk: bytes) -> None:
        """Handle bytes that came while there is no receiver."""

    def broke_protocol(self, transport: "PeerTransport", error: ProtocolError) -> None:
        """Handle bytes that break the protocol."""

    def writable(self, transport: "PeerTransport", is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """Handle a write buffer that is full, or has room again."""

    def opened(self, transport: "PeerTransport") -> None:
        """Handle a connection that was made."""
        transport.disown()

    def secured(self, transport: "PeerTransport", certificate_name: str | None) -> None:
        """Handle a TLS handshake that is done; the name is that of the peer's certificate, if it has one."""

    def tls_failed(self, transport: "PeerTransport", failure: TlsFailure, detail: str) -> None:
        """Handle TLS that failed; `detail` says what the peer does."""

    def half_closed(self, transport: "PeerTransport") -> None:
        """Handle the end of what the peer sends."""

    def not_taken(self, transport: "PeerTransport", unsent: int, seconds: float) -> None:
        """Handle a client that has taken nothing of `unsent` bytes for `seconds`; 0 of both if it took something."""

    def lost(self, transport: "PeerTransport", error: Exception | None) -> None:
        """Handle a connection that is gone."""

    def throttle_changed(self, transport: "PeerTransport", reason: PauseReason, is_added: bool) -> None:  # noqa: FBT001
        """Handle a reason not to read that came or went."""

    def read_on(self, transport: "PeerTransport") -> None:
        """Handle the end of the last reason not to read."""


_NO_OWNER = TransportOwner()


class PeerTransport(Throttled):
    """Passes the bytes read to the receiver, or else to the owner, and keeps the reasons not to read.

    This is an `asyncio.BufferedProtocol` without the base class, which compiled classes cannot inherit from; uvloop
    looks for `get_buffer`, not for the base.

    Attributes:
        owner: Handles all events.
        group: The connections of clients of the same address; None before the address is known, and after the end.
        has_kept: TLS has records that were read and are not opened.
        receiver: If set, takes the bytes read, in place of the owner (`hand_to`).
        writer: Sends bytes to the peer.

    Args:
        side: `client` or `broker`, for people.
        owner: The session.
        shared: The objects that all connections share.
    """

    __slots__ = (
        "_abort_timer",
        "_buffer",
        "_full_reads",
        "_heartbeat",
        "_is_at_end",
        "_kept",
        "_line",
        "_slow_reads",
        "_step",
        "_transport",
        "bytes_read",
        "group",
        "has_kept",
        "owner",
        "receiver",
        "side",
        "writer",
    )

    def __init__(self, side: str, owner: TransportOwner, shared: TransportContext) -> None:
        super().__init__()
        self.side = side
        self.bytes_read = 0
        self.receiver: Receiver | None = None
        self.group: AddressGroup | None = None
        self.has_kept = False
        self.writer = SocketWriter(shared.coalescer, shared.unsent if side == "client" else None)
        self.owner = owner
        self._line = shared.line
        self._heartbeat = shared.heartbeat
        self._slow_reads = shared.slow_reads
        self._buffer = shared.buffer
        self._step = 0
        self._full_reads = 0
        self._kept = b""
        """Bytes that were read when the time of the turn was used up, and that go on when this connection's comes."""
        self._is_at_end = False
        self._transport: asyncio.Transport | None = None
        self._abort_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop when the connection is made."""
        self._note_read()
        self._transport = cast("asyncio.Transport", transport)
        self.writer.open(self._transport)
        self.owner.opened(self)

    def secure(self, context: ssl.SSLContext, buffers: TlsBuffers, begun: bytes = b"") -> None:
        """Begin the TLS handshake with a client that has just connected; `begun` are bytes that were read before."""
        if self._transport is not None:
            tls = TlsTransport(self, self, self._transport, context, buffers)
            self._transport = cast("asyncio.Transport", tls)
            self.writer.open(self._transport)
            if begun:
                tls.feed(begun, len(begun))

    def secured(self, tls: TlsTransport) -> None:
        """Called by TLS when the handshake is done."""
        self.owner.secured(self, tls.certificate_name)

    def tls_failed(self, _tls: TlsTransport, failure: TlsFailure, detail: str) -> None:
        """Called by TLS when it failed."""
        self.owner.tls_failed(self, failure, detail)

    def data_received(self, data: bytes) -> None:
        """Fail: the loop looks the name up, which a failed look-up would make dearer, but reads into the buffer."""
        raise NotImplementedError

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Called by the loop: return the memory to read into."""
        return self._buffer.views[self._step]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop when it has read `nbytes` bytes."""
        self._note_read()
        group = self.group
        is_measured = group is not None and group.is_crowded
        began = group.begin(self) if group is not None and is_measured else 0
        self.bytes_read += nbytes
        self.take(self._buffer.data, nbytes)
        receiver = self.receiver
        if receiver is None:
            self._full_reads = 0
        elif nbytes < LEAST_READ << self._step:
            self._full_reads = 0
            if not receiver.passes:
                self._step = 0
        else:
            self._was_full(receiver)
        if group is not None and is_measured:
            group.end(self, began)

    def _note_read(self) -> None:
        heartbeat = self._heartbeat
        heartbeat.reads_left -= 1
        if heartbeat.reads_left == 0:
            heartbeat.note()

    def _was_full(self, receiver: Receiver) -> None:
        """Handle a read of as many bytes as could be read at once."""
        if receiver.passes and self._step < STEPS:
            self._step += 1
        else:
            self._full_reads += 1
            if self._full_reads == FULL_READS:
                self._full_reads = 0
                self.yield_turn()
        if not receiver.passes:
            self._step = 0

    def was_read(self) -> None:
        """Called by TLS for a read of fewer bytes than could be read at once."""
        self._note_read()
        self._full_reads = 0

    def was_read_full(self) -> None:
        """Called by TLS for a read of as many bytes as could be read at once; those reads do not grow."""
        self._full_reads += 1
        if self._full_reads == FULL_READS:
            self._full_reads = 0
            self.yield_turn()

    def await_end(self) -> None:
        """Called by TLS when it has read the end during a pause: the loop reports the end after the pause."""
        self._is_at_end = True

    def take(self, data: bytes, size: int) -> None:
        """Pass on the first `size` bytes of `data`, read now or before there was a receiver."""
        receiver = self.receiver
        if receiver is None:
            self.owner.arrived(self, data[:size])
        elif self._kept:  # TLS has opened more before it was paused
            self._keep(data, size)
        elif size < LARGE_READ:
            self._feed(receiver, data, size)
        elif self._slow_reads.is_over and self._slow_reads.has_room and self._waits():
            self._keep(data, size)
        else:
            self._feed_large(receiver, data, size)

    def _keep(self, data: bytes, size: int) -> None:
        self._kept += data[:size]
        self._slow_reads.kept += size

    def _drop_kept(self) -> bytes:
        kept, self._kept = self._kept, b""
        self._slow_reads.kept -= len(kept)
        return kept

    def _feed(self, receiver: Receiver, data: bytes, size: int) -> None:
        try:
            receiver.feed(data, size)
        except ProtocolError as error:
            self.owner.broke_protocol(self, error)

    def _waits(self) -> bool:
        """Let others go first, and return whether reading is paused: that of an ending connection is not."""
        self.yield_turn()
        return bool(self.pause_reasons)

    def _feed_large(self, receiver: Receiver, data: bytes, size: int) -> None:
        slow_reads = self._slow_reads
        began = slow_reads.begin()
        self._feed(receiver, data, size)
        if slow_reads.end(began, size):
            receiver.passes = False
            if (slow_reads.is_tight or self._line.is_any) and not self.pause_reasons:
                self.yield_turn()

    def pause_writing(self) -> None:
        """Called by the loop when the write buffer is full."""
        self.owner.writable(self, False)

    def resume_writing(self) -> None:
        """Called by the loop when the write buffer has room again."""
        self.writer.resumed()
        self.owner.writable(self, True)

    def not_taken(self, unsent: int, seconds: float) -> None:
        """Called when the writer is looked at; see `TransportOwner`."""
        self.owner.not_taken(self, unsent, seconds)

    def eof_received(self) -> bool:
        """Called by the loop when the peer sends no more; the other direction stays open."""
        self._is_at_end = True
        self.owner.half_closed(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the connection is gone."""
        self._note_read()
        self._drop_kept()
        self._leave_group()
        self._transport = None
        self.writer.shut()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None
        self.owner.lost(self, exc)

    @property
    def address(self) -> str:
        """The peer's `host:port`; empty without a connection. Reading it costs two system calls."""
        return address_of(self._transport.get_extra_info("peername")) if self._transport is not None else ""

    @property
    def own_address(self) -> str:
        """The `host:port` that the peer is connected to; empty without a connection."""
        return address_of(self._transport.get_extra_info("sockname")) if self._transport is not None else ""

    @property
    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol object for the loop: this transport."""
        return cast("asyncio.BaseProtocol", self)

    @property
    def is_connected(self) -> bool:
        """True while there is a connection, be it an ending one."""
        return self._transport is not None

    def write_eof(self) -> None:
        """Send all gathered bytes, then end this direction."""
        self.writer.flush()
        if self._transport is not None and not self._transport.is_closing():
            self.writer.shut()
            self._transport.write_eof()

    def is_stopped(self) -> bool:
        """Return whether reading is paused for a reason other than `TURN`, which ends without an event."""
        return bool(self.pause_reasons) and self.pause_reasons != _TURN

    def set_throttle(self, reason: PauseReason, *, on: bool) -> None:
        """Add or remove a reason not to read."""
        if on:
            self.throttle(reason)
        else:
            self.unthrottle(reason)

    def throttled_for(self, reason: PauseReason) -> Callable[[bool], None]:
        """Return the function that a budget calls when it becomes full (True), and when it has room (False)."""
        return partial(self._set_throttle, reason)

    def throttle(self, reason: PauseReason) -> None:
        """Stop reading, for this reason."""
        if self._transport is not None and not self._transport.is_closing():
            self.add_pause_reason(reason, self._transport)

    def unthrottle(self, reason: PauseReason) -> None:
        """Remove a reason not to read."""
        self.remove_pause_reason(reason)

    def yield_turn(self) -> None:
        """Read on when the loop has served all other connections."""
        self.throttle(PauseReason.TURN)
        self._line.join(self)

    def turn_came(self) -> bool:
        """Read on if no other reason not to read exists by now; return whether reading goes on."""
        is_stopped = len(self.pause_reasons) > 1
        self.unthrottle(PauseReason.TURN)
        return not is_stopped

    def has_left(self) -> bool:
        """Return whether the peer has closed or reset the connection, also one that is not read."""
        return self._transport is not None and has_left(self._transport)

    def keep_alive(self, seconds: float) -> None:
        """Have the kernel find out that the peer is gone (`set_options`); clients' sockets inherit that."""
        connection = None if self._transport is None else self._transport.get_extra_info("socket")
        if connection is not None:
            set_options(connection, seconds)

    def vitals(self) -> Vitals | None:
        """Return the kernel's account of the connection; None where there is none."""
        return vitals_of(self._transport.get_extra_info("socket")) if self._transport is not None else None

    def resume_reading(self) -> None:
        """Read again, unless there is a new pause reason; the loop reports the end of the stream again."""
        if self._transport is None or self._transport.is_closing() or self.pause_reasons:
            return
        if self._is_at_end or self.has_kept or self.group is None or not self.group.resume(self):
            self.start_reading()

    def join(self, group: AddressGroup | None) -> None:
        """Read this connection from now on as one of its client's address."""
        self.group = group
        if group is not None:
            group.join(self)

    def share_turns(self, other: "PeerTransport") -> None:
        """Have the turns of another connection's address, until this one is open and joins the group."""
        self.group = other.group

    def descriptor(self) -> int:
        """Return the socket's descriptor; -1 if there is none, or if it does not show whether bytes can be read."""
        transport = self._transport
        if transport is None:
            return -1
        given: object = transport
        if isinstance(given, TlsTransport):
            return given.descriptor()
        return descriptor_of(transport)

    def may_be_read(self) -> bool:
        """Return whether the peer is connected, has not ended its side, and no reason not to read exists."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self.pause_reasons and not self._is_at_end

    def start_reading(self) -> None:
        """Have the loop read this connection."""
        if self._transport is not None:
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        """Have the loop stop reading this connection."""
        if self._transport is not None:
            self._transport.pause_reading()

    def hand_to(self, receiver: Receiver | None) -> None:
        """Give the bytes read to `receiver` from now on; None: to the owner."""
        self.receiver = receiver

    def _leave_group(self) -> None:
        group, self.group = self.group, None
        if group is not None:
            group.leave(self)

    def close(self, patience: float) -> None:
        """Send all gathered bytes, then close; abort if the peer does not take them within `patience` seconds."""
        self.writer.flush()
        self.writer.shut()
        self._line.leave(self)
        self._drop_kept()
        self.receiver = None
        transport = self._transport
        if transport is not None and self._abort_timer is None:
            transport.close()
            self._abort_timer = asyncio.get_running_loop().call_later(patience, transport.abort)

    def end(self, patience: float) -> None:
        """Send all gathered bytes, then end this direction, and read until the peer closes; abort after `patience`.

        To close a connection whose peer still sends resets it: the peer may lose what was sent to it last. Only the
        first call counts.
        """
        if self._abort_timer is not None:
            return
        if self._transport is None or self._transport.is_closing() or self._is_at_end:
            self.close(patience)
            return
        self._line.leave(self)
        self._drop_kept()
        self.receiver = None
        self.writer.end_at_once()
        self.write_eof()
        self._abort_timer = asyncio.get_running_loop().call_later(patience, self._transport.abort)
        self._transport.resume_reading()

    def close_ended(self) -> None:
        """Close a connection that `end` has ended, now that its peer has ended it as well."""
        if self._transport is not None:
            self._transport.close()

    def disown(self) -> None:
        """Drop a connection that was made after its dial was cancelled; the loop may never report its end."""
        self._leave_group()
        transport, self._transport = self._transport, None
        self.writer.shut()
        if transport is not None:
            transport.abort()

    def let_go_of_owner(self) -> None:
        """Drop the owner, so that no reference cycle remains for Python's search: the session is over."""
        self.owner = _NO_OWNER

    def _set_throttle(self, reason: PauseReason, on: bool) -> None:  # noqa: FBT001 - as a budget calls it
        self.set_throttle(reason, on=on)

    def on_pause_reason(self, reason: PauseReason, is_added: bool) -> None:  # noqa: FBT001 - the new state
        """Call the owner for a pause reason that came or went."""
        self.owner.throttle_changed(self, reason, is_added)

    def on_last_reason_gone(self, last: PauseReason) -> None:
        """Read on, unless many connections may do so at once."""
        if last not in _OF_MANY:
            self._line.leave(self)
        elif not self._line.goes_first(self):
            self.throttle(PauseReason.TURN)
            return
        if self._kept:
            kept = self._drop_kept()
            self.take(kept, len(kept))
        if not self.pause_reasons:
            self.owner.read_on(self)
