"""One kind at a time against a real `sluice serve`, and its cost: memory of its processes, time of a neighbour."""

import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from adminrest.client import AdminError
from bench import meters
from bench.data_path.stage import CpuClock, settle
from bench.data_path.wire import hello, send_frame
from bench.hostile.kinds import BLOCKED, HELD, MB, REJECTED, HostileKind
from bench.meters import scrape
from loadgen.real.process import TetheredProcess, free_ports, is_listening, wait_ready
from protocol.commands import decode, encode
from protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, FrameCutter, max_frame_size
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandProducer,
)

CONFIG: Mapping[str, Any] = {
    "limits": {
        "each_topic": {"publish": {"messages": 1000}, "dispatch": {"messages": 1000}},
        "namespaces": {
            HELD: {"publish": {"messages": 1}},
            REJECTED: {"publish": {"messages": 1, "mode": "reject"}},
            "honest/neighbour": {"publish": {"messages": 1_000_000}},
        },
    },
    "admission": {"subscribe_rate_per_consumer": "1000/s"},
    "blocks": [{"address": BLOCKED}],
}
"""A limit for each topic, so that names make limiters, and a subscribe rate, so that names make buckets."""
_READY_S = 30.0
_PATIENCE_S = 5.0
_PACE_S = 0.005
_LOOK_S = 0.25
TOPIC = "persistent://honest/neighbour/orders"


class Neighbour:
    """An honest client of another address: publishes one message at a time, looks up, and connects again, in turns.

    Args:
        port: Of Sluice.

    Attributes:
        took: Seconds of each request, by its kind.
        failed: The number of requests that were refused, or not answered in time.
    """

    def __init__(self, port: int) -> None:
        self.took: dict[str, list[float]] = {"publish": [], "lookup": [], "connect": []}
        self.failed = dict.fromkeys(self.took, 0)
        self._port = port
        self._connection: socket.socket | None = None
        self._answers: Iterator[BaseCommand] = iter(())
        self._send = send_frame(100)
        self._number = 0

    def run(self, seconds: float) -> None:
        """Run the neighbour for `seconds`."""
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            for what in ("publish", "lookup", *(("connect",) if self._number % 20 == 0 else ())):
                began = time.monotonic()
                try:
                    getattr(self, f"_{what}")()
                except OSError:
                    self.failed[what] += 1
                    self.close()
                self.took[what].append(time.monotonic() - began)
            time.sleep(_PACE_S)

    def close(self) -> None:
        """Leave."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def p99(self, what: str) -> float:
        """The 99th percentile of the delays in seconds; 0 where there was none."""
        took = sorted(self.took[what])
        return took[min(len(took) - 1, len(took) * 99 // 100)] if took else 0.0

    def _publish(self) -> None:
        self._ask(self._send.frame, BaseCommand.SEND_RECEIPT)

    def _lookup(self) -> None:
        self._number += 1
        asked = encode(CommandLookupTopic(topic=TOPIC, request_id=self._number + 10))
        found = self._ask(asked, BaseCommand.LOOKUP_RESPONSE).lookup_response
        if found.response != CommandLookupTopicResponse.Connect:
            raise ConnectionRefusedError(found.message)

    def _connect(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), _PATIENCE_S) as connection:
            connection.sendall(hello())
            self._await(_read(connection), BaseCommand.CONNECTED)

    def _ask(self, frame: bytes, wanted: int) -> BaseCommand:
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), _PATIENCE_S)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._answers = _read(self._connection)
            greeting = encode(CommandConnect(client_version="neighbour", protocol_version=20))
            self._connection.sendall(greeting)
            self._await(self._answers, BaseCommand.CONNECTED)
            self._connection.sendall(encode(CommandProducer(topic=TOPIC, producer_id=1, request_id=1)))
            self._await(self._answers, BaseCommand.PRODUCER_SUCCESS)
        self._connection.sendall(frame)
        return self._await(self._answers, wanted)

    @staticmethod
    def _await(answers: Iterator[BaseCommand], wanted: int) -> BaseCommand:
        for answer in answers:
            if answer.type == wanted:
                return answer
            if answer.type == BaseCommand.ERROR:
                raise ConnectionRefusedError(answer.error.message)
        raise ConnectionResetError


def _read(connection: socket.socket) -> Iterator[BaseCommand]:
    cutter = FrameCutter(max_frame_size(DEFAULT_MAX_MESSAGE_SIZE))
    while chunk := connection.recv(65536):
        for frame in cutter.feed(chunk):
            yield decode(frame[8:])


@dataclass(slots=True)
class KindRow:
    """The cost of one kind; memory in bytes, over all processes of Sluice.

    Attributes:
        before, peak, after: Resident memory before the attack, its peak, and some time later.
        cpu: The part of one core that all processes took.
        most: The highest values of some metrics during the attack.
        quiet, beside: The neighbour without the attack and beside it: p99 in seconds, by kind of request.
        failed: The neighbour's requests that were refused, or not answered in time, beside the attack.
        did: What the attack counted.
    """

    kind: HostileKind
    before: int
    peak: int = 0
    after: int = 0
    cpu: float = 0.0
    most: dict[str, float] = field(default_factory=dict)
    quiet: dict[str, float] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    did: dict[str, int] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        """Bytes that the kind cost at most."""
        return self.peak - self.before

    @property
    def holds(self) -> bool:
        """True if the cost is within the kind's bound."""
        return self.cost <= self.kind.bound * MB


METRICS = (
    "sluice_client_memory_most_bytes",
    "sluice_hold_budget_most_bytes",
    "sluice_lookups_in_flight",
    "sluice_limiters",
)
"""Of these the highest values are kept."""


class HostileStage:
    """A running Sluice, and its broker.

    Args:
        folder: For logs and the configuration.
        port: Where clients connect.
        admin: The admin address's port.
        process: Sluice.
        attacker: Attacks as its input says; it ends with that.
    """

    def __init__(
        self, folder: Path, port: int, admin: int, process: TetheredProcess, attacker: subprocess.Popen[str]
    ) -> None:
        self.folder = folder
        self.port = port
        self._admin = admin
        self._process = process
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        self._orders, self._counts = attacker.stdin, attacker.stdout
        self.memory_at_start = self.memory()

    def pids(self) -> list[int]:
        """The process ids of Sluice, its parent included."""
        return [self._process.pid, *meters.children(self._process.pid)]

    def memory(self) -> int:
        """Return the resident bytes of all processes."""
        return sum(meters.resident_bytes(pid) for pid in self.pids())

    def attack(self, kind: HostileKind, seconds: float, rest: float) -> KindRow:
        """Have one kind attack for `seconds`, and measure again after `rest` seconds.

        Raises:
            ProcessFailed: If Sluice ends.
        """
        row, neighbour = KindRow(kind, self.memory()), Neighbour(self.port)
        neighbour.run(min(5.0, seconds / 3))
        row.quiet = {what: neighbour.p99(what) for what in neighbour.took}
        neighbour.took, neighbour.failed = {what: [] for what in neighbour.took}, dict.fromkeys(neighbour.took, 0)
        for pid in self.pids():
            meters.forget_peak(pid)
        to = self._admin if kind.to == "admin" else self.port
        clocks, began = [CpuClock(pid) for pid in self.pids()], time.monotonic()
        self._orders.write(f"{kind.name}\t127.0.0.1:{to}\t{seconds:g}\n")
        self._orders.flush()
        watching = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(row, watching), daemon=True)
        watcher.start()
        while not select.select([self._counts], [], [], 0)[0]:
            neighbour.run(_LOOK_S)
        row.cpu = sum(clock.read().cpu_s for clock in clocks) / (time.monotonic() - began)
        watching.set()
        watcher.join()
        row.peak = max(row.peak, sum(meters.peak_bytes(pid) for pid in self.pids()))
        row.beside = {what: neighbour.p99(what) for what in neighbour.took}
        row.failed = neighbour.failed
        row.did = json.loads(self._counts.readline() or "{}")
        neighbour.close()
        settle(self._process.pid, rest)
        time.sleep(rest)
        row.after = self.memory()
        self._process.check_running()
        return row

    def _watch(self, row: KindRow, over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            row.peak = max(row.peak, self.memory())
            with suppress(AdminError):
                values = scrape(self._admin).values
                for name in METRICS:
                    row.most[name] = max(row.most.get(name, 0.0), values.get(name, 0.0))


@contextmanager
def running(folder: Path, processes: int = 1, more: Mapping[str, Any] = CONFIG) -> Iterator[HostileStage]:
    """Start a Sluice of `processes` processes, and its broker, on free ports; end both at the end.

    Raises:
        ProcessFailed: If either ends, or does not listen in time.
    """
    port, broker_port, admin = free_ports(0, 0, 0)
    config = folder / "sluice.yaml"
    config.write_text(json.dumps({**more, "processes": processes}))  # JSON is YAML
    broker = TetheredProcess([sys.executable, "-m", "bench.hostile.broker", str(broker_port)], folder / "broker.log")
    command = [sys.executable, "-m", "sluice", "serve", "--config", str(config), "--listen", f"127.0.0.1:{port}"]
    command += ["--broker", f"pulsar://127.0.0.1:{broker_port}", "--admin", f"127.0.0.1:{admin}"]
    command += ["--access-log", str(folder / "access-log")]
    sluice = TetheredProcess(command, folder / "sluice.log")
    attacker = subprocess.Popen(
        [sys.executable, "-m", "bench.hostile.attack"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        for each, process in ((broker_port, broker), (admin, sluice), (port, sluice)):
            wait_ready(process, partial(is_listening, each), _READY_S)
        early = Neighbour(port)
        early.run(0.3)
        early.close()
        with attacker:
            yield HostileStage(folder, port, admin, sluice, attacker)
    finally:
        attacker.kill()
        sluice.stop()
        broker.kill()
