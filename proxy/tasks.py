"""Tasks with an owner: asyncio itself keeps only weak references to them."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Runs coroutines in the background until they end or the owner does."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work`, which handles its own errors."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """End all of them."""
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
