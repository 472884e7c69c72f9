"""Where frames leave on one leg: chunks passed on as they came, and whole frames put between them."""

from typing import Protocol

Bytes = bytes | bytearray | memoryview


class Writer(Protocol):
    """Where bytes go, in order."""

    def write(self, part: Bytes) -> None:
        """Send bytes at once. A view may show other bytes after this."""

    def write_soon(self, part: Bytes) -> None:
        """Send bytes together with others that are about to come."""


class Outlet:
    """Keeps whole frames out of the middle of others.

    Args:
        writer: The leg.
    """

    def __init__(self, writer: Writer) -> None:
        self.mid_frame = False
        self.waiting: list[bytes] = []
        self._writer = writer

    def pass_on(self, chunk: Bytes, *, mid_frame: bool) -> None:
        """Write a part of the passing stream, which ends inside a frame or at the end of one."""
        self._writer.write(chunk)
        self._passed(mid_frame=mid_frame)

    def pass_piece(self, piece: Bytes, *, mid_frame: bool) -> None:
        """The same, for one of many pieces of a chunk."""
        self._writer.write_soon(piece)
        self._passed(mid_frame=mid_frame)

    def insert(self, frame: bytes) -> None:
        """Write a whole frame, now or as soon as the frame under way ends."""
        if self.mid_frame:
            self.waiting.append(frame)
        else:
            self._writer.write_soon(frame)

    def _passed(self, *, mid_frame: bool) -> None:
        self.mid_frame = mid_frame
        if not mid_frame and self.waiting:
            self._write_waiting()

    def _write_waiting(self) -> None:
        frames, self.waiting = self.waiting, []
        for frame in frames:
            self._writer.write_soon(frame)
