"""Lines of the operator's log about what anybody can bring about: who floods the proxy must not flood its log."""

from collections import Counter
from collections.abc import Callable

INTERVAL_NS = 10_000_000_000
"""Between two lines about the same."""
MOST_KNOWN = 100
"""Lines about different clients within that time; what others do is summed up."""


class RareLines:
    """Says when a line is due, and for how many occurrences it stands.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._told_at: dict[tuple[str, str], int] = {}
        """Who was told of longest ago comes first."""
        self._since: Counter[tuple[str, str]] = Counter()

    def due(self, what: str, whose: str = "") -> int:
        """Something, one of a few, happened once more: how often since its last line, or 0 if no line is due.

        Args:
            what: That has lines of its own.
            whose: Of that, who has lines of his own as long as they are not too many.
        """
        now = self._clock()
        key = self._key(what, whose, now)
        self._since[key] += 1
        told_at = self._told_at.get(key)
        if told_at is not None and now - told_at < INTERVAL_NS:
            return 0
        self._told_at.pop(key, None)
        self._told_at[key] = now
        return self._since.pop(key)

    def _key(self, what: str, whose: str, now: int) -> tuple[str, str]:
        key = what, whose
        if not whose or key in self._told_at:
            return key
        while len(self._told_at) >= MOST_KNOWN:
            oldest = next(iter(self._told_at))
            if now - self._told_at[oldest] < INTERVAL_NS:
                return what, ""
            del self._told_at[oldest]
            self._since[oldest[0], ""] += self._since.pop(oldest, 0)
        return key
