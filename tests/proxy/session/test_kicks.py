"""Kicks, told as conversations: what is kicked ends on both legs, its neighbours go on, and it may come again."""

from collections import deque
from collections.abc import Iterator
from typing import Any, cast

import pytest

from accesslog.record import ConnectionLine
from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseConsumer
from proxy.block_rules import Key, Kind, Rule, read_network
from proxy.blocking.blocklist import LookAtSessions, Order
from proxy.kicks import DryBlock, Kick, KickChoice, KickEffect, kicking
from tests.proxy.blocks import OWN, close_to_broker, close_to_client
from tests.proxy.conversation import NOTHING, World, consumer, publisher
from tests.proxy.wire import (
    NO_REQUEST,
    OTHER_TOPIC,
    TOPIC,
    connect,
    producer,
    producer_success,
    receipt,
    send,
    sends,
    success,
)

WAYS = ["kick", "dry block", "block"]


def kick(world: World, **words: Any) -> KickEffect:
    effect = KickEffect()

    def end() -> None:
        for _ in kicking(world.engine.sessions, Kick(**words), effect):
            pass

    world.loop.run(end)
    return effect


def causes(world: World) -> list[str]:
    return [line.end_cause for line in world.lines(ConnectionLine)]


def test_topic_s_producer_ends_and_is_opened_again_at_once(world: World) -> None:
    client, broker = publisher(world)
    client >> producer(2, OTHER_TOPIC)
    broker << producer(2, OTHER_TOPIC)
    broker >> producer_success(2, name="neighbour")
    client << producer_success(2, name="neighbour")
    assert kick(world, topic=TOPIC) == KickEffect(0, 1)
    client << close_to_client()
    broker << close_to_broker()
    client >> [send(0), send(0, producer_id=2)]
    broker << send(0, producer_id=2)
    broker >> success(OWN)
    client << NOTHING
    client >> producer(3, producer_name="named-by-broker", epoch=1)
    broker << producer(3, producer_name="named-by-broker", epoch=1)
    broker >> producer_success(3, name="named-by-broker")
    client << producer_success(3, name="named-by-broker")
    client >> send(0, producer_id=3)
    broker << send(0, producer_id=3)
    assert causes(world) == []


def test_held_entries_of_a_kicked_producer_have_no_receipt(make_world) -> None:
    world: World = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = publisher(world)
    client >> sends(5)
    broker << send(0)
    (stream,) = world.engine.registry.live()
    broker >> receipt(0)
    client << receipt(0)
    assert kick(world, tenant=stream.name.tenant) == KickEffect(0, 1)
    client << close_to_client()
    broker << close_to_broker()
    world.advance(10)
    broker << NOTHING
    client << NOTHING
    assert (stream.usage.dropped_messages, world.engine.held.used) == (4, 0)


def test_consumer_is_closed_on_both_legs(world: World) -> None:
    client, broker = consumer(world, permits=10)
    assert kick(world, topic=TOPIC) == KickEffect(0, 1)
    client << encode(CommandCloseConsumer(consumer_id=7, request_id=NO_REQUEST))
    broker << encode(CommandCloseConsumer(consumer_id=7, request_id=OWN))


def test_connection_ends_after_all_that_was_written(world: World) -> None:
    client, broker = publisher(world)
    other, _ = publisher(world)
    client >> send(0)
    broker << send(0)
    broker >> receipt(0)
    assert kick(world, connection_id=1) == KickEffect(1, 1)
    client << receipt(0)
    assert client.transport.is_eof_sent
    assert broker.is_gone
    assert not other.transport.is_eof_sent
    client.half_close()
    assert causes(world) == ["kicked"]


@pytest.mark.parametrize(
    ("words", "effect"),
    [
        ({"network": read_network("192.0.2.7")}, KickEffect(2, 2)),
        ({"network": read_network("192.0.2.0/24")}, KickEffect(3, 2)),
        ({"network": read_network("2001:db8::/32")}, KickEffect()),
        ({"network": read_network("192.0.2.7"), "topic": OTHER_TOPIC}, KickEffect()),
        ({"network": read_network("192.0.2.7"), "topic": TOPIC}, KickEffect(0, 2)),
        ({"role": "nobody"}, KickEffect()),
        ({"connection_id": 99}, KickEffect()),
        ({"tenant": "nobody"}, KickEffect()),
        ({"tenant": "public", "tenants": frozenset({"public"})}, KickEffect(0, 2)),
        ({"network": read_network("192.0.2.7"), "tenants": frozenset({"public"})}, KickEffect(0, 2)),
        ({"network": read_network("192.0.2.7"), "tenants": frozenset({"other"})}, KickEffect()),
        ({"connection_id": 1, "tenants": frozenset({"other"})}, KickEffect()),
    ],
)
def test_kick_ends_what_all_its_words_mean_and_a_dry_one_nothing(
    world: World, words: dict[str, Any], effect: KickEffect
) -> None:
    clients = [publisher(world)[0] for _ in range(2)]
    (tenant,) = {stream.name.tenant for stream in world.engine.registry.live()}
    words = {word: _with(tenant, value) for word, value in words.items()}
    stranger = world.client("192.0.2.9")
    stranger >> connect()
    assert kick(world, **words, is_dry=True) == effect
    assert causes(world) == []
    for client in clients:
        client << NOTHING
    assert kick(world, **words) == effect
    assert kick(world, **words) == KickEffect()
    assert len(world.engine.registry.live()) == 2 - effect.streams


def _with(tenant: str, value: Any) -> Any:
    if value == "public":
        return tenant
    return frozenset({tenant}) if value == frozenset({"public"}) else value


def test_partitions_are_kicked_with_their_topic(world: World) -> None:
    client, broker = world.pair()
    names = [f"{TOPIC}-partition-{number}" for number in range(2)]
    client >> [producer(number, name) for number, name in enumerate(names)]
    broker.heard()
    broker >> [producer_success(number, f"p{number}") for number in range(2)]
    client.heard()
    assert kick(world, topic=names[1]) == KickEffect(0, 1)
    assert kick(world, topic=TOPIC) == KickEffect(0, 1)


@pytest.mark.parametrize("name", ["eu", "01", "1-partition-2", "-1"])
def test_topic_named_like_a_partition_is_a_topic_of_its_own(world: World, name: str) -> None:
    client, broker = world.pair()
    client >> producer(1, f"{TOPIC}-partition-{name}")
    broker.heard()
    broker >> producer_success(1, name="p1")
    client.heard()
    assert kick(world, topic=TOPIC) == KickEffect()
    assert kick(world, topic=f"{TOPIC}-partition-{name}") == KickEffect(0, 1)


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        (Key(Kind.ADDRESS, "192.0.2.7"), (2, 2)),
        (Key(Kind.ADDRESS, "0.0.0.0/0"), (3, 2)),
        (Key(Kind.ADDRESS, "198.51.100.0/24"), (0, 0)),
        (Key(Kind.ROLE, "nobody"), (0, 0)),
        (Key(Kind.TOPIC, TOPIC), (0, 2)),
        (Key(Kind.TOPIC, OTHER_TOPIC), (0, 0)),
        (Key(Kind.PRODUCER, "named-by-broker"), (0, 2)),
        (Key(Kind.PRODUCER, "named-by-broker", OTHER_TOPIC), (0, 0)),
        (Key(Kind.SUBSCRIPTION, "named-by-broker"), (0, 0)),
    ],
    ids=str,
)
def test_dry_block_counts_what_the_block_then_ends(world: World, key: Key, effect: tuple[int, int]) -> None:
    clients = [publisher(world)[0] for _ in range(2)]
    world.client("192.0.2.9") >> connect()
    world.client("192.0.2.7")  # has not sent CONNECT: it is turned away when it does
    counted = KickEffect()
    world.loop.run(lambda: deque(kicking(world.engine.sessions, DryBlock(key), counted), maxlen=0))
    for client in clients:
        client << NOTHING
    assert (counted.connections, counted.streams) == effect
    ended = world.loop.run(lambda: world.engine.blocklist.put(key, Order()))
    world.advance(1)
    assert (ended.connections, ended.streams) == effect


@pytest.mark.parametrize("choice", [Kick(topic=TOPIC), DryBlock(Key(Kind.TOPIC, TOPIC)), None], ids=WAYS)
def test_streams_that_are_not_meant_are_looked_at_in_slices(world: World, choice: KickChoice | None) -> None:
    client, broker = world.pair()
    client >> [producer(number, f"{TOPIC}-{number}") for number in range(200)]
    broker.heard()
    broker >> [producer_success(number, name=f"p{number}") for number in range(200)]
    client.heard()
    (session,) = world.engine.sessions
    if choice is not None:
        units = session.kick(choice, KickEffect())
    else:
        world.engine.blocklist.rules.put(Rule(Key(Kind.TOPIC, f"{TOPIC}-x")))
        units = session.rules_added(LookAtSessions({}, is_at_clients=True, is_at_streams=True))
    assert len(list(units)) == 10


class _Session:
    """One that ends at a kick, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    def kick(self, _kick: KickChoice, effect: KickEffect) -> Iterator[None]:
        if self._fails:
            raise RuntimeError("broken")
        effect.connections += 1
        yield


def test_session_that_fails_spares_no_other_from_a_kick() -> None:
    effect, sessions = KickEffect(), [_Session(), _Session(fails=True), _Session()]
    with pytest.raises(RuntimeError, match="broken"):
        deque(kicking(cast("Any", sessions), Kick(role="x"), effect), maxlen=0)
    assert effect.connections == 2
