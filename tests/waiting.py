"""Waiting for what a process, a thread or a broker does in its own time: the one way in which tests do it."""

import asyncio
import time
from collections.abc import Callable

import pytest

PATIENCE_S = 60.0
"""A condition that holds in the end may take so long where other processes have the processors."""


def wait_for(
    is_so: Callable[[], object],
    longest_s: float = PATIENCE_S,
    told: Callable[[], object] = lambda: "",
    pause_s: float | None = None,
) -> None:
    """Look until it is so; fail with what is told if it is not within `longest_s`.

    Without a pause, a look comes a twentieth later than it might, between 10 and 50 ms: a hundred looks a second at a
    process that starts take a tenth of a processor.
    """
    begin = time.monotonic()
    while not is_so():
        waited_s = time.monotonic() - begin
        if waited_s > longest_s:
            pytest.fail(f"not within {longest_s:g} s: {told()}")
        time.sleep(pause_s or min(max(waited_s / 20, 0.01), 0.05))


async def until(is_so: Callable[[], object], longest_s: float = PATIENCE_S) -> None:
    """Let others run until it is so.

    Raises:
        TimeoutError: If it is not within `longest_s`.
    """
    async with asyncio.timeout(longest_s):
        while not is_so():  # noqa: ASYNC110 - what becomes true tells nobody
            await asyncio.sleep(0.01)
