"""What meters and follows commands is made for the first byte behind the greetings, and sees that byte first."""

from collections.abc import Callable

import pytest

from protocol.frames import max_frame_size
from proxy.session.session import SessionState
from proxy.session.transport import PauseReason
from tests.proxy.blocks import block
from tests.proxy.conversation import BROKER, NOTHING, Peer, World
from tests.proxy.party import traffic_of
from tests.proxy.wire import (
    PING,
    PONG,
    TOPIC,
    connect,
    connected,
    error,
    producer,
    producer_success,
    sends,
    unknown_command,
)

Make = Callable[..., World]


def greeting(world: World) -> tuple[Peer, Peer]:
    """A client and its broker, which has not answered yet."""
    client = world.client()
    client >> connect(f"{BROKER[0]}:{BROKER[1]}")
    broker = world.dialled()
    broker << connect()
    return client, broker


def test_two_that_have_only_greeted_each_other_have_no_traffic(world: World) -> None:
    world.pair()
    (session,) = world.sessions
    assert session.state is SessionState.RELAYING
    assert session.forwarding is None
    world.advance(100)
    assert session.forwarding is None


def test_signs_of_life_reach_the_other_and_are_no_traffic(world: World) -> None:
    client, broker = world.pair()
    for speaker, other in ((client, broker), (broker, client)) * 3:
        speaker >> PING
        other << PING
        other >> PONG
        speaker << PONG
    assert world.sessions[0].forwarding is None


@pytest.mark.parametrize("says", ["client", "broker"])
@pytest.mark.parametrize("frames", [[unknown_command()], [PING, unknown_command()], [PING, PING]])
def test_what_one_of_them_says_else_reaches_the_other(world: World, says: str, frames: list[bytes]) -> None:
    client, broker = world.pair()
    speaker, other = (client, broker) if says == "client" else (broker, client)
    speaker >> frames
    other << frames
    speaker << NOTHING
    assert world.sessions[0].forwarding is not None
    speaker >> PING
    other << PING


@pytest.mark.parametrize("says", ["client", "broker"])
def test_a_sign_of_life_may_come_in_parts(world: World, says: str) -> None:
    client, broker = world.pair()
    speaker, other = (client, broker) if says == "client" else (broker, client)
    speaker.send_bytes(PING[:6])
    other << NOTHING
    speaker.send_bytes(PING[6:])
    other << PING


def test_a_greeting_that_comes_in_parts_is_one_and_the_time_for_it_is_over_behind_it(make_world: Make) -> None:
    world = make_world(handshake_timeout="5s")
    client, broker = greeting(world)
    whole = connected()
    broker.send_bytes(whole[:5])
    client << NOTHING
    broker.send_bytes(whole[5:])
    client << connected()
    world.advance(6)
    assert not client.is_gone


def test_half_a_greeting_is_none(make_world: Make) -> None:
    world = make_world(handshake_timeout="5s")
    client, broker = greeting(world)
    broker.send_bytes(connected()[:5])
    world.advance(6)
    client << ["ERROR"]
    assert client.is_gone


def test_what_comes_with_the_greeting_is_passed_behind_it(world: World) -> None:
    client, broker = greeting(world)
    broker >> [connected(), PING]
    client << [connected(), PING]


def test_a_refusal_in_place_of_the_greeting_reaches_the_client(world: World) -> None:
    client, broker = greeting(world)
    broker >> error(1)
    client << error(1)


@pytest.mark.parametrize("parts", [1, 2])
def test_the_brokers_frame_size_holds_for_traffic_that_comes_later(make_world: Make, parts: int) -> None:
    world = make_world()
    client, broker = greeting(world)
    whole = connected(max_message_size=1000)
    for at in range(parts):
        broker.send_bytes(whole[at * len(whole) // parts : (at + 1) * len(whole) // parts])
    client >> producer()
    traffic = traffic_of(world.sessions[0])
    assert {traffic.to_broker.scanner.heads.max_size, traffic.to_client.scanner.heads.max_size} == {
        max_frame_size(1000)
    }
    client.send_bytes((20_000).to_bytes(4, "big") + (10).to_bytes(4, "big"))
    assert client.is_gone
    assert world.counters.connections_ended["frame_error"] == 1


def test_the_first_entries_are_metered(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = greeting(world)
    broker >> connected()
    client << connected()
    client >> [producer(), *sends(5)]
    broker >> producer_success()
    assert broker.heard_names() == ["PRODUCER"]
    client >> sends(3)
    assert broker.heard_names() == ["SEND"]


@pytest.mark.parametrize("ends", ["client leaves", "client says no more", "broker leaves", "reset", "blocked"])
def test_two_that_have_only_greeted_each_other_end_in_order(world: World, ends: str) -> None:
    client, broker = world.pair()
    if ends == "client leaves":
        client.leave()
    elif ends == "client says no more":
        client.half_close()
        broker.leave()
    elif ends == "broker leaves":
        broker.leave()
    elif ends == "reset":
        client.leave(ConnectionResetError("reset by peer"))
    else:
        block(world, "address", "192.0.2.7")
        client << ["ERROR"]
    assert client.is_gone
    assert broker.is_gone
    assert sum(world.counters.connections_ended.values()) == 1


def test_a_rule_about_streams_ends_nothing_where_there_are_none(world: World) -> None:
    client, _broker = world.pair()
    block(world, "producer", "x")
    assert not client.is_gone


def test_a_client_that_does_not_take_the_greeting_is_kept_alive_as_any(world: World) -> None:
    client, broker = world.pair()
    session = world.sessions[0]
    world.loop.run(session.broker.throttle, PauseReason.WRITE_BUFFER)
    world.advance(21)
    assert "PONG" in broker.heard_names()
    world.loop.run(session.broker.unthrottle, PauseReason.WRITE_BUFFER)
    assert "PONG" in client.heard_names()
