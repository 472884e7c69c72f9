"""Tasks with an owner."""

import asyncio
import gc
import weakref

from proxy.runtime import Tasks


async def test_a_task_lives_until_it_ends_though_nobody_else_knows_it() -> None:
    """The event is known to the task alone, and so would be the task: without an owner both are garbage."""
    tasks, ends = Tasks(), []
    events: list[weakref.ref[asyncio.Event]] = []

    async def work() -> None:
        event = asyncio.Event()
        events.append(weakref.ref(event))
        await event.wait()
        ends.append("work")

    tasks.start(work(), "work")
    await asyncio.sleep(0)
    gc.collect()
    event = events[0]()
    assert event is not None
    event.set()
    await asyncio.sleep(0)
    assert ends == ["work"]


async def test_cancelling_ends_all_of_them() -> None:
    tasks, ends = Tasks(), []

    async def wait_for_ever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(name)

    for name in ("a", "b"):
        tasks.start(wait_for_ever(name), name)
    await asyncio.sleep(0)
    tasks.cancel()
    await asyncio.sleep(0)
    assert sorted(ends) == ["a", "b"]
