"""A socket that is not there: what the proxy writes is kept, and what the peer sends waits while nobody reads."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from tests.proxy.wire import send

AnyProtocol = asyncio.Protocol | asyncio.BufferedProtocol
_REMAINS = send(77) * 3


class _Kernel:
    """What the kernel knows of the connection."""

    family = socket.AF_INET

    def __init__(self, transport: "FakeTransport") -> None:
        self._transport = transport

    def fileno(self) -> int:
        return self._transport.descriptor

    def getsockopt(self, _level: int, _option: int, _size: int) -> bytes:
        return bytes([self._transport.state])


class FakeTransport(asyncio.Transport):
    """The proxy's end of one connection, in the manner of asyncio's own transport.

    Attributes:
        descriptor: Where the kernel takes bytes from others than the transport; -1 for nowhere.
        state: The connection's, as Linux numbers it: established, or left by the peer (8).
        written: What the peer took.
        unsent: What the peer has not taken yet, because it does not read.
        pauses, resumes: Calls of `pause_reading` and `resume_reading` that changed something.
    """

    def __init__(self, loop: asyncio.BaseEventLoop, address: tuple[str, int]) -> None:
        self.state = 1
        self.descriptor = -1
        super().__init__({"peername": address, "socket": _Kernel(self)})
        self.written = bytearray()
        self.unsent = bytearray()
        self.pauses = self.resumes = 0
        self.is_reading_paused = False
        self.is_eof_sent = self.was_aborted = self.is_lost = False
        self.peer_reads = True
        self._loop = loop
        self._protocol: AnyProtocol | None = None
        self._is_ending = False
        self._is_writing_paused = False
        self._high, self._low = 64 * 1024, 16 * 1024
        self._incoming: deque[Callable[[], None]] = deque()

    # ---- for the peer

    def connect(self, protocol: AnyProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        """The peer sends; it arrives once the proxy reads."""
        self._arrive(partial(self._fill, data))

    def receive_eof(self) -> None:
        self.state = 8
        self._arrive(self._eof)

    def break_off(self, error: Exception | None) -> None:
        """The connection is lost at once, whatever is unread or unsent."""
        self._incoming.clear()
        self._is_ending = True
        self._lose(error)

    def take_all(self) -> None:
        """The peer reads what waits for it."""
        self.written += self.unsent
        self.unsent.clear()
        if self._is_writing_paused:
            self._is_writing_paused = False
            self._peer().resume_writing()
        if self._is_ending:
            self._lose(None)

    @property
    def unread(self) -> int:
        """Deliveries that wait in the socket because the proxy does not read."""
        return len(self._incoming)

    # ---- for the proxy

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: Any) -> None:
        if self.is_eof_sent:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self.is_lost or self._is_ending:
            return
        self.unsent += data
        if self.peer_reads:
            self.written += self.unsent
            self.unsent.clear()
        elif len(self.unsent) > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._peer().pause_writing()

    def write_eof(self) -> None:
        self.is_eof_sent = True

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._is_ending

    def close(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            if not self.unsent:
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self.was_aborted = self._is_ending = True
        self.unsent.clear()
        self._loop.call_soon(self._lose, None)

    def pause_reading(self) -> None:
        if not self._is_ending and not self.is_reading_paused:
            self.is_reading_paused = True
            self.pauses += 1

    def resume_reading(self) -> None:
        if not self._is_ending and self.is_reading_paused:
            self.is_reading_paused = False
            self.resumes += 1
            self._loop.call_soon(self._read_on)

    def is_reading(self) -> bool:
        return not self._is_ending and not self.is_reading_paused

    def _fill(self, data: bytes) -> None:
        """As uvloop does: by its buffer, if it has one; what stands behind is of other reads."""
        peer = self._peer()
        if isinstance(peer, asyncio.Protocol):
            peer.data_received(data)
            return
        buffer = cast("memoryview", peer.get_buffer(-1))
        size = min(len(data), len(buffer))
        remains = _REMAINS[: len(buffer) - size]
        buffer[:size], buffer[size : size + len(remains)] = data[:size], remains
        if size < len(data):
            self._incoming.appendleft(partial(self._fill, data[size:]))
        peer.buffer_updated(size)

    def _arrive(self, event: Callable[[], None]) -> None:
        self._incoming.append(event)
        self._read_on()

    def _read_on(self) -> None:
        while self._incoming and self.is_reading():
            self._incoming.popleft()()

    def _eof(self) -> None:
        if not self._peer().eof_received():
            self.close()

    def _lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = True
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def _peer(self) -> AnyProtocol:
        return cast("AnyProtocol", self._protocol)
