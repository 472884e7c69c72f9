"""What else is said about a consumer while deliveries of it are held: what waits, what does not, and what ends it."""

from collections.abc import Callable

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    MessageIdData,
)
from tests.proxy.conversation import BROKER, NOTHING, Peer, World, consumer
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    PONG,
    TOPIC,
    active,
    close_consumer,
    end_of_topic,
    error,
    flow,
    message,
    messages,
    producer,
    producer_success,
    receipt,
    redeliver,
    seek,
    send,
    subscribe,
    success,
    told,
    unknown_command,
    unsubscribe,
)

Make = Callable[..., World]
AN_ID = MessageIdData(ledger_id=1, entry_id=0)


def ack(consumer_id: int = 7) -> bytes:
    return encode(CommandAck(consumer_id=consumer_id, ack_type=CommandAck.Individual, message_id=[AN_ID]))


@pytest.fixture
def ten_a_second(make_world: Make) -> World:
    return make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 10}}}})


def holding(world: World, *more: bytes) -> tuple[Peer, Peer]:
    """A client whose consumer 7 asked for a thousand; it got message 0, and 1 and 2 are held."""
    client, broker = consumer(world, *more, permits=1000)
    broker >> messages(3)
    client << message(0)
    broker.heard()
    return client, broker


# ---- what does not wait


@pytest.mark.parametrize(
    "frame",
    [
        *(ack(), ack(8), PING, PONG, flow(5, consumer_id=8), redeliver(entry_ids=(0,)), seek(), unsubscribe()),
        encode(CommandGetLastMessageId(consumer_id=7, request_id=9)),
        *(subscribe(9, OTHER_TOPIC), close_consumer(8), producer(1, OTHER_TOPIC), unknown_command()),
    ],
    ids=told,
)
def test_nothing_that_a_client_says_waits_behind_a_held_delivery(ten_a_second: World, frame: bytes) -> None:
    client, broker = holding(ten_a_second, subscribe(8, OTHER_TOPIC))
    client >> frame
    broker << frame


@pytest.mark.parametrize(
    "frame",
    [
        *(PING, PONG, message(0, 8), active(8), end_of_topic(8), close_consumer(8), unknown_command()),
        encode(CommandAckResponse(consumer_id=7, request_id=9)),
        encode(CommandGetLastMessageIdResponse(request_id=9, last_message_id=AN_ID)),
    ],
    ids=told,
)
def test_nothing_that_a_broker_says_of_others_waits_behind_a_held_delivery(ten_a_second: World, frame: bytes) -> None:
    client, broker = holding(ten_a_second, subscribe(8, OTHER_TOPIC))
    broker >> frame
    client << frame
    ten_a_second.advance(0.1)
    client << message(1)


def test_a_producer_beside_a_held_consumer_sends_and_gets_its_receipts(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    client >> producer()
    broker << producer()
    broker >> producer_success()
    client << producer_success()
    client >> send(0)
    broker << send(0)
    broker >> receipt(0)
    client << receipt(0)


def test_acks_and_pings_go_on_while_deliveries_fill_all_that_may_be_held(make_world: Make) -> None:
    """Reading from the broker stops then, but not from the client; the broker's reading on is its own affair."""
    world = make_world(publish={"hold_connection": "2KB"}, limits={"topics": {TOPIC: {"dispatch": {"messages": 10}}}})
    client, broker = consumer(world, permits=1000)
    broker >> [message(number, size=1000) for number in range(10)]
    client << message(0, size=1000)
    assert not broker.is_read
    assert client.is_read
    broker.heard()
    client >> [ack(), PING]
    broker << [ack(), PING]


# ---- permits


def test_a_flow_of_no_permits_stays_here_whether_the_consumer_is_limited_unlimited_or_none(ten_a_second: World) -> None:
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


def test_a_consumer_closed_by_the_broker_subscribes_again_with_permits_of_its_own_only(ten_a_second: World) -> None:
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


def test_a_seek_that_the_broker_answers_by_closing_the_consumer_drops_what_is_held_of_the_old_one_only(
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


# ---- what refers to the consumer


def test_what_is_said_about_a_consumer_stays_in_the_brokers_order(ten_a_second: World) -> None:
    """A standby consumer becomes the active one, gets messages, and loses its place again."""
    client, broker = consumer(ten_a_second, permits=1000)
    said = [active(), message(0), message(1), active(is_active=False), active(), message(2), end_of_topic()]
    broker >> said
    ten_a_second.advance(1)
    client << said


def test_the_end_of_the_topic_comes_behind_the_last_delivery(ten_a_second: World) -> None:
    client, broker = holding(ten_a_second)
    broker >> end_of_topic()
    client << NOTHING
    ten_a_second.advance(1)
    client << [message(1), message(2), end_of_topic()]


@pytest.mark.parametrize("ends", [close_consumer(), unsubscribe()])
def test_what_is_said_about_a_consumer_is_not_kept_from_who_ends_it(ten_a_second: World, ends: bytes) -> None:
    client, broker = holding(ten_a_second)
    broker >> active()
    client << NOTHING
    client >> ends
    broker >> success(407 if ends == close_consumer() else 607)
    assert active() in client.heard()
    assert ten_a_second.engine.held.used == 0


def test_a_connection_to_another_broker_has_deliveries_of_its_own(ten_a_second: World) -> None:
    """The same consumer id there is another consumer."""
    holding(ten_a_second)
    client, broker = ten_a_second.pair(f"{BROKER[0]}:{BROKER[1]}")
    client >> [subscribe(7, OTHER_TOPIC), flow(5)]
    broker << [subscribe(7, OTHER_TOPIC), flow(5)]
    broker >> [success(307), *messages(5)]
    client << [success(307), *messages(5)]
