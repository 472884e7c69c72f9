"""What the tests with the official client receive, and how long they wait for it."""

import pulsar
import pytest

SOON_MS = 60_000
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
