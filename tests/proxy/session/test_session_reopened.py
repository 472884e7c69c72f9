"""Streams that a client opens once more while they are open, as clients do that reconnect within a connection.

A broker answers such a command with success and changes nothing (`tests/real/test_broker_model.py`).
"""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import (
    AuthorizationError,
    CommandCloseConsumer,
    CommandCloseProducer,
    ProducerBusy,
    ServiceNotReady,
)
from tests.proxy.blocks import OWN, block
from tests.proxy.conversation import NOTHING, Broker, Peer, World, consumer, publisher
from tests.proxy.wire import (
    NO_REQUEST,
    OTHER_TOPIC,
    TOPIC,
    body,
    close_producer,
    error,
    flow,
    message,
    name_of,
    producer,
    producer_success,
    send,
    sends,
    subscribe,
    success,
)

Make = Callable[..., World]
ONE_A_SECOND = {"topics": {TOPIC: {"publish": {"messages": 1}, "dispatch": {"messages": 1}}}}
NAMED: dict[str, Any] = {"producer_name": "named-by-broker", "user_provided_producer_name": False}
CLOSED = "it was closed while it was opened once more"
KINDS = ["producer", "consumer"]


def opened(world: World, kind: str) -> tuple[Peer, Peer, Callable[..., bytes], bytes]:
    """A client and its broker with an open stream; a function that makes the opening; the broker's CLOSE of it."""
    if kind == "producer":
        return *publisher(world), producer, encode(CommandCloseProducer(producer_id=1, request_id=NO_REQUEST))
    return *consumer(world), subscribe, encode(CommandCloseConsumer(consumer_id=7, request_id=NO_REQUEST))


def answer(kind: str, request_id: int) -> bytes:
    return producer_success(request_id=request_id) if kind == "producer" else success(request_id)


@pytest.mark.parametrize("more", [NAMED, {"epoch": 5, **NAMED}, {}], ids=["named", "next-epoch", "unnamed"])
def test_an_open_producer_is_opened_once_more(make_world: Make, more: dict[str, Any]) -> None:
    """An unnamed one is named, so that a broker which has closed it opens one of no other name."""
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> send(0)
    broker << send(0)
    client >> [producer(request_id=9, **more), *sends(2, start=1)]
    broker << producer(request_id=9, **{**NAMED, **more})
    broker >> producer_success(request_id=9)
    client << producer_success(request_id=9)
    world.advance(1)
    broker << send(1)
    assert len(world.engine.registry.live()) == 1


def test_an_open_consumer_is_opened_once_more(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = consumer(world, permits=1000)
    client >> [subscribe(request_id=9, consumer_epoch=1), flow(5)]
    broker << subscribe(request_id=9, consumer_epoch=1)
    broker >> success(9)
    client << success(9)
    broker >> [message(0), message(1)]
    client << message(0)
    assert len(world.engine.registry.live()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_reopening_waits_for_one_answer_at_a_time(world: World, kind: str) -> None:
    client, broker, opening, _ = opened(world, kind)
    client >> [opening(request_id=8), opening(request_id=9)]
    assert len(broker.heard()) == 1
    assert [(name_of(frame), body(frame).request_id) for frame in client.heard()] == [("ERROR", 9)]
    broker >> answer(kind, 8)
    client << answer(kind, 8)
    client >> opening(request_id=10)
    assert len(broker.heard()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_reopening_leaves_the_stream_open(world: World, kind: str) -> None:
    client, broker, opening, _ = opened(world, kind)
    client >> opening(request_id=9)
    broker.heard()
    broker >> error(9, AuthorizationError)
    client << error(9, AuthorizationError)
    assert len(world.engine.registry.live()) == 1
    client >> opening(request_id=10)
    assert len(broker.heard()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_reopening_is_refused_when_the_broker_closes(world: World, kind: str) -> None:
    """The broker may have opened the stream anew; so the proxy closes that one, too, before the id is free."""
    client, broker, opening, closed = opened(world, kind)
    assert isinstance(broker, Broker)
    broker.lets_go = False
    client >> opening(request_id=9)
    broker.heard()
    broker >> closed
    client << [error(9, ServiceNotReady, CLOSED), closed]
    assert broker.heard_names() == [name_of(closed)]
    broker >> answer(kind, 9)
    client << NOTHING
    client >> opening(request_id=10)
    assert client.heard_names() == ["ERROR"]
    broker >> success(OWN)
    client >> opening(request_id=11)
    assert len(broker.heard()) == 1
    assert len(world.engine.registry.live()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_reopening_is_refused_when_the_stream_is_blocked(world: World, kind: str) -> None:
    client, broker, opening, closed = opened(world, kind)
    client >> opening(request_id=9)
    broker.heard()
    block(world, "topic", TOPIC)
    client << [error(9, ServiceNotReady, CLOSED), closed]
    assert len(broker.heard()) == 1


def test_a_reopening_is_refused_when_its_client_closes(world: World) -> None:
    """The broker authorizes a PRODUCER first, so the producer may be there after the answer to the CLOSE."""
    client, broker = publisher(world)
    client >> [producer(request_id=9, **NAMED), close_producer()]
    broker.heard()
    broker >> success(201)
    client << [error(9, ServiceNotReady, CLOSED), success(201)]
    client >> producer(topic=OTHER_TOPIC, request_id=10)
    assert client.heard_names() == ["ERROR"]
    broker >> producer_success(request_id=9)
    assert broker.heard_names() == ["CLOSE_PRODUCER"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_in_creation_is_not_opened_once_more(world: World, kind: str) -> None:
    """As at the broker: the former opening goes on."""
    client, broker = world.pair()
    opening = producer if kind == "producer" else subscribe
    client >> [opening(request_id=8), opening(request_id=9)]
    assert len(broker.heard()) == 1
    assert [body(frame).request_id for frame in client.heard()] == [9]
    broker >> answer(kind, 8)
    client << answer(kind, 8)


def test_a_failed_stream_is_opened_anew(world: World) -> None:
    client, broker = world.pair()
    client >> producer(request_id=8)
    broker.heard()
    broker >> error(8, ProducerBusy)
    client << error(8, ProducerBusy)
    client >> producer(topic=OTHER_TOPIC, request_id=9)
    broker << producer(topic=OTHER_TOPIC, request_id=9)


def test_a_reopening_that_waits_is_answered_twice(world: World) -> None:
    """A producer that waits for exclusive access: it was closed meanwhile, and is opened anew."""
    client, broker = publisher(world)
    client >> producer(request_id=9, **NAMED)
    broker.heard()
    for is_ready in False, True:
        broker >> producer_success(request_id=9, producer_ready=is_ready)
        client << producer_success(request_id=9, producer_ready=is_ready)
    client >> producer(request_id=10, **NAMED)
    broker << producer(request_id=10, **NAMED)


@pytest.mark.parametrize(
    "other",
    [{"topic": OTHER_TOPIC}, {"subscription": "other"}, {"consumer_name": "other"}],
    ids=lambda fields: next(iter(fields)),
)
def test_another_consumer_under_an_open_id_is_refused(world: World, other: dict[str, Any]) -> None:
    client, broker = consumer(world)
    client >> subscribe(request_id=9, **other)
    client << error(9, ServiceNotReady, "consumer id 7 of this connection is in use")
    broker << NOTHING


def test_a_session_may_end_while_a_stream_is_reopened(world: World) -> None:
    client, broker = publisher(world)
    client >> producer(request_id=9, **NAMED)
    broker.heard()
    client.leave()
    client << NOTHING
    assert world.engine.registry.live() == []
