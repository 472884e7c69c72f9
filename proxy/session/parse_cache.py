"""What was read lately, by the very bytes that said it: what thousands say in the same words is read once."""

from collections.abc import Callable
from hmac import compare_digest
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_KNOWN, LONGEST_KNOWN = 64, 2048
"""Frames, and bytes of each: a CONNECT with a token has some 500. So a token stays in memory until 64 other clients
have come; that of a client that is connected is there anyway."""


class ParseCache(Generic[T]):
    """Remembers what was parsed, by the very bytes: those that were said last.

    Args:
        read: Reads one; what cannot be read gives None or raises, and is not remembered.
    """

    def __init__(self, read: Callable[[bytes], T | None]) -> None:
        self._read = read
        self._known: dict[bytes, T] = {}
        """Who was asked for longest ago comes first."""
        self._last_said = b""
        self._last: T | None = None

    def find(self, said: bytes | bytearray) -> T | None:
        """What these bytes say, if they were read lately; of what is too long to be known, nothing is looked at."""
        if len(said) > LONGEST_KNOWN:
            return None
        if compare_digest(said, self._last_said):  # how long that takes tells nobody how much of a token was right
            return self._last
        same = bytes(said)
        found = self._known.pop(same, None)
        if found is not None:
            self._remember(same, found)
        return found

    def read(self, said: bytes) -> T | None:
        """What these bytes say."""
        found = self.find(said)
        if found is not None:
            return found
        found = self._read(said)
        if found is not None and len(said) <= LONGEST_KNOWN:
            if len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._remember(said, found)
        return found

    def _remember(self, said: bytes, found: T) -> None:
        self._known[said] = found
        self._last_said, self._last = said, found
