"""The connection between a worker and its supervisor: letters, in order, many in one frame.

    frame = size of the rest (4 bytes) · MessagePack: a list of letters

Bounded: a frame holds a bounded number of letters and a turn of the loop deals with a bounded number of them, so that
clients have their turns in between. What one side may have to say is bounded by what it holds; a peer that takes
nothing of it, although that is more than any working one would leave, is given up.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Generic, TypeVar, cast

import msgspec

from limiter.letters import Letter

_SIZE = Struct(">I")
MOST_FRAME = 16 * 1024**2
"""Bytes; what is longer does not come from a worker."""
MOST_UNSENT = 256 * 1024**2
"""Bytes that the peer may leave in the buffer; tickets of all that may be held take far less."""
LETTERS = 500
"""Of one frame."""
AT_ONCE = 1000
"""Letters that are dealt with in one go: a few milliseconds."""
In = TypeVar("In")


class Channel(asyncio.Protocol, Generic[In]):
    """Sends letters, and gives those that come to `heard`, one by one.

    Args:
        kinds: What may come.
        heard: Takes each.
        lost: Called once, when the other side is gone and all that it had said has been heard.
    """

    def __init__(self, kinds: Any, heard: Callable[[In], None], lost: Callable[[], None]) -> None:
        self._decoder: msgspec.msgpack.Decoder[list[In]] = msgspec.msgpack.Decoder(list[kinds])
        self._encoder = msgspec.msgpack.Encoder()
        self._heard = heard
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._inbox: deque[In] = deque()
        self._is_working = False
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._buffer, start)
            if size > MOST_FRAME:
                self.abort()
                return
            end = start + _SIZE.size + size
            if end > len(self._buffer):
                break
            self._inbox.extend(self._decoder.decode(self._buffer[start + _SIZE.size : end]))
            start = end
        del self._buffer[:start]
        if not self._is_working:
            self._work()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever it was
        """Called by the loop."""
        self._transport = None
        self._is_over = True
        if not self._is_working:
            self._work()

    def send(self, letters: Sequence[Letter]) -> None:
        """Send them; a side that is gone hears nothing."""
        if self._transport is None:
            return
        for first in range(0, len(letters), LETTERS):
            body = self._encoder.encode(letters[first : first + LETTERS])
            self._transport.write(_SIZE.pack(len(body)) + body)
        if self._transport.get_write_buffer_size() > MOST_UNSENT:
            self.abort()

    def close(self) -> None:
        """Send what is written, and hear no more."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Give the other side up."""
        if self._transport is not None:
            self._transport.abort()

    def _work(self) -> None:
        self._is_working = False
        for _ in range(min(AT_ONCE, len(self._inbox))):
            self._heard(self._inbox.popleft())
        if self._inbox:
            self._is_working = True
            asyncio.get_running_loop().call_soon(self._work)
        elif self._is_over:
            self._is_over = False
            self._lost()
