"""Clients that do not take what is sent to them are found, and who takes something never is."""

from collections.abc import Callable

import pytest

from proxy.session.transport import LOOK_S
from tests.proxy.conversation import NOTHING, Peer, World
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.wire import PING, connect, lookup, lookup_answer, unknown_command

Make = Callable[..., World]
ANSWER = unknown_command(content=bytes(100))


def deaf(world: World) -> tuple[Peer, Peer]:
    """A client that has sent something and takes no answer."""
    client, broker = world.pair()
    client >> unknown_command()
    broker << unknown_command()
    client.stop_reading()
    broker >> ANSWER
    return client, broker


def test_a_client_that_takes_nothing_for_so_long_is_ended(make_world: Make) -> None:
    world = make_world(transports=FakeTransport, write_timeout="30s")
    client, _ = deaf(world)
    world.advance(30)
    assert not client.is_gone
    world.advance(2 * LOOK_S)
    assert client.is_gone
    assert world.counters.connections_ended == {"write_timeout": 1}
    (line,) = [line for line in world.lines() if getattr(line, "end_cause", "") == "write_timeout"]
    assert f"took nothing of {len(ANSWER)} bytes for 30 s" in line.detail


def test_whatever_else_it_does(make_world: Make) -> None:
    world = make_world(transports=FakeTransport, write_timeout="30s")
    client, broker = deaf(world)
    for _ in range(40):
        if client.is_gone:
            break
        client >> [PING, lookup()]
        broker >> [lookup_answer(2), ANSWER]
        world.advance(1)
    assert client.is_gone
    assert world.engine.memory.used == 0


def test_a_client_that_takes_something_now_and_then_stays(make_world: Make) -> None:
    world = make_world(transports=FakeTransport, write_timeout="30s")
    client, broker = deaf(world)
    for _ in range(20):
        broker >> ANSWER
        world.advance(20)
        world.loop.run(client.transport.take, 1)
    assert not client.is_gone
    assert world.engine.shared.unsent.size == 21 * len(ANSWER) - 20


def test_what_it_does_not_take_is_counted_until_it_does(make_world: Make) -> None:
    world = make_world(transports=FakeTransport, write_timeout="30s")
    client, _ = deaf(world)
    world.advance(3 * LOOK_S)
    assert world.engine.shared.unsent.size == len(ANSWER)
    counted = world.engine.memory.used
    client.read_on()
    world.advance(LOOK_S)
    assert counted - world.engine.memory.used == len(ANSWER)
    assert world.engine.shared.unsent.size == 0


def test_one_that_takes_nothing_of_too_much_is_ended_sooner(make_world: Make) -> None:
    world = make_world(transports=FakeTransport, client_memory={"connection": 50, "total": 1000})
    client, _ = deaf(world)
    world.advance(3 * LOOK_S)
    assert client.is_gone
    assert world.counters.connections_ended == {"over_budget": 1}


def test_where_nothing_is_left_nobody_looks(world: World) -> None:
    client, broker = world.pair()
    client >> PING
    broker << PING
    world.advance(2 * LOOK_S)
    before = world.loop.time()
    assert world.engine.shared.unsent._is_armed is False
    assert world.loop.time() == before


@pytest.mark.parametrize("size", [100_000, 250_000])
def test_a_long_greeting_counts_from_its_first_bytes_on(make_world: Make, size: int) -> None:
    world = make_world(client_memory={"connection": "150KB", "total": "10MB"})
    client = world.client()
    greeting = connect(auth_data=bytes(size))
    client.send_bytes(greeting[: size - 1])
    assert client.is_gone == (size > 150_000)
    assert world.engine.memory.used == (0 if client.is_gone else size - 1)
    if not client.is_gone:
        client.send_bytes(greeting[size - 1 :])
        assert world.engine.memory.used >= size
    client << NOTHING


def test_a_greeting_as_all_others_have_it_counts_nowhere(world: World) -> None:
    world.pair()
    assert world.engine.memory.used == 0
