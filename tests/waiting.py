"""Waiting for what a process, a thread or a broker does in its own time: the one way in which tests do it."""

import asyncio
from collections.abc import Callable

import pytest

from loadgen.real.process import wait_until

PATIENCE_S = 60.0
"""A condition that holds in the end may take so long where other processes have the processors."""


def wait_for(
    is_so: Callable[[], object],
    longest_s: float = PATIENCE_S,
    evidence: Callable[[], object] = lambda: "",
    pause_s: float | None = None,
) -> None:
    """Look as `wait_until` does; fail with the evidence if it is not so within `longest_s`."""
    if not wait_until(is_so, longest_s, pause_s):
        pytest.fail(f"not within {longest_s:g} s: {evidence()}")


async def until(is_so: Callable[[], object], longest_s: float = PATIENCE_S) -> None:
    """Let others run until it is so.

    Raises:
        TimeoutError: If it is not within `longest_s`.
    """
    async with asyncio.timeout(longest_s):
        while not is_so():  # noqa: ASYNC110 - what becomes true tells nobody
            await asyncio.sleep(0.01)
