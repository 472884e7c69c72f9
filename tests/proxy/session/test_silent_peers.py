"""Peers that are gone without a FIN or RST while Sluice vouches for them, because one of both is not read."""

from collections.abc import Callable
from typing import Any

import pytest

from accesslog.record import ConnectionLine
from proxy.budgets import ENTRY_OVERHEAD
from proxy.session.keep_alive import OFTEN, SELDOM
from tests.proxy.conversation import Peer, World, consumer, publisher
from tests.proxy.wire import PING, PONG, TOPIC, message, send, sends

Make = Callable[..., World]
KEEP_ALIVE = 30.0
SOON = OFTEN * KEEP_ALIVE
TOO_MUCH = 10 * (len(send(0)) + ENTRY_OVERHEAD)
SIDES = ("client", "broker")


def paused_publisher(make_world: Make, **publish: Any) -> tuple[World, Peer, Peer]:
    """A client that is not read for hours: it published more than may be held."""
    world = make_world(
        limits={"topics": {TOPIC: {"publish": {"messages": "1/h"}}}},
        publish={"hold_connection": str(TOO_MUCH)} | publish,
        write_timeout="600s",
    )
    client, broker = publisher(world)
    client >> sends(20)
    assert not client.is_read
    return world, client, broker


def paused_consumer(make_world: Make) -> tuple[World, Peer, Peer]:
    """A consumer whose broker is not read for hours: it sent more than may be held."""
    world = make_world(
        limits={"topics": {TOPIC: {"dispatch": {"messages": "1/h"}}}},
        publish={"hold_connection": str(TOO_MUCH)},
        dispatch={"preciseDispatcherFlowControl": False},
        write_timeout="600s",
    )
    client, broker = consumer(world, permits=1000)
    broker >> [message(number) for number in range(200)]
    assert not broker.is_read
    return world, client, broker


PAUSED = (paused_publisher, paused_consumer)


def end_of(world: World) -> ConnectionLine:
    (line,) = world.lines(ConnectionLine)
    assert isinstance(line, ConnectionLine)
    return line


@pytest.mark.parametrize("acknowledges", [False, True], ids=["host dead", "process stopped"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("paused", PAUSED)
def test_a_peer_that_says_nothing_is_gone_after_two_intervals(
    make_world: Make, paused: Callable[[Make], tuple[World, Peer, Peer]], side: str, *, acknowledges: bool
) -> None:
    world, client, broker = paused(make_world)
    silent, other = (client, broker) if side == "client" else (broker, client)
    silent.transport.fall_silent(acknowledges=acknowledges)
    world.advance(SELDOM * KEEP_ALIVE + KEEP_ALIVE - 1)
    assert not other.is_gone
    assert silent.heard().count(PING) == 1
    world.advance(2 * SOON + 1)
    assert other.transport.is_closing()
    line = end_of(world)
    assert line.end_cause == f"{side}_gone"
    assert side in line.detail
    assert "nothing came" in line.detail


@pytest.mark.parametrize("side", SIDES)
def test_a_peer_that_answers_the_ping_stays(make_world: Make, side: str) -> None:
    world, client, broker = paused_publisher(make_world)
    quiet = client if side == "client" else broker
    quiet.transport.fall_silent(acknowledges=True)
    pings = 0
    for _ in range(300):
        world.advance(1)
        came = quiet.heard().count(PING)
        pings += came
        if came:
            quiet >> PONG
    assert not client.is_gone
    assert pings >= 300 // (2 * KEEP_ALIVE)


@pytest.mark.parametrize("acknowledges", [False, True])
def test_a_peer_without_room_is_judged_by_its_kernel(make_world: Make, *, acknowledges: bool) -> None:
    """Its PONG is behind what is not read: nobody can know it."""
    world, client, _ = paused_publisher(make_world)
    client.transport.room = 0
    client.transport.fall_silent(acknowledges=acknowledges)
    world.advance(10 * KEEP_ALIVE)
    assert client.is_gone == (not acknowledges)


@pytest.mark.parametrize("acknowledges", [False, True])
def test_a_client_that_only_does_not_read_stays(make_world: Make, *, acknowledges: bool) -> None:
    """What it does not take is the business of `write_timeout`."""
    world, client, broker = paused_consumer(make_world)
    client.stop_reading()
    client.transport.unsent += bytes(1000)
    client.transport.fall_silent(acknowledges=acknowledges)
    world.advance(10 * KEEP_ALIVE)
    assert client.is_gone == (not acknowledges)
    assert broker.is_gone == (not acknowledges)


def test_a_dead_client_is_found_where_each_message_pauses_it(make_world: Make) -> None:
    """What its kernel sent before keeps the limit busy, and each pause is short."""
    world = make_world(
        limits={"topics": {TOPIC: {"publish": {"messages": "10/s"}}}}, publish={"mode": "pause"}, write_timeout="600s"
    )
    client, broker = publisher(world)
    for number in range(3000):
        client >> send(number)
    client.transport.fall_silent()
    for _ in range(round(2 * KEEP_ALIVE)):
        broker >> PING
        world.advance(1)
    assert end_of(world).end_cause == "client_gone"


def test_peers_that_are_both_read_look_after_themselves(make_world: Make) -> None:
    world = make_world()
    client, broker = publisher(world)
    client.transport.fall_silent()
    world.advance(10 * KEEP_ALIVE)
    assert not client.is_gone
    assert client.heard() == broker.heard() == []


def test_a_longer_keep_alive_bears_a_longer_silence(make_world: Make) -> None:
    world = make_world(
        limits={"topics": {TOPIC: {"publish": {"messages": "1/h"}}}},
        publish={"hold_connection": str(TOO_MUCH)},
        keep_alive="120s",
    )
    client, _ = publisher(world)
    client >> sends(20)
    client.transport.fall_silent()
    world.advance(190)
    assert not client.is_gone
    world.advance(50)
    assert end_of(world).end_cause == "client_gone"
