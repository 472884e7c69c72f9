"""Cache parsed frames by their bytes, so that a CONNECT that thousands of clients send alike is parsed once."""

from collections.abc import Callable
from hmac import compare_digest
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_KNOWN, LONGEST_KNOWN = 64, 2048
"""Most frames that are cached, and most bytes of each: a CONNECT with a token has some 500. So a token stays in memory
until 64 other clients have come; that of a connected client is there anyway."""


class ParseCache(Generic[T]):
    """A cache of parse results, by the bytes parsed: the most recently used ones.

    Args:
        read: Parses bytes. If it returns None or raises, nothing is remembered.
    """

    def __init__(self, read: Callable[[bytes], T | None]) -> None:
        self._read = read
        self._known: dict[bytes, T] = {}
        """In order of use, the least recently used first."""
        self._last_said = b""
        self._last: T | None = None

    def find(self, said: bytes | bytearray) -> T | None:
        """Return the cached result for these bytes, or None; bytes longer than LONGEST_KNOWN are not looked up."""
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
        """Return the result for these bytes, from the cache or else parsed now."""
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
