"""Every way to share a subscription, to acknowledge and to come back, with the official client."""

import re
import uuid

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition

from tests.loadgen.standin.official.receiving import (
    NEVER_MS,
    SOON_MS,
    assert_nothing_more,
    payloads,
    receive,
    receive_data,
)


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
