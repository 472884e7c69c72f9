"""The time of the loop that a test runs in, as far as timers see it: asyncio's own (`new_event_loop`)."""

import asyncio

_STEPS = 20
"""In which what was due is done, and what follows from that."""


async def later(seconds: float) -> None:
    """So many seconds pass in no time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, asyncio.BaseEventLoop), "uvloop's timers ask no clock that can be moved"
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
    for _ in range(_STEPS):
        await asyncio.sleep(0)
