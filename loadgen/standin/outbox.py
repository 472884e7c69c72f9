"""What a connection has to say, written once per turn of the event loop."""

from collections.abc import Callable
from typing import Protocol

WRITE_AT_BYTES = 256 * 1024
MOST_UNSENT_BYTES = 64 * 1024 * 1024


class Link(Protocol):
    """The socket behind a connection."""

    def write(self, data: bytes) -> None:
        """Send, or buffer what cannot be sent now."""
        ...

    def unsent_bytes(self) -> int:
        """Bytes that wait in the buffer."""
        ...

    def abort(self, reason: str) -> None:
        """Close at once; `reason` is for the log."""
        ...

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` once the bytes at hand are dealt with."""
        ...


class Outbox:
    """Gathers frames and writes them together.

    Args:
        link: Where they go.
    """

    def __init__(self, link: Link) -> None:
        self.is_paused = False
        self._link = link
        self._frames: list[bytes] = []
        self._size = 0

    def put(self, frame: bytes) -> None:
        """Send a frame soon, behind all that were put before."""
        if not self._frames:
            self._link.soon(self.flush)
        self._frames.append(frame)
        self._size += len(frame)
        if self._size >= WRITE_AT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is there.

        A peer that sends and never reads what it is answered is cut off at MOST_UNSENT_BYTES.
        """
        if not self._frames:
            return
        data = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        self._link.write(data)
        if self._link.unsent_bytes() > MOST_UNSENT_BYTES:
            self._link.abort("it does not read what it is answered")
