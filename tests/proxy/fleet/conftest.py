"""A world of proxies of one fleet for a test."""

from collections.abc import Iterator

import pytest

from tests.proxy.fleet.proxies import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()
