"""Time runs while it is the broker's turn."""

import asyncio

import pytest

from proxy.admin.forwarding.broker import ForwardTimeouts
from tests.proxy.loop_time import later

new_event_loop = asyncio.new_event_loop
"""Its clock can be moved by hand."""


async def test_a_broker_that_does_nothing_is_left() -> None:
    with pytest.raises(TimeoutError):
        async with ForwardTimeouts(10).running():
            await later(11)


async def test_while_it_is_the_clients_turn_no_time_runs() -> None:
    waited: list[str] = []

    async def wait() -> None:
        patience = ForwardTimeouts(10)
        async with patience.running():
            patience.is_the_client_s(True)
            await later(11)
            waited.append("for the client")
            patience.is_the_client_s(False)
            await later(9)
            waited.append("for the broker")
            await later(2)
            waited.append("too long")

    with pytest.raises(TimeoutError):
        await wait()
    assert waited == ["for the client", "for the broker"]


async def test_when_it_is_over_turns_mean_nothing() -> None:
    patience = ForwardTimeouts(10)
    async with patience.running():
        pass
    patience.is_the_client_s(False)
