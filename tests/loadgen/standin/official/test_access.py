"""Exclusive access with the official client."""

import threading

import pulsar
import pytest
from pulsar import ProducerAccessMode

from tests.loadgen.standin.official.receiving import payloads, receive_data
from tests.waiting import wait_for


def test_a_producer_waits_for_exclusive_access(client, second_client, topic):
    consumer = client.subscribe(topic, "s")
    first = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        second_client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    admitted = []

    def wait():
        admitted.append(second_client.create_producer(topic, access_mode=ProducerAccessMode.WaitForExclusive))

    waiting = threading.Thread(target=wait)
    waiting.start()
    first.send(b"first")
    assert admitted == []
    first.close()
    waiting.join(20)
    wait_for(lambda: admitted)
    for data in payloads(5):
        admitted[0].send(data)
    assert receive_data(consumer, 6) == [b"first", *payloads(5)]


def test_a_producer_takes_access_from_another(client, second_client, topic):
    consumer = client.subscribe(topic, "s")
    fenced = second_client.create_producer(topic, send_timeout_millis=2000, access_mode=ProducerAccessMode.Exclusive)
    taker = client.create_producer(topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
    taker.send(b"mine")
    with pytest.raises(pulsar.PulsarException):
        fenced.send(b"too late")
    assert receive_data(consumer, 1) == [b"mine"]
