"""Publish limits in conversation: who waits, in which order, and what ends the waiting."""

from collections.abc import Callable
from typing import Any

import pytest

from accesslog.record import IntervalLine
from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseProducer, CommandProducerSuccess, InvalidTopicName, TooManyRequests
from proxy.budgets import ENTRY_OVERHEAD
from proxy.session import streams
from tests.proxy.conversation import NOTHING, World, publisher
from tests.proxy.wire import (
    NO_REQUEST,
    OTHER_TOPIC,
    PING,
    TOPIC,
    body,
    close_producer,
    error,
    message,
    producer,
    producer_success,
    send,
    sends,
    subscribe,
    success,
)

Make = Callable[..., World]
ONE_A_SECOND = {"topics": {TOPIC: {"publish": {"messages": 1}}}}


def limits(**publish: Any) -> dict[str, Any]:
    return {"topics": {TOPIC: {"publish": publish}}}


def test_a_producer_over_its_limit_waits_second_by_second(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> sends(3)
    broker << send(0)
    world.advance(0.999)
    broker << NOTHING
    world.advance(0.001)
    broker << send(1)
    world.advance(1)
    broker << send(2)
    assert client.is_read


def test_a_neighbour_on_the_same_connection_passes_at_once(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> [send(0, 1), send(0, 2), send(1, 1), send(1, 2), send(2, 2), PING]
    broker << [send(0, 1), send(0, 2), send(1, 2), send(2, 2), PING]
    client >> [send(2, 1), send(3, 2)]
    broker << send(3, 2)
    world.advance(2)
    broker << [send(1, 1), send(2, 1)]


def test_what_is_within_the_limit_passes_as_it_came(make_world: Make) -> None:
    world = make_world(limits=limits(messages=100, burst_messages=50))
    client, broker = publisher(world)
    frames = b"".join(sends(50))
    for start in range(0, len(frames), 7):
        client.send_bytes(frames[start : start + 7])
    broker << sends(50)
    client >> send(50)
    broker << NOTHING


def test_a_batch_counts_as_its_messages_and_leaves_a_debt(make_world: Make) -> None:
    world = make_world(limits=limits(messages=10))
    client, broker = publisher(world)
    client >> [send(0, messages=30), send(1)]
    broker << send(0, messages=30)
    world.advance(2.9)
    broker << NOTHING
    world.advance(0.1)
    broker << send(1)


def test_bytes_are_limited_like_messages(make_world: Make) -> None:
    world = make_world(limits=limits(bytes=1000, burst_bytes=100))
    client, broker = publisher(world)
    client >> [send(0, size=500), send(1, size=500)]
    broker << send(0, size=500)
    world.advance(0.4)
    broker << NOTHING
    world.advance(0.001)
    broker << send(1, size=500)


def test_a_namespace_total_holds_over_all_its_topics(make_world: Make) -> None:
    world = make_world(limits={"namespaces": {"acme/shop": {"publish_total": {"messages": 1}}}})
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> [send(0, 1), send(0, 2)]
    broker << send(0, 1)
    world.advance(1)
    broker << send(0, 2)


def test_those_who_wait_on_one_limit_take_turns(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    other, others_broker = publisher(world)
    client >> sends(4)
    broker << send(0)
    other >> sends(4)
    world.advance(6)
    assert len(broker.heard()) == 3
    assert len(others_broker.heard()) == 3


@pytest.mark.parametrize("topic", ["persistent://acme/shop/__change_events", "persistent://pulsar/system/x"])
def test_pulsars_own_topics_have_no_limit(make_world: Make, topic: str) -> None:
    limit = {"publish": {"messages": "1/h"}}
    world = make_world(limits={"namespaces": {"acme/shop": limit, "pulsar/system": limit}})
    client, broker = publisher(world, producer(2, topic))
    client >> sends(5, producer_id=2)
    broker << sends(5, producer_id=2)


def test_closing_a_producer_waits_behind_what_it_sent(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> [*sends(2), close_producer()]
    broker << send(0)
    world.advance(1)
    broker << [send(1), close_producer()]
    broker >> success(201)
    client << success(201)
    assert world.engine.registry.live() == []


def test_closing_a_producer_that_holds_nothing_passes_at_once(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> [send(0), close_producer()]
    broker << [send(0), close_producer()]


def test_a_producer_that_the_broker_closes_loses_what_it_held(make_world: Make) -> None:
    """No receipt was given: the client sends it again to its next producer."""
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> sends(3)
    broker << send(0)
    broker >> close_producer()
    client << close_producer()
    assert world.engine.held.used == 0
    world.advance(5)
    broker << NOTHING
    assert sum(line.dropped_messages for line in world.lines(IntervalLine)) == 2


def test_incomplete_frame_of_closed_producer_counts_as_dropped(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> send(0)
    broker << send(0)
    half = send(1, size=1000)
    client.send_bytes(half[:500])
    broker >> close_producer()
    client << close_producer()
    client.send_bytes(half[500:] + PING)
    broker << PING
    world.advance(5)
    lines = world.lines(IntervalLine)
    assert sum(line.offered_messages - line.passed_messages for line in lines) == 1
    assert sum(line.dropped_messages for line in lines) == 1
    assert sum(line.dropped_bytes for line in lines) == 1000


def test_a_reconnect_finds_the_same_debt(make_world: Make) -> None:
    """Limits belong to topics, not to connections."""
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> [send(0, messages=5), send(1)]
    broker << send(0, messages=5)
    client.leave()
    client, broker = publisher(world)
    client >> send(1)
    world.advance(4.9)
    broker << NOTHING
    world.advance(0.1)
    broker << send(1)


def test_a_client_that_leaves_frees_its_turn_and_its_bytes_at_once(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    other, others_broker = publisher(world)
    client >> sends(100)
    other >> sends(3)
    client.leave()
    assert world.engine.held.used == sum(len(frame) + ENTRY_OVERHEAD for frame in sends(3))
    world.advance(3)
    others_broker << sends(3)


def test_a_refused_producer_is_forgotten(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = world.pair()
    client >> producer()
    broker << producer()
    broker >> error(101)
    client << error(101)
    assert world.engine.registry.live() == []


def test_producer_awaiting_exclusive_access_needs_two_answers(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = world.pair()
    client >> producer()
    broker << producer()
    broker >> producer_success(producer_ready=False)
    client << producer_success(producer_ready=False)
    client >> sends(2)
    broker << NOTHING
    broker >> producer_success(name="late")
    client >> sends(2)
    broker << send(0)
    assert [stream.name.producer_name for stream in world.engine.registry.live()] == ["late"]


def test_a_producer_that_is_opened_again_begins_anew_under_the_same_limit(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> sends(3)
    broker << send(0)
    broker >> encode(CommandCloseProducer(producer_id=1, request_id=NO_REQUEST))
    client >> producer(request_id=9)
    broker << producer(request_id=9)
    broker >> CommandProducerSuccess(request_id=9, producer_name="again")
    client >> send(7)
    broker << NOTHING
    world.advance(1)
    broker << send(7)
    world.advance(5)
    broker << NOTHING


def test_a_name_that_is_no_topic_is_refused_by_the_proxy(world: World) -> None:
    client, broker = world.pair()
    client >> [producer(topic="persistent://half"), PING]
    broker << PING
    (answer,) = [body(frame) for frame in client.heard()]
    assert (answer.request_id, answer.error) == (101, InvalidTopicName)
    assert "'persistent://half' is not a topic name" in answer.message


def test_a_connection_has_a_bounded_number_of_producers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_STREAMS", 2)
    client, broker = world.pair()
    client >> [producer(1), producer(2), producer(3)]
    broker << [producer(1), producer(2)]
    (answer,) = [body(frame) for frame in client.heard()]
    assert (answer.request_id, answer.error) == (103, TooManyRequests)


def test_held_frames_never_land_inside_another_frame(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> sends(2)
    broker << send(0)
    large = send(0, producer_id=2, size=5000)
    client.send_bytes(large[:1000])
    world.advance(1)
    broker << send(1)
    client.send_bytes(large[1000:])
    broker << large


def test_what_is_held_may_arrive_in_pieces_while_others_pass(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world, producer(2, OTHER_TOPIC), subscribe())
    client >> send(0)
    broker << send(0)
    frames = send(1, size=3000) + send(0, producer_id=2) + send(2, size=30)
    for start in range(0, len(frames), 11):
        client.send_bytes(frames[start : start + 11])
        broker >> message(start)
    broker << send(0, producer_id=2)
    assert len(client.heard()) == len(range(0, len(frames), 11))
    world.advance(2)
    broker << [send(1, size=3000), send(2, size=30)]
