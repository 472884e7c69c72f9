"""Tells logs of changes that are in force, in order and in slices, so that neither clients nor the next change wait."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from proxy.policies.store import Change
from proxy.policies.who import Who

TOLD_AT_ONCE = 20
"""Changes in one go: 1 to 2 ms."""
MOST_UNTOLD = 200_000
"""Changes that may wait; then the next one of many waits, too."""


class Telling:
    """What is still to be told.

    Args:
        changed: Told of each change, of who made it, and of when it came into force (nanoseconds since 1970).
    """

    def __init__(self, changed: Callable[[Change, Who, int], None]) -> None:
        self._changed = changed
        self._untold: deque[tuple[Change, Who, int]] = deque()
        self._telling: asyncio.Task[None] | None = None

    def tell(self, changes: Sequence[Change], who: Who, at_ns: int) -> None:
        """These came into force: a few are told at once, if nobody is before them."""
        self._untold.extend((change, who, at_ns) for change in changes)
        if self._telling is None:
            self._tell_some()
            if self._untold:
                self._telling = asyncio.get_running_loop().create_task(self._tell_all())

    async def room(self) -> None:
        """Wait until not too many are untold."""
        if len(self._untold) >= MOST_UNTOLD:
            await self.done()

    async def done(self) -> None:
        """Wait until all are told."""
        if self._telling is not None:
            await asyncio.shield(self._telling)

    async def _tell_all(self) -> None:
        try:
            while self._untold:
                await asyncio.sleep(0)
                self._tell_some()
        finally:
            self._telling = None

    def _tell_some(self) -> None:
        for _ in range(min(TOLD_AT_ONCE, len(self._untold))):
            change, who, at_ns = self._untold.popleft()
            self._changed(change, who, at_ns)
            _log(change, who)


def _log(change: Change, who: Who) -> None:
    structlog.get_logger().info(
        "policy changed",
        policy=str(change.key),
        before=change.before,
        after=change.after,
        by=who.name,
        address=who.address,
    )
