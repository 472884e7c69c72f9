"""Tells the operator which tenant fills the memory for held frames."""

from collections.abc import Callable

import structlog

INTERVAL_NS = 10_000_000_000
"""Between two warnings about one tenant: one that is held for hours may go over and back many times a second."""
_MOST_TENANTS = 1000


class HoldLog:
    """Warns when a tenant goes over its share, and says when it is back: for each warning once.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._warned_at: dict[str, int] = {}
        self._is_due: set[str] = set()
        self._log = structlog.get_logger()

    def turned(self, tenant: str, is_over: bool, held: int) -> None:  # noqa: FBT001 - the new state
        """A tenant went over its share of the hold budget, or came back under it."""
        if is_over:
            self._went_over(tenant, held)
        elif tenant in self._is_due:
            self._is_due.discard(tenant)
            self._log.info("hold budget: this tenant's connections are read again", tenant=tenant, bytes=held)

    def _went_over(self, tenant: str, held: int) -> None:
        now = self._clock()
        last = self._warned_at.get(tenant)
        if last is not None and now - last < INTERVAL_NS:
            return
        if len(self._warned_at) >= _MOST_TENANTS:
            self._warned_at.clear()
            self._is_due.clear()
        self._warned_at[tenant] = now
        self._is_due.add(tenant)
        self._log.warning(
            "hold budget: a tenant holds as much as is free; its connections with held frames are not read",
            tenant=tenant,
            bytes=held,
        )
