"""The time of the loop that a test runs in, as far as timers see it."""

import asyncio

_STEPS = 20
"""In which what was due is done, and what follows from that."""


async def later(seconds: float) -> None:
    """So many seconds pass in no time."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]  # a test's loop is asyncio's own
    for _ in range(_STEPS):
        await asyncio.sleep(0)
