"""Cut a byte stream into whole frames, plainly: for low rates, and as the reference model of `scanner`."""

from collections.abc import Iterator
from struct import Struct

from protocol.errors import FrameTooLarge, MalformedFrame

SIZE = Struct(">I")


class FrameCutter:
    """Buffers received bytes and yields whole frames, each with its length field.

    Args:
        max_size: Most bytes that a whole frame may have.
    """

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield each frame that `chunk` completes.

        Raises:
            FrameTooLarge: If a frame announces more than `max_size`.
            MalformedFrame: If a frame is too short to hold a command.
        """
        self._buffer += chunk
        start = 0
        try:
            while len(self._buffer) - start >= SIZE.size:
                end = start + SIZE.size + self._announced(start)
                if end > len(self._buffer):
                    return
                frame = bytes(self._buffer[start:end])
                start = end
                yield frame
        finally:
            del self._buffer[:start]

    def _announced(self, start: int) -> int:
        (size,) = SIZE.unpack_from(self._buffer, start)
        if size + SIZE.size > self.max_size:
            raise FrameTooLarge(size + SIZE.size, self.max_size)
        if size < SIZE.size:
            raise MalformedFrame(f"a frame of {size} bytes cannot hold a command")
        return int(size)
