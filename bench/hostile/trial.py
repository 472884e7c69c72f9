"""One kind at a time against a real `sluice serve`, and its cost: memory of its processes, time of a neighbour."""

import json
import math
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from adminrest.client import AdminError
from bench import meters
from bench.data_path.stage import CpuClock, settle
from bench.data_path.wire import hello, send_frame
from bench.harness import Sample, percentile
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
ALONE, BESIDE = "alone", "beside the attack"
REQUESTS = ("publish", "lookup", "connect")
"""What the neighbour asks for."""
_BUDGETS = {"client": "sluice_client_memory_most_bytes", "hold": "sluice_hold_budget_most_bytes"}
"""The metrics whose highest values during the attack are figures."""


class Neighbour:
    """An honest client of another address: publishes one message at a time, looks up, and connects again, in turns.

    Args:
        port: Of Sluice.
    """

    def __init__(self, port: int) -> None:
        self._took: dict[str, list[float]] = {request: [] for request in REQUESTS}
        self._failed = dict.fromkeys(REQUESTS, 0)
        self._port = port
        self._connection: socket.socket | None = None
        self._answers: Iterator[BaseCommand] = iter(())
        self._send = send_frame(100)
        self._number = 0

    def run(self, seconds: float) -> None:
        """Run the neighbour for `seconds`."""
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            for request in ("publish", "lookup", *(("connect",) if self._number % 20 == 0 else ())):
                began = time.monotonic()
                try:
                    getattr(self, f"_{request}")()
                except OSError:
                    self._failed[request] += 1
                    self.close()
                self._took[request].append(time.monotonic() - began)
            time.sleep(_PACE_S)

    def close(self) -> None:
        """Leave."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def figures(self) -> dict[str, float]:
        """Return each request's p99 in ms and its failures since the last call, where there are any."""
        took, failed = self._took, self._failed
        self._took, self._failed = {request: [] for request in REQUESTS}, dict.fromkeys(REQUESTS, 0)
        p99 = {request: percentile(values, 0.99) * 1e3 for request, values in took.items() if values}
        return {**p99, **{f"{request} failed": number for request, number in failed.items() if number}}

    def _publish(self) -> None:
        self._ask(self._send.frame, BaseCommand.SEND_RECEIPT)

    def _lookup(self) -> None:
        self._number += 1
        asked = encode(CommandLookupTopic(topic=TOPIC, request_id=self._number + 10))
        lookup = self._ask(asked, BaseCommand.LOOKUP_RESPONSE).lookup_response
        if lookup.response != CommandLookupTopicResponse.Connect:
            raise ConnectionRefusedError(lookup.message)

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

    def attack(self, kind: HostileKind, seconds: float, rest: float) -> tuple[Sample, Sample]:
        """Have one kind attack for `seconds`, and look at the memory again after `rest` seconds.

        Returns:
            The figures without the attack, and those beside it, with what the attack counted. Memory is in MiB. The
            cost is rounded up, so that the whole number is within the kind's bound only if the bytes are.

        Raises:
            ProcessFailed: If Sluice ends.
        """
        before, neighbour = self.memory(), Neighbour(self.port)
        neighbour.run(min(5.0, seconds / 3))
        alone = {"memory": before / MB, **neighbour.figures()}
        for pid in self.pids():
            meters.forget_peak(pid)
        to = self._admin if kind.to == "admin" else self.port
        clocks, began = [CpuClock(pid) for pid in self.pids()], time.monotonic()
        self._orders.write(f"{kind.name}\t127.0.0.1:{to}\t{seconds:g}\n")
        self._orders.flush()
        most, over = dict.fromkeys(("memory", *_BUDGETS), 0.0), threading.Event()
        watcher = threading.Thread(target=self._watch, args=(most, over), daemon=True)
        watcher.start()
        while not select.select([self._counts], [], [], 0)[0]:
            neighbour.run(_LOOK_S)
        cpu = sum(clock.read().cpu_s for clock in clocks) / (time.monotonic() - began)
        over.set()
        watcher.join()
        most["memory"] = max(most["memory"], sum(meters.peak_bytes(pid) for pid in self.pids()))
        beside = {"cpu": cpu, **neighbour.figures(), **json.loads(self._counts.readline() or "{}")}
        neighbour.close()
        settle(self._process.pid, rest)
        time.sleep(rest)
        later, cost = self.memory(), most["memory"] - before
        self._process.check_running()
        sizes = {name: size / MB for name, size in {**most, "later": later}.items()}
        return alone, {**beside, **sizes, "cost": math.ceil(cost / MB)}

    def _watch(self, most: dict[str, float], over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            most["memory"] = max(most["memory"], self.memory())
            with suppress(AdminError):
                values = scrape(self._admin).values
                for name, metric in _BUDGETS.items():
                    most[name] = max(most[name], values.get(metric, 0.0))


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
