"""Where frames leave on one leg: chunks passed on as they came, and whole frames put between them."""

from collections.abc import Callable

from proxy.sessions.sender import Bytes, Sender


class Outlet:
    """Keeps whole frames out of the middle of others.

    Attributes:
        waiting: Whole frames, until the one under way has ended.
        has_written: Called when they have been written.

    Args:
        sender: The leg's.
    """

    def __init__(self, sender: Sender) -> None:
        self.mid_frame = False
        self.waiting: list[bytes] = []
        self.has_written: Callable[[], None] | None = None
        self._sender = sender

    def pass_on(self, chunk: Bytes, *, mid_frame: bool) -> None:
        """Write a part of the passing stream, which ends inside a frame or at the end of one."""
        self._sender.write(chunk)
        self._passed(mid_frame=mid_frame)

    def pass_piece(self, piece: bytes, *, mid_frame: bool) -> None:
        """The same, for one of many pieces of a chunk."""
        self._sender.write_soon(piece)
        self._passed(mid_frame=mid_frame)

    def insert(self, frame: bytes) -> None:
        """Write a whole frame, now or as soon as the frame under way ends."""
        if self.mid_frame:
            self.waiting.append(frame)
        else:
            self._sender.write_soon(frame)

    def _passed(self, *, mid_frame: bool) -> None:
        self.mid_frame = mid_frame
        if not mid_frame and self.waiting:
            self._write_waiting()

    def _write_waiting(self) -> None:
        frames, self.waiting = self.waiting, []
        for frame in frames:
            self._sender.write_soon(frame)
        if self.has_written is not None:
            self.has_written()
