"""The official Python client (C++ inside) against the stand-in broker."""

import re
import time
import uuid
from hashlib import sha256

import pulsar
import pytest
from pulsar import CompressionType, ConsumerType, InitialPosition

SOON_MS = 5000
NEVER_MS = 300


def receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(SOON_MS) for _ in range(count)]


def receive_data(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    messages = receive(consumer, count)
    for message in messages:
        consumer.acknowledge(message)
    return [message.data() for message in messages]


def assert_nothing_more(consumer: pulsar.Consumer) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(NEVER_MS)


def payloads(count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(count)]


def test_unbatched_messages_arrive_in_order_with_their_ids(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    sent = [producer.send(data) for data in payloads(50)]
    received = receive(consumer, 50)
    assert [message.data() for message in received] == payloads(50)
    assert [message.message_id().entry_id() for message in received] == list(range(50))
    assert [message_id.entry_id() for message_id in sent] == list(range(50))


def test_a_batch_is_one_entry_and_arrives_as_its_messages(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=100, batching_max_publish_delay_ms=1000
    )
    for data in payloads(100):
        producer.send_async(data, None)
    producer.flush()
    received = receive(consumer, 100)
    assert [message.data() for message in received] == payloads(100)
    assert {message.message_id().entry_id() for message in received} == {0}


@pytest.mark.parametrize(
    "compression", [CompressionType.LZ4, CompressionType.ZLib, CompressionType.ZSTD, CompressionType.SNAPPY], ids=str
)
def test_compressed_messages_arrive_unchanged(client, topic, compression):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, compression_type=compression)
    producer.send(b"again and " * 10_000)
    assert receive_data(consumer, 1) == [b"again and " * 10_000]


def test_the_largest_message_and_a_chunked_one_arrive_unchanged(client, topic):
    consumer = client.subscribe(topic, "s")
    largest = uuid.uuid4().bytes * (4_900_000 // 16)
    client.create_producer(topic).send(largest)
    chunked = uuid.uuid4().bytes * (12_000_000 // 16)
    client.create_producer(topic, chunking_enabled=True).send(chunked)
    received = [sha256(message.data()).digest() for message in receive(consumer, 2)]
    assert received == [sha256(largest).digest(), sha256(chunked).digest()]


def test_a_partitioned_topic_spreads_over_its_partitions(client):
    topic = "persistent://public/parts/four"
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{index}" for index in range(4)]
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution, batching_enabled=False
    )
    for data in payloads(40):
        producer.send(data)
    received = receive(consumer, 40)
    assert sorted(message.data() for message in received) == sorted(payloads(40))
    assert {message.message_id().partition() for message in received} == {0, 1, 2, 3}
    consumer.unsubscribe()


def test_an_exclusive_subscription_refuses_a_second_consumer(client, topic):
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_a_shared_subscription_gives_each_message_to_one_consumer(client, second_client, topic):
    first = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    second = second_client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    producer = client.create_producer(topic)
    for data in payloads(40):
        producer.send(data)
    received = [receive_data(first, 20), receive_data(second, 20)]
    assert sorted(received[0] + received[1]) == sorted(payloads(40))


def test_a_failover_subscription_moves_to_the_next_consumer(client, second_client, topic):
    first = client.subscribe(topic, "s", consumer_type=ConsumerType.Failover)
    second = second_client.subscribe(topic, "s", consumer_type=ConsumerType.Failover)
    producer = client.create_producer(topic)
    for data in payloads(20):
        producer.send(data)
    assert receive_data(first, 10) == payloads(20)[:10]
    first.close()
    assert receive_data(second, 10) == payloads(20)[10:]


def test_a_key_shared_subscription_keeps_each_key_with_one_consumer(client, second_client, topic):
    first = client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared)
    second = second_client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared)
    producer = client.create_producer(topic)
    for number in range(200):
        producer.send(b"%d" % number, partition_key=f"key {number % 20}")
    received: dict[str, list[pulsar.Message]] = {"first": [], "second": []}
    for name, consumer in (("first", first), ("second", second)):
        while True:
            try:
                message = consumer.receive(NEVER_MS)
            except pulsar.Timeout:
                break
            consumer.acknowledge(message)
            received[name].append(message)
    keys = {name: {message.partition_key() for message in messages} for name, messages in received.items()}
    assert keys["first"]
    assert keys["second"]
    assert not keys["first"] & keys["second"]
    for messages in received.values():
        by_key: dict[str, list[int]] = {}
        for message in messages:
            by_key.setdefault(message.partition_key(), []).append(int(message.data()))
        assert all(numbers == sorted(numbers) and len(numbers) == 10 for numbers in by_key.values())


def test_a_reader_reads_from_the_beginning_and_from_an_id(client, topic):
    producer = client.create_producer(topic)
    sent = [producer.send(data) for data in payloads(10)]
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(SOON_MS).data() for _ in range(10)] == payloads(10)
    assert not reader.has_message_available()
    reader.close()
    later = client.create_reader(topic, sent[6])
    assert later.has_message_available()
    assert [later.read_next(SOON_MS).data() for _ in range(3)] == payloads(10)[7:]
    assert not later.has_message_available()


def test_a_reader_seeks(client, topic):
    producer = client.create_producer(topic)
    sent = [producer.send(data) for data in payloads(10)]
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert reader.read_next(SOON_MS).data() == payloads(10)[0]
    reader.seek(sent[4])
    assert [reader.read_next(SOON_MS).data() for _ in range(5)] == payloads(10)[5:]
    reader.seek(pulsar.MessageId.earliest)
    assert [reader.read_next(SOON_MS).data() for _ in range(10)] == payloads(10)


def test_a_consumer_seeks_by_id(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    sent = [producer.send(data) for data in payloads(10)]
    assert receive_data(consumer, 10) == payloads(10)
    consumer.seek(sent[3])
    assert receive_data(consumer, 6) == payloads(10)[4:]
    consumer.seek(pulsar.MessageId.earliest)
    assert receive_data(consumer, 10) == payloads(10)
    consumer.seek(pulsar.MessageId.latest)
    assert_nothing_more(consumer)


def test_a_consumer_seeks_by_time(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for data in payloads(5):
        producer.send(data)
    time.sleep(0.01)
    middle = int(time.time() * 1000)
    for data in payloads(10)[5:]:
        producer.send(data)
    assert receive_data(consumer, 10) == payloads(10)
    consumer.seek(middle)
    assert receive_data(consumer, 5) == payloads(10)[5:]
    assert_nothing_more(consumer)


def test_a_negatively_acknowledged_message_comes_again(client, topic):
    consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    producer = client.create_producer(topic)
    for data in payloads(3):
        producer.send(data)
    first, second, third = receive(consumer, 3)
    consumer.acknowledge(first)
    consumer.negative_acknowledge(second)
    consumer.acknowledge(third)
    again = consumer.receive(SOON_MS)
    assert again.data() == second.data()
    assert again.redelivery_count() == 1
    consumer.acknowledge(again)
    assert_nothing_more(consumer)


def test_all_unacknowledged_messages_come_again_when_asked_for(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for data in payloads(5):
        producer.send(data)
    received = receive(consumer, 5)
    consumer.acknowledge_cumulative(received[1])
    consumer.redeliver_unacknowledged_messages()
    assert receive_data(consumer, 3) == payloads(5)[2:]


def test_a_partly_acknowledged_batch_comes_again_without_what_was_acknowledged(client, second_client, topic):
    first = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, batch_index_ack_enabled=True)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1000
    )
    for data in payloads(10):
        producer.send_async(data, None)
    producer.flush()
    for message in receive(first, 10)[:4]:
        first.acknowledge(message)
    first.close()
    second = second_client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, batch_index_ack_enabled=True)
    assert receive_data(second, 6) == payloads(10)[4:]
    assert_nothing_more(second)


def test_a_pattern_subscription_finds_the_topics_that_match(client):
    family = uuid.uuid4().hex
    producers = [client.create_producer(f"persistent://public/default/{family}-{name}") for name in "abc"]
    client.create_producer("persistent://public/default/other")
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{family}-.*"), "s", initial_position=InitialPosition.Earliest
    )
    for producer in producers:
        producer.send(producer.topic().encode())
    assert sorted(receive_data(consumer, 3)) == sorted(producer.topic().encode() for producer in producers)


def test_what_was_not_acknowledged_waits_for_the_next_consumer(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for data in payloads(10):
        producer.send(data)
    for message in receive(consumer, 10)[:6]:
        consumer.acknowledge(message)
    consumer.close()
    producer.send(b"meanwhile")
    again = client.subscribe(topic, "s")
    assert receive_data(again, 5) == [*payloads(10)[6:], b"meanwhile"]


def test_a_lost_connection_gives_back_what_was_pending(client, broker_address, topic, second_client):
    lost = second_client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    client.create_producer(topic).send(b"mine")
    assert lost.receive(SOON_MS).data() == b"mine"
    second_client.shutdown()
    consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    assert receive_data(consumer, 1) == [b"mine"]


def test_unsubscribe_forgets_the_subscription(client, topic):
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"forgotten")
    assert receive(consumer, 1)
    consumer.unsubscribe()
    assert_nothing_more(client.subscribe(topic, "s"))


def test_a_producers_name_can_be_taken_once_at_a_time(client, second_client, topic):
    producer = client.create_producer(topic, producer_name="me")
    with pytest.raises(pulsar.ProducerBusy):
        second_client.create_producer(topic, producer_name="me")
    producer.close()
    second_client.create_producer(topic, producer_name="me").send(b"mine now")


def test_a_slow_consumer_holds_no_more_than_its_permits(client, topic):
    """A receiver queue of 10 asks for 10: the rest waits in the broker, and another consumer can have it."""
    slow = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, receiver_queue_size=10)
    producer = client.create_producer(topic)
    for data in payloads(100):
        producer.send(data)
    quick = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    assert len(receive_data(quick, 90)) == 90
    assert_nothing_more(quick)
    assert len(receive_data(slow, 10)) == 10


def test_the_last_message_id_is_known(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    last = [producer.send(data) for data in payloads(3)][-1]
    assert consumer.get_last_message_id().entry_id() == last.entry_id()


class Reading(pulsar.schema.Record):
    sensor = pulsar.schema.String()
    value = pulsar.schema.Float()


def test_json_records_travel_with_their_schema(client, topic):
    schema = pulsar.schema.JsonSchema(Reading)
    consumer = client.subscribe(topic, "s", schema=schema)
    client.create_producer(topic, schema=schema).send(Reading(sensor="a", value=1.5))
    message = consumer.receive(SOON_MS)
    assert (message.value().sensor, message.value().value) == ("a", 1.5)
    assert message.schema_version() == "\0" * 8
