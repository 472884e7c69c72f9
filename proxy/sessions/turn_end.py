"""What waits for the end of the loop's turn: one call for all who have gathered what they send."""

import asyncio
from collections import deque
from typing import Protocol


class Gatherer(Protocol):
    """Who sends several things in one call."""

    def flush(self) -> None:
        """Send what was gathered."""


class TurnEnd:
    """One of a process: to ask the loop for a call costs more than the call, and many gather in one turn."""

    def __init__(self) -> None:
        self._gatherers: deque[Gatherer] = deque()
        self._is_asked = False

    def await_by(self, gatherer: Gatherer) -> None:
        """This one is flushed when the turn ends, in the order in which they came."""
        self._gatherers.append(gatherer)
        if not self._is_asked:
            self._call_soon()

    def _flush(self) -> None:
        """Who gathers meanwhile is flushed in the next turn."""
        self._is_asked = False
        try:
            for _ in range(len(self._gatherers)):
                self._gatherers.popleft().flush()
        finally:
            if self._gatherers and not self._is_asked:  # whatever is wrong with one, the others send
                self._call_soon()

    def _call_soon(self) -> None:
        self._is_asked = True
        asyncio.get_running_loop().call_soon(self._flush)
