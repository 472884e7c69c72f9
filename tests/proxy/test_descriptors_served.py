"""`sluice serve` with 256 descriptors and 500 clients goes on answering, dialling brokers and writing its log."""

import http.client
import json
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadgen.real.process import TetheredProcess, free_ports, wait_until
from protocol.commands import encode
from protocol.pulsar_pb2 import CommandConnect
from tests.access_log_files import closed_files, content_of
from tests.waiting import PATIENCE_S

CLIENTS, LIMIT = 500, 256
_CONNECT = encode(CommandConnect(client_version="test", protocol_version=19))
_CONNECTED = b"\x08\x03"
"""The type of the command in a frame, behind its two sizes."""
_LIMITED = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT})); "
_SERVE = _LIMITED + "os.execv(sys.executable, [sys.executable, '-m', 'sluice', 'serve', *sys.argv[1:]])"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[TetheredProcess, int, int]]:
    """A proxy with few descriptors before the stand-in broker: its process and its ports."""
    broker_port, listen, admin = free_ports(0, 0, 0)
    broker = TetheredProcess(
        [sys.executable, "-m", "sluice", "broker", "--listen", f"127.0.0.1:{broker_port}"], tmp_path / "broker.log"
    )
    arguments = ["--listen", f"127.0.0.1:{listen}", "--broker", f"pulsar://127.0.0.1:{broker_port}"]
    arguments += ["--admin", f"127.0.0.1:{admin}", "--access-log", str(tmp_path / "log")]
    proxy = TetheredProcess([sys.executable, "-c", _SERVE, *arguments], tmp_path / "sluice.log")
    assert wait_until(lambda: answer(admin, "/readyz") is not None, PATIENCE_S)
    yield proxy, listen, admin
    proxy.stop()
    broker.stop()


def answer(port: int, path: str) -> str | None:
    """The text of a page; None if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        given = connection.getresponse()
        return given.read().decode() if given.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


def value_of(metrics: str, name: str) -> float:
    return float(next(line.split()[1] for line in metrics.splitlines() if line.startswith(f"{name} ")))


def is_served(client: socket.socket) -> bool:
    """Whether the broker's CONNECTED comes for a CONNECT."""
    client.settimeout(30)
    try:
        client.sendall(_CONNECT)
        return client.recv(4096)[8:10] == _CONNECTED
    except OSError:
        return False


def is_let_in(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        return is_served(client)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CLIENTS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in closed_files(folder) for line in content_of(file).splitlines()]


@pytest.mark.usefixtures("many_descriptors")
def test_clients_leave_descriptors_for_all_others(served: tuple[TetheredProcess, int, int], tmp_path: Path) -> None:
    proxy, listen, admin = served
    with ExitStack() as opened:
        clients = [opened.enter_context(socket.create_connection(("127.0.0.1", listen), 30)) for _ in range(CLIENTS)]
        number_served = sum(map(is_served, clients))
        assert answer(admin, "/healthz") is not None
        metrics = answer(admin, "/metrics") or ""
        refused = value_of(metrics, "sluice_descriptors_refused_total")
        accepted = value_of(metrics, "sluice_connections_accepted_total")
        not_admitted = value_of(metrics, 'sluice_admission_refused_total{what="max_connections"}')
        assert accepted + refused == CLIENTS
        assert number_served + not_admitted + refused == CLIENTS
        assert 0 < number_served <= value_of(metrics, 'sluice_descriptors{kind="clients"}') / 2
        assert value_of(metrics, 'sluice_descriptors{kind="limit"}') == LIMIT
    assert wait_until(lambda: is_let_in(listen), PATIENCE_S)
    proxy.stop()
    lines = lines_of(tmp_path / "log")
    numbers = sorted(line["seq"] for line in lines)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no line is lost"
    assert sum(line["kind"] == "connection" for line in lines) >= accepted
    log = proxy.log_path.read_text()
    assert f"the process may open {LIMIT} file descriptors and needs" in log
    assert 0 < log.count("client connections are closed at once") + log.count("not admitted") < 20
    assert "Too many open files" not in log
