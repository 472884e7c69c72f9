"""Tasks with an owner."""

import asyncio
import gc

from proxy.tasks import Tasks


async def test_a_task_lives_until_it_ends_though_nobody_else_knows_it() -> None:
    tasks, ended = Tasks(), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0)
        ended.set()

    tasks.start(work(), "work")
    await ended.wait()


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
