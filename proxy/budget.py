"""How many bytes may be held: by one connection, and by all of them together."""

from collections.abc import Callable


class Budget:
    """A bounded number of bytes in two states, filling and full; full ends only when half of it is free again.

    Args:
        limit: Bytes from which on it is full. What is already read may go over it by a chunk for each reader.
        turned: Called with True when it becomes full and with False when it has room again.
    """

    def __init__(self, limit: int, turned: Callable[[bool], None]) -> None:
        self.limit = limit
        self.used = 0
        self.is_full = False
        self._turned = turned

    def take(self, size: int) -> None:
        """`size` bytes more are held."""
        self.used += size
        if not self.is_full and self.used >= self.limit:
            self.is_full = True
            self._turned(True)

    def give(self, size: int) -> None:
        """`size` bytes are not held any more."""
        self.used -= size
        if self.is_full and self.used <= self.limit // 2:
            self.is_full = False
            self._turned(False)
