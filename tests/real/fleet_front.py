"""A fleet of Sluices before a real cluster, clients that load each of its members, and what the brokers took of it."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar
import yaml

from adminrest.client import AdminError
from loadgen.real.process import wait_until
from tests.real.broker_record import KEEPER, PERIOD_S, Entry, Lateness, Probes, Waits, read_record
from tests.real.cluster_proxy import LOOKED_UP_AT, put
from tests.real.pulsar_cluster import CLUSTER, PulsarCluster
from tests.real.pulsar_rest import PulsarRest
from tests.real.sluice_process import SluiceProcess, launch_sluice
from tests.real.traffic import quiet_client
from tests.waiting import wait_for

NAMES = ("sluice-1", "sluice-2", "sluice-3", "sluice-4")
NAMESPACE = "public/sluice"
"""Where fleets have their topics."""


class Front:
    """Sluices of one fleet.

    Args:
        cluster: What they stand before.
        folder: For the files of each.
        fleet: The fleet's name.
        limits: Of tenants: messages that they may publish, as `1000/s`.
        isolated: What those keep that are cut off.
    """

    def __init__(
        self, cluster: PulsarCluster, folder: Path, fleet: str, limits: dict[str, str], isolated: str = "auto"
    ) -> None:
        self.cluster = cluster
        self.fleet = fleet
        self.limits = limits
        self.members: dict[str, SluiceProcess] = {}
        self._isolated = isolated
        self.folder = folder
        self._starts = 0
        rest = PulsarRest(cluster.brokers[LOOKED_UP_AT].admin_url)
        if NAMESPACE not in rest.get_json("/admin/v2/namespaces/public"):
            rest.call("PUT", f"/admin/v2/namespaces/{NAMESPACE}", {})

    @property
    def grants(self) -> str:
        """The topic whose broker decides who coordinates."""
        return f"non-persistent://{NAMESPACE}/{self.fleet}-grants"

    @property
    def reports(self) -> str:
        return f"non-persistent://{NAMESPACE}/{self.fleet}-reports"

    def config(self, name: str) -> dict[str, Any]:
        """A member's configuration."""
        tenants = {tenant: {"publish": {"messages": limit}} for tenant, limit in self.limits.items()}
        return {
            "proxy_id": name,
            "allowed_brokers": [broker.address for broker in self.cluster.brokers],
            "limits": {"tenants": tenants},
            "fleet": {"name": self.fleet, "namespace": NAMESPACE, "isolated": self._isolated},
        }

    def start(self, name: str, broker_url: str = "", **more: Any) -> SluiceProcess:
        """Start a member, with more in its configuration."""
        member = self.launch(name, broker_url, **more)
        member.wait_ready()
        return member

    def launch(self, name: str, broker_url: str = "", **more: Any) -> SluiceProcess:
        """Start a member, and do not wait."""
        self._starts += 1
        folder = self.folder / f"{name}-{self._starts}"
        url = broker_url or self.cluster.brokers[LOOKED_UP_AT].service_url
        self.members[name] = launch_sluice(folder, url, {**self.config(name), **more})
        return self.members[name]

    def ensure(self, *names: str) -> None:
        """Have these members run; returns when all follow one of them, which knows of all."""
        for member in [self.launch(name) for name in names if name not in self.members]:
            member.wait_ready()
        wait_for(lambda: self.is_settled(len(self.members)), evidence=self.told, pause_s=0.05)

    def told(self) -> object:
        return {name: self.said(name) for name in self.members}

    def said(self, name: str) -> dict[str, Any]:
        """What a member says of its fleet; empty if it does not answer."""
        try:
            answer: dict[str, Any] = self.members[name].get("/sluice/fleet")
        except AdminError:
            return {}
        return answer

    def is_settled(self, members: int) -> bool:
        """Whether all follow one coordinator that knows so many members."""
        answers = [self.said(name) for name in self.members]
        return len({answer.get("coordinator") for answer in answers}) == 1 and all(
            answer.get("members_known") == members and answer["state"] != "connecting" for answer in answers
        )

    def wait_shared(self, tenant: str, names: Sequence[str]) -> None:
        """Return when these members have all of a tenant's limit together, and equal parts of it."""
        limiter = f"publish tenant {tenant}"

        def shares() -> list[float]:
            answers = [self.said(name) for name in names]
            return [
                share["share"] for each in answers for share in each.get("shares", ()) if share["limiter"] == limiter
            ]

        def are_equal() -> bool:
            parts = shares()
            return len(parts) == len(names) and sum(parts) > 0.99 and max(parts) - min(parts) < 0.01

        wait_for(are_equal, evidence=shares, pause_s=0.05)

    def coordinator(self) -> str:
        """The name of the member that coordinates."""
        return next(name for name in self.members if self.said(name).get("state") == "leading")

    def others(self) -> list[str]:
        """The members that do not coordinate."""
        coordinator = self.coordinator()
        return [name for name in self.members if name != coordinator]

    def signal(self, name: str, number: signal.Signals) -> float:
        """Send a signal to a member; returns when."""
        process = self.members[name].process
        assert process is not None
        os.kill(process.pid, number)
        return time.time()

    def kill(self, name: str) -> float:
        """SIGKILL to a member; returns when."""
        process = self.members.pop(name).process
        assert process is not None
        at = time.time()
        process.kill()
        return at

    def leave(self, name: str) -> float:
        """SIGTERM to a member; returns when."""
        at = time.time()
        self.members.pop(name).stop()
        return at

    def write(self, name: str, limits: dict[str, str]) -> None:
        """Write other limits into a member's file, to be reloaded."""
        self.limits = limits
        (self.members[name].access_log.parent / "sluice.yaml").write_text(yaml.safe_dump(self.config(name)))

    def close(self) -> None:
        """End all members, as an operator would."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(SluiceProcess.stop, self.members.values()))
        self.members.clear()


class Load:
    """A client of one member that publishes as much as it can, until it is closed.

    Args:
        service_url: The member's.
        topic: Where it publishes.
        name: Of the member; the producer's name begins with it.
        pending: Messages without receipt, at most.

    Attributes:
        began: Seconds since 1970.
    """

    def __init__(self, service_url: str, topic: str, name: str, pending: int) -> None:
        # It may be left with messages on their way, and would complain of each.
        self._client = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
        self._pending = pending
        self._ended = threading.Event()
        self._sent = self._answered = 0
        self._producer = self._client.create_producer(
            topic, producer_name=f"{name}/{time.monotonic_ns()}", send_timeout_millis=0, max_pending_messages=0
        )
        self._thread = threading.Thread(target=self._run)
        self.began = time.time()
        self._thread.start()

    def close(self, patience_s: float = 5) -> None:
        """End it, when all has passed: its farewell stands behind what is held, and would be waited for."""
        self._ended.set()
        self._thread.join()
        wait_until(lambda: self._sent == self._answered, patience_s)
        self._client.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            while self._sent - self._answered < self._pending:
                self._producer.send_async(b"load", self._receive)
                self._sent += 1
            self._ended.wait(0.01)

    def _receive(self, *_: object) -> None:
        self._answered += 1


@dataclass
class Record:
    """What the brokers took.

    Attributes:
        entries: Of all members, in the order of their times.
        lateness: What the machine did to entries meanwhile.
        began: Before the first could pass; seconds since 1970.
    """

    entries: list[Entry]
    lateness: Lateness
    began: float

    def of(self, *names: str) -> list[Entry]:
        """The entries that these members passed."""
        return [entry for entry in self.entries if entry.producer.partition("/")[0] in names]


@dataclass
class Traffic:
    """Loads of a tenant, on a topic at each broker, and probes beside them that go to the brokers themselves.

    Args:
        cluster: Whose brokers count.
        tenant: Of its own for each scene.
        brokers: Those that may be used: one that is to be killed may not.
    """

    cluster: PulsarCluster
    tenant: str
    brokers: tuple[int, ...] = (0, 1)
    loads: list[Load] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rest = PulsarRest(self.cluster.brokers[LOOKED_UP_AT].admin_url)
        self._rest.call("PUT", f"/admin/v2/tenants/{self.tenant}", {"adminRoles": [], "allowedClusters": [CLUSTER]})
        self._direct = quiet_client(self.cluster.service_url)
        self._opened = 0
        self._began = 0.0
        self._waits: dict[str, dict[int, Waits]] = {}
        self._topics: dict[int, str] = {}
        self._probed: dict[int, str] = {}
        for broker in self.brokers:
            self._rest.call("PUT", f"/admin/v2/namespaces/{self.tenant}/on-{broker}", {"bundles": {"numBundles": 1}})
            self._topics[broker] = f"persistent://{self.tenant}/on-{broker}/load"
            self._probed[broker] = f"persistent://{self.tenant}/on-{broker}/probe"
            put(self.cluster, self._topics[broker], broker)
            for topic in (self._topics[broker], self._probed[broker]):
                self._direct.subscribe(topic, KEEPER).close()

    def load(self, front: Front, name: str, pending: int = 300) -> Load:
        """Load a member, at the one broker or at the other by turns."""
        if not self._opened:
            self._began = time.time()
        topic = self._topics[self.brokers[self._opened % len(self.brokers)]]
        self._opened += 1
        self.loads.append(Load(front.members[name].service_url, topic, name, pending))
        return self.loads[-1]

    def close(self, *loads: Load, patience_s: float = 5) -> None:
        """End some loads, or all that are left; those of a member that is dead have nothing to wait for."""
        ending = list(loads or self.loads)
        self.loads = [load for load in self.loads if load not in ending]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda load: load.close(patience_s), ending))

    @contextlib.contextmanager
    def probing(self, front: Front) -> Iterator[None]:
        """Probe the brokers and look at the members, until the block ends; then all loads end, too."""
        ended = threading.Event()
        producers = [self._direct.create_producer(topic) for topic in self._probed.values()]
        probing = threading.Thread(target=self._probe, args=(front, producers, ended))
        probing.start()
        try:
            yield
        finally:
            self.close()
            ended.set()
            probing.join()
            for producer in producers:
                producer.flush()

    def record(self) -> Record:
        """What the brokers took, when all is over."""
        self._direct.close()
        entries = [entry for on, topic in self._topics.items() for entry in self._read(on, topic)]
        probes = {on: Probes(self._read(on, topic)) for on, topic in self._probed.items()}
        waits = {name: list(by_pid.values()) for name, by_pid in self._waits.items()}
        return Record(sorted(entries), Lateness(probes, waits), self._began)

    def _read(self, on: int, topic: str) -> list[Entry]:
        return read_record(self._rest, self.cluster.brokers[on].service_url, topic, on)

    def _probe(self, front: Front, producers: list[pulsar.Producer], ended: threading.Event) -> None:
        """Send the time at which each message is due: a process that stands still is late, too."""
        due = time.time()
        while not ended.wait(max(0.0, due - time.time())):
            for producer in producers:
                producer.send_async(repr(due).encode(), lambda *_: None)
            now = time.time()
            for name, member in list(front.members.items()):
                if member.process is not None:
                    pid = member.process.pid
                    self._waits.setdefault(name, {}).setdefault(pid, Waits(pid)).look(now)
            due += PERIOD_S
