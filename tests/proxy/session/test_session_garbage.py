"""A session that is over is gone at once: what it kept may be megabytes, and Python searches for garbage seldom."""

import gc
from collections.abc import Callable

import pytest

from tests.proxy.conversation import World
from tests.proxy.wire import close_producer, connect, connected, lookup, producer, producer_success, send

Make = Callable[..., World]
HALF = (4_000_000).to_bytes(4, "big") + (3_999_996).to_bytes(4, "big") + bytes(100_000)
"""Of a command that never ends."""


@pytest.mark.parametrize("mode", ["enforce", "reject"])
@pytest.mark.parametrize("memory", ["50KiB", "1MiB"], ids=["too much", "room"])
@pytest.mark.parametrize("halves", ["client", "broker", "neither"])
def test_no_search_has_to_find_what_is_left_of_a_session(make_world: Make, halves: str, memory: str, mode: str) -> None:
    limit = {"messages": 1, "mode": mode}
    world = make_world(client_memory={"connection": memory}, limits={"each_topic": {"publish": limit}})
    gc.collect()
    gc.freeze()  # other tests of this run keep a million objects: the search below looks at none of them
    gc.disable()
    try:
        client = world.client()
        client >> connect()
        broker = world.dialled()
        broker >> connected()
        client >> producer()
        broker >> producer_success()
        client >> [send(0), send(1), send(2), lookup(), close_producer()]
        if halves == "client":
            client.send_bytes(HALF)
        elif halves == "broker":
            broker.send_bytes(HALF)
        client.leave()
        world.advance(30)
        del client, broker
        assert gc.collect() == 0
    finally:
        gc.enable()
