"""Permits and held deliveries of a consumer that is closed by either side, seeks, unsubscribes, or subscribes again."""

import gc
from collections.abc import Callable

import pytest

from limiter.limiter import Stream, StreamName
from tests.proxy.conversation import NOTHING, World, consumer
from tests.proxy.held_deliveries import holding
from tests.proxy.wire import (
    OTHER_TOPIC,
    TOPIC,
    close_consumer,
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


# ---- permits


def test_flow_without_permits_is_dropped_for_any_consumer(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second, subscribe(8, OTHER_TOPIC))
    client >> [flow(0), flow(0, consumer_id=8), flow(0, consumer_id=99)]
    broker << NOTHING
    client >> close_consumer()
    client >> flow(0)
    broker << close_consumer()


def test_a_zero_receiver_queue_gets_one_message_for_each_permit(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second)
    for number in range(4):
        client >> flow(1)
        broker << flow(1)
        broker >> message(number)
        ten_a_second.advance(0.1)
        client << message(number)
        broker << NOTHING


def test_a_consumer_that_asked_to_be_closed_gets_no_permits_for_what_still_arrives(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    client >> close_consumer()
    broker << close_consumer()
    broker >> messages(3, start=3)
    ten_a_second.advance(5)
    broker << NOTHING
    broker >> success(407)
    assert client.heard()[-1] == success(407)
    ten_a_second.advance(5)
    broker << NOTHING


def test_permits_of_a_consumer_that_asked_to_be_closed_go_to_another(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    other, others_broker = consumer(ten_a_second, permits=1000)
    others_broker >> message(0)
    others_broker << NOTHING
    client >> close_consumer()
    broker >> success(407)
    assert flow(1) in others_broker.heard()
    assert other.is_read


# ---- closed by the broker


def test_a_consumer_that_the_broker_closes_asks_for_nothing_any_more(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    broker >> close_consumer()
    client << close_consumer()
    ten_a_second.advance(5)
    broker << NOTHING
    client << NOTHING
    assert ten_a_second.engine.registry.live() == []


def test_what_a_consumer_had_under_way_is_room_for_others_when_the_broker_closes_it(ten_a_second: World) -> None:
    _, broker = holding(ten_a_second)
    other, others_broker = consumer(ten_a_second, permits=1000)
    others_broker >> message(0)
    others_broker << NOTHING
    broker >> close_consumer()
    assert flow(1) in others_broker.heard()
    assert other.is_read


def test_consumer_closed_by_the_broker_begins_without_permits(ten_a_second: World) -> None:
    """As when a topic moves, or a seek is answered: the client asks anew, and what was pending is forgotten."""
    client, broker = holding(ten_a_second)
    broker >> close_consumer()
    client << close_consumer()
    client >> subscribe(request_id=9)
    broker << subscribe(request_id=9)
    broker >> success(9)
    client << success(9)
    ten_a_second.advance(5)
    broker << NOTHING
    client >> flow(1)
    broker << flow(1)
    broker >> message(1)
    client << message(1)
    ten_a_second.advance(5)
    broker << NOTHING


def test_other_consumers_keep_what_is_held_of_them_when_the_broker_closes_one(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second, subscribe(8))
    broker >> [*messages(2, 8), close_consumer()]
    client << close_consumer()
    ten_a_second.advance(1)
    client << messages(2, 8)


def test_both_sides_may_close_a_consumer_at_once(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    client >> close_consumer()
    broker << close_consumer()
    broker >> [close_consumer(), success(407)]
    client << [close_consumer(), success(407)]
    assert ten_a_second.engine.registry.live() == []
    assert ten_a_second.engine.held.used == 0


# ---- seek and unsubscribe


def test_seek_that_closes_the_consumer_drops_its_old_entries(
    ten_a_second: World,
) -> None:
    """So do Pulsar's brokers: CLOSE_CONSUMER first, and the success when the client has perhaps subscribed again."""
    client, broker = holding(ten_a_second)
    client >> seek()
    broker << seek()
    broker >> close_consumer()
    client << close_consumer()
    client >> [subscribe(request_id=9), flow(1000)]
    broker.heard()
    broker >> [success(9), *messages(2)]
    assert client.heard()[0] == success(9)
    broker >> success(507)
    client << success(507)
    ten_a_second.advance(1)
    client << messages(2)


def test_what_arrives_behind_the_answer_to_a_seek_is_delivered(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    client >> seek()
    broker << seek()
    broker >> [success(507), *messages(2)]
    ten_a_second.advance(1)
    client << [success(507), *messages(2)]


def test_seek_that_keeps_the_consumer_asks_for_dropped_permits(
    ten_a_second: World,
) -> None:
    """The client still counts on them: it would wait for ever for what it asked for."""
    client, broker = consumer(ten_a_second, permits=3)
    broker >> message(0)
    broker << flow(2)
    broker >> messages(2, start=1)
    client >> seek()
    broker << seek()
    broker >> success(507)
    broker << flow(2)
    ten_a_second.advance(1)
    client << [message(0), success(507)]
    broker << NOTHING


def test_a_seek_that_is_answered_when_the_consumer_is_to_be_closed_asks_for_nothing(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    client >> [seek(), close_consumer()]
    broker << [seek(), close_consumer()]
    broker >> [*messages(2, start=3), success(507)]
    ten_a_second.advance(1)
    broker << NOTHING
    broker >> success(407)
    assert ten_a_second.engine.registry.live() == []


def test_unsubscribing_gives_the_permits_to_another_once_the_broker_agrees(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    _, others_broker = consumer(ten_a_second, permits=1000)
    others_broker >> message(0)
    client >> unsubscribe()
    broker << unsubscribe()
    others_broker << NOTHING
    broker >> error(607)
    others_broker << NOTHING
    client >> unsubscribe()
    broker >> success(607)
    assert flow(1) in others_broker.heard()


def test_a_refused_unsubscribe_leaves_what_is_held_and_asked_for(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    client >> unsubscribe()
    broker << unsubscribe()
    broker >> [message(3), error(607)]
    client << error(607)
    ten_a_second.advance(1)
    client << messages(3, start=1)
    for number in range(4, 24):
        assert set(broker.heard_names()) <= {"FLOW"}
        broker >> message(number)
        ten_a_second.advance(0.1)
        client << message(number)


# ---- closed by the client


def test_what_was_on_its_way_does_not_overtake_what_a_closing_consumer_was_not_given(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second, permits=1000)
    broker >> messages(3)
    client << message(0)
    client >> close_consumer()
    ten_a_second.advance(1)
    broker >> message(3)
    broker >> [message(4), success(407)]
    client << success(407)


def test_a_consumer_that_may_not_close_is_over_as_for_its_client(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    _, others_broker = consumer(ten_a_second, permits=1000)
    others_broker >> message(0)
    others_broker.heard()
    client >> close_consumer()
    broker >> error(407)
    client << error(407)
    assert flow(1) in others_broker.heard()
    broker >> messages(3, start=3)
    ten_a_second.advance(5)
    client << NOTHING
    client >> subscribe(request_id=9)
    broker >> [success(9), message(1)]
    client << [success(9), message(1)]


@pytest.mark.parametrize("answer", [success, error])
def test_an_unsubscribe_that_is_answered_behind_a_close_lets_nobody_in_again(
    ten_a_second: World, answer: Callable[[int], bytes]
) -> None:
    client, broker = holding(ten_a_second)
    client >> [unsubscribe(), close_consumer()]
    broker << [unsubscribe(), close_consumer()]
    broker >> [answer(607), *messages(3, start=50)]
    ten_a_second.advance(5)
    client << answer(607)
    broker << NOTHING
    broker >> success(407)
    client >> subscribe(request_id=9)
    broker >> [success(9), message(1)]
    client << [success(407), success(9), message(1)]


def test_a_consumer_that_is_accepted_behind_its_close_is_not_let_in(ten_a_second: World) -> None:
    client, broker = ten_a_second.pair()
    client >> [subscribe(request_id=9), flow(100), close_consumer()]
    broker.heard()
    broker >> [success(9), *messages(3)]
    ten_a_second.advance(5)
    client << success(9)
    assert {limiter.usage.messages for limiter in ten_a_second.engine.registry.limiters.values()} == {0}
    broker >> success(407)
    assert ten_a_second.engine.registry.live() == []


@pytest.mark.parametrize("limited", [TOPIC, OTHER_TOPIC], ids=["limited", "unlimited"])
def test_a_consumer_that_asked_to_be_closed_asks_the_broker_for_nothing(make_world: Make, limited: str) -> None:
    client, broker = consumer(make_world(limits={"topics": {limited: {"dispatch": {"messages": 10}}}}))
    client >> [close_consumer(), flow(5)]
    broker << close_consumer()


def test_nothing_is_kept_of_a_consumer_that_asked_for_all_again_and_is_over(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    (name,) = [stream.name for stream in ten_a_second.engine.registry.live()]
    assert is_kept(name)
    client >> [redeliver(epoch=1), close_consumer()]
    broker >> success(407)
    ten_a_second.advance(5)
    assert client.is_read
    assert not is_kept(name)


def is_kept(name: StreamName) -> bool:
    """Whether the stream of this name, and of no other object that is equal, is in memory."""
    gc.collect()
    return any(isinstance(candidate, Stream) and candidate.name is name for candidate in gc.get_objects())
