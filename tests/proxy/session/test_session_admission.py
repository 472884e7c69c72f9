"""Bounds on producers and consumers, in conversation: each place is given back, whatever the end."""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.pulsar_pb2 import (
    ConsumerBusy,
    NotAllowedError,
    ProducerBusy,
    ServiceNotReady,
)
from proxy.admission_control import BoundName
from tests.proxy.conversation import BROKER, NOTHING, Peer, World
from tests.proxy.wire import (
    OTHER_TOPIC,
    TOPIC,
    body,
    close_consumer,
    close_producer,
    connect,
    error,
    producer,
    producer_success,
    send,
    subscribe,
    success,
    unsubscribe,
)

Make = Callable[..., World]
DATA = f"{BROKER[0]}:{BROKER[1]}"
SYSTEM_TOPIC = "persistent://acme/shop/__change_events"
TWO_PRODUCERS = "producers of one topic: at most 2 (admission.max_producers_per_topic)"
ONE_CONSUMER = "consumers of one subscription: at most 1 (admission.max_consumers_per_subscription)"


def bounded(make_world: Make, **bounds: Any) -> World:
    return make_world(admission=bounds)


def opened(client: Peer, broker: Peer, *producer_ids: int, topic: str = TOPIC) -> None:
    for producer_id in producer_ids:
        client >> producer(producer_id, topic)
        broker << producer(producer_id, topic)
        broker >> producer_success(producer_id)
        client << producer_success(producer_id)


def subscribed(client: Peer, broker: Peer, consumer_id: int = 7, **more: Any) -> None:
    client >> subscribe(consumer_id, **more)
    broker << subscribe(consumer_id, **more)
    broker >> success(300 + consumer_id)
    client << success(300 + consumer_id)


# ---- producers


def test_a_producer_too_many_gets_producer_busy_and_the_broker_does_not_hear_of_it(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=2)
    client, broker = world.pair(DATA)
    other, other_broker = world.pair(DATA, "192.0.2.8")
    opened(client, broker, 1)
    opened(other, other_broker, 1)
    client >> producer(2)
    client << error(102, ProducerBusy, TWO_PRODUCERS)
    broker << NOTHING
    opened(client, broker, 3, topic=OTHER_TOPIC)
    assert world.counters.not_admitted == {BoundName.PRODUCERS: 1}


def test_each_partition_has_its_own_producers(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=1)
    client, broker = world.pair(DATA)
    opened(client, broker, 1, topic=f"{TOPIC}-partition-0")
    opened(client, broker, 2, topic=f"{TOPIC}-partition-1")


def closed_by_client(client: Peer, broker: Peer) -> None:
    client >> close_producer(1)
    broker >> success(201)


def closed_by_broker(_client: Peer, broker: Peer) -> None:
    broker >> close_producer(1)


def left(client: Peer, _broker: Peer) -> None:
    client.leave()


def reset(_client: Peer, broker: Peer) -> None:
    broker.leave(ConnectionResetError("reset by peer"))


def half_closed(client: Peer, _broker: Peer) -> None:
    client.half_close()


@pytest.mark.parametrize("end", [closed_by_client, closed_by_broker, left, reset, half_closed])
def test_a_place_is_free_again_however_the_producer_ended(make_world: Make, end: Callable[[Peer, Peer], None]) -> None:
    world = bounded(make_world, max_producers_per_topic=1)
    client, broker = world.pair(DATA)
    opened(client, broker, 1)
    other, other_broker = world.pair(DATA)
    other >> producer(2)
    assert other.heard_names() == ["ERROR"]
    end(client, broker)
    opened(other, other_broker, 2)
    other >> producer(3)
    assert other.heard_names() == ["ERROR"], "one place, not two"


def test_a_place_is_free_again_if_the_broker_refuses(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=1)
    client, broker = world.pair(DATA)
    client >> producer(1)
    broker.heard()
    broker >> error(101)
    client << error(101)
    opened(client, broker, 2)


def test_a_producer_that_is_opened_anew_under_its_id_takes_its_own_place(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=1)
    client, broker = world.pair(DATA)
    opened(client, broker, 1)
    client >> close_producer(1)
    broker << close_producer(1)
    broker >> success(201)
    client >> producer(1, request_id=7)
    broker << producer(1, request_id=7)
    broker >> error(7)
    client.heard()
    opened(client, broker, 1)


def test_one_that_is_still_being_closed_has_its_place(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=1)
    client, broker = world.pair(DATA)
    opened(client, broker, 1)
    client >> [close_producer(1), producer(2)]
    broker << close_producer(1)
    assert client.heard_names() == ["ERROR"]


def heard_of(client: Peer) -> list[int]:
    """The errors that it was told."""
    return [body(frame).error for frame in client.heard()]


OPENING = (
    "producers of one topic: at most 4, and one address may have no more waiting for the broker than are free "
    "(admission.max_producers_per_topic)"
)


def test_refused_address_leaves_a_place_however_often_it_asks(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=4)
    strangers = [world.pair(DATA) for _ in range(2)]
    neighbour, its_broker = world.pair(DATA, "192.0.2.8")
    for attempt in range(0, 60, 3):
        for client, _broker in strangers:
            client >> [producer(producer_id, request_id=producer_id) for producer_id in range(attempt, attempt + 3)]
        opened(neighbour, its_broker, 1)
        neighbour >> close_producer(1)
        its_broker.heard()
        its_broker >> success(201)
        neighbour << success(201)
        for client, broker in strangers:
            assert set(heard_of(client)) <= {ServiceNotReady}
            broker >> [error(body(frame).request_id) for frame in broker.heard()]
            client.heard()


def test_an_address_with_as_many_opening_as_are_free_is_told_to_come_again(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=4)
    client, broker = world.pair(DATA)
    client >> [producer(1), producer(2), producer(3)]
    broker << [producer(1), producer(2)]
    client << error(103, ServiceNotReady, OPENING)
    assert world.counters.not_admitted == {BoundName.PRODUCERS: 1}
    broker >> [producer_success(1), producer_success(2)]
    client << [producer_success(1), producer_success(2)]
    opened(client, broker, 3, 4)
    client >> producer(5)
    assert heard_of(client) == [ProducerBusy]


def test_a_producer_that_waits_at_the_broker_for_others_to_go_has_been_accepted(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=3)
    client, broker = world.pair(DATA)
    for producer_id in (1, 2, 3):
        client >> producer(producer_id)
        broker << producer(producer_id)
        broker >> producer_success(producer_id, producer_ready=False)
        client << producer_success(producer_id, producer_ready=False)
    assert world.engine.admission.provisional == 0
    broker >> producer_success(1)
    client << producer_success(1)


def test_consumers_that_the_broker_refuses_leave_a_place_to_another_address(make_world: Make) -> None:
    world = bounded(make_world, max_consumers_per_topic=4, max_consumers_per_subscription=3)
    stranger, _broker = world.pair(DATA)
    stranger >> [subscribe(consumer_id) for consumer_id in range(10, 20)]
    assert heard_of(stranger) == [ServiceNotReady] * 8
    neighbour, its_broker = world.pair(DATA, "192.0.2.8")
    subscribed(neighbour, its_broker, 7)
    assert world.engine.admission.provisional == 2


def test_an_id_used_twice_brings_nobody_in_past_a_bound(make_world: Make) -> None:
    """Nothing is sent on for the second one."""
    world = bounded(make_world, max_producers_per_topic=1)
    client, broker = world.pair(DATA)
    opened(client, broker, 1, topic=OTHER_TOPIC)
    opened(client, broker, 2)
    client >> [producer(1, request_id=9), close_producer(1)]
    broker.heard()
    broker >> success(201)
    assert client.heard_names() == ["ERROR", "SUCCESS"]
    client >> send(0, producer_id=1)
    broker << NOTHING
    client >> send(0, producer_id=2)
    broker << send(0, producer_id=2)


# ---- consumers


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"max_consumers_per_subscription": 1}, ONE_CONSUMER),
        ({"max_consumers_per_topic": 1}, "consumers of one topic: at most 1 (admission.max_consumers_per_topic)"),
    ],
)
def test_a_consumer_too_many_gets_consumer_busy(make_world: Make, bounds: dict[str, int], why: str) -> None:
    world = bounded(make_world, **bounds)
    client, broker = world.pair(DATA)
    subscribed(client, broker, 7)
    client >> subscribe(8)
    client << error(308, ConsumerBusy, why)
    broker << NOTHING
    client >> close_consumer(7)
    broker.heard()
    broker >> success(407)
    client << success(407)
    subscribed(client, broker, 8)


def test_another_subscription_has_consumers_of_its_own(make_world: Make) -> None:
    world = bounded(make_world, max_consumers_per_subscription=1, max_consumers_per_topic=2)
    client, broker = world.pair(DATA)
    subscribed(client, broker, 7)
    subscribed(client, broker, 8, subscription="other")
    client >> subscribe(9, subscription="third")
    client << error(309, ConsumerBusy, "consumers of one topic: at most 2 (admission.max_consumers_per_topic)")


def test_one_that_unsubscribed_has_no_place_any_more(make_world: Make) -> None:
    world = bounded(make_world, max_consumers_per_subscription=1)
    client, broker = world.pair(DATA)
    subscribed(client, broker, 7)
    client >> unsubscribe(7)
    broker << unsubscribe(7)
    broker >> success(607)
    client << success(607)
    subscribed(client, broker, 8)


def test_a_consumer_that_subscribes_too_often_gets_not_allowed(make_world: Make) -> None:
    """Pulsar's: five at once, then one each six seconds."""
    world = bounded(make_world, subscribe_rate_per_consumer="5/30s")
    client, broker = world.pair(DATA)
    for _ in range(5):
        subscribed(client, broker, 7, consumer_name="c")
        broker >> close_consumer(7)
        client.heard()
    client >> subscribe(7, consumer_name="c")
    broker << NOTHING
    why = "subscribes of one consumer: at most 5 per 30 s (admission.subscribe_rate_per_consumer, broker file)"
    client << error(307, NotAllowedError, why)
    subscribed(client, broker, 8, consumer_name="c")
    subscribed(client, broker, 9, consumer_name="c", topic=OTHER_TOPIC)
    world.advance(6)
    subscribed(client, broker, 7, consumer_name="c")


def test_subscribing_from_a_new_connection_gains_nothing(make_world: Make) -> None:
    world = bounded(make_world, subscribe_rate_per_consumer="1/30s")
    client, broker = world.pair(DATA)
    subscribed(client, broker, 7, consumer_name="c")
    client.leave()
    again, broker = world.pair(DATA)
    again >> subscribe(7, consumer_name="c")
    assert body(again.heard()[0]).error == NotAllowedError
    elsewhere, broker = world.pair(DATA, "192.0.2.8")
    subscribed(elsewhere, broker, 7, consumer_name="c")


def test_compaction_may_subscribe_as_often_as_it_likes(make_world: Make) -> None:
    """As at the broker: apache/pulsar#26015."""
    world = bounded(make_world, subscribe_rate_per_consumer="1/30s")
    client, broker = world.pair(DATA)
    for _ in range(5):
        subscribed(client, broker, 7, subscription="__compaction")
        broker >> close_consumer(7)
        client.heard()


def test_pulsars_own_topics_are_not_bounded(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=1, max_consumers_per_topic=1, subscribe_rate_per_consumer="1/h")
    client, broker = world.pair(DATA)
    opened(client, broker, 1, 2, 3, topic=SYSTEM_TOPIC)
    for consumer_id in (7, 8, 9):
        subscribed(client, broker, consumer_id, topic=SYSTEM_TOPIC)


def test_a_consumer_refused_by_one_bound_counts_nowhere_else(make_world: Make) -> None:
    world = bounded(make_world, subscribe_rate_per_consumer="2/h", max_consumers_per_topic=1)
    client, broker = world.pair(DATA)
    subscribed(client, broker, 8)
    for _ in range(5):
        client >> subscribe(7)
        assert body(client.heard()[0]).error == ConsumerBusy
    broker >> close_consumer(8)
    client.heard()
    subscribed(client, broker, 7)
    broker >> close_consumer(7)
    client.heard()
    subscribed(client, broker, 7)


def test_who_only_connects_is_refused_by_no_bound(make_world: Make) -> None:
    world = bounded(make_world, max_producers_per_topic=1)
    client = world.client()
    client >> connect()
    assert not client.is_gone
