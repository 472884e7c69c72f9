"""Publish limits, measured where it counts: at a consumer of the broker itself."""

import time
from collections.abc import Collection

import pulsar
import pytest

from tests.real.arrivals import Line, Watcher, rate_over
from tests.real.demand import publishing
from tests.real.probe import Probe
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import digests, open_sender, payload, receive, sent_by

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]

TOTAL = 200
CONFIG = {
    "limits": {
        "namespaces": {
            f"{TENANT}/total": {"publish_total": {"messages": TOTAL}},
            f"{TENANT}/each": {"publish": {"messages": 100, "bytes": "1MB"}},
        }
    }
}


@pytest.fixture(autouse=True, scope="module")
def limited_namespaces(rest: PulsarRest) -> None:
    for name in ("total", "each", "free", "live"):
        rest.ensure_namespace(name)


def jain(shares: Collection[int]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def test_a_namespace_total_holds_the_greedy_and_spares_their_neighbour(
    client: pulsar.Client, direct_client: pulsar.Client, rest: PulsarRest, probe: Probe
) -> None:
    topics = [topic_name("total", f"greedy-{number}") for number in range(3)]
    free = topic_name("free", "neighbour")
    limited, neighbour = Watcher(direct_client.subscribe(topics, "s")), Watcher(direct_client.subscribe(free, "s"))
    greedy = [open_sender(client, topics[number % 3], f"greedy-{number}") for number in range(5)]
    paced = open_sender(client, free, "neighbour")
    with limited, neighbour, publishing(paced, per_s=200), publishing(*greedy):
        begin = limited.wait_first()
        time.sleep(10.5)
        addresses = {publisher["address"] for name in (*topics, free) for publisher in rest.stats(name)["publishers"]}
    assert len(addresses) == 1, "they were to share one connection"
    assert Line(TOTAL, burst=TOTAL / 10).worst_excess(limited.arrivals, probe.stall_s) <= 0
    assert rate_over(limited.arrivals, begin, 10, probe.stalled_s) >= 0.97 * TOTAL
    assert rate_over(neighbour.arrivals, begin, 10, probe.stalled_s) >= 0.95 * 200
    assert jain(limited.by_producer.values()) >= 0.99


def test_a_namespace_s_rate_is_each_topic_s_own(
    client: pulsar.Client, direct_client: pulsar.Client, probe: Probe
) -> None:
    topics = [topic_name("each", f"own-{number}") for number in range(2)]
    watchers = [Watcher(direct_client.subscribe(topic, "s")) for topic in topics]
    senders = [open_sender(client, topic, topic[-5:]) for topic in topics]
    with watchers[0], watchers[1], publishing(*senders):
        begin = max(watcher.wait_first() for watcher in watchers)
        time.sleep(4.5)
    for watcher in watchers:
        assert Line(100, burst=10).worst_excess(watcher.arrivals, probe.stall_s) <= 0
        assert rate_over(watcher.arrivals, begin, 4, probe.stalled_s) >= 0.97 * 100


def test_bytes_are_limited_too_and_big_messages_arrive_whole(
    client: pulsar.Client, direct_client: pulsar.Client, probe: Probe
) -> None:
    topic = topic_name("each", "bytes")
    consumer = direct_client.subscribe(topic, "s")
    sender = open_sender(client, topic, "p")
    begin = time.monotonic()
    sender.send_all([payload("p", index, 100_000) for index in range(40)])
    took_s = time.monotonic() - begin
    assert digests(receive(consumer, 40)) == sent_by(sender)
    # 4 MB at 1 MB/s: the burst is a tenth of a second's worth, and the last entry goes on credit.
    assert 4.0 - 0.1 - 0.1 <= took_s <= 4.0 * 1.03 + 0.2 + probe.stall_s


def test_a_rate_set_by_rest_acts_on_running_clients_and_so_does_its_removal(
    client: pulsar.Client, direct_client: pulsar.Client, sluice_proxy: SluiceProcess, probe: Probe
) -> None:
    topic, rate_path = topic_name("live", "t"), f"/admin/v2/namespaces/{TENANT}/live/publishRate"
    watcher = Watcher(direct_client.subscribe(topic, "s"))
    sluice_proxy.send("POST", rate_path, {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1})
    assert sluice_proxy.get(rate_path)["publishThrottlingRateInMsg"] == 10
    with watcher, publishing(open_sender(client, topic, "p"), pending=500):
        slow = watcher.wait_first()
        time.sleep(3)
        raised = time.monotonic()
        sluice_proxy.send("POST", rate_path, {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1})
        time.sleep(2.5)
        removed = time.monotonic()
        sluice_proxy.send("DELETE", rate_path)
        time.sleep(1.5)
    tight = [arrival for arrival in watcher.arrivals if arrival[0] < raised]
    wide = [arrival for arrival in watcher.arrivals if raised <= arrival[0] < removed]
    assert Line(10, burst=1).worst_excess(tight, probe.stall_s) <= 0
    assert rate_over(watcher.arrivals, slow, 3, probe.stalled_s) >= 9
    assert Line(1000, burst=100).worst_excess(wide, probe.stall_s) <= 0
    assert rate_over(watcher.arrivals, raised + 0.2, 2, probe.stalled_s) >= 0.97 * 1000
    assert rate_over(watcher.arrivals, removed + 0.2, 1) >= 1500
