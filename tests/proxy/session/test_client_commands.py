"""What the proxy does with a client's commands. The long stories are told in test_session_publish and …_dispatch."""

from collections.abc import Callable
from functools import partial

import pytest
from google.protobuf.message import Message

from protocol.commands import SIZES, body_of, command_in, encode, framed, wrap
from protocol.frames import MOST_COMMAND
from protocol.pulsar_pb2 import (
    CommandCloseProducer,
    CommandConnected,
    CommandProducer,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    FeatureFlags,
    InvalidTopicName,
    KeyValue,
    Schema,
    ServiceNotReady,
    TooManyRequests,
)
from proxy.session import responses
from proxy.session.commands import MOST_READ
from tests.protocol import fields as wire
from tests.proxy.conversation import NOTHING, World, consumer, publisher
from tests.proxy.wire import (
    TOPIC,
    body,
    close_consumer,
    close_producer,
    connect,
    flow,
    redeliver,
    seek,
    send,
    sends,
    subscribe,
    success,
    unknown_command,
    unsubscribe,
)


@pytest.mark.parametrize("kind", [58, 60])
def test_what_only_brokers_say_to_each_other_ends_the_connection_and_goes_nowhere(world: World, kind: int) -> None:
    """A broker would write a marker into any topic that it names, and charge it to nobody."""
    client, broker = publisher(world)
    client >> [send(0), unknown_command(kind), send(1)]
    broker << send(0)
    assert client.is_gone
    assert world.counters.frame_errors == {"client brokers_command": 1}


@pytest.mark.parametrize("kind", range(70, 82))
def test_what_would_lead_around_the_proxy_is_not_offered_and_ends_the_connection(world: World, kind: int) -> None:
    """Answers of Pulsar 5 about scalable topics and transaction coordinators name brokers' own addresses."""
    client = world.client()
    client >> connect()
    broker = world.dialled()
    flags = FeatureFlags(
        supports_topic_watchers=True, supports_scalable_topics=True, supports_tc_metadata_discovery=True
    )
    broker >> CommandConnected(server_version="5", protocol_version=21, feature_flags=flags)
    flags = FeatureFlags(supports_topic_watchers=True)
    client << CommandConnected(server_version="5", protocol_version=21, feature_flags=flags)
    assert world.counters.broker_urls_stripped == 1
    broker.heard()
    client >> unknown_command(kind)
    broker << NOTHING
    assert client.is_gone
    assert world.counters.frame_errors == {"client not_offered": 1}


@pytest.mark.parametrize(
    "frame",
    [close_producer(99), close_consumer(99), unsubscribe(99), seek(99), redeliver(99), unknown_command()],
)
def test_commands_about_what_nobody_opened_pass_as_they_came(world: World, frame: bytes) -> None:
    """The broker will say what it thinks of them."""
    client, broker = world.pair()
    client >> frame
    broker << frame
    client << NOTHING


def test_subscribing_to_what_is_no_topic_is_refused_by_the_proxy(world: World) -> None:
    client, broker = world.pair()
    client >> subscribe(topic="persistent://x")
    broker << NOTHING
    (answer,) = [body(frame) for frame in client.heard()]
    assert (answer.request_id, answer.error) == (307, InvalidTopicName)


def test_a_closed_consumer_is_forgotten_when_the_broker_says_so(world: World) -> None:
    client, broker = consumer(world)
    client >> close_consumer()
    assert len(world.engine.registry.live()) == 1
    broker >> success(407)
    client << success(407)
    assert world.engine.registry.live() == []


def test_permits_pass_as_they_came_while_there_is_no_limit_and_are_counted(world: World) -> None:
    client, broker = consumer(world)
    client >> [flow(1000), flow(500)]
    broker << [flow(1000), flow(500)]
    (stream,) = world.engine.registry.live()
    assert (stream.usage.permits_asked, stream.usage.permits_granted) == (1500, 1500)


def test_permits_for_what_nobody_opened_go_nowhere(world: World) -> None:
    client, broker = world.pair()
    client >> [flow(10, 99), subscribe(99), flow(10, 99)]
    broker << subscribe(99)


def test_questions_beyond_those_without_an_answer_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MOST_REQUESTS", 2)
    client, broker = world.pair()
    client >> [subscribe(number) for number in range(3)]
    broker << [subscribe(0), subscribe(1)]
    (answer,) = [body(frame) for frame in client.heard()]
    assert (answer.request_id, answer.error) == (302, TooManyRequests)
    assert len(world.engine.registry.live()) == 2


def test_a_second_close_is_refused_until_the_first_is_answered(world: World) -> None:
    client, broker = publisher(world)
    client >> [close_producer(), close_producer()]
    broker << close_producer()
    assert [body(frame).error for frame in client.heard()] == [ServiceNotReady]
    broker >> success(201)
    client << success(201)


def test_a_command_with_two_bodies_ends_the_connection(world: World) -> None:
    """Pulsar's decoder takes the second alone, protobuf's merges them."""
    client, broker = world.pair()
    first = CommandProducer(topic=TOPIC, producer_id=1, request_id=101, producer_name="first")
    second = CommandProducer(topic=TOPIC, producer_id=1, request_id=101)
    inside = b"\x08\x05" + b"".join(
        b"\x2a" + bytes([len(command)]) + command for command in (first.SerializeToString(), second.SerializeToString())
    )
    client >> SIZES.pack(len(inside) + 4, len(inside)) + inside
    broker << NOTHING
    assert client.is_gone
    assert world.counters.frame_errors == {"client malformed": 1}


def test_fields_that_the_proxy_does_not_know_do_not_go_on(world: World) -> None:
    """A newer broker could read another command out of them."""
    client, broker = world.pair()
    known = CommandProducer(topic=TOPIC, producer_id=1, request_id=101)
    inside = known.SerializeToString() + b"\xba\x3e\x03new"
    command = b"\x08\x05\x2a" + bytes([len(inside)]) + inside
    client >> SIZES.pack(len(command) + 4, len(command)) + command
    broker << encode(known)
    assert world.counters.fields_left_out == 1


def test_messages_that_are_wanted_again_by_name_are_not_read(world: World) -> None:
    """A client may name a million of them in one command; of what stands in it, nothing matters here."""
    client, broker = consumer(world)
    command = b"\x08\x14" + wire.delimited(20, b"\x08\x07" + bytes(100_000))
    named = SIZES.pack(len(command) + 4, len(command)) + command
    client >> named
    broker << named
    assert not client.is_gone


@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize(
    ("most", "command"),
    [
        (MOST_READ, CommandSeek(consumer_id=7, request_id=1)),
        (MOST_READ, CommandCloseProducer(producer_id=1, request_id=1)),
        (MOST_READ, CommandUnsubscribe(consumer_id=7, request_id=1)),
        (MOST_READ, CommandProducer(topic=TOPIC, producer_id=1, request_id=1)),
        (
            MOST_READ,
            CommandSubscribe(
                topic=TOPIC, subscription="s", consumer_id=1, request_id=1, sub_type=CommandSubscribe.Shared
            ),
        ),
    ],
    ids=["seek", "close", "unsubscribe", "producer", "subscribe"],
)
def test_what_is_to_be_read_has_a_bound(world: World, most: int, command: Message, length: int) -> None:
    client, _ = world.pair()
    beside = 0
    for padding in (most - 100, most + length):  # of the first, what there is beside it is told
        envelope = wrap(command)
        body_of(envelope).MergeFromString(wire.delimited(100, bytes(padding - beside)))
        beside = envelope.ByteSize() - padding
    assert len(command_in(framed(envelope))) == most + length
    client >> framed(envelope)
    assert client.is_gone == bool(length)
    assert +world.counters.frame_errors == ({"client too_large": 1} if length else {})


@pytest.mark.parametrize(
    "kind",
    [
        partial(CommandProducer, topic=TOPIC, producer_id=1, request_id=1),
        partial(
            CommandSubscribe,
            topic=TOPIC,
            subscription="s",
            consumer_id=1,
            request_id=1,
            sub_type=CommandSubscribe.Shared,
        ),
    ],
    ids=["producer", "subscribe"],
)
def test_a_schema_may_be_large_and_what_is_beside_it_may_not(
    world: World, kind: Callable[..., CommandProducer | CommandSubscribe]
) -> None:
    client, broker = world.pair()
    command = kind(schema=Schema(name="s", schema_data=bytes(10 * MOST_READ), type=Schema.Json))
    client >> encode(command)
    assert len(broker.heard_names()) == 1
    command.schema.properties.extend(KeyValue(key="", value="") for _ in range(MOST_READ // 6))
    client >> encode(command)
    assert client.is_gone
    assert +world.counters.frame_errors == {"client too_large": 1}


def test_what_is_read_has_a_bound_with_a_schema_too(world: World) -> None:
    client, _ = world.pair()
    schema = Schema(name="s", schema_data=bytes(MOST_COMMAND), type=Schema.Json)
    client >> encode(CommandProducer(topic=TOPIC, producer_id=1, request_id=1, schema=schema))
    assert client.is_gone
    assert +world.counters.frame_errors == {"client too_large": 1}


def test_what_was_sent_before_passes_before_the_close(world: World) -> None:
    client, broker = publisher(world)
    client >> [*sends(3), close_producer()]
    broker << [*sends(3), close_producer()]
