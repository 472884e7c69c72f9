import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from loadgen.real.errors import ProcessFailed
from loadgen.real.health import is_healthy, is_listening, wait_ready
from loadgen.real.ports import free_ports
from loadgen.real.tethered_process import TetheredProcess


class Unwell(BaseHTTPRequestHandler):
    status = 500

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/admin/v2/brokers/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Well(Unwell):
    status = 200


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), request.param) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("port", "healthy"), [(Well, True), (Unwell, False)], indirect=["port"])
def test_only_a_broker_that_says_so_is_healthy(port: int, *, healthy: bool) -> None:
    assert is_healthy(port) is healthy
    assert is_listening(port)


def test_where_nobody_listens_nobody_is_healthy() -> None:
    (port,) = free_ports(0)
    assert not is_healthy(port)
    assert not is_listening(port)


def hang_up(server: socket.socket) -> None:
    server.accept()[0].close()


def test_a_port_that_speaks_no_http_is_not_healthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=hang_up, args=(server,))
        thread.start()
        assert not is_healthy(server.getsockname()[1])
        thread.join()


def test_waiting_ends_with_readiness_with_the_process_or_with_the_time(tmp_path: Path) -> None:
    process = TetheredProcess(["sh", "-c", "echo no room; exit 3"], tmp_path / "log")
    process.name = "bookie"
    wait_ready(process, lambda: True, timeout_s=0)
    with pytest.raises(ProcessFailed, match="bookie ended with code 3\nno room"):
        wait_ready(process, lambda: False, timeout_s=10)
    sleeper = TetheredProcess(["sleep", "60"], tmp_path / "log")
    try:
        with pytest.raises(ProcessFailed, match="sleep was not healthy within 0 s"):
            wait_ready(sleeper, lambda: False, timeout_s=0)
    finally:
        sleeper.kill()
