"""Limits over two workers: producers and consumers of one topic, each on a connection of its own."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pulsar
import pytest

from bench.meters import children
from tests.real.arrivals import Line, Watcher, rate_over
from tests.real.demand import publishing, wait_for_more
from tests.real.probe import Probe
from tests.real.pulsar_rest import topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.steadiness import jain
from tests.real.traffic import Sender, digests, open_sender, payload, quiet_client, read_all

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("needs_limits", "namespace")]

WORKERS = 2
PUBLISH, DISPATCH, MORE = 200, 100, 2000
CONFIG = {
    "workers": WORKERS,
    "limits": {
        "topics": {
            topic_name("workers", "published"): {"publish": {"messages": PUBLISH}},
            topic_name("workers", "drained"): {"dispatch": {"messages": DISPATCH}},
            topic_name("workers", "killed"): {"publish": {"messages": MORE}},
        }
    },
}


class Spread:
    """Clients of a topic, until each worker has two of them, whatever the kernel does: four at least."""

    def __init__(self, sluice: SluiceProcess, topic: str) -> None:
        self._sluice = sluice
        self._topic = topic
        self._clients = ExitStack()

    def each(self, open_one: Callable[[pulsar.Client, int], Any]) -> list[Any]:
        opened: list[Any] = []
        while len(opened) < 2 * WORKERS or min(self._on_workers()) < 2:
            assert len(opened) < 40, f"so are 40 clients spread over the workers: {self._on_workers()}"
            client = quiet_client(self._sluice.service_url)
            self._clients.callback(client.shutdown)
            opened.append(open_one(client, len(opened)))
        return opened

    def close(self) -> None:
        self._clients.close()

    def _on_workers(self) -> list[int]:
        """A worker's connections have numbers of its own: each second one."""
        numbers = [stream["connection_id"] for stream in self._sluice.streams(self._topic)]
        return [sum(number % WORKERS == worker for number in numbers) for worker in range(WORKERS)]


@pytest.fixture
def spread(sluice_proxy: SluiceProcess, request: pytest.FixtureRequest) -> Iterator[Spread]:
    spread = Spread(sluice_proxy, topic_name("workers", request.param))
    yield spread
    spread.close()


@pytest.mark.parametrize("spread", ["published"], indirect=True)
def test_producers_share_the_limit_of_their_topic(spread: Spread, direct_client: pulsar.Client, probe: Probe) -> None:
    """P2 and P4."""
    topic = topic_name("workers", "published")
    watcher = Watcher(direct_client.subscribe(topic, "s"))
    senders: list[Sender] = spread.each(lambda client, number: open_sender(client, topic, f"greedy-{number}"))
    with watcher, publishing(*senders):
        begin = watcher.wait_first()
        time.sleep(10.5)
    for sender in senders:
        # A client that is shut down with messages on their way hangs for 20 s.
        sender.producer.flush()
    assert Line(PUBLISH, burst=PUBLISH / 10).worst_excess(watcher.arrivals, probe.stall_s) <= 0
    assert rate_over(watcher.arrivals, begin, 10, probe.stalled_s) >= 0.97 * PUBLISH
    assert len(watcher.by_producer) == len(senders)
    assert jain([*watcher.by_producer.values()]) >= 0.99


@pytest.mark.parametrize("spread", ["drained"], indirect=True)
def test_consumers_share_the_limit_of_their_topic(spread: Spread, direct_client: pulsar.Client, probe: Probe) -> None:
    topic = topic_name("workers", "drained")
    direct_client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    sender = open_sender(direct_client, topic, "p")
    watchers: list[Watcher] = spread.each(lambda client, _: Watcher(_consumer(client, topic)))
    with ExitStack() as watching:
        for watcher in watchers:
            watching.enter_context(watcher)
        sender.send_all([payload("p", index) for index in range(1500)])
        begin = min(watcher.wait_first() for watcher in watchers)
        time.sleep(8)
    arrivals = sorted(arrival for watcher in watchers for arrival in watcher.arrivals)
    assert Line(DISPATCH, burst=DISPATCH / 10).worst_excess(arrivals, probe.stall_s) <= 0
    assert rate_over(arrivals, begin, 7, probe.stalled_s) >= 0.97 * DISPATCH


@pytest.mark.parametrize("spread", ["killed"], indirect=True)
def test_a_worker_that_is_killed_loses_nothing_that_was_acknowledged(
    spread: Spread, sluice_proxy: SluiceProcess, direct_client: pulsar.Client, probe: Probe
) -> None:
    topic = topic_name("workers", "killed")
    watcher = Watcher(direct_client.subscribe(topic, "s"))
    senders: list[Sender] = spread.each(lambda client, number: open_sender(client, topic, f"sender-{number}"))
    assert sluice_proxy.process is not None
    with watcher, publishing(*senders):
        wait_for_more(senders)
        os.kill(children(sluice_proxy.process.pid)[0], signal.SIGKILL)
        wait_for_more(senders)
    for sender in senders:
        sender.producer.flush()
    assert Line(MORE, burst=MORE / 10).worst_excess(watcher.arrivals, probe.stall_s) <= 0
    stored = digests(read_all(direct_client, topic))
    for sender in senders:
        assert not sender.failed
        assert list(dict.fromkeys(stored[sender.name])) == sender.sent, "all, in order; some perhaps twice"


def _consumer(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    return client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=50)
