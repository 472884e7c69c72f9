"""Slow work whose result all callers share: one probe of the broker, one text of `/metrics`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
MOST_WAITING: Final = 32
"""Callers without a place at the admin address (`places.py`) that wait for one result."""


class TooManyWaitError(Exception):
    """As many callers without a place wait for the result as may."""


class SharedWork(Generic[T]):
    """Does the work once for all callers that wait for it, and hands its result out for a while afterwards.

    Args:
        work: Makes a result.
        kept_s: Returns for how many seconds a result is handed out.
    """

    def __init__(self, work: Callable[[], Awaitable[T]], kept_s: Callable[[T], float]) -> None:
        self.last: T | None = None
        """The latest result, however old; None before the first."""
        self._work = work
        self._kept_s = kept_s
        self._until = 0.0
        self._task: asyncio.Task[T] | None = None
        self.waiting = 0
        """Callers without a place that wait now."""

    @property
    def is_under_way(self) -> bool:
        """Whether a result is being made."""
        return self._task is not None

    async def get(self, *, has_place: bool = False) -> T:
        """Return the result; the caller may leave, and the work goes on for the others.

        Args:
            has_place: The caller has a place, or is this process; so it need not share the bound with strangers.

        Raises:
            TooManyWaitError: If as many wait as may, and the caller has no place.
            Exception: What the work raises.
        """
        if self.last is not None and asyncio.get_running_loop().time() < self._until:
            return self.last
        if self.waiting >= MOST_WAITING and not has_place:
            raise TooManyWaitError
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._do(), name="shared work")
        self.waiting += not has_place
        try:
            return await asyncio.shield(self._task)
        finally:
            self.waiting -= not has_place

    def forget(self) -> None:
        """Hand the latest result out no more."""
        self._until = 0.0

    async def _do(self) -> T:
        try:
            self.last = result = await self._work()
            self._until = asyncio.get_running_loop().time() + self._kept_s(result)
            return result
        finally:
            self._task = None
