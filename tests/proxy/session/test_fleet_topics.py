"""The topics of a fleet: no client of a member reaches them, by whatever name and command."""

from collections.abc import Callable
from typing import Any

import pytest

from accesslog.record import ConnectionLine, RejectLine
from protocol.commands import encode
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandWatchTopicList,
    NotAllowedError,
    Schema,
)
from proxy.config.model import Config
from proxy.fleet_topics import FleetTopics
from tests.proxy.conversation import BROKER, NOTHING, World, publisher
from tests.proxy.wire import PING, body, producer, subscribe, unknown_command

Make = Callable[..., World]
FLEET = {"name": "front"}
SETTINGS: list[dict[str, Any]] = [
    {"fleet": FLEET},
    {"fleet": FLEET | {"namespace": "acme/own"}},
    {"fleet": FLEET, "policies": {"topic": "persistent://acme/shop/policies"}},
    {"policies": {"topic": "persistent://acme/shop/policies"}},
]
NAMES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("persistent://public/sluice/front-policies", SETTINGS[0]),
    ("public/sluice/front-policies", SETTINGS[0]),
    ("non-persistent://public/sluice/front-grants", SETTINGS[0]),
    ("non-persistent://public/sluice/front-reports", SETTINGS[0]),
    ("persistent://public/sluice/front-policies-partition-0", SETTINGS[0]),
    ("persistent://public/sluice/other-fleets-policies", SETTINGS[0]),
    ("persistent://public/sluice/__change_events", SETTINGS[0]),
    ("persistent://public/sluice/front-policies-sub-DLQ", SETTINGS[0]),
    ("persistent://acme/own/front-policies", SETTINGS[1]),
    ("persistent://public/sluice/x", SETTINGS[2]),
    ("persistent://acme/shop/policies", SETTINGS[2]),
    ("acme/shop/policies", SETTINGS[3]),
    ("non-persistent://acme/shop/policies", SETTINGS[3]),
    ("persistent://acme/shop/policies-partition-7", SETTINGS[3]),
)
FREE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("persistent://public/default/front-policies", SETTINGS[0]),
    ("persistent://acme/sluice/front-policies", SETTINGS[0]),
    ("persistent://public/sluice/front-policies", {}),
    ("persistent://public/sluice/front-policies", SETTINGS[1]),
    ("persistent://acme/shop/policies-of-ours", SETTINGS[3]),
)


def commands(topic: str) -> dict[str, bytes]:
    """Every command that names a topic, but for those of transactions."""
    schema = Schema(name="s", schema_data=b"", type=Schema.Type.String)
    return {
        "PRODUCER": producer(1, topic),
        "PRODUCER with a schema": producer(2, topic, schema=schema),
        "SUBSCRIBE": subscribe(7, topic),
        "LOOKUP": encode(CommandLookupTopic(topic=topic, request_id=1)),
        "PARTITIONED_METADATA": encode(CommandPartitionedTopicMetadata(topic=topic, request_id=2)),
        "GET_SCHEMA": encode(CommandGetSchema(topic=topic, request_id=3)),
        "GET_OR_CREATE_SCHEMA": encode(CommandGetOrCreateSchema(topic=topic, request_id=4, schema=schema)),
    }


@pytest.mark.parametrize(("topic", "settings"), NAMES)
def test_no_command_about_a_fleets_topic_reaches_a_broker(
    make_world: Make, topic: str, settings: dict[str, Any]
) -> None:
    world = make_world(**settings)
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    for name, command in commands(topic).items():
        client >> command
        broker << NOTHING
        (answer,) = client.heard()
        refusal = body(answer)
        assert "to a fleet" in getattr(refusal, "message", "") + getattr(refusal, "error_message", ""), name
        assert NotAllowedError in {getattr(refusal, "error", None), getattr(refusal, "error_code", None)}, name
    client >> PING
    broker << PING


@pytest.mark.parametrize(("topic", "settings"), FREE)
def test_other_topics_are_free(make_world: Make, topic: str, settings: dict[str, Any]) -> None:
    world = make_world(**settings)
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    by_name = commands(topic)
    client >> list(by_name.values())
    assert len(broker.heard()) == len(by_name)


def test_a_fleets_namespace_is_neither_listed_nor_watched(make_world: Make) -> None:
    world = make_world(fleet=FLEET)
    client, broker = world.pair()
    asked = (
        CommandGetTopicsOfNamespace(request_id=1, namespace="public/sluice"),
        CommandWatchTopicList(request_id=2, watcher_id=1, namespace="public/sluice", topics_pattern=".*"),
    )
    for command in asked:
        client >> encode(command)
        broker << NOTHING
        (answer,) = client.heard()
        assert body(answer).error == NotAllowedError
    client >> encode(CommandGetTopicsOfNamespace(request_id=1, namespace="public/default"))
    broker << "GET_TOPICS_OF_NAMESPACE"


@pytest.mark.parametrize("kind", [BaseCommand.ADD_PARTITION_TO_TXN, BaseCommand.ADD_SUBSCRIPTION_TO_TXN])
def test_a_transaction_with_a_fleets_topic_ends_the_connection(make_world: Make, kind: int) -> None:
    world = make_world(fleet=FLEET)
    client, broker = publisher(world)
    client >> unknown_command(kind, b"persistent://acme/shop/orders")
    assert len(broker.heard()) == 1
    client >> unknown_command(kind, b"persistent://acme/shop/orders persistent://public/sluice/front-policies")
    broker << NOTHING
    assert client.is_gone
    (line,) = world.lines(ConnectionLine)
    assert "fleet_topic" in line.detail


def test_what_is_refused_is_in_the_access_log(make_world: Make) -> None:
    world = make_world(fleet=FLEET)
    client, _ = world.pair()
    client >> producer(1, "persistent://public/sluice/front-policies")
    world.advance(40)
    (line,) = world.lines(RejectLine)
    assert (line.reason, line.topic) == ("fleet_topic", "persistent://public/sluice/front-policies")


@pytest.mark.parametrize("name", [b"\xff public/sluice/x", "persistent://public/sluice/@persistent://a/b/c"])
def test_names_that_are_none_are_refused_where_they_might_be_one(name: str | bytes) -> None:
    topics = FleetTopics(Config.model_validate({"broker": "pulsar://a:1", "fleet": FLEET}))
    with pytest.raises(Exception, match="to a fleet"):
        topics.check_name(name)


@pytest.mark.parametrize(
    ("path", "is_fleets"),
    [
        ("/admin/v2/namespaces/public/sluice/permissions/stranger", True),
        ("/admin/v2/persistent/public/sluice/front-policies", True),
        ("/admin/v2/persistent/public/%73luice/front-policies", True),
        ("/admin/v2/persistent/public%252Fsluice/front-policies", True),
        ("/lookup/v2/topic/persistent/public/sluice/front-policies", True),
        ("/admin/v2/persistent/public/default/sluice", False),
        ("/admin/v2/namespaces/public", False),
    ],
)
def test_paths_are_a_fleets_however_they_are_written(path: str, *, is_fleets: bool) -> None:
    topics = FleetTopics(Config.model_validate({"broker": "pulsar://a:1", "fleet": FLEET}))
    assert topics.are_at(path) == is_fleets
