"""Options, counts, schemas, topics, and all of them together."""

import pytest

from loadgen.standin.broker import (
    LISTEN,
    MOST_VERSIONS,
    BrokerOptions,
    Producer,
    SchemaRegistry,
    StandinBroker,
    StandinTopic,
    TopicCounts,
    parse_name,
    parse_partitions,
)
from loadgen.standin.entry_log import EntryLog, StandinRefusal
from loadgen.standin.subscription import Consumer
from protocol.pulsar_pb2 import CommandSubscribe, Schema, ServerError
from protocol.topic_name import parse_topic
from tests.loadgen.standin.doubles import TOPIC, RecordingOutlet, message_id, payload


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:6650", ("127.0.0.1", 6650)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:6650", ("::1", 6650)),
    ],
)
def test_an_address_is_host_and_port(text, address):
    assert LISTEN.parse(text) == ("pulsar", *address)


@pytest.mark.parametrize("text", ["6650", ":6650", "localhost", "localhost:", "localhost:http", "localhost:65536"])
def test_what_is_no_address_is_named(text):
    with pytest.raises(ValueError, match=r"is not host:port") as error:
        LISTEN.parse(text)
    assert repr(text) in str(error.value)


def test_partitioned_topics_are_known_by_their_full_names():
    assert parse_partitions(["t=3", "persistent://a/b/c=4"]) == {
        "persistent://public/default/t": 3,
        "persistent://a/b/c": 4,
    }


@pytest.mark.parametrize("text", ["t", "t=", "=4", "t=0", "t=-1", "t=many", "t=1001", "x://a/b/c=4"])
def test_what_is_no_partitioned_topic_is_refused(text):
    with pytest.raises(ValueError, match="is not"):
        parse_partitions([text])


def test_entries_messages_and_bytes_are_counted_in_each_direction():
    counts = TopicCounts()
    counts.receive(messages=10, size=100)
    counts.receive(messages=1, size=20)
    counts.deliver(messages=10, size=100)
    assert counts == TopicCounts(2, 11, 120, 1, 10, 100)


ONE, OTHER = parse_topic("one"), parse_topic("other")


def schema(text="a"):
    return Schema(name=text, schema_data=text.encode(), type=Schema.Json)


def test_a_schema_keeps_its_version_and_each_topic_counts_its_own():
    registry = SchemaRegistry()
    versions = [
        registry.register(topic, schema(text)) for topic, text in [(ONE, "a"), (ONE, "b"), (ONE, "a"), (OTHER, "b")]
    ]
    assert [int.from_bytes(version, "big") for version in versions] == [0, 1, 0, 0]
    assert all(len(version) == 8 for version in versions)


def test_a_schema_is_found_by_version_and_the_newest_without():
    registry = SchemaRegistry()
    first = registry.register(ONE, schema("a"))
    second = registry.register(ONE, schema("b"))
    assert registry.find(ONE, first) == (schema("a"), first)
    assert registry.find(ONE, b"") == (schema("b"), second)


def test_partitions_share_their_topics_schema():
    registry = SchemaRegistry()
    version = registry.register(parse_topic("one-partition-0"), schema())
    assert registry.find(parse_topic("one-partition-3"), version)[0] == schema()


@pytest.mark.parametrize("version", [b"", b"\0" * 7 + b"\5", b"\xff" * 8, b"short"])
def test_what_is_not_there_is_refused(version):
    registry = SchemaRegistry()
    if version:
        registry.register(ONE, schema())
    with pytest.raises(StandinRefusal) as refused:
        registry.find(ONE, version)
    assert refused.value.error == ServerError.TopicNotFound


def test_a_topic_has_no_more_than_so_many_versions():
    registry = SchemaRegistry()
    for number in range(MOST_VERSIONS):
        registry.register(ONE, schema(str(number)))
    with pytest.raises(StandinRefusal) as refused:
        registry.register(ONE, schema("one too many"))
    assert refused.value.error == ServerError.IncompatibleSchema


@pytest.fixture
def topic():
    return StandinTopic(parse_topic(TOPIC), EntryLog(1, 1_000_000), lambda subscription: subscription.dispatch())


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
    subscription, other = subscribe(topic, "one"), subscribe(topic, "two")
    publish(topic, 5)
    subscription.acknowledge_up_to(4)
    other.acknowledge_up_to(1)
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
    with pytest.raises(StandinRefusal) as refused:
        topic.add_producer(Producer("me", 1, is_named_by_client=True))
    assert refused.value.error == ServerError.ProducerBusy
    topic.remove_producer(producer)
    topic.add_producer(Producer("me", 0, is_named_by_client=True))


def test_a_reconnecting_producer_with_a_generated_name_takes_its_own_place(topic):
    before = Producer("standin-1", 0, is_named_by_client=False)
    topic.add_producer(before)
    topic.add_producer(Producer("standin-1", 1, is_named_by_client=False))
    topic.remove_producer(before)
    with pytest.raises(StandinRefusal):
        topic.add_producer(Producer("standin-1", 1, is_named_by_client=False))


def test_all_forms_of_a_name_are_one_topic():
    broker = StandinBroker(BrokerOptions())
    assert broker.topic("t") is broker.topic("persistent://public/default/t") is broker.topic("public/default/t")


def test_each_topic_has_a_ledger_of_its_own():
    broker = StandinBroker(BrokerOptions(first_ledger=10))
    assert [broker.topic(name).log.ledger_id for name in ("a", "b", "a")] == [10, 11, 10]


def test_what_is_no_topic_name_is_refused():
    with pytest.raises(StandinRefusal) as refused:
        parse_name("persistent://only/two")
    assert refused.value.error == ServerError.InvalidTopicName


def test_only_configured_topics_are_partitioned():
    broker = StandinBroker(BrokerOptions(partitions={"persistent://public/default/four": 4}))
    assert (broker.partitions("four"), broker.partitions("other"), broker.partitions("four-partition-1")) == (4, 0, 0)


def test_a_namespaces_topics_are_those_configured_and_those_in_use():
    broker = StandinBroker(BrokerOptions(partitions={"persistent://public/default/two": 2}))
    broker.topic("used")
    broker.topic("two-partition-0")
    broker.topic("persistent://public/elsewhere/t")
    assert sorted(name.local for name in broker.topics_of("public/default")) == [
        "two-partition-0",
        "two-partition-1",
        "used",
    ]


def test_generated_producer_names_differ_within_a_run_and_between_runs():
    names = [
        broker.producer_name()
        for broker in map(StandinBroker, (BrokerOptions(), BrokerOptions(first_ledger=2)))
        for _ in "12"
    ]
    assert len(set(names)) == 4


def test_counts_are_told_by_topic():
    broker = StandinBroker(BrokerOptions())
    broker.topic("t").publish(3, payload())
    counts = broker.counts()
    assert counts["topics"]["persistent://public/default/t"]["received_messages"] == 3
    assert counts["ignored_commands"] == {}
