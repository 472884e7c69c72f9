"""What a client may try to get past its limit."""

from collections.abc import Callable

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandProducerSuccess, CommandUnsubscribe
from tests.proxy.conversation import NOTHING, World, publisher
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    TOPIC,
    close_producer,
    error,
    producer,
    send,
    sends,
    success,
)

Make = Callable[..., World]
ACCEPTED = encode(CommandProducerSuccess(request_id=50, producer_name="another"))
UNSUBSCRIBE = encode(CommandUnsubscribe(consumer_id=99, request_id=201))
"""With the request id that `close_producer()` has."""
ONE_A_SECOND = {"topics": {TOPIC: {"publish": {"messages": 1}}}}


def test_a_send_of_a_producer_that_nobody_opened_goes_nowhere(world: World) -> None:
    """No limit would meter it; the broker would ignore it or end the connection."""
    client, broker = world.pair()
    client >> [send(0, producer_id=99), PING]
    broker << [PING]
    assert world.counters.entries_ignored == 1


@pytest.mark.parametrize("answer", [error(50), ACCEPTED], ids=["refused", "accepted"])
@pytest.mark.parametrize("topic", [TOPIC, OTHER_TOPIC])
def test_a_producer_id_in_use_keeps_its_limit(make_world: Make, topic: str, answer: bytes) -> None:
    """The broker keeps the first producer, whatever it answers; else a free topic's name would lift the limit."""
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> [producer(topic=topic, request_id=50), *sends(3)]
    broker << [producer(topic=topic, request_id=50), send(0)]
    broker >> answer
    client << answer
    client >> sends(2, start=3)
    broker << NOTHING
    world.advance(2)
    broker << [send(1), send(2)]


def test_a_request_id_in_use_ends_the_connection(make_world: Make) -> None:
    """Its answer could not be told from the other's."""
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> [*sends(2), close_producer()]
    broker << send(0)
    client >> close_producer()
    assert client.is_gone
    assert world.counters.frame_errors == {"client request_id_reused": 1}


def test_somebody_elses_answer_closes_no_producer(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> [*sends(3), close_producer(), UNSUBSCRIBE]
    broker << [send(0), UNSUBSCRIBE]
    broker >> error(201)
    client << error(201)
    client >> sends(5, start=3)
    world.advance(2)
    broker << [send(1), send(2), close_producer()]
    broker >> success(201)
    client << success(201)


def test_a_large_frame_that_goes_nowhere_may_come_in_pieces(world: World) -> None:
    client, broker = world.pair()
    frame = send(0, producer_id=99, size=5000)
    client.send_bytes(frame[:700])
    client.send_bytes(frame[700:3000])
    client.send_bytes(frame[3000:] + PING)
    broker << PING
