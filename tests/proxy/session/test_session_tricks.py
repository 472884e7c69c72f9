"""What a client may try to get past its limit."""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandGetLastMessageId, CommandProducerSuccess, CommandUnsubscribe, ServiceNotReady
from tests.proxy.conversation import NOTHING, World, publisher
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    PONG,
    TOPIC,
    close_producer,
    connect,
    error,
    producer,
    send,
    sends,
    success,
)

Make = Callable[..., World]
UNSUBSCRIBE = encode(CommandUnsubscribe(consumer_id=99, request_id=201))
"""With the request id that `close_producer()` has."""
ONE_A_SECOND = {"topics": {TOPIC: {"publish": {"messages": 1}}}}


def test_a_send_of_a_producer_that_nobody_opened_goes_nowhere(world: World) -> None:
    """No limit would meter it; the broker would ignore it or end the connection."""
    client, broker = world.pair()
    client >> [send(0, producer_id=99), PING]
    broker << [PING]
    assert world.counters.entries_ignored == 1


@pytest.mark.parametrize("other", [{"topic": OTHER_TOPIC}, {"producer_name": "other"}], ids=["topic", "name"])
def test_a_producer_id_in_use_keeps_its_limit(make_world: Make, other: dict[str, Any]) -> None:
    """The broker would answer with the first producer's success: a free topic's name would lift its limit."""
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> [producer(request_id=50, **other), *sends(3)]
    broker << send(0)
    client << error(50, ServiceNotReady, "producer id 1 of this connection is in use")
    client >> sends(2, start=3)
    broker << NOTHING
    world.advance(2)
    broker << [send(1), send(2)]


def test_an_id_that_is_opened_under_another_name_while_it_closes_stays_what_it_is(make_world: Make) -> None:
    """The broker answers the second PRODUCER with the first one's success, and then the CLOSE."""
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> [producer(topic=OTHER_TOPIC, request_id=2), close_producer(), producer(request_id=4)]
    broker << close_producer()
    in_use = "producer id 1 of this connection is in use"
    client << [error(2, ServiceNotReady, in_use), error(4, ServiceNotReady, in_use)]
    broker >> success(201)
    client << success(201)
    assert world.engine.registry.live() == []


def test_an_error_for_a_command_that_is_not_followed_refuses_no_producer(make_world: Make) -> None:
    """Both have the client's request id 5; the broker refuses the first and lets the producer in."""
    world = make_world(limits=ONE_A_SECOND)
    client, broker = world.pair()
    asks = encode(CommandGetLastMessageId(consumer_id=99, request_id=5))
    client >> [asks, producer(request_id=5)]
    assert broker.heard()[0] == asks
    broker.send_bytes(error(5))
    client << error(5)
    client >> producer(topic=OTHER_TOPIC, request_id=6)
    client << error(6, ServiceNotReady, "producer id 1 of this connection is in use")
    broker >> CommandProducerSuccess(request_id=5, producer_name="late")
    client << CommandProducerSuccess(request_id=5, producer_name="late")
    client >> sends(2)
    broker << send(0)


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


def test_what_clients_say_before_they_are_connected_through_is_counted_and_bounded(make_world: Make) -> None:
    world = make_world(client_memory={"connection": "300KiB", "total": "1MiB"})
    half = connect(auth_data=bytes(200 * 1024))[: 150 * 1024]
    clients = [world.client() for _ in range(5)]
    for client in clients:
        client >> half
    assert world.engine.memory.used == 3 * len(half), "one address has half"
    assert [client.is_gone for client in clients] == [False, False, False, True, True]
    for client in clients[:3]:
        client.leave()
    assert world.engine.memory.used == 0
    whole = world.client()
    whole >> connect(auth_data=bytes(200 * 1024))
    assert world.engine.memory.used > 200 * 1024, "redirects are followed with it"
    whole.leave()
    assert world.engine.memory.used == 0


def test_a_blocked_client_that_asks_without_end_lets_others_have_their_turns(make_world: Make) -> None:
    world = make_world(blocks=[{"address": "192.0.2.7"}])
    client = world.client()
    client >> connect()
    client.heard()
    client.send_bytes(PING * 1000)
    world.advance(1)
    assert client.heard() == [PONG] * 1000
    assert world.counters.pauses["client turn"] == 3
