"""A real Pulsar cluster on loopback: ZooKeeper, one bookie, two brokers; about 1 GB and 20 s to start.

with PulsarCluster(folder) as cluster:
owner = cluster.owner_of("persistent://public/default/t")
cluster.unload("persistent://public/default/t", to=1 - owner)
cluster.brokers[owner].kill()
cluster.brokers[owner].start()
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from adminrest.client import AdminClient, AdminError, topic_path
from loadgen.real.jars import RealPulsarError
from loadgen.real.process import Program, PulsarServer, free_ports, is_listening, run_once, write_properties
from loadgen.real.standalone import PROPERTIES, Broker

CLUSTER = "standalone"  # as `AdminClient.make_tenant` has it
_ZOOKEEPER_MEMORY = ("-Xmx64m", "-XX:TieredStopAtLevel=1")


def metadata_url(port: int) -> str:
    """Return the metadata URL of the ZooKeeper behind this port."""
    return f"zk:127.0.0.1:{port}"


def zookeeper(folder: Path, port: int) -> PulsarServer:
    """A ZooKeeper of one."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = {
        "tickTime": "2000",
        "dataDir": str(folder / "data"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": "0",
        "forceSync": "no",
    }
    config = write_properties(folder / "zoo.cfg", properties)
    program = Program("org.apache.zookeeper.server.ZooKeeperServerMain", (str(config),), _ZOOKEEPER_MEMORY)
    return PulsarServer(folder, program, lambda: is_listening(port))


def metadata_setup(port: int, web_ports: Sequence[int], service_ports: Sequence[int]) -> Program:
    """Writes the cluster, its brokers' addresses and the namespace public/default into the ZooKeeper; run it once."""
    arguments = (
        *("--cluster", CLUSTER),
        *("--metadata-store", metadata_url(port)),
        *("--configuration-metadata-store", metadata_url(port)),
        *("--web-service-url", f"http://{_joined(web_ports)}"),
        *("--broker-service-url", f"pulsar://{_joined(service_ports)}"),
    )
    return Program("org.apache.pulsar.PulsarClusterMetadataSetup", arguments, _ZOOKEEPER_MEMORY)


def _joined(ports: Sequence[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)


_BOOKIE_MEMORY = ("-Xmx96m", "-XX:MaxDirectMemorySize=128m", "-XX:TieredStopAtLevel=1")


def bookie(folder: Path, port: int, zookeeper_port: int) -> PulsarServer:
    """A bookie that syncs nothing to disk: a killed one may lose what a killed broker does not."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = {
        "bookiePort": str(port),
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "listeningInterface": "lo",
        "journalDirectories": str(folder / "journal"),
        "ledgerDirectories": str(folder / "ledgers"),
        "metadataServiceUri": f"zk+null://127.0.0.1:{zookeeper_port}/ledgers",
        "journalSyncData": "false",
        "journalWriteData": "false",
        "httpServerEnabled": "false",
        "autoRecoveryDaemonEnabled": "false",
        "enableStatistics": "false",
        # What waits in memory for its place on disk: 64 MB by default, of a heap of 96.
        "skipListSizeLimit": str(16 << 20),
        # Without these a disk that is nearly full makes it read-only.
        "diskUsageThreshold": "0.999",
        "diskUsageWarnThreshold": "0.998",
        # Without it it refuses the entries of chunked messages.
        "nettyMaxFrameSizeBytes": "5253120",
    }
    config = write_properties(folder / "bk.conf", properties)
    program = Program("org.apache.bookkeeper.server.Main", ("-c", str(config)), _BOOKIE_MEMORY)
    return PulsarServer(folder, program, lambda: is_listening(port))


_BROKER_PROPERTIES = {
    "clusterName": CLUSTER,
    "defaultNumberOfNamespaceBundles": "4",
    "functionsWorkerEnabled": "false",
    "loadBalancerEnabled": "true",
    # Topics move when the test says so, and never else.
    "loadBalancerSheddingEnabled": "false",
    "managedLedgerCacheSizeMB": "32",
    # How long a killed broker keeps its topics: 50 s by default.
    "metadataStoreSessionTimeoutMillis": "6000",
}
# The young generation holds minutes of garbage, as the standalone broker's does.
_BROKER_MEMORY = ("-Xms512m", "-Xmx512m", "-Xmn320m", "-XX:MetaspaceSize=192m", "-XX:MaxDirectMemorySize=256m")


class ClusterBroker(Broker):
    """A broker of a cluster.

    Args:
        folder: For its configuration and its log.
        service_port: Of the binary protocol.
        web_port: Of the admin REST.
        zookeeper_port: Where it finds the others.
        properties: Added to its configuration file.
    """

    def __init__(
        self, folder: Path, service_port: int, web_port: int, zookeeper_port: int, properties: Mapping[str, str]
    ) -> None:
        written = {
            **PROPERTIES,
            **_BROKER_PROPERTIES,
            "metadataStoreUrl": metadata_url(zookeeper_port),
            "configurationMetadataStoreUrl": metadata_url(zookeeper_port),
            "brokerServicePort": str(service_port),
            "webServicePort": str(web_port),
            **properties,
        }
        folder.mkdir(parents=True, exist_ok=True)
        config = write_properties(folder / "broker.conf", written)
        options = (*_BROKER_MEMORY, f"-Dpulsar.config.file={config}")
        program = Program("org.apache.pulsar.PulsarBrokerStarter", ("-c", str(config)), options)
        super().__init__(folder, service_port, web_port, program)


_MOVE_TIMEOUT_S = 60


class PulsarCluster:
    """Two brokers that share their topics; all of it ends with the `with` block, or with a start that fails.

    Args:
        folder: For data, configurations and a log of each part; made if missing, never removed.
        properties: Added to both brokers' configuration files, Pulsar's own names.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        zk_port, bookie_port, *broker_ports = free_ports(*[0] * 6)
        services, webs = broker_ports[:2], broker_ports[2:]
        self._zookeeper = zookeeper(folder / "zookeeper", zk_port)
        self._bookie = bookie(folder / "bookie", bookie_port, zk_port)
        self._setup_folder = folder / "metadata-setup"
        self._setup = metadata_setup(zk_port, webs, services)
        self.brokers = tuple(
            ClusterBroker(folder / f"broker-{number}", *ports, zk_port, properties or {})
            for number, ports in enumerate(zip(services, webs, strict=True))
        )

    @property
    def service_url(self) -> str:
        """The service URL of both brokers, for a client of the cluster itself."""
        return f"pulsar://{','.join(broker.address for broker in self.brokers)}"

    def start(self) -> None:
        """Start all parts and wait until both brokers are healthy.

        Raises:
            RealPulsarError: If Java or the jars are missing, or a part ends or is not ready in time.
        """
        try:
            self._zookeeper.start()
            run_once(self._setup_folder, self._setup)
            together = (self._bookie, *self.brokers)
            for part in together:
                part.launch()
            for part in together:
                part.wait()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Send SIGKILL to all parts."""
        for part in self._parts():
            part.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def owner_of(self, topic: str) -> int:
        """The index of the broker that owns the topic; one gets it if none does.

        A killed broker owns its topics until its session with ZooKeeper has timed out.

        Raises:
            RealPulsarError: If no broker runs, or none says who owns it.
        """
        url = json.loads(self._ask("GET", f"/lookup/v2/topic/{topic_path(topic)}"))["brokerUrl"]
        owners = [number for number, broker in enumerate(self.brokers) if broker.service_url == url]
        if not owners:
            raise RealPulsarError(f"{topic} is said to be owned by {url}, which is no broker of this cluster")
        return owners[0]

    def unload(self, topic: str, to: int) -> None:
        """Move the topic, with all others in its bundle, to the broker of that index; returns when it is there.

        Asked for again until it is: whoever looks up a topic of the bundle between its unloading and its loading, such
        as a broker that reads the namespace's policies, may get it assigned elsewhere.

        Raises:
            RealPulsarError: If the topic is not there within 20 s.
        """
        bundle = self._ask("GET", f"/lookup/v2/topic/{topic_path(topic)}/bundle")
        namespace = "/".join(topic_path(topic).split("/")[1:3])
        destination = f"destinationBroker={self.brokers[to].web_address}"
        deadline = time.monotonic() + _MOVE_TIMEOUT_S
        while obstacle := self._move(f"/admin/v2/namespaces/{namespace}/{bundle}/unload?{destination}", topic, to):
            if time.monotonic() > deadline:
                raise RealPulsarError(f"{topic} did not move to broker {to} within {_MOVE_TIMEOUT_S} s: {obstacle}")
            time.sleep(0.2)

    def _move(self, path: str, topic: str, to: int) -> str:
        """Try once; returns what is in the way."""
        try:
            self._ask("PUT", path)
            owner = self.owner_of(topic)
        except RealPulsarError as refusal:  # such as a lookup while the bundle is being unloaded
            return str(refusal)
        return "" if owner == to else f"it went to broker {owner}"

    def _ask(self, method: str, path: str) -> str:
        running = next((broker for broker in self.brokers if broker.is_running), None)
        if running is None:
            raise RealPulsarError(f"{method} {path}: no broker of this cluster runs")
        try:
            return AdminClient(running.admin_url).ask(method, path).decode()
        except AdminError as refusal:
            raise RealPulsarError(str(refusal)) from refusal

    def _parts(self) -> tuple[PulsarServer, ...]:
        return (*self.brokers, self._bookie, self._zookeeper)
