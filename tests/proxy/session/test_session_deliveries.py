"""What is said while deliveries of a consumer are held: what does not wait behind them, and what does, in order."""

from collections.abc import Callable

import pytest

from protocol.commands import encode
from protocol.frames import HEAD, SIZE
from protocol.pulsar_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    MessageIdData,
)
from tests.proxy.conversation import BROKER, NOTHING, World, consumer
from tests.proxy.held_deliveries import holding
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    PONG,
    TOPIC,
    active,
    body,
    close_consumer,
    end_of_topic,
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


@pytest.mark.parametrize("epoch", [None, 1])
def test_asking_for_some_again_keeps_what_is_held_whether_an_epoch_is_said_or_not(
    ten_a_second: World, epoch: int | None
) -> None:
    client, broker = holding(ten_a_second)
    client >> redeliver(entry_ids=(0,), epoch=epoch)
    broker << redeliver(entry_ids=(0,), epoch=epoch)
    ten_a_second.advance(1)
    client << messages(2, start=1)


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


# ---- what refers to the consumer


def test_what_is_said_about_a_consumer_stays_in_the_brokers_order(ten_a_second: World) -> None:
    """A standby consumer becomes the active one, gets messages, and loses its place again."""
    client, broker = consumer(ten_a_second, permits=1000)
    frames = [active(), message(0), message(1), active(is_active=False), active(), message(2), end_of_topic()]
    broker >> frames
    ten_a_second.advance(1)
    client << frames


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
    client >> subscribe(7, OTHER_TOPIC)
    broker << subscribe(7, OTHER_TOPIC)
    broker >> success(307)
    client << success(307)
    client >> flow(5)
    broker << flow(5)
    broker >> messages(5)
    client << messages(5)


# ---- what is said of how much is delivered


@pytest.mark.parametrize("messages_said", [101, 2**31 - 1])
def test_a_batch_that_says_more_than_is_believed_costs_the_limit_the_most_that_is(
    make_world: Make, messages_said: int
) -> None:
    """Its metadata is its publisher's, and no broker checks it; nobody else is to wait weeks for it."""
    limits = {"proxy": {"dispatch": {"messages": 10, "burst_messages": 1}}}
    world = make_world(limits=limits, publish={"max_batch_messages": 100})
    client, broker = consumer(world, permits=10)

    broker >> [message(0, messages=messages_said), message(1)]
    client << message(0, messages=messages_said)

    world.advance(9.8)
    client << NOTHING
    world.advance(0.3)
    client << message(1)
    assert world.counters.batches_not_believed == 1


def padded(frame: bytes) -> bytes:
    """A message with more fields before those of its metadata than are looked at."""
    at = HEAD + SIZE.unpack_from(frame, 4)[0]
    metadata = b"\x10\x00" * 31_000 + frame[at + SIZE.size :]
    longer = frame[4:at] + SIZE.pack(len(metadata)) + metadata
    return SIZE.pack(len(longer)) + longer


def test_message_with_too_many_fields_costs_the_largest_batch(make_world: Make) -> None:
    """Its number of messages may stand behind millions of fields, and nobody is to wait while they are read."""
    limits = {"proxy": {"dispatch": {"messages": 10, "burst_messages": 1}}}
    world = make_world(limits=limits, publish={"max_batch_messages": 100})
    client, broker = consumer(world, permits=10)
    many = padded(message(0, size=0))

    broker >> [many, message(1)]
    client << many

    world.advance(9.8)
    client << NOTHING
    world.advance(0.3)
    client << message(1)
    assert world.counters.batches_not_believed == 1


@pytest.mark.parametrize("made", [bytes, padded], ids=["declared", "behind too many fields"])
def test_oversized_batch_gives_back_permits_that_the_broker_took(
    make_world: Make, made: Callable[[bytes], bytes]
) -> None:
    """It took what the metadata say: a consumer that were thought to have some left would be given none for ever."""
    limits = {"proxy": {"dispatch": {"messages": 1000}}}
    world = make_world(limits=limits, publish={"max_batch_messages": 100})
    client, broker = consumer(world, permits=1000)
    batch = made(message(0, messages=100_001))
    broker >> batch
    client << batch
    broker.heard()

    client >> flow(100_001)
    granted = 0
    for _ in range(20):
        world.advance(1)
        granted += sum(body(frame).message_permits for frame in broker.heard())
    (stream,) = world.engine.registry.live()
    assert granted > 100_001 - 1000
    assert stream.permits is not None
    assert stream.permits.at_broker <= 1000 - 100_001 + granted
