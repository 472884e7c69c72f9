import pytest

from loadgen.standin.consumer import Consumer
from loadgen.standin.entry_log import EntryLog
from loadgen.standin.refusal import Refused
from loadgen.standin.topic import Producer, Topic
from protocol.pulsar_pb2 import CommandSubscribe, ServerError
from protocol.topic_name import parse_topic
from tests.loadgen.standin.doubles import TOPIC, RecordingOutlet, message_id, payload


@pytest.fixture
def topic():
    return Topic(parse_topic(TOPIC), EntryLog(1, 1_000_000), lambda subscription: subscription.dispatch())


def subscribe(topic, name="s", **more):
    request = CommandSubscribe(
        topic=TOPIC, subscription=name, sub_type=CommandSubscribe.Shared, consumer_id=1, request_id=1, **more
    )
    return topic.subscribe(request, Consumer(1, RecordingOutlet()))


def publish(topic, count):
    for _ in range(count):
        topic.publish(1, payload())


def kept(topic):
    return topic.log.next_id - topic.log.first_id


def test_without_a_subscription_nothing_is_kept_but_all_is_counted(topic):
    publish(topic, 5)
    assert kept(topic) == 0
    assert topic.counts.received_entries == 5


def test_entries_are_kept_until_every_subscription_has_acknowledged_them(topic):
    one, two = subscribe(topic, "one"), subscribe(topic, "two")
    publish(topic, 5)
    one.acknowledge_up_to(4)
    two.acknowledge_up_to(1)
    topic.trim()
    assert kept(topic) == 3
    topic.unsubscribe("two")
    assert kept(topic) == 0


@pytest.mark.parametrize(
    ("initial", "position"), [(CommandSubscribe.Earliest, 0), (CommandSubscribe.Latest, 3)], ids=["earliest", "latest"]
)
def test_a_new_subscription_starts_where_it_asks_to(topic, initial, position):
    subscribe(topic, "handler")
    publish(topic, 3)
    assert subscribe(topic, initial_position=initial).cursor.position == position


def test_a_reader_starts_at_its_message_and_its_subscription_ends_with_it(topic):
    subscribe(topic, "handler")
    publish(topic, 5)
    reader = subscribe(topic, "reader", durable=False, start_message_id=message_id(3))
    assert reader.cursor.position == 3
    topic.end_reader("reader")
    assert subscribe(topic, "reader", durable=False) is reader
    reader.consumers.clear()
    topic.end_reader("reader")
    assert subscribe(topic, "reader", durable=False) is not reader


def test_a_readers_name_can_become_a_durable_subscriptions(topic):
    subscribe(topic, "s", durable=False)
    topic.unsubscribe("s")
    subscribe(topic, "s")
    assert topic.is_durable("s")


def test_a_durable_subscription_stays_without_consumers(topic):
    subscription = subscribe(topic)
    subscription.consumers.clear()
    topic.end_reader("s")
    assert subscribe(topic) is subscription


def test_a_durable_subscription_starts_at_no_message(topic):
    subscribe(topic, "handler")
    publish(topic, 3)
    assert subscribe(topic, start_message_id=message_id(1)).cursor.position == 3


def test_two_producers_cannot_have_one_name(topic):
    producer = Producer("me", 0, is_named_by_client=True)
    topic.add_producer(producer)
    with pytest.raises(Refused) as refused:
        topic.add_producer(Producer("me", 1, is_named_by_client=True))
    assert refused.value.error == ServerError.ProducerBusy
    topic.remove_producer(producer)
    topic.add_producer(Producer("me", 0, is_named_by_client=True))


def test_a_reconnecting_producer_with_a_generated_name_takes_its_own_place(topic):
    before = Producer("standin-1", 0, is_named_by_client=False)
    topic.add_producer(before)
    topic.add_producer(Producer("standin-1", 1, is_named_by_client=False))
    topic.remove_producer(before)
    with pytest.raises(Refused):
        topic.add_producer(Producer("standin-1", 1, is_named_by_client=False))
