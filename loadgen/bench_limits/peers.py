"""The two that are measured: a real broker with its own limits, and Sluice in front of the same broker."""

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadgen.bench_limits.errors import BenchError
from loadgen.bench_limits.rest import TENANT, Rest
from loadgen.real.process import TetheredProcess
from loadgen.real.standalone import StandaloneBroker

READY_TIMEOUT_S = 30.0
GROUP = "bench"
"""The resource group's name; the broker and Sluice have one each."""
GROUP_LIMIT = 100
"""Messages a second that it is to deliver in all."""
_GROUPED_BY_SLUICE = "grouped-by-sluice"


@dataclass(frozen=True, slots=True)
class Peer:
    """Who limits.

    Attributes:
        name: For the table.
        service_url: Where its clients connect.
        limits: Where limits are set.
        grouped: The namespace that is attached to its resource group.
    """

    name: str
    service_url: str
    limits: Rest
    grouped: str


@dataclass(frozen=True, slots=True)
class Peers:
    """Both, and the broker that is behind both.

    Attributes:
        broker_url: Where the receiving end connects.
        broker: The broker's own admin REST.
    """

    own: Peer
    sluice: Peer
    broker_url: str
    broker: Rest


@contextmanager
def running(folder: Path) -> Iterator[Peers]:
    """Start both on free ports of the loopback interface; at the end they are gone.

    Raises:
        BenchError: If Sluice does not start.
        RealPulsarError: If the broker does not.
    """
    with StandaloneBroker(folder / "broker") as broker, _sluice(folder, broker.service_url) as sluice:
        rest = Rest(broker.admin_url)
        rest.make_tenant()
        own = Peer("broker's own", broker.service_url, rest, "grouped-by-broker")
        for peer in (own, sluice):
            rest.make_namespace(peer.grouped)
        rest.make_resource_group(GROUP, GROUP_LIMIT, own.grouped)
        yield Peers(own, sluice, broker.service_url, rest)


@contextmanager
def _sluice(folder: Path, broker_url: str) -> Iterator[Peer]:
    config = folder / "sluice.yaml"
    group = {"dispatch": {"messages": GROUP_LIMIT}, "namespaces": [f"{TENANT}/{_GROUPED_BY_SLUICE}"]}
    config.write_text(json.dumps({"limits": {"resource_groups": {GROUP: group}}}))  # JSON is YAML
    listen, admin = _free_addresses(2)
    command = [sys.executable, "-m", "sluice", "serve", "--config", str(config), "--listen", listen]
    command += ["--broker", broker_url, "--admin", admin, "--access-log", str(folder / "access-log")]
    process = TetheredProcess(command, folder / "sluice.log")
    try:
        rest = Rest(f"http://{admin}")
        _wait_ready(rest, process)
        yield Peer("through Sluice", f"pulsar://{listen}", rest, _GROUPED_BY_SLUICE)
    finally:
        process.stop()


def _wait_ready(rest: Rest, process: TetheredProcess) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not rest.is_ready("/readyz"):
        ended = process.exit_code is not None
        if ended or time.monotonic() > deadline:
            said = process.last_lines().splitlines()[-1:] or ["it said nothing"]
            raise BenchError(f"sluice serve {'ended' if ended else 'is not ready in time'}: {said[0]}")
        time.sleep(0.05)


def _free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = ["{}:{}".format(*listener.getsockname()) for listener in sockets]
    for listener in sockets:
        listener.close()
    return addresses
