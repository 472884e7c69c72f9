"""Whether a worker still does anything: one that hangs would keep its clients, and what it was lent, for ever."""

import asyncio
from collections.abc import Callable

CALM_S = 30.0
"""So long nothing may be heard before it is asked."""
PATIENCE_S = 10.0
URGENT_S = 1.0
"""The same where others wait for it: what it was told to let go and has not confirmed fills buckets of all workers."""
URGENT_PATIENCE_S = 3.0
ASKED_AT_MOST = 3
"""Who has not answered so often, each time within that patience, does nothing any more. In steps: whoever listens may
have stood still himself, and then looks at the time before he hears."""


class Pulse:
    """Asks for a sign of life, but only while it matters and nothing else is heard; else there is no timer.

    Args:
        ask: Has the worker say something.
        matters: Whether anybody waits for what it does.
        presses: Whether others do who are not its clients; when that begins, call `hurry`.
        silent: Called when it does not answer.
    """

    def __init__(
        self,
        ask: Callable[[], None],
        matters: Callable[[], bool],
        presses: Callable[[], bool],
        silent: Callable[[], None],
    ) -> None:
        self._ask = ask
        self._matters = matters
        self._presses = presses
        self._silent = silent
        self._is_urgent = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_heard = False
        self._asked = 0

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no timer."""
        return self._timer is None

    def heard(self) -> None:
        """It said something, or begins."""
        self._is_heard = True
        if self._timer is None or self._asked:
            self._begin()

    def watch(self) -> None:
        """Somebody has asked it something: from now on it matters whether anything is heard."""
        if self._timer is None:
            self._begin()

    def hurry(self) -> None:
        """Somebody waits for it who is not its client."""
        if not self._is_urgent:
            self._is_urgent, self._is_heard = True, False
            self._look_in(URGENT_PATIENCE_S if self._asked else URGENT_S)

    def stop(self) -> None:
        """Nothing will be heard of it any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._asked, self._is_heard = 0, False
        self._look_later()

    def _look_later(self) -> None:
        self._is_urgent = self._presses()
        self._look_in(URGENT_S if self._is_urgent else CALM_S)

    def _look_in(self, seconds: float) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._matters():
            self._asked, self._is_urgent = 0, False
        elif self._is_heard:
            self._is_heard = False
            self._look_later()
        elif self._asked < ASKED_AT_MOST:
            self._asked += 1
            self._look_in(URGENT_PATIENCE_S if self._is_urgent else PATIENCE_S)
            self._ask()
        else:
            self._silent()
