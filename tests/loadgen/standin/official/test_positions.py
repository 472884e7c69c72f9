"""Readers and seeks of the official client."""

import time

import pulsar

from tests.loadgen.standin.official.receiving import SOON_MS, assert_nothing_more, payloads, receive_data


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
