"""What the proxy does with a client's commands. The long stories are told in test_session_publish and …_dispatch."""

import pytest

from protocol.commands import SIZES, encode
from protocol.pulsar_pb2 import CommandProducer, InvalidTopicName, ServiceNotReady, TooManyRequests
from proxy.sessions import requests
from tests.proxy.conversation import NOTHING, World, consumer, publisher
from tests.proxy.wire import (
    TOPIC,
    body,
    close_consumer,
    close_producer,
    flow,
    redeliver,
    seek,
    sends,
    subscribe,
    success,
    unknown_command,
    unsubscribe,
)


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
    monkeypatch.setattr(requests, "MOST_REQUESTS", 2)
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
        b"\x2a" + bytes([len(one)]) + one for one in (first.SerializeToString(), second.SerializeToString())
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


def test_what_was_sent_before_passes_before_the_close(world: World) -> None:
    client, broker = publisher(world)
    client >> [*sends(3), close_producer()]
    broker << [*sends(3), close_producer()]
