"""Dispatch limits, measured at the consumer behind Sluice."""

import time

import pulsar
import pytest

from tests.real.arrivals import Arrival, Line, Watcher, rate_over
from tests.real.probe import Probe
from tests.real.pulsar_rest import topic_name
from tests.real.traffic import open_sender, payload

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]

LIMIT = 100
CONFIG = {
    "limits": {
        "topics": {
            topic_name("dispatch-limits", name): {"dispatch": {"messages": LIMIT}}
            for name in ("unbatched", "batched", "shared")
        },
    }
}


def fill(client: pulsar.Client, topic: str, count: int, **options: object) -> None:
    """A backlog for the subscription `s`."""
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    sender = open_sender(client, topic, "p", **options)
    sender.send_all([payload("p", index) for index in range(count)])
    sender.producer.close()


def watch(consumer: pulsar.Consumer, seconds: float) -> tuple[list[Arrival], float]:
    with Watcher(consumer) as watcher:
        begin = watcher.wait_first()
        time.sleep(seconds + 0.5)
    return watcher.arrivals, begin


def test_a_backlog_flows_at_the_limit_from_the_first_second_on(
    client: pulsar.Client, direct_client: pulsar.Client, namespace: str, probe: Probe
) -> None:
    topic = topic_name(namespace, "unbatched")
    fill(direct_client, topic, 1500)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=1000)
    arrivals, begin = watch(consumer, 5)
    assert Line(LIMIT, burst=LIMIT / 10).worst_excess(arrivals, probe.stall_s) <= 0
    assert rate_over(arrivals, begin, 5, probe.stall_s) >= 0.97 * LIMIT


def test_batches_do_not_break_the_limit(
    client: pulsar.Client, direct_client: pulsar.Client, namespace: str, probe: Probe
) -> None:
    topic = topic_name(namespace, "batched")
    fill(direct_client, topic, 1500, batching_enabled=True, batching_max_messages=50)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=1000)
    arrivals, begin = watch(consumer, 5)
    assert Line(LIMIT, burst=LIMIT / 10, entry=50).worst_excess(arrivals, probe.stall_s) <= 0
    # An entry is indivisible: up to one of them is still missing at the end of the window.
    assert rate_over(arrivals, begin, 5, probe.stall_s) >= 0.97 * LIMIT - 50 / 5


def test_consumers_of_one_topic_share_its_limit(
    client: pulsar.Client, direct_client: pulsar.Client, namespace: str, probe: Probe
) -> None:
    topic = topic_name(namespace, "shared")
    fill(direct_client, topic, 1500)
    consumers = [client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=100) for _ in range(3)]
    first, second, third = (Watcher(consumer) for consumer in consumers)
    with first, second, third:
        begin = min(watcher.wait_first() for watcher in (first, second, third))
        time.sleep(4.5)
    arrivals = sorted(first.arrivals + second.arrivals + third.arrivals)
    assert Line(LIMIT, burst=LIMIT / 10).worst_excess(arrivals, probe.stall_s) <= 0
    assert rate_over(arrivals, begin, 4, probe.stall_s) >= 0.97 * LIMIT
