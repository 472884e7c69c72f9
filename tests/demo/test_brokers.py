import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from demo.processes import DemoError, Processes, start_real

PUBLISHES_TO = ["persistent://b/n2/x", "persistent://a/n1/x", "persistent://b/n2/y"]


class Admin(BaseHTTPRequestHandler):
    answer = 204
    puts: list[str] = []  # noqa: RUF012 - shared on purpose; each test has a class of its own

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.puts.append(self.path)
        self.send_response(self.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def admin() -> type[Admin]:
    return type("OneAdmin", (Admin,), {"puts": []})


@pytest.fixture
def processes(tmp_path: Path, admin: type[Admin], monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """With a real broker that only says its addresses, and an admin REST that only listens."""
    with HTTPServer(("127.0.0.1", 0), admin) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        urls = {"service_url": "pulsar://here", "admin_url": f"http://127.0.0.1:{server.server_port}"}
        code = f"open({str(tmp_path / 'broker.json')!r}, 'w').write({json.dumps(urls)!r}); import time; time.sleep(60)"

        class Announcing(Processes):
            def start(self, name: str, command: list[str]) -> None:
                assert command[1:3] == ["-m", "loadgen.real"]
                super().start(name, [sys.executable, "-c", code])

        with Announcing(tmp_path) as running:
            yield running
        server.shutdown()
        thread.join()


def test_a_real_broker_gets_the_tenants_and_namespaces_of_the_load(
    processes: Processes, admin: type[Admin], tmp_path: Path
) -> None:
    assert start_real(processes, tmp_path, PUBLISHES_TO) == "pulsar://here"
    assert admin.puts == [
        f"/admin/v2/{path}" for path in ("tenants/a", "tenants/b", "namespaces/a/n1", "namespaces/b/n2")
    ]


def test_a_refused_tenant_is_named(processes: Processes, admin: type[Admin], tmp_path: Path) -> None:
    admin.answer = 500
    with pytest.raises(DemoError, match=r"broker: PUT http://.*/tenants/a: 500"):
        start_real(processes, tmp_path, PUBLISHES_TO)
