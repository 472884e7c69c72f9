"""Calls that keep a distance: several requests for a call make one, and not too soon after the last call."""

import asyncio
from collections.abc import Callable

from limiter.token_bucket import NANOS_PER_SECOND


class SpacedCall:
    """Calls a function soon, but not before some time has passed since its last call.

    Args:
        function: The function.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, function: Callable[[], None], clock: Callable[[], int]) -> None:
        self._function = function
        self._clock = clock
        self._called_at = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def soon(self, least_s: float) -> None:
        """Call the function when `least_s` seconds have passed since its last call, unless a call is due already."""
        if self._timer is None and not self._is_stopped:
            passed_s = (self._clock() - self._called_at) / NANOS_PER_SECOND
            self._timer = asyncio.get_running_loop().call_later(max(0.0, least_s - passed_s), self.now)

    def now(self) -> None:
        """Call the function, and cancel a call that is due."""
        self.cancel()
        self._called_at = self._clock()
        self._function()

    def cancel(self) -> None:
        """Cancel a call that is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Make no calls any more, except by `now`."""
        self._is_stopped = True
        self.cancel()
