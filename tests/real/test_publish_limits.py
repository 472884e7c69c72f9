"""Publish limits, measured where it counts: at a consumer of the broker itself."""

import time

import pulsar
import pytest

from tests.real.arrivals import Line, Watcher
from tests.real.demand import publishing
from tests.real.metrics import counted
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.steadiness import assert_never_above, assert_used, evenness
from tests.real.traffic import digests, open_sender, payload, receive, sent_by

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits")]

TOTAL = 200
CONFIG = {
    "limits": {
        "namespaces": {
            f"{TENANT}/total": {"publish_total": {"messages": TOTAL}},
            f"{TENANT}/each": {"publish": {"bytes": "1MB"}},
        }
    }
}


@pytest.fixture(autouse=True, scope="module")
def limited_namespaces(rest: PulsarRest) -> None:
    for name in ("total", "each", "free"):
        rest.ensure_namespace(name)


def test_a_namespace_total_holds_the_greedy_and_spares_others(
    client: pulsar.Client,
    direct_client: pulsar.Client,
    sluice_proxy: SluiceProcess,
    rest: PulsarRest,
) -> None:
    topics = [topic_name("total", f"greedy-{number}") for number in range(3)]
    free = topic_name("free", "neighbour")
    limited, neighbour = Watcher(direct_client.subscribe(topics, "s")), Watcher(direct_client.subscribe(free, "s"))
    greedy = [open_sender(client, topics[number % 3], f"greedy-{number}") for number in range(5)]
    paced = open_sender(client, free, "neighbour")
    begun = time.monotonic()
    with limited, neighbour, publishing(paced, per_s=200), publishing(*greedy):
        limited.wait_first()
        time.sleep(6.5)
        addresses = {publisher["address"] for name in (*topics, free) for publisher in rest.stats(name)["publishers"]}
    assert len(addresses) == 1, "they were to share one connection"
    assert_never_above(limited.arrivals, Line(TOTAL, burst=TOTAL / 10), begun)
    assert_used(sluice_proxy, "publish", "namespace", f"{TENANT}/total")
    assert evenness(sluice_proxy, "publish", *topics) >= 0.99
    (stream,) = sluice_proxy.streams(free)
    assert (stream["throttled_ms"], stream["limits"]) == (0, [])
    for cause in ("publish_rate", "hold_connection", "hold_process"):
        assert counted(sluice_proxy, "sluice_pauses_total", cause=cause) == 0, "they share its connection"


def test_big_messages_arrive_whole_at_a_limit_in_bytes(
    client: pulsar.Client, direct_client: pulsar.Client, sluice_proxy: SluiceProcess
) -> None:
    topic = topic_name("each", "bytes")
    consumer = direct_client.subscribe(topic, "s")
    sender = open_sender(client, topic, "p")
    begin = time.monotonic()
    sender.send_all([payload("p", index, 100_000) for index in range(30)])
    took_s = time.monotonic() - begin
    assert digests(receive(consumer, 30)) == sent_by(sender)
    # 3 MB at 1 MB/s: the burst is a tenth of a second's worth, and the last entry goes on credit.
    assert took_s >= 3.0 - 0.1 - 0.1
    assert_used(sluice_proxy, "publish", "topic", topic)
