"""A socket that is not there: what the proxy writes is kept, and what the peer sends waits while nobody reads."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from tests.proxy.wire import send

AnyProtocol = asyncio.Protocol | asyncio.BufferedProtocol
OWN_ADDRESS = ("198.51.100.1", 6650)
"""What the peer has connected to."""
_REMAINS = send(77) * 3


class _Kernel:
    """What the kernel knows of the connection."""

    family = socket.AF_INET

    def __init__(self, transport: "FakeTransport") -> None:
        self._transport = transport

    def fileno(self) -> int:
        return self._transport.descriptor

    def getsockopt(self, _level: int, _option: int, _size: int) -> bytes:
        return self._transport.tcp_info()

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        self._transport.options[option] = value


class FakeTransport(asyncio.Transport):
    """The proxy's end of one connection, in the manner of uvloop's own transport.

    What is written reaches a peer that reads at once; there is no room on the way to one that does not.

    Attributes:
        descriptor: Where the kernel takes bytes from others than the transport; -1 for nowhere.
        state: The connection's, as Linux numbers it: established, or left by the peer (8).
        options: The socket's options that were set.
        silent_since: When the peer's host ceased to send anything, acknowledgements included; None: it is there.
        is_stopped: The peer's process stands still, while its host acknowledges what comes.
        room: What the peer may send before it is read.
        unsent: What has found no room on its way to the peer.
        peer_reads: Whether the peer takes whatever comes; else it takes what `take` and `take_all` say.
        is_eof_sent: Whether the peer has been told that no more comes.
    """

    def __init__(self, loop: asyncio.BaseEventLoop, address: tuple[str, int]) -> None:
        self.state = 1
        self.descriptor = -1
        self.options: dict[int, int] = {}
        self.silent_since: float | None = None
        self.is_stopped = False
        self.room = 64 * 1024
        super().__init__({"peername": address, "sockname": OWN_ADDRESS, "socket": _Kernel(self)})
        self.unsent = bytearray()
        self.is_eof_sent = self.was_aborted = self.is_lost = False
        self.peer_reads = True
        self._loop = loop
        self._protocol: AnyProtocol | None = None
        self._taken = bytearray()
        self._room = 0
        self._reads = self._is_ending = self._is_over = self._is_ended = False
        self._is_writing_paused = False
        self._high, self._low = 64 * 1024, 16 * 1024
        self._incoming: deque[Callable[[], None]] = deque()

    # ---- for the kernel

    def tcp_info(self) -> bytes:
        """A peer that says nothing is taken to have just sent something, unless it has fallen silent."""
        if self.silent_since is None:
            return bytes([self.state])
        silent_ms = round((self._loop.time() - self.silent_since) * 1000)
        info = bytearray(240)
        info[0] = self.state
        info[2] = 0 if self.is_stopped else min(255, silent_ms // 1000)
        struct.pack_into("=II", info, 52, silent_ms, 0 if self.is_stopped else silent_ms)
        struct.pack_into("=I", info, 144, len(self.unsent))
        struct.pack_into("=I", info, 232, self.room)
        return bytes(info)

    def fall_silent(self, *, acknowledges: bool = False) -> None:
        """Nothing comes of the peer from now on; `acknowledges`: but its host acknowledges what is sent to it."""
        self.silent_since, self.is_stopped = self._loop.time(), acknowledges

    # ---- for the peer

    def connect(self, protocol: AnyProtocol) -> None:
        """A pause that is made within `connection_made` comes to nothing, as it does with uvloop."""
        self._protocol = protocol
        protocol.connection_made(self)
        self.resume_reading()

    def receive(self, data: bytes) -> None:
        """The peer sends; it arrives once the proxy reads."""
        if self.silent_since is not None:
            self.silent_since = self._loop.time()
        self._arrive(partial(self._fill, data))

    def receive_eof(self) -> None:
        self.state = 8
        self._arrive(self._eof)

    def break_off(self, error: Exception | None) -> None:
        """The connection is lost at once, whatever is unread or unsent."""
        self._incoming.clear()
        self._is_ending = self._is_over = True
        self._lose(error)

    @property
    def written(self) -> bytearray:
        """What the peer took; it may be cleared."""
        return self._taken

    @property
    def on_its_way(self) -> bytes:
        """What was written, and the peer has not taken."""
        return bytes(self.unsent)

    def take(self, most: int) -> None:
        """The peer reads so many bytes, if so many wait for it."""
        self._room = most
        self._send_on()
        self._room = 0

    def take_all(self) -> None:
        """The peer reads what waits for it."""
        self.take(len(self.on_its_way))

    @property
    def unread(self) -> int:
        """Deliveries that wait in the socket because the proxy does not read."""
        return len(self._incoming)

    # ---- for the proxy

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 0, low or 0

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: Any) -> None:
        if self._is_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_over:
            return
        waited = bool(self.unsent)
        self.unsent += data
        if not waited:
            self._send()
        if self.unsent and not isinstance(data, bytes):
            raise TypeError("the loop's own transport would keep this view, which may show other bytes later")
        if len(self.unsent) > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._peer().pause_writing()
        if self.unsent and self.peer_reads:
            self._loop.call_soon(self._send_on)

    def write_eof(self) -> None:
        self._is_ended = True
        if not self.unsent:
            self._send_eof()

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._is_ending

    def close(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            if not self.unsent:
                self._end(None)

    def abort(self) -> None:
        self.was_aborted = self._is_ending = True
        self.unsent.clear()
        self._end(None)

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        if not self._is_ending and not self._reads:
            self._reads = True
            self._loop.call_soon(self._read_on)

    def is_reading(self) -> bool:
        return self._reads and not self._is_ending

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
        """It ends the reading, and is there again for who resumes it."""
        self._incoming.append(self._eof)
        if not self._peer().eof_received():
            self.close()
        self._reads = False

    def _send(self) -> None:
        with memoryview(self.unsent) as waiting:
            sent = self._offer(waiting)
        del self.unsent[:sent]

    def _offer(self, data: memoryview) -> int:
        """How much of it there is room for."""
        if not self.peer_reads:
            data = data[: self._room]
            self._room -= len(data)
        self._taken += data
        return len(data)

    def _send_on(self) -> None:
        """There may be room again."""
        if self.is_lost:
            return
        self._send()
        if self._is_writing_paused and len(self.unsent) <= self._low:
            self._is_writing_paused = False
            self._peer().resume_writing()
        if self.unsent:
            if self.peer_reads:
                self._loop.call_soon(self._send_on)
        elif self._is_ending:
            self._lose(None)
        elif self._is_ended:
            self._send_eof()

    def _send_eof(self) -> None:
        self.is_eof_sent = True

    def _end(self, error: Exception | None) -> None:
        self._is_ending = self._is_over = True
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = self._is_over = True
            self.unsent.clear()
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def _peer(self) -> AnyProtocol:
        return cast("AnyProtocol", self._protocol)
