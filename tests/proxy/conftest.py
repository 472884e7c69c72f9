"""A world for each conversation; at its end, what must hold after every conversation is checked."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.proxy.conversation import World


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
