"""The official client sends and receives."""

import time
import uuid
from hashlib import sha256

import pulsar
import pytest
from pulsar import CompressionType

from tests.loadgen.standin.official.receiving import SOON_MS, assert_nothing_more, payloads, receive, receive_data


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
    # A subscription of its own, as the topic is there for all tests, and never unsubscribed: of several partitions at
    # once that takes the official client down (pulsar-client 3.13.0, a segmentation fault in one of some twenty runs).
    consumer = client.subscribe(topic, uuid.uuid4().hex)
    producer = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution, batching_enabled=False
    )
    for data in payloads(40):
        producer.send(data)
    received = receive(consumer, 40)
    assert sorted(message.data() for message in received) == sorted(payloads(40))
    assert {message.message_id().partition() for message in received} == {0, 1, 2, 3}


def test_a_producers_name_can_be_taken_once_at_a_time(client, second_client, topic):
    producer = client.create_producer(topic, producer_name="me")
    with pytest.raises(pulsar.ProducerBusy):
        second_client.create_producer(topic, producer_name="me")
    producer.close()
    second_client.create_producer(topic, producer_name="me").send(b"mine now")


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
