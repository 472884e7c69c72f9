"""What the proxy does with a client's commands. The long stories are told in test_session_publish and …_dispatch."""

import pytest

from protocol.pulsar_pb2 import InvalidTopicName
from proxy.sessions import requests
from tests.proxy.conversation import NOTHING, World, consumer, publisher
from tests.proxy.wire import (
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
    [flow(10, 99), close_producer(99), close_consumer(99), unsubscribe(99), seek(99), redeliver(99), unknown_command()],
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


def test_a_client_with_too_many_open_questions_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST_REQUESTS", 2)
    client, _ = world.pair()
    client >> [subscribe(number) for number in range(3)]
    assert client.is_gone
    assert +world.counters.frame_errors == {"client too_many_requests": 1}


def test_what_was_sent_before_passes_before_the_close(world: World) -> None:
    client, broker = publisher(world)
    client >> [*sends(3), close_producer()]
    broker << [*sends(3), close_producer()]
