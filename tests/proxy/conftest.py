"""A world for each conversation; at its end, what must hold after every conversation is checked."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import uvloop

from tests.manual_clock import ManualClock
from tests.proxy.admin_client import Admin
from tests.proxy.certificates import Authority
from tests.proxy.conversation import World
from tests.proxy.manual_loop import ManualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """What the proxy runs in, unless a module of tests has a `new_event_loop` of its own."""
    module = item.getparent(pytest.Module)
    return {"loop": getattr(module and module.obj, "new_event_loop", uvloop.new_event_loop)}


@pytest.fixture
def world_kind() -> type[World]:
    """Which worlds are made; a module of tests may have its own."""
    return World


@pytest.fixture
def loop() -> Iterator[ManualLoop]:
    loop = ManualLoop(ManualClock())
    yield loop
    loop.close()


@pytest.fixture
def make_world(world_kind: type[World]) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**settings: Any) -> World:
        worlds.append(world_kind(**settings))
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
