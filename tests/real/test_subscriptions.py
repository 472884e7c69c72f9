"""Every way to consume that the official client offers, through Sluice."""

import re
from collections import defaultdict

import pulsar
import pytest

from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.traffic import PATIENCE_MS, assert_silent, digest, digests, open_sender, payload, receive, sent_by

pytestmark = pytest.mark.real

EARLIEST = pulsar.InitialPosition.Earliest


def contents(name: str, count: int) -> list[bytes]:
    return [payload(name, index) for index in range(count)]


def receive_any(consumers: list[pulsar.Consumer], count: int) -> list[list[pulsar.Message]]:
    """`count` messages from whichever of the consumers has them, by consumer."""
    taken: list[list[pulsar.Message]] = [[] for _ in consumers]
    idle_rounds = 0
    while sum(map(len, taken)) < count and idle_rounds < 50:
        before = sum(map(len, taken))
        for consumer, messages in zip(consumers, taken, strict=True):
            take_what_is_there(consumer, messages)
        idle_rounds = 0 if sum(map(len, taken)) > before else idle_rounds + 1
    for consumer in consumers:
        assert_silent(consumer)
    return taken


def take_what_is_there(consumer: pulsar.Consumer, messages: list[pulsar.Message]) -> None:
    while True:
        try:
            message = consumer.receive(100)
        except pulsar.Timeout:
            return
        consumer.acknowledge(message)
        messages.append(message)


def test_a_partitioned_topic_gets_and_gives_through_all_partitions(
    client: pulsar.Client, topic: str, rest: PulsarRest
) -> None:
    rest.create_partitioned_topic(topic, 4)
    consumer = client.subscribe(topic, "s")
    routing = pulsar.PartitionsRoutingMode.RoundRobinDistribution
    sender = open_sender(client, topic, "p", message_routing_mode=routing)
    sender.send_all(contents("p", 400))
    messages = receive(consumer, 400)
    by_partition = defaultdict(list)
    for message in messages:
        by_partition[message.topic_name()].append(digest(message.data()))
    assert sorted(by_partition) == [f"{topic}-partition-{number}" for number in range(4)]
    for partition in by_partition.values():
        assert partition == [mark for mark in map(digest, contents("p", 400)) if mark in set(partition)]
    assert sorted(digests(messages)["p"]) == sorted(sender.sent)


def test_exclusive_keeps_order_and_refuses_a_second_consumer(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Exclusive)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", pulsar.ConsumerType.Exclusive)
    senders = [open_sender(client, topic, name) for name in ("p", "q")]
    for sender in senders:
        sender.send_all(contents(sender.name, 300))
    assert digests(receive(consumer, 600)) == sent_by(*senders)


def test_shared_divides_the_messages_and_loses_none(client: pulsar.Client, topic: str) -> None:
    kind = pulsar.ConsumerType.Shared
    consumers = [client.subscribe(topic, "s", kind, receiver_queue_size=20) for _ in range(3)]
    sender = open_sender(client, topic, "p")
    sender.send_all(contents("p", 600))
    taken = receive_any(consumers, 600)
    assert all(taken), [len(messages) for messages in taken]
    assert sorted(mark for messages in taken for mark in digests(messages)["p"]) == sorted(sender.sent)


def test_key_shared_keeps_each_key_on_one_consumer_and_in_order(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared) for _ in range(3)]
    sender = open_sender(client, topic, "p")
    for index in range(600):
        sender.send_async(payload("p", index), partition_key=f"key-{index % 30}")
    sender.producer.flush()
    taken = receive_any(consumers, 600)
    owners = defaultdict(set)
    by_key = defaultdict(list)
    for number, messages in enumerate(taken):
        for message in messages:
            owners[message.partition_key()].add(number)
            by_key[message.partition_key()].append(digest(message.data()))
    assert all(len(consumer) == 1 for consumer in owners.values())
    assert by_key == {f"key-{key}": sender.sent[key::30] for key in range(30)}


def test_failover_goes_on_with_the_next_consumer(client: pulsar.Client, topic: str) -> None:
    kind = pulsar.ConsumerType.Failover
    first = client.subscribe(topic, "s", kind, consumer_name="a")
    second = client.subscribe(topic, "s", kind, consumer_name="b")
    sender = open_sender(client, topic, "p")
    sender.send_all(contents("p", 200))
    messages = receive(first, 200)
    assert_silent(second, 50)
    first.close()
    sender.send_all(contents("after", 200))
    messages += receive(second, 200)
    assert digests(messages) == sent_by(sender)


def test_a_reader_reads_all_and_knows_the_end(client: pulsar.Client, topic: str) -> None:
    sender = open_sender(client, topic, "p")
    sender.send_all(contents("p", 300))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next(10_000))
    assert digests(messages) == sent_by(sender)


def test_seek_by_message_id_delivers_again_from_there(client: pulsar.Client, topic: str) -> None:
    sender = open_sender(client, topic, "p")
    sender.send_all(contents("p", 100))
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, start_message_id_inclusive=True)
    messages = receive(consumer, 100)
    consumer.seek(messages[40].message_id())
    assert digests(receive(consumer, 60))["p"] == sender.sent[40:]
    consumer.seek(pulsar.MessageId.earliest)
    assert digests(receive(consumer, 100)) == sent_by(sender)


def test_seek_by_time_delivers_again_from_there(client: pulsar.Client, topic: str) -> None:
    sender = open_sender(client, topic, "p")
    sender.send_all(contents("p", 50))
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    first = receive(consumer, 50)
    # Times are whole milliseconds; the silence that `receive` waits for lies between the two halves.
    sender.send_all(contents("later", 50))
    consumer.seek(receive(consumer, 50)[0].publish_timestamp())
    assert digests(receive(consumer, 50))["p"] == sender.sent[50:]
    consumer.seek(first[0].publish_timestamp())
    assert digests(receive(consumer, 100)) == sent_by(sender)


def test_negatively_acknowledged_messages_come_again(client: pulsar.Client, topic: str) -> None:
    kind = pulsar.ConsumerType.Shared
    consumer = client.subscribe(topic, "s", kind, negative_ack_redelivery_delay_ms=300)
    sender = open_sender(client, topic, "p")
    sender.send_all(contents("p", 90))
    first_time = [consumer.receive(PATIENCE_MS) for _ in range(90)]
    for number, message in enumerate(first_time):
        (consumer.negative_acknowledge if number % 3 == 0 else consumer.acknowledge)(message)
    again = receive(consumer, 30)
    assert sorted(digests(again)["p"]) == sorted(sender.sent[::3])
    assert all(message.redelivery_count() >= 1 for message in again)


def test_a_pattern_subscription_takes_the_topics_that_fit(client: pulsar.Client, namespace: str) -> None:
    senders = [open_sender(client, topic_name(namespace, f"pattern-{name}"), name) for name in "abc"]
    outsider = open_sender(client, topic_name(namespace, "other"), "outsider")
    pattern = re.compile(topic_name(namespace, "pattern-.*"))
    consumer = client.subscribe(pattern, "s", initial_position=EARLIEST)
    outsider.send_all(contents("outsider", 10))
    for sender in senders:
        sender.send_all(contents(sender.name, 100))
    assert digests(receive(consumer, 300)) == sent_by(*senders)


class Order(pulsar.schema.Record):
    number = pulsar.schema.Integer()
    article = pulsar.schema.String()


class Stranger(pulsar.schema.Record):
    number = pulsar.schema.String()


def test_a_json_schema_travels_and_is_enforced(client: pulsar.Client, topic: str) -> None:
    schema = pulsar.schema.JsonSchema(Order)
    producer = client.create_producer(topic, schema=schema)
    consumer = client.subscribe(topic, "s", schema=schema)
    for number in range(50):
        producer.send(Order(number=number, article=f"article {number}"))
    values = [consumer.receive(PATIENCE_MS).value() for _ in range(50)]
    assert [(value.number, value.article) for value in values] == [(n, f"article {n}") for n in range(50)]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.JsonSchema(Stranger))


def test_fifty_producers_share_one_connection(client: pulsar.Client, namespace: str, rest: PulsarRest) -> None:
    topics = [topic_name(namespace, f"fifty-{number}") for number in range(5)]
    consumer = client.subscribe(topics, "s")
    senders = [open_sender(client, topics[number % 5], f"p{number}") for number in range(50)]
    for index in range(60):
        for sender in senders:
            sender.send_async(payload(sender.name, index))
    for sender in senders:
        sender.producer.flush()
    publishers = [publisher for topic in topics for publisher in rest.stats(topic)["publishers"]]
    assert digests(receive(consumer, 3000)) == sent_by(*senders)
    assert len(publishers) == 50
    assert len({publisher["address"] for publisher in publishers}) == 1
