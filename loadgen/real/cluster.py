"""A real Pulsar cluster on loopback: ZooKeeper, one bookie, two brokers; about 1 GB and 20 s to start.

with PulsarCluster(folder) as cluster:
owner = cluster.owner_of("persistent://public/default/t")
cluster.unload("persistent://public/default/t", to=1 - owner)
cluster.brokers[owner].kill()
cluster.brokers[owner].restart()
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from loadgen.real.bookie import bookie
from loadgen.real.cluster_broker import ClusterBroker
from loadgen.real.errors import RealPulsarError
from loadgen.real.part import Part, run_once
from loadgen.real.ports import free_ports
from loadgen.real.rest import call
from loadgen.real.zookeeper import metadata_setup, zookeeper

_MOVE_TIMEOUT_S = 20


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
            ClusterBroker(folder / f"broker-{number}", ports, zk_port, properties or {})
            for number, ports in enumerate(zip(services, webs, strict=True))
        )

    @property
    def service_url(self) -> str:
        """Both brokers', for a client of the cluster itself."""
        return f"pulsar://{','.join(broker.address for broker in self.brokers)}"

    def start(self) -> None:
        """Start all parts and wait until both brokers are healthy.

        Raises:
            RealPulsarError: If Java or the jars are missing, or a part ends or is not ready in time.
        """
        try:
            self._zookeeper.restart()
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
        """SIGKILL to all parts."""
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
        url = json.loads(self._ask("GET", f"/lookup/v2/topic/{_path(topic)}"))["brokerUrl"]
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
        bundle = self._ask("GET", f"/lookup/v2/topic/{_path(topic)}/bundle")
        namespace = "/".join(_path(topic).split("/")[1:3])
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
        return call(method, f"{running.admin_url}{path}")

    def _parts(self) -> tuple[Part, ...]:
        return (*self.brokers, self._bookie, self._zookeeper)


def _path(topic: str) -> str:
    return topic.replace("://", "/", 1)
