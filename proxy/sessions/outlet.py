"""Where frames leave on one leg: chunks passed on as they came, and whole frames put between them."""

from collections.abc import Callable

Bytes = bytes | bytearray | memoryview


class Outlet:
    """Keeps whole frames out of the middle of others.

    Args:
        write: Takes bytes for the socket, in order.
    """

    def __init__(self, write: Callable[[Bytes], None]) -> None:
        self.mid_frame = False
        self.waiting: list[list[bytes]] = []
        self._write = write

    def pass_on(self, part: Bytes, *, mid_frame: bool) -> None:
        """Write a part of the passing stream, which ends inside a frame or at the end of one."""
        self._write(part)
        self.mid_frame = mid_frame
        if not mid_frame and self.waiting:
            self._write_waiting()

    def insert(self, parts: list[bytes]) -> None:
        """Write a whole frame, now or as soon as the frame under way ends."""
        if self.mid_frame:
            self.waiting.append(parts)
            return
        for part in parts:
            self._write(part)

    def _write_waiting(self) -> None:
        frames, self.waiting = self.waiting, []
        for parts in frames:
            for part in parts:
                self._write(part)
