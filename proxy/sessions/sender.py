"""What one leg sends: to the kernel at once as long as it takes it; what it does not take, the transport keeps."""

import asyncio
from os import write, writev
from typing import Final

from mypy_extensions import i64, mypyc_attr

from proxy.sessions.sockets import descriptor_of
from proxy.sessions.turn_end import TurnEnd
from proxy.sessions.unsent import Unsent

Bytes = bytes | bytearray | memoryview

WRITE_BUFFER_HIGH: Final = 512 * 1024
WRITE_BUFFER_LOW: Final = 128 * 1024
"""Bytes waiting for a slow reader at which the other leg is no longer read, and is read again."""
MOST_PIECES: Final = 4096
"""Pieces, of however few bytes, after which the other leg is not read until all of them are taken: each takes up to 200
bytes of the transport's beside its own, and a peer may send byte by byte."""
GATHER_MOST: Final = 256 * 1024
"""Bytes that wait for the end of the loop's turn, to be sent in one call."""
_UNKNOWN: Final = -2
_COPIED_AT_ONCE: Final = 64 * 1024
"""Bytes of a copy. From `runtime.LARGE` on, each would be new memory of the system, which costs for every page."""
_LONG_PART: Final = 4096
"""Parts of so many bytes, on the average, are not joined: the kernel is told of all of them."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)  # tests put others in its place; `shut` ends all cycles
class Sender:
    """Sends bytes in order. While there is no connection, or none that takes more, it swallows them.

    Args:
        turn_end: Flushes it.
        unsent: Looks whether what is sent is taken; None for one that may take as long as it likes.
    """

    __slots__ = (
        "_descriptor",
        "_gathered",
        "_gathered_size",
        "_is_watched",
        "_pieces",
        "_sent",
        "_transport",
        "_turn_end",
        "_unsent",
    )

    def __init__(self, turn_end: TurnEnd, unsent: Unsent | None) -> None:
        self._turn_end = turn_end
        self._unsent = unsent
        self._is_watched = unsent is None
        self._sent: i64 = 0
        self._pieces: i64 = 0
        self._transport: asyncio.Transport | None = None
        self._descriptor = _UNKNOWN
        self._gathered: list[Bytes] = []
        self._gathered_size = 0

    def open(self, transport: asyncio.Transport) -> None:
        """There is a connection."""
        self._transport = transport
        self._descriptor = _UNKNOWN

    def shut(self) -> None:
        """It takes no more."""
        self._transport = None

    def write_little(self, frame: bytes) -> None:
        """Send, in this turn of the loop, for who says little: nothing is set up for more.

        What goes to thousands who come at once goes to several in a row, so that those they are sent to, if they share
        these cores, are woken once for several.
        """
        self._gather(frame)

    def write(self, part: Bytes) -> None:
        """Send bytes at once. A view may show other bytes after this."""
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
        """Send bytes together with what else is to be sent in this turn of the loop; they are kept until then.

        Each write is a call of the system, which costs more than all else that is done for a frame.
        """
        if self._descriptor == _UNKNOWN and self._transport is not None:
            self._begin(self._transport)
        self._gather(part)
        if self._gathered_size >= GATHER_MOST:
            self.flush()

    def flush(self) -> None:
        """Send now what was to go soon."""
        if not self._gathered:
            return
        parts, self._gathered = self._gathered, []
        size, self._gathered_size = self._gathered_size, 0
        if self._transport is not None:
            self._send(self._transport, parts if size >= _LONG_PART * len(parts) else [b"".join(parts)], size)

    def _send(self, transport: asyncio.Transport, parts: list[Bytes], size: int) -> None:
        """Send the parts, `size` bytes in all; what the kernel does not take at once is the transport's.

        It gets whole `bytes` as they are, and all else as copies. Of one `bytes` it (uvloop's) asks the kernel at once,
        too, with less ado.
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
            except OSError:  # it has no room; or the connection is broken, which the transport will find, too
                sent = 0
        for part in parts if sent < size else ():
            if sent < len(part):
                _copy(transport, part, sent)
            sent = max(0, sent - len(part))

    def resumed(self) -> None:
        """So much was taken that more may wait."""
        if self._pieces >= MOST_PIECES and self._transport is not None:
            self._pieces = 0
            _limit(self._transport)

    def rest(self) -> None:
        """All that was sent is taken: it is watched again when more is."""
        self._is_watched = False

    def unsent(self) -> int:
        """Bytes that were sent and that the kernel has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def taken(self) -> int:
        """Bytes that it has taken, in all."""
        return self._sent - self.unsent()

    def tell(self, unsent: int, seconds: float) -> None:
        """For so long the client has taken nothing of so many bytes; of none, if it took something."""
        if self._transport is not None:
            self._transport.get_protocol().not_taken(unsent, seconds)  # type: ignore[attr-defined] # it is the leg

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
        """Many may wait, or all are taken and nobody has looked."""
        if self.unsent() == 0:
            self._pieces = 0
        elif self._transport is not None:
            self._transport.set_write_buffer_limits(high=0, low=0)

    def _gather(self, part: Bytes) -> None:
        if not self._gathered:
            self._turn_end.await_by(self)
        self._gathered.append(part)
        self._gathered_size += len(part)

    def _begin(self, transport: asyncio.Transport) -> None:
        """There is traffic: from now on it matters how much may wait, and where the kernel takes it from."""
        self._descriptor = descriptor_of(transport)
        _limit(transport)


def _limit(transport: asyncio.Transport) -> None:
    transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH, low=WRITE_BUFFER_LOW)


def _copy(transport: asyncio.Transport, part: Bytes, sent: int) -> None:
    """Give the transport what is left of a part; whole `bytes` as they are."""
    if isinstance(part, bytes) and not sent:
        transport.write(part)
        return
    for at in range(sent, len(part), _COPIED_AT_ONCE):
        transport.write(bytes(part[at : at + _COPIED_AT_ONCE]))
