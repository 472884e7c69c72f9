"""Tells the operator that somebody is not let in."""

from collections import Counter
from collections.abc import Callable

import structlog

INTERVAL_NS = 10_000_000_000
"""Between two lines about one bound: what floods the proxy must not flood its log."""


class AdmissionLog:
    """A line for a bound that refuses, with how many it refused since the line before.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._told_at: dict[str, int] = {}
        self._since: Counter[str] = Counter()
        self._log = structlog.get_logger()

    def refused(self, what: str, message: str, client: str) -> None:
        """A bound, one of a few, refused one client."""
        now, told_at = self._clock(), self._told_at.get(what)
        self._since[what] += 1
        if told_at is not None and now - told_at < INTERVAL_NS:
            return
        self._told_at[what] = now
        self._log.warning("not admitted", bound=what, detail=message, client=client, refused=self._since.pop(what))
