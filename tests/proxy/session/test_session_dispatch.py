"""Dispatch limits in conversation: permits metered, deliveries gated, and what becomes of held ones."""

from collections.abc import Callable
from typing import Any

import pytest

from accesslog.record import IntervalLine
from tests.proxy.conversation import NOTHING, Peer, World, consumer
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    TOPIC,
    active,
    body,
    close_consumer,
    end_of_topic,
    error,
    flow,
    message,
    messages,
    redeliver,
    seek,
    subscribe,
    success,
    unsubscribe,
)

Make = Callable[..., World]


@pytest.fixture
def ten_a_second(make_world: Make) -> World:
    return make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 10}}}})


def test_without_a_limit_permits_and_deliveries_pass_as_they_came(world: World) -> None:
    client, broker = consumer(world)
    client >> flow(1000)
    broker << flow(1000)
    broker >> messages(5)
    client << messages(5)


def test_permits_are_passed_on_as_far_as_the_limit_can_use_them_soon(ten_a_second: World) -> None:
    """A fifth of a second's worth may be under way; the rest waits in the broker, where others can have it.

    The first permit shows what entries hold.
    """
    client, broker = consumer(ten_a_second)
    client >> flow(1000)
    broker << flow(1)
    broker >> message(0)
    client << message(0)
    broker << flow(2)
    broker >> message(1)
    broker << NOTHING
    ten_a_second.advance(0.1)
    client << message(1)
    broker << flow(1)


def test_a_consumer_never_gets_more_permits_than_it_asked_for(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second)
    client >> flow(3)
    granted = 0
    for number in range(5):
        granted += sum(int.from_bytes(frame[-1:], "big") for frame in broker.heard())
        broker >> message(number)
        ten_a_second.advance(1)
    assert granted == 3
    assert client.heard() == messages(5)


def test_deliveries_over_the_limit_are_held(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(3)
    client << message(0)
    ten_a_second.advance(0.1)
    client << message(1)
    ten_a_second.advance(0.1)
    client << message(2)


def test_a_neighbour_on_the_same_connection_gets_its_deliveries_at_once(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, subscribe(8, OTHER_TOPIC))
    broker >> [message(0), message(0, 8), message(1), message(1, 8), PING]
    client << [message(0), message(0, 8), message(1, 8), PING]
    ten_a_second.advance(0.1)
    client << message(1)


def test_a_batch_is_charged_in_full_and_the_next_ones_pay(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> [message(0, messages=30), message(1)]
    client << message(0, messages=30)
    ten_a_second.advance(2.9)
    client << NOTHING
    ten_a_second.advance(0.1)
    client << message(1)


def test_flow_zero_is_never_sent(ten_a_second: World) -> None:
    """Pulsar's broker closes the connection of a consumer that grants no permits."""
    client, broker = consumer(ten_a_second)
    client >> [flow(2), flow(1)]
    for number in range(3):
        broker >> message(number, messages=7)
        ten_a_second.advance(3)
    assert flow(0) not in broker.heard()


@pytest.mark.parametrize(("answer", "kept"), [(success(507), 0), (error(507), 2)])
def test_a_seek_drops_what_is_held_once_the_broker_agrees(ten_a_second: World, answer: bytes, kept: int) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(3)
    client << message(0)
    client >> seek()
    assert "SEEK" in broker.heard_names()
    broker >> answer
    client << answer
    ten_a_second.advance(1)
    client << messages(kept, start=1)
    assert sum(line.dropped_messages for line in ten_a_second.lines(IntervalLine)) == 2 - kept


def test_closing_a_consumer_drops_what_is_held_at_once(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(3)
    client << message(0)
    client >> close_consumer()
    assert broker.heard()[-1] == close_consumer()
    assert ten_a_second.engine.held.used == 0
    broker >> [message(3), success(407)]
    ten_a_second.advance(0)
    assert client.heard()[-1] == success(407)
    assert ten_a_second.engine.registry.live() == []


@pytest.mark.parametrize(("answer", "is_over"), [(success(607), True), (error(607), False)])
def test_unsubscribing_ends_the_consumer_once_the_broker_agrees(
    ten_a_second: World, answer: bytes, *, is_over: bool
) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(2)
    client << message(0)
    client >> unsubscribe()
    assert broker.heard()[-1] == unsubscribe()
    broker >> answer
    client << answer
    assert (ten_a_second.engine.registry.live() == []) == is_over
    ten_a_second.advance(1)
    client << ([] if is_over else [message(1)])


def test_asking_for_everything_again_since_an_epoch_drops_what_is_held(ten_a_second: World) -> None:
    """The broker sends it once more, and the client would throw away what is from before."""
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(3)
    client << message(0)
    client >> redeliver(epoch=1)
    assert redeliver(epoch=1) in broker.heard()
    broker >> messages(3)
    ten_a_second.advance(1)
    client << messages(3)


def test_asking_for_everything_again_without_an_epoch_leaves_no_gap(ten_a_second: World) -> None:
    """What was on its way then arrives behind what was held: whoever acknowledges it acknowledges all before it."""
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(2)
    client << message(0)
    client >> redeliver()
    assert broker.heard_names()[-1] == "REDELIVER_UNACKNOWLEDGED_MESSAGES"
    broker >> [message(2), *messages(3)]
    ten_a_second.advance(1)
    client << [message(1), message(2), *messages(3)]


def test_the_permits_of_what_was_dropped_are_asked_for_again(ten_a_second: World) -> None:
    """Behind the wish for everything: the broker would use them for what nobody wants any more."""
    client, broker = consumer(ten_a_second, permits=2)
    broker >> messages(2)
    client << message(0)
    broker << flow(1)
    client >> redeliver(epoch=1)
    broker << [redeliver(epoch=1), flow(1)]


def test_what_is_held_is_dropped_for_a_redelivery_once_in_a_second(ten_a_second: World) -> None:
    """Its permits are asked for again: a client could have the broker deliver to the proxy without end."""
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(3)
    client << message(0)
    client >> redeliver(epoch=1)
    assert redeliver(epoch=1) in broker.heard()
    for epoch in range(2, 100):
        broker >> messages(2)
        client >> redeliver(epoch=epoch)
        broker << redeliver(epoch=epoch)
    ten_a_second.advance(1)
    assert len(client.heard()) == 10
    broker.heard()
    client >> redeliver(epoch=100)
    assert broker.heard_names() == ["REDELIVER_UNACKNOWLEDGED_MESSAGES", "FLOW"]


def test_asking_for_some_again_keeps_what_is_held(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(2)
    client << message(0)
    client >> redeliver(entry_ids=(0,))
    assert redeliver(entry_ids=(0,)) in broker.heard()
    ten_a_second.advance(1)
    client << message(1)


MANY_IDS = tuple(range(1000))


@pytest.fixture
def sparing(make_world: Make) -> World:
    """Ten a second, but for who has no backlog."""
    limits = {"topics": {TOPIC: {"dispatch": {"messages": 10}}}}
    return make_world(limits=limits, dispatch={"dispatchThrottlingOnNonBacklogConsumerEnabled": False})


def caught_up(world: World) -> tuple[Peer, Peer]:
    """A client with a consumer at the end of its topic, that asked for more than any broker ever delivers."""
    client, broker = consumer(world, permits=2**30)
    broker >> message(0)
    client << message(0)
    world.advance(2)
    broker >> messages(500)
    assert len(client.heard()) == 500
    broker.heard()
    return client, broker


@pytest.mark.parametrize("wish", [redeliver(epoch=1), redeliver(), redeliver(entry_ids=(0, 1)), seek()])
def test_who_asks_for_what_it_has_got_already_has_a_backlog(sparing: World, wish: bytes) -> None:
    client, broker = caught_up(sparing)
    client >> wish
    broker.heard()
    broker >> messages(500)
    assert len(client.heard()) <= 10
    for _ in range(20):
        client >> wish
        broker.heard()
        broker >> messages(10)
        sparing.advance(0.5)
    assert len(client.heard()) <= 101


def test_so_has_who_names_so_many_messages_that_they_are_not_read(sparing: World) -> None:
    client, broker = caught_up(sparing)
    client >> redeliver(8, entry_ids=MANY_IDS)
    broker << redeliver(8, entry_ids=MANY_IDS)
    broker >> messages(100)
    assert len(client.heard()) == 100, "another consumer's"
    client >> redeliver(entry_ids=MANY_IDS)
    broker << redeliver(entry_ids=MANY_IDS)
    broker >> messages(500)
    assert len(client.heard()) <= 10


def test_so_has_who_gets_much_with_permits_that_never_run_out(sparing: World) -> None:
    client, broker = caught_up(sparing)
    for _ in range(20):
        broker >> messages(100)
    assert 400 <= len(client.heard()) <= 700


def test_what_comes_after_a_seek_is_limited_from_the_first_message_on(sparing: World) -> None:
    """However long the broker takes for it."""
    client, broker = caught_up(sparing)
    client >> seek()
    broker.heard()
    sparing.advance(2)
    broker >> message(0)
    assert len(client.heard()) == 1
    broker >> [success(body(seek()).request_id), *messages(500)]
    assert len(client.heard()) <= 1 + 10


@pytest.mark.parametrize("frame", [active(), active(is_active=False), end_of_topic()])
def test_what_is_said_about_a_consumer_waits_behind_its_deliveries(ten_a_second: World, frame: bytes) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> frame
    client << frame
    broker >> [*messages(2), frame, message(2)]
    client << message(0)
    ten_a_second.advance(0.1)
    client << [message(1), frame]
    ten_a_second.advance(0.1)
    client << message(2)


@pytest.mark.parametrize("frame", [active(), end_of_topic()])
def test_what_is_said_about_a_consumer_outlives_the_deliveries_it_waited_behind(
    ten_a_second: World, frame: bytes
) -> None:
    """The broker delivers messages again, but it does not say such a thing twice."""
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> [*messages(2), frame]
    client << message(0)
    client >> redeliver(epoch=1)
    client << frame


def test_a_consumer_that_the_broker_closes_loses_what_is_held(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> [*messages(3), close_consumer()]
    client << [message(0), close_consumer()]
    assert ten_a_second.engine.held.used == 0
    ten_a_second.advance(5)
    client << NOTHING


def test_subscribing_again_forgets_the_permits_from_before(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    client >> close_consumer()
    broker << close_consumer()
    broker >> success(407)
    client >> subscribe(request_id=9)
    broker << subscribe(request_id=9)
    broker >> [success(9), message(0), message(1)]
    ten_a_second.advance(5)
    broker << NOTHING
    client >> flow(1)
    broker << flow(1)


def test_two_consumers_share_what_may_be_under_way(ten_a_second: World) -> None:
    _, broker = consumer(ten_a_second, permits=1000)
    second, seconds_broker = consumer(ten_a_second)
    second >> flow(1000)
    seconds_broker << flow(1)
    broker << NOTHING


def test_a_client_that_leaves_gives_its_permits_to_others(ten_a_second: World) -> None:
    first, firsts_broker = consumer(ten_a_second, permits=1000)
    second, seconds_broker = consumer(ten_a_second, permits=1000)
    firsts_broker >> message(0)
    seconds_broker >> message(0)
    ten_a_second.advance(1)
    assert seconds_broker.heard() == [flow(1)]
    first.leave()
    seconds_broker << flow(1)
    assert firsts_broker.is_gone
    assert second.is_read


def test_a_refused_consumer_is_forgotten(ten_a_second: World) -> None:
    client, broker = ten_a_second.pair()
    client >> subscribe()
    broker << subscribe()
    broker >> error(307)
    client << error(307)
    assert ten_a_second.engine.registry.live() == []


def test_deliveries_in_pieces_keep_their_order(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, subscribe(8, OTHER_TOPIC), permits=1000)
    frames = [message(0), message(1, size=900), message(0, 8), active(), message(2), message(1, 8), PING]
    stream = b"".join(frames)
    for start in range(0, len(stream), 13):
        broker.send_bytes(stream[start : start + 13])
    client << [message(0), message(0, 8), message(1, 8), PING]
    ten_a_second.advance(0.2)
    client << [message(1, size=900), active(), message(2)]


def test_both_sides_of_the_permits_are_in_the_access_log(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second)
    client >> flow(1000)
    broker >> message(0)
    ten_a_second.advance(1)
    lines: list[Any] = ten_a_second.lines(IntervalLine)
    assert sum(line.permits_asked for line in lines) == 1000
    assert sum(line.permits_granted for line in lines) == 3


def test_a_flow_of_no_permits_stays_here(world: World) -> None:
    client, broker = consumer(world)
    client >> [flow(0), flow(5)]
    broker << flow(5)
