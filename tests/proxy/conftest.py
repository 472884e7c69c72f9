"""A world for each conversation; at its end, what must hold after every conversation is checked."""

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import uvloop

from tests.manual_clock import ManualClock
from tests.proxy.admin_client import Admin
from tests.proxy.certificates import Authority
from tests.proxy.conversation import World
from tests.proxy.manual_loop import ManualLoop


class ClosingLoop(uvloop.Loop):
    """uvloop's, which closes whatever a test has left open, and then says what that was.

    uvloop warns of each open handle before it closes it, within a callback of C. Where warnings are errors, as in these
    tests, that callback ends there: the handle stays open, and `close` waits for its end, which never comes.
    """

    def close(self) -> None:
        with warnings.catch_warnings(record=True) as left:
            warnings.simplefilter("always", ResourceWarning)
            super().close()
        if left:
            raise ResourceWarning("; ".join(str(each.message) for each in left))


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """What the proxy runs in, unless a module of tests has a `new_event_loop` of its own."""
    module = item.getparent(pytest.Module)
    return {"loop": getattr(module and module.obj, "new_event_loop", ClosingLoop)}


@pytest.fixture
def loop() -> Iterator[ManualLoop]:
    loop = ManualLoop(ManualClock())
    yield loop
    loop.close()


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**settings: Any) -> World:
        worlds.append(World(**settings))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Without any limit."""
    return make_world()


@pytest.fixture
async def make_admin() -> AsyncIterator[Callable[..., Awaitable[Admin]]]:
    made: list[Admin] = []

    async def make(**settings: Any) -> Admin:
        made.append(Admin(**settings))
        await made[-1].client.start_server()
        return made[-1]

    yield make
    for admin in made:
        await admin.client.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
