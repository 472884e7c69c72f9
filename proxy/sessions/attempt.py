"""Runs a coroutine to its end, as a task does, at half the price: thousands are made when clients come at once.

What a task has beside, its name, its context and its place among all tasks, nobody asks for here.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

_OVER: Final = object()


class Attempt:
    """One try at something that may fail; begins with `start`. It awaits futures, and nothing that asks for its task.

    Args:
        coroutine: What is tried.
        ended: Told, perhaps before `start` returns, when it has ended by itself, with the error if it is one of
            `expected`.
        expected: How it may fail. Another error goes to the loop.
    """

    __slots__ = ("_ended", "_expected", "_steps", "_waits_for")

    def __init__(
        self,
        coroutine: Coroutine[Any, None, object],
        ended: Callable[["Attempt", Exception | None], None],
        expected: tuple[type[Exception], ...],
    ) -> None:
        self._steps = coroutine.__await__()
        self._ended = ended
        self._expected = expected
        self._waits_for: asyncio.Future[Any] | None = None

    def start(self) -> None:
        """Begin."""
        self._go_on(None)

    def cancel(self) -> None:
        """Leave it: the coroutine ends with `CancelledError`, soon, and nobody is told."""
        if self._waits_for is not None:
            self._waits_for.cancel()

    def _go_on(self, _done: object) -> None:
        self._waits_for = None
        try:
            waits_for = next(self._steps, _OVER)  # `send` ends with an exception, which costs as much as a step
        except asyncio.CancelledError:
            return
        except self._expected as error:
            self._ended(self, error)
            return
        if waits_for is _OVER:
            self._ended(self, None)
        else:
            self._wait(waits_for)

    def _wait(self, future: Any) -> None:
        """As `asyncio.Task` does: who awaits a future is handed it here, and has marked it."""
        future._asyncio_future_blocking = False  # noqa: SLF001 - the protocol between tasks and futures
        self._waits_for = future
        future.add_done_callback(self._go_on)
