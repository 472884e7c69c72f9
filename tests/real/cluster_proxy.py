"""A cluster of two brokers with a Sluice in front, and what the tests do with it."""

import contextlib
from pathlib import Path

from adminrest.client import AdminClient
from tests.real.broker_record import SHOWN
from tests.real.pulsar_cluster import PulsarCluster
from tests.real.pulsar_rest import PulsarRest
from tests.real.sluice_process import SluiceProcess, start_sluice

CHUNK = 1_500_000
"""Bytes of the largest entry."""
PROPERTIES = {
    **SHOWN,
    "maxMessageSize": str(CHUNK),
    # The one that names the new broker to the clients of a topic that moves, which Sluice has to keep from them.
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl",
}
"""Of both brokers."""

LOOKED_UP_AT = 0
"""The index of the broker that Sluice asks where a topic is; a killed one could not tell."""


def topic_name(local: str) -> str:
    return f"persistent://public/default/{local}"


def start_before(cluster: PulsarCluster, folder: Path, rates: dict[str, int]) -> SluiceProcess:
    """Sluice, with a limit in messages per second for each named topic."""
    limits = {topic: {"publish": {"messages": rate}} for topic, rate in rates.items()}
    config = {"allowed_brokers": [broker.address for broker in cluster.brokers], "limits": {"topics": limits}}
    return start_sluice(folder, cluster.brokers[LOOKED_UP_AT].service_url, config)


def put(cluster: PulsarCluster, topic: str, broker: int) -> None:
    """Have the topic owned by that broker."""
    if cluster.owner_of(topic) != broker:
        cluster.unload(topic, to=broker)


def topic_on(cluster: PulsarCluster, broker: int, local: str) -> str:
    """The full name of a topic that is owned by that broker, in a namespace of that broker's topics."""
    namespace = f"public/on-{broker}"
    rest = PulsarRest(cluster.brokers[broker].admin_url)
    if namespace not in rest.get_json("/admin/v2/namespaces/public"):
        rest.call("PUT", f"/admin/v2/namespaces/{namespace}", {})
    topic = f"persistent://{namespace}/{local}"
    put(cluster, topic, broker)
    return topic


def broker_urls_stripped(sluice: SluiceProcess) -> float:
    """How many brokers' addresses Sluice took out of what it passed on."""
    lines = AdminClient(sluice.admin_url).get("/metrics").decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("sluice_broker_urls_stripped_total ")))


def remote_ports() -> set[int]:
    """Where the TCP connections of this process lead. Linux only."""
    ours = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            ours.add(str(descriptor.readlink()))
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in ours}
