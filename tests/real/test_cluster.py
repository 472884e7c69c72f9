"""Two brokers behind one Sluice: topics move, a broker dies; limits hold, nothing is lost, nobody gets around."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pulsar
import pytest

from loadgen.real.jars import ProcessFailed
from loadgen.real.process import PulsarServer, wait_until
from tests.real.arrivals import Arrival, Line, Watcher
from tests.real.broker_record import KEEPER, Entry, read_record
from tests.real.cluster_proxy import (
    CHUNK,
    LOOKED_UP_AT,
    broker_urls_stripped,
    put,
    remote_ports,
    start_before,
    topic_name,
    topic_on,
)
from tests.real.consumer_kinds import BATCH as IN_BATCH
from tests.real.consumer_kinds import batched, drain, filled
from tests.real.demand import publishing, wait_for_more
from tests.real.fleet_front import NAMESPACE, Front
from tests.real.fleet_scenes import IN_EVERY_RUN
from tests.real.intake import Act
from tests.real.metrics import counted
from tests.real.performance import Performance
from tests.real.pulsar_cluster import PulsarCluster
from tests.real.pulsar_rest import TENANT, PulsarRest
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.steadiness import assert_never_above, assert_used
from tests.real.traffic import (
    Digests,
    Sender,
    digest,
    digests,
    open_sender,
    payload,
    quiet_client,
    read_all,
    receive,
    sent_by,
)
from tests.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.real, pytest.mark.slow]

RATE = 100
MOVED, KILLED, IN_DEBT = topic_name("moved"), topic_name("killed"), topic_name("in-debt")
LIMITED, FREE = topic_name("restart-limited"), topic_name("restart-free")
STAMPED = "stamped"
BATCHED, CHUNKED = (f"persistent://{TENANT}/{STAMPED}/{local}" for local in ("batched", "chunked"))
CHUNKS = 3
"""Per second, and of each message."""
BATCH, SLOW_RATE = 50, 5


@pytest.fixture(scope="module")
def sluice_proxy(started_cluster: PulsarCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    rates = {MOVED: RATE, KILLED: RATE, IN_DEBT: SLOW_RATE, LIMITED: RATE}
    sluice = start_before(started_cluster, tmp_path_factory.mktemp("sluice"), rates)
    try:
        yield sluice
    finally:
        sluice.stop()


@pytest.fixture(scope="module")
def front(started_cluster: PulsarCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A fleet of Sluices."""
    limits = {IN_EVERY_RUN.name: IN_EVERY_RUN.limit}
    front = Front(started_cluster, tmp_path_factory.mktemp("front"), "front", limits)
    try:
        yield front
    finally:
        front.close()


@pytest.fixture
def direct_client(cluster: PulsarCluster) -> Iterator[pulsar.Client]:
    """A client of the cluster itself."""
    client = quiet_client(cluster.service_url)
    try:
        yield client
    finally:
        client.close()


@dataclass(frozen=True)
class Outcome:
    """What is left of a test's traffic.

    Attributes:
        senders: Who sent it.
        received: What a consumer behind Sluice received.
        stored: What the topic holds.
        taken: When its brokers took each entry.
    """

    senders: list[Sender]
    received: Digests
    stored: Digests
    taken: list[Arrival]

    def assert_nothing_lost(self) -> None:
        """Each receipt's message is there, in order. What was sent again may be there twice."""
        for sender in self.senders:
            assert not sender.failed
            assert list(dict.fromkeys(self.stored[sender.name])) == sender.sent
            assert list(dict.fromkeys(self.received[sender.name])) == sender.sent


@dataclass(frozen=True)
class Disturbance:
    """Two greedy producers, a consumer, and something that happens to their topic meanwhile."""

    cluster: PulsarCluster
    client: pulsar.Client
    direct_client: pulsar.Client
    topic: str

    def run(self, disturb: Callable[[], None]) -> Outcome:
        # A subscription that acknowledges nothing: else the broker throws the old ledger away when the topic moves.
        self.direct_client.subscribe(self.topic, KEEPER).close()
        # Without a send timeout: a message either gets its receipt in the end or was never answered for.
        senders = [open_sender(self.client, self.topic, name, send_timeout_millis=0) for name in ("p", "q")]
        with Watcher(self.client.subscribe(self.topic, "s")) as watcher:
            with publishing(*senders, pending=50):
                wait_for_more(senders)
                disturb()
                wait_for_more(senders)
            for sender in senders:
                sender.producer.flush()
            wait_for_all(watcher, senders)
        stored = digests(read_all(self.direct_client, self.topic))
        taken = [(entry.at, entry.messages) for entry in record_of(self.cluster, self.topic)]
        return Outcome(senders, digests(watcher.messages), stored, taken)


def record_of(cluster: PulsarCluster, topic: str) -> list[Entry]:
    """What the brokers took of a topic that has a KEEPER."""
    number = cluster.owner_of(topic)
    owner = cluster.brokers[number]
    return read_record(PulsarRest(owner.admin_url), owner.service_url, topic, number)


def wait_for_all(watcher: Watcher, senders: list[Sender]) -> None:
    """Return when each message that has a receipt is received; what is missing then is missing for good."""
    wanted = {mark for sender in senders for mark in sender.sent}
    wait_until(lambda: wanted <= {digest(message.data()) for message in list(watcher.messages)}, PATIENCE_S, 0.2)


def wait_until_held(sluice: SluiceProcess, topic: str) -> None:
    wait_for(
        lambda: any(stream["held_messages"] for stream in sluice.streams(topic)),
        evidence=lambda: f"Sluice holds nothing of {topic}",
    )


def test_throttled_topic_loses_and_gains_nothing_by_a_move(
    cluster: PulsarCluster, sluice_proxy: SluiceProcess, client: pulsar.Client, direct_client: pulsar.Client
) -> None:
    before = cluster.owner_of(MOVED)
    begun = time.time()
    outcome = Disturbance(cluster, client, direct_client, MOVED).run(lambda: cluster.unload(MOVED, to=1 - before))
    assert cluster.owner_of(MOVED) == 1 - before
    outcome.assert_nothing_lost()
    assert_never_above(outcome.taken, Line(RATE, burst=RATE / 10), begun)
    assert_used(sluice_proxy, "publish", "topic", MOVED)


def test_a_debt_moves_with_its_topic(
    cluster: PulsarCluster, sluice_proxy: SluiceProcess, client: pulsar.Client, direct_client: pulsar.Client
) -> None:
    before = cluster.owner_of(IN_DEBT)
    one_batch = {"batching_enabled": True, "batching_max_messages": BATCH, "batching_max_publish_delay_ms": 1000}
    sender = open_sender(client, IN_DEBT, "p", send_timeout_millis=0, **one_batch)
    direct_client.subscribe(IN_DEBT, KEEPER).close()
    begun = time.time()
    sender.send_all([payload("p", index) for index in range(BATCH)])
    sender.send_async(payload("p", BATCH))
    wait_until_held(sluice_proxy, IN_DEBT)
    cluster.unload(IN_DEBT, to=1 - before)
    sender.producer.flush()
    batch, after = record_of(cluster, IN_DEBT)
    assert digests(read_all(direct_client, IN_DEBT)) == {"p": sender.sent}
    assert (batch.messages, after.messages) == (BATCH, 1)
    # The bucket held one token at most when the batch passed, and needs one for the next. Of the broker's milliseconds
    # one may be begun.
    assert after.at + 0.001 - begun >= (BATCH - 1) / SLOW_RATE
    assert_used(sluice_proxy, "publish", "topic", IN_DEBT)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_client_is_led_to_a_broker_itself(
    cluster: PulsarCluster, sluice_proxy: SluiceProcess, client: pulsar.Client
) -> None:
    service_ports = {int(broker.address.partition(":")[2]) for broker in cluster.brokers}
    topics = [topic_on(cluster, broker, "anywhere") for broker in (0, 1)]
    consumer = client.subscribe(topics, "s")
    senders = [open_sender(client, topic, f"to-{broker}") for broker, topic in enumerate(topics)]
    before = broker_urls_stripped(sluice_proxy)
    cluster.unload(topics[1], to=0)
    for sender in senders:
        sender.send_all([payload(sender.name, index) for index in range(10)])
    assert digests(receive(consumer, 20)) == sent_by(*senders)
    assert broker_urls_stripped(sluice_proxy) > before
    assert not remote_ports() & service_ports
    with_a_broker = quiet_client(cluster.service_url)
    with_a_broker.create_producer(topics[0])
    assert remote_ports() & service_ports, "this test would not see it"
    with_a_broker.close()


@pytest.mark.usefixtures("cluster")
def test_a_fleet_holds_a_limit_and_uses_it(front: Front) -> None:
    """The bound holds, and no share is lost: then half of the limit could not be used. Goals in time are for a machine
    that is alone, as more scenes are: test_fleets.py, on request."""
    sample = IN_EVERY_RUN.measure(front)
    assert sample["since"] <= 0, sample
    used = {figure.key: sample[figure.key] for figure in IN_EVERY_RUN.figures if figure.unit == " %"}
    assert min(used.values()) > 50, sample


def test_connections_of_a_client_may_reach_any_process(
    cluster: PulsarCluster, front: Front, tmp_path: Path, direct_client: pulsar.Client
) -> None:
    """The broker of a topic is named to one process; the next connection of the client may reach the other one."""
    topic = topic_on(cluster, 1, "any-process")
    direct_client.create_producer(topic).close()
    config = {"processes": 2, "fleet": {"name": "any", "namespace": NAMESPACE}}
    sluice = start_sluice(tmp_path, cluster.brokers[LOOKED_UP_AT].service_url, config)
    second = replace(sluice, admin_url=f"http://127.0.0.1:{int(sluice.admin_url.rpartition(':')[2]) + 1}")
    try:
        second.wait_ready()
        for process in (sluice, second):
            wait_for(lambda process=process: process.get("/sluice/fleet")["coordinator"], 60)  # type: ignore[misc]
        reached = set[bool]()
        for number in range(60):
            if number >= 10 and len(reached) == 2:
                break
            client = quiet_client(sluice.service_url)
            producer = client.create_producer(topic, producer_name=f"p{number}")
            producer.send(b"1")
            reached |= {process is second for process in (sluice, second) if process.streams(topic)}
            client.close()
        assert reached == {False, True}
        for process in (sluice, second):
            assert counted(process, "sluice_connections_ended_total", cause="target_refused") == 0
    finally:
        sluice.stop()


@pytest.fixture(scope="module")
def stamped(started_cluster: PulsarCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Performance[Act]]:
    """Consumers of one of the brokers, which put metadata of their own before each entry."""
    broker = started_cluster.brokers[LOOKED_UP_AT]
    PulsarRest(broker.admin_url).ensure_namespace(STAMPED)
    for topic in (BATCHED, CHUNKED):
        put(started_cluster, topic, LOOKED_UP_AT)
    limits = {BATCHED: {"dispatch": {"messages": RATE}}, CHUNKED: {"dispatch": {"messages": CHUNKS}}}
    sluice = start_sluice(tmp_path_factory.mktemp(STAMPED), broker.service_url, {"limits": {"topics": limits}})
    try:
        of_batches = batched(pulsar.CompressionType.LZ4)
        scenes = {
            BATCHED: partial(filled, drain, BATCHED, 500, **of_batches),
            CHUNKED: partial(filled, drain, CHUNKED, 4, size=2 * CHUNK + 10_000, chunking_enabled=True),
        }
        yield Performance(sluice, broker, STAMPED, scenes)
    finally:
        sluice.stop()


def test_entries_with_broker_metadata_count_by_their_content(cluster: PulsarCluster, stamped: Performance[Act]) -> None:
    act = stamped[BATCHED]
    act.assert_each_once_in_order()
    assert stamped.watch.most_held[BATCHED] in (IN_BATCH, 2 * IN_BATCH)
    assert_never_above(act.arrivals, Line(RATE, burst=RATE / 10, entry=IN_BATCH), stamped.begun[BATCHED])
    [stream] = act.streams
    assert stream["passed_messages"] == len(act.sent)
    published = PulsarRest(cluster.brokers[LOOKED_UP_AT].admin_url).stats(BATCHED)["bytesInCounter"]
    assert stream["passed_bytes"] > published, "no metadata of the broker's"


@pytest.mark.usefixtures("cluster")
def test_chunks_are_messages_to_the_limit(stamped: Performance[Act]) -> None:
    act = stamped[CHUNKED]
    act.assert_each_once_in_order()
    assert stamped.watch.most_held[CHUNKED] > 0
    assert [stream["passed_messages"] for stream in act.streams] == [CHUNKS * len(act.sent)]
    # Each message is complete with its last chunk: the limit is one message a second, but for the first one's chunks.
    line = Line(CHUNKS, burst=CHUNKS, entry=CHUNKS)
    assert_never_above([(at, CHUNKS) for at, _ in act.arrivals], line, stamped.begun[CHUNKED])
    assert (set(stamped.left[0].values()), stamped.left[1]) == ({0}, 0), "nothing is held when all have gone"


def test_killed_broker_costs_neither_messages_nor_the_limit(
    cluster: PulsarCluster, sluice_proxy: SluiceProcess, client: pulsar.Client, direct_client: pulsar.Client
) -> None:
    doomed = 1 - LOOKED_UP_AT
    put(cluster, KILLED, doomed)
    begun = time.time()
    outcome = Disturbance(cluster, client, direct_client, KILLED).run(cluster.brokers[doomed].kill)
    assert cluster.owner_of(KILLED) == LOOKED_UP_AT
    outcome.assert_nothing_lost()
    assert_never_above(outcome.taken, Line(RATE, burst=RATE / 10), begun)
    assert_used(sluice_proxy, "publish", "topic", KILLED)


def start_again(broker: PulsarServer) -> None:
    """Start a broker as a supervisor does: one that is alone ends while ZooKeeper still has its predecessor (4.0)."""
    try:
        broker.start()
    except ProcessFailed:
        broker.start()


def test_last_broker_is_killed_and_starts_again(
    started_cluster: PulsarCluster, sluice_proxy: SluiceProcess, client: pulsar.Client
) -> None:
    """At its address, with the topics of the other one, which is dead: none of what has a receipt is lost."""
    last = started_cluster.brokers[LOOKED_UP_AT]
    # Without a send timeout: a message either gets its receipt in the end or was never answered for.
    senders = [
        open_sender(client, topic, f"{topic.rpartition('-')[2]}-{number}", send_timeout_millis=0)
        for topic in (LIMITED, FREE)
        for number in range(2)
    ]
    with publishing(*senders, per_s=RATE, pending=50):
        wait_for_more(senders)
        last.kill()
        start_again(last)
        receipts = [len(sender.sent) for sender in senders]
        wait_for_more(senders)
    for sender in senders:
        sender.producer.flush()
    at_broker = quiet_client(last.service_url)
    stored = {name: marks for topic in (LIMITED, FREE) for name, marks in digests(read_all(at_broker, topic)).items()}
    at_broker.close()
    assert min(receipts) > 0
    for sender in senders:
        assert not sender.failed
        # What the broker stored but could not answer for is sent again: a second copy is allowed, a gap is not.
        assert list(dict.fromkeys(stored[sender.name])) == sender.sent
    assert_used(sluice_proxy, "publish", "topic", LIMITED)
