"""A fake transport with a real kernel behind it, which has little room: short writes and refusals are its own."""

import asyncio
import socket

from tests.proxy.fake_transport import AnyProtocol, FakeTransport

ROOM = 8 * 1024
"""More bytes than find room on the way to a peer that does not read."""
_READ = 64 * 1024


class KernelTransport(FakeTransport):
    """What is written goes into one end of a pair of sockets and is read out of the other: so it is there in the order
    in which the kernel got it, whoever gave it.

    There is the least room that Linux allows: some four thousand bytes, or five small writes.
    """

    def __init__(self, loop: asyncio.BaseEventLoop, address: tuple[str, int]) -> None:
        super().__init__(loop, address)
        self._near: socket.socket
        self._far: socket.socket
        self._late = b""

    def connect(self, protocol: AnyProtocol) -> None:
        self._near, self._far = socket.socketpair()
        for end in (self._near, self._far):
            end.setblocking(False)
        self._near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 0)
        self.descriptor = self._near.fileno()
        super().connect(protocol)

    def vanish(self) -> None:
        """The peer is gone, and nobody has told the proxy."""
        self._far.close()

    @property
    def written(self) -> bytearray:
        if self.peer_reads:
            self._read(_READ)
        return self._taken

    @property
    def on_its_way(self) -> bytes:
        return self._in_kernel() + bytes(self.unsent)

    def take(self, most: int) -> None:
        """The loop hears in its next turn that there is room again."""
        self._read(most)
        self._loop.call_soon(self._send_on)

    def take_all(self) -> None:
        while self.unsent or self._in_kernel():
            self._read(_READ)
            self._send_on()

    def _offer(self, data: memoryview) -> int:
        if self.peer_reads:
            self._read(_READ)
        try:
            return self._near.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._end(error)
            return len(data)

    def _send_eof(self) -> None:
        if not self.is_eof_sent:
            self._near.shutdown(socket.SHUT_WR)
        super()._send_eof()

    def _lose(self, error: Exception | None) -> None:
        is_open = self._protocol is not None and not self.is_lost
        super()._lose(error)
        if is_open:
            self._late = self._in_kernel()
            self.descriptor = -1
            self._near.close()
            self._far.close()

    def _in_kernel(self) -> bytes:
        if self._far.fileno() < 0:
            return self._late
        try:
            return self._far.recv(_READ, socket.MSG_PEEK)
        except BlockingIOError:
            return b""

    def _read(self, most: int) -> None:
        if self._far.fileno() < 0:
            self._taken += self._late[:most]
            self._late = self._late[most:]
            return
        try:
            self._taken += self._far.recv(most)
        except BlockingIOError:
            return
