"""Clients and brokers that are hostile while a process drains: it ends in its time, and no neighbour notices."""

from collections.abc import Callable, Iterator

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseProducer
from proxy.drain import DrainOutcome, Phase
from tests.proxy.conversation import Peer, World, consumer, publisher
from tests.proxy.test_drain import Draining, Make, hang_up
from tests.proxy.wire import (
    OTHER_TOPIC,
    body,
    messages,
    name_of,
    producer,
    producer_success,
    receipt,
    send,
    sends,
    success,
)

TIMEOUT_S = 6
TICKS_A_SECOND = 10
NEIGHBOUR_S = 2.0
"""In which a well-behaved client has left: the period, and the time until the broker has closed its producer."""
MOST_KEPT = 1024 * 1024
"""Bytes that one client may have the process keep."""
MOST_OF_NEIGHBOUR = 16 * 1024
Hostile = Callable[[World], Iterator[None]]
"""Opens a connection, and does its worst; each step takes a tenth of a second. The drain begins after the first one."""


def answer_all(broker: Peer) -> list[bytes]:
    """Answer requests for producers, and for their end; return what has come."""
    heard = broker.heard()
    for frame in heard:
        if name_of(frame) == "PRODUCER":
            broker >> producer_success(body(frame).producer_id)
        elif name_of(frame).startswith("CLOSE"):
            broker >> success(body(frame).request_id)
    return heard


def client_that_ignores_its_close(world: World) -> Iterator[None]:
    client, broker = publisher(world)
    number = 0
    while True:
        client >> sends(50, start=number)
        number += 50
        answer_all(broker)
        yield


def client_that_opens_producers_without_end(world: World) -> Iterator[None]:
    client, broker = publisher(world)
    number = 1
    while True:
        opened = range(number + 1, number + 21)
        client >> [producer(each, OTHER_TOPIC) for each in opened]
        answer_all(broker)
        number += 20
        yield


def client_that_asks_a_broker_that_is_silent(world: World) -> Iterator[None]:
    client, _broker = publisher(world)
    number = 1
    while True:
        number += 1
        client >> producer(number, OTHER_TOPIC)
        yield


def client_that_sends_a_head_a_byte_at_a_time(world: World) -> Iterator[None]:
    client, broker = publisher(world)
    for byte in send(0, size=5000):
        client.send_bytes(bytes([byte]))
        answer_all(broker)
        yield


def client_that_sends_an_entry_a_byte_at_a_time(world: World) -> Iterator[None]:
    """The broker has the first part of it: nothing else can go to that one until it is whole."""
    client, broker = publisher(world)
    frame = send(0, size=5000)
    client.send_bytes(frame[:100])
    for byte in frame[100:]:
        client.send_bytes(bytes([byte]))
        answer_all(broker)
        yield


def client_that_resets(world: World) -> Iterator[None]:
    client, broker = publisher(world)
    client >> sends(5)
    yield
    broker.heard()
    client.leave(ConnectionResetError())
    while True:
        yield


def client_that_sends_its_end_and_stays(world: World) -> Iterator[None]:
    client, broker = publisher(world)
    client >> sends(5)
    yield
    client.half_close()
    while True:
        answer_all(broker)
        yield


def client_that_reads_nothing(world: World) -> Iterator[None]:
    client, broker = consumer(world, permits=100_000)
    client.stop_reading()
    number = 0
    while True:
        if not broker.is_gone and broker.is_read:
            broker >> messages(200, start=number)
        number += 200
        answer_all(broker)
        yield


def broker_that_answers_nothing(world: World) -> Iterator[None]:
    client, _broker = publisher(world)
    client >> sends(5)
    while True:
        yield


def broker_that_closes_at_the_same_time(world: World) -> Iterator[None]:
    client, broker = publisher(world)
    while True:
        if not broker.is_gone:
            broker.send_bytes(encode(CommandCloseProducer(producer_id=1, request_id=2**64 - 1)))
        yield
        answer_all(broker)
        hang_up(client)


def broker_that_answers_what_nobody_asked(world: World) -> Iterator[None]:
    """Receipts of producers and entries that there are not, and answers to requests of nobody."""
    client, broker = publisher(world)
    client >> sends(5)
    number = 0
    while True:
        if not broker.is_gone:
            strange = [receipt(each, producer_id=each) for each in range(number, number + 20)]
            broker.send_bytes(b"".join([*strange, *(success(2**40 + each) for each in range(20))]))
        number += 20
        yield


def broker_that_resets(world: World) -> Iterator[None]:
    client, broker = publisher(world)
    client >> sends(5)
    yield
    broker.leave(ConnectionResetError())
    while True:
        yield


def broker_that_reads_nothing(world: World) -> Iterator[None]:
    client, broker = publisher(world)
    broker.stop_reading()
    number = 0
    while True:
        if client.is_read and not client.is_gone:
            client >> sends(50, start=number, size=1000)
        number += 50
        yield


HOSTILE: tuple[Hostile, ...] = (
    client_that_ignores_its_close,
    client_that_opens_producers_without_end,
    client_that_asks_a_broker_that_is_silent,
    client_that_sends_a_head_a_byte_at_a_time,
    client_that_sends_an_entry_a_byte_at_a_time,
    client_that_resets,
    client_that_sends_its_end_and_stays,
    client_that_reads_nothing,
    broker_that_answers_nothing,
    broker_that_closes_at_the_same_time,
    broker_that_answers_what_nobody_asked,
    broker_that_resets,
    broker_that_reads_nothing,
)


@pytest.mark.parametrize("hostile", HOSTILE, ids=[each.__name__.replace("_", " ") for each in HOSTILE])
def test_drain_beside_hostile_peers_ends_unnoticed(make_world: Make, hostile: Hostile) -> None:
    world = make_world(drain={"delay": 0, "period": 1, "timeout": TIMEOUT_S}, client_memory={"connection": MOST_KEPT})
    draining = Draining(world)
    worst = hostile(world)
    next(worst)
    neighbour, its_broker = publisher(world, address="192.0.2.9")
    draining.begin()
    passed, left_at = list[bytes](), 0.0
    for tick in range(TIMEOUT_S * TICKS_A_SECOND + 1):
        next(worst)
        if not neighbour.transport.is_eof_sent:
            neighbour >> send(tick)
        draining.advance(1 / TICKS_A_SECOND)
        passed += [frame for frame in answer_all(its_broker) if name_of(frame) == "SEND"]
        if neighbour.transport.is_eof_sent and not left_at:
            left_at = tick / TICKS_A_SECOND
            assert neighbour.heard_names() == ["CLOSE_PRODUCER"]
            hang_up(neighbour)
        assert world.engine.memory.used <= MOST_KEPT + MOST_OF_NEIGHBOUR
        if draining.service.phase is Phase.DRAINED:
            break
    assert 0 < left_at <= NEIGHBOUR_S
    assert passed == [send(number) for number in range(len(passed))]
    assert draining.service.phase is Phase.DRAINED
    assert draining.service.outcome in {DrainOutcome.MOVED, DrainOutcome.TIME_OVER}
    world.advance(world.config.linger + 1)
    assert all(session.has_ended for session in world.sessions)
