"""A bounded number of something, above all of the bytes that one connection may hold."""

from collections.abc import Callable


class Budget:
    """A bounded number in two states, filling and full; full ends only when half of it is free again.

    Args:
        limit: From which on it is full. Who stops then at the next frame goes over it by one entry at most.
        turned: Called with True when it becomes full and with False when it has room again.
    """

    def __init__(self, limit: int, turned: Callable[[bool], None]) -> None:
        self.limit = limit
        self.used = 0
        self.is_full = False
        self._turned = turned

    def take(self, size: int) -> None:
        """`size` more are in use."""
        self.used += size
        if not self.is_full and self.used >= self.limit:
            self.is_full = True
            self._turned(True)

    def give(self, size: int) -> None:
        """`size` are not in use any more."""
        self.used -= size
        if self.is_full and self.used <= self.limit // 2:
            self.is_full = False
            self._turned(False)
