"""A broker's admin that is none, and Sluice in front of it."""

from collections.abc import AsyncIterator

import pytest

from tests.proxy.admin.forwarding.fake_broker import FakeBroker, Front, fake_broker, front


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with fake_broker() as broker:
        yield broker


@pytest.fixture
async def sluice(broker: FakeBroker) -> AsyncIterator[Front]:
    async with front(broker.url) as sluice:
        yield sluice
