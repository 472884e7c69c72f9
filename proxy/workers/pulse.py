"""Whether a worker still does anything: one that hangs would keep its clients, and what it was lent, for ever."""

import asyncio
from collections.abc import Callable

CALM_S = 30.0
"""So long nothing may be heard before it is asked."""
PATIENCE_S = 10.0
ASKED_AT_MOST = 3
"""Who has not answered so often, each time within that patience, does nothing any more. In steps: whoever listens may
have stood still himself, and then looks at the time before he hears."""


class Pulse:
    """Asks for a sign of life, but only while it matters and nothing else is heard; else there is no timer.

    Args:
        ask: Has the worker say something.
        matters: Whether anybody waits for what it does.
        silent: Called when it does not answer.
    """

    def __init__(self, ask: Callable[[], None], matters: Callable[[], bool], silent: Callable[[], None]) -> None:
        self._ask = ask
        self._matters = matters
        self._silent = silent
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
            self._look_in(CALM_S)
            self._asked = 0
            self._is_heard = False

    def stop(self) -> None:
        """Nothing will be heard of it any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._matters():
            self._asked = 0
        elif self._is_heard:
            self._is_heard = False
            self._look_in(CALM_S)
        elif self._asked < ASKED_AT_MOST:
            self._asked += 1
            self._look_in(PATIENCE_S)
            self._ask()
        else:
            self._silent()
