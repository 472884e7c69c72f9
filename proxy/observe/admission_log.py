"""Tells the operator that somebody is not let in."""

from collections.abc import Callable

import structlog

from proxy.observe.rare_lines import RareLines


class AdmissionLog:
    """A line for a bound that refuses, with how many it refused since the line before.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._lines = RareLines(clock)
        self._log = structlog.get_logger()

    def refused(self, what: str, message: str, client: str) -> None:
        """A bound, one of a few, refused one client."""
        times = self._lines.due(what)
        if times:
            self._log.warning("not admitted", bound=what, detail=message, client=client, refused=times)
