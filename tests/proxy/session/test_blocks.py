"""What is blocked is refused before the broker hears of it; connections end."""

from typing import Any

import pytest

from accesslog.record import ConnectionLine
from protocol.pulsar_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    NotAllowedError,
    ProducerFenced,
    Schema,
)
from proxy.blocking.blocklist import EndedByRule
from proxy.refusals import metadata_refused
from proxy.session.blocking import MOST_AT_ONCE
from tests.proxy.blocks import OWN, block, close_to_broker, metadata, refused, unblock
from tests.proxy.conversation import NOTHING, World
from tests.proxy.session.test_client_role import token
from tests.proxy.wire import (
    NO_REQUEST,
    OTHER_TOPIC,
    PING,
    TOPIC,
    body,
    connect,
    error,
    producer,
    producer_success,
    sends,
    subscribe,
    success,
)

AS_BILLING: dict[str, Any] = {"auth_method_name": "token", "auth_data": token({"sub": "billing"})}


@pytest.mark.parametrize("name", ["192.0.2.7", "192.0.2.0/24", "::ffff:192.0.2.7"])
def test_a_blocked_address_is_refused_and_no_broker_is_asked(world: World, name: str) -> None:
    block(world, "address", name)
    client = world.client()
    client >> [connect(), metadata()]
    subject = "address '192.0.2.0/24'" if "/" in name else "address '192.0.2.7'"
    client << ["CONNECTED", metadata_refused(1, NotAllowedError, f"{subject} is blocked by Sluice: too loud")]
    client.leave()
    assert world.dials == []
    assert world.counters.connections_ended == {"blocked": 1}
    assert world.counters.blocked == {"address": 1}


def test_a_blocked_role_is_refused_and_others_are_not(world: World) -> None:
    block(world, "role", "billing")
    client = world.client()
    client >> [connect(**AS_BILLING), metadata()]
    client << ["CONNECTED", metadata_refused(1, NotAllowedError, "role 'billing' is blocked by Sluice: too loud")]
    world.pair()


@pytest.mark.parametrize(("kind", "name"), [("address", "192.0.2.7"), ("role", "billing")])
def test_blocked_open_connection_gets_its_error_and_frees_memory(make_world, kind: str, name: str) -> None:
    world: World = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client = world.client()
    client >> connect(**AS_BILLING)
    broker = world.dialled()
    client >> [producer(), *sends(5)]
    assert block(world, kind, name) == EndedByRule(1, 1)
    client << error(NO_REQUEST, NotAllowedError, f"blocked: {kind} '{name}' is blocked by Sluice: too loud")
    assert client.is_gone
    assert broker.is_gone
    assert world.engine.held.used == 0


def test_block_ends_clients_at_connect_and_while_dialling(world: World) -> None:
    world.broker_answers = False
    silent, dialling = world.client(), world.client()
    dialling >> connect()
    assert block(world, "address", "192.0.2.7") == EndedByRule(1, 0)
    dialling << "ERROR"
    silent << NOTHING
    silent >> connect()
    silent << "CONNECTED"
    assert world.counters.blocked == {"address": 2}


def test_an_unblocked_client_is_let_in_at_once(world: World) -> None:
    """One that was turned away is sent away: it comes again by itself, and asks again."""
    block(world, "address", "192.0.2.0/24")
    client = world.client()
    client >> connect()
    client << "CONNECTED"
    unblock(world, "address", "192.0.2.0/24")
    client >> metadata()
    client << NOTHING
    assert client.is_gone
    world.pair()


def test_of_a_client_that_is_turned_away_each_of_many_requests_is_answered(world: World) -> None:
    block(world, "address", "192.0.2.7")
    client = world.client()
    asked = range(1, 2 * MOST_AT_ONCE + 5)
    client >> [connect(), *map(metadata, asked)]
    why = "address '192.0.2.7' is blocked by Sluice: too loud"
    client << ["CONNECTED", *[metadata_refused(request_id, NotAllowedError, why) for request_id in asked]]


def test_a_client_that_is_turned_away_may_stay_no_longer_than_a_handshake(world: World) -> None:
    block(world, "address", "192.0.2.7")
    client = world.client()
    client >> connect()
    client << "CONNECTED"
    world.advance(world.config.handshake_timeout + 1)
    assert client.is_gone
    assert [line.end_cause for line in world.lines(ConnectionLine)] == ["blocked"]


_WHAT_BLOCKS_A_PRODUCER = pytest.mark.parametrize(
    ("kind", "name", "where"),
    [
        ("producer", "p", {}),
        ("producer", "p", {"topic": TOPIC}),
        ("producer", "p", {"namespace": "acme/shop"}),
        ("topic", TOPIC, {}),
    ],
)


@_WHAT_BLOCKS_A_PRODUCER
def test_what_is_blocked_gives_its_topic_no_schema(world: World, kind: str, name: str, where: dict[str, str]) -> None:
    """A broker stores it for whoever may produce there, though nobody does; and answers who only asks for it."""
    client, broker = world.pair()
    block(world, kind, name, **where)
    schema = Schema(name="s", schema_data=b"{}", type=Schema.Avro)
    client >> CommandGetOrCreateSchema(topic=TOPIC, request_id=1, schema=schema, producer_name="p")
    client >> CommandGetOrCreateSchema(topic=OTHER_TOPIC, request_id=2, schema=schema, producer_name="q")
    client >> CommandGetSchema(topic=TOPIC, request_id=3)
    assert [(each.request_id, each.topic) for each in map(body, broker.heard())] == [(2, OTHER_TOPIC), (3, TOPIC)]
    place = f" in {next(iter(where.values()))}" if where else ""
    reason = f"{kind} '{name}'{place} is blocked by Sluice: too loud"
    client << CommandGetOrCreateSchemaResponse(request_id=1, error_code=NotAllowedError, error_message=reason)
    assert world.counters.blocked == {kind: 1}


def test_what_is_blocked_gets_no_schema_by_the_other_topic_of_its_name(world: World) -> None:
    """Brokers store one schema for `persistent://` and `non-persistent://` topics of a name; the topics are two."""
    client, broker = world.pair()
    block(world, "topic", TOPIC)
    twin, schema = f"non-{TOPIC}", Schema(name="s", schema_data=b"{}", type=Schema.Avro)
    client >> [producer(1, twin, schema=schema), subscribe(7, twin, schema=schema)]
    client << [refused(101, f"topic '{TOPIC}'"), refused(307, f"topic '{TOPIC}'")]
    client >> CommandGetOrCreateSchema(topic=twin, request_id=1, schema=schema)
    client << "GET_OR_CREATE_SCHEMA_RESPONSE"
    broker << NOTHING
    client >> [producer(2, twin), subscribe(8, twin)]
    broker << [producer(2, twin), subscribe(8, twin)]


@_WHAT_BLOCKS_A_PRODUCER
def test_a_producer_that_is_blocked_never_reaches_the_broker(
    world: World, kind: str, name: str, where: dict[str, str]
) -> None:
    client, broker = world.pair()
    block(world, kind, name, **where)
    client >> [producer(producer_name="p"), PING]
    broker << PING
    place = f" in {next(iter(where.values()))}" if where else ""
    client << refused(101, f"{kind} '{name}'{place}")
    assert world.counters.blocked == {kind: 1}
    unblock(world, kind, name, **where)
    client >> producer(producer_name="p")
    broker << producer(producer_name="p")


@pytest.mark.parametrize(
    ("kind", "name", "where"),
    [
        ("consumer", "c", {}),
        ("subscription", "sub", {}),
        ("subscription", "sub", {"topic": TOPIC}),
        ("consumer", "c", {"namespace": "acme/shop"}),
        ("topic", TOPIC, {}),
    ],
)
def test_a_consumer_that_is_blocked_never_reaches_the_broker(
    world: World, kind: str, name: str, where: dict[str, str]
) -> None:
    client, broker = world.pair()
    block(world, kind, name, **where)
    client >> [subscribe(consumer_name="c"), PING]
    broker << PING
    place = f" in {next(iter(where.values()))}" if where else ""
    client << refused(307, f"{kind} '{name}'{place}")
    unblock(world, kind, name, **where)
    client >> subscribe(consumer_name="c")
    broker << subscribe(consumer_name="c")


def test_who_is_not_meant_passes(world: World) -> None:
    block(world, "producer", "p", topic=OTHER_TOPIC)
    block(world, "subscription", "p")
    block(world, "topic", f"{TOPIC}-partition-1")
    client, broker = world.pair()
    frames = [producer(producer_name="p"), producer(2, f"{TOPIC}-partition-2"), subscribe(consumer_name="p")]
    client >> frames
    broker << frames


def test_a_producer_that_is_opened_again_is_fenced_off(world: World) -> None:
    """After most errors clients open a producer that they had before again and again, for ever."""
    block(world, "producer", "p")
    client, _ = world.pair()
    client >> producer(producer_name="p", epoch=1)
    client << refused(101, "producer 'p'", ProducerFenced)


def test_a_topic_without_a_name_gets_the_error_that_it_always_gets(world: World) -> None:
    block(world, "producer", "p")
    client, broker = world.pair()
    client >> producer(topic="persistent://x", producer_name="p")
    broker << NOTHING
    assert b"is not a topic name" in b"".join(client.heard())


def test_a_name_that_the_broker_chooses_is_checked_when_it_is_told(world: World) -> None:
    block(world, "producer", "standalone-0-7")
    client, broker = world.pair()
    client >> producer()
    broker << producer()
    broker >> producer_success(name="standalone-0-7")
    client << refused(101, "producer 'standalone-0-7'")
    broker << close_to_broker()
    broker >> success(OWN)
    client << NOTHING
    assert world.engine.registry.live() == []
