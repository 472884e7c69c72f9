import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadgen.bench_limits.errors import BenchError
from loadgen.bench_limits.rest import Rest

STATS = {
    "publishers": [
        {"address": "/127.0.0.1:5", "connectedSince": "10:00"},
        {"address": "/127.0.0.1:5", "connectedSince": "10:00"},
        {"address": "/127.0.0.1:6", "connectedSince": "10:01"},
    ]
}


class Admin(BaseHTTPRequestHandler):
    """Says yes to what it knows, and takes down what it was told."""

    told: list[tuple[str, str, object]]

    def answer(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.told.append((self.command, self.path, json.loads(text) if text else None))
        known = "refused" not in self.path
        body = json.dumps(STATS).encode() if self.path.endswith("/stats") else b""
        self.send_response((200 if body or self.path == "/readyz" else 204) if known else 409)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = answer  # noqa: N815 - http.server's own names

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def admin() -> Iterator[ThreadingHTTPServer]:
    Admin.told = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def rest(admin: ThreadingHTTPServer) -> Rest:
    return Rest(f"http://127.0.0.1:{admin.server_port}")


def test_a_limit_is_set_as_pulsar_admin_would(rest):
    rest.make_namespace("n1")
    rest.limit_publishing("n1", 500)
    rate = {"publishThrottlingRateInMsg": 500, "publishThrottlingRateInByte": -1}
    assert Admin.told == [
        ("PUT", "/admin/v2/namespaces/bench/n1", {}),
        ("POST", "/admin/v2/namespaces/bench/n1/publishRate", rate),
    ]


def test_a_limit_of_deliveries_leaves_the_other_unit_alone(rest):
    rest.limit_dispatch("n1", 500)
    rest.limit_dispatch("n1", size=1000)
    rates = [
        {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": size, "ratePeriodInSecond": 1}
        for messages, size in ((500, -1), (-1, 1000))
    ]
    assert Admin.told == [("POST", "/admin/v2/namespaces/bench/n1/dispatchRate", rate) for rate in rates]


def test_a_resource_group_is_made_before_a_namespace_is_attached(rest):
    rest.make_resource_group("g", 100, "n1")
    assert Admin.told == [
        ("PUT", "/admin/v2/resourcegroups/g", {"dispatchRateInMsgs": 100}),
        ("POST", "/admin/v2/namespaces/bench/n1/resourcegroup/g", None),
    ]


def test_producers_of_one_connection_are_one_connection(rest):
    assert rest.connections("persistent://bench/n1/t") == {"/127.0.0.1:5 10:00", "/127.0.0.1:6 10:01"}
    assert Admin.told == [("GET", "/admin/v2/persistent/bench/n1/t/stats", None)]


def test_a_refusal_names_the_address_the_call_and_the_status(rest):
    with pytest.raises(BenchError, match=rf"{rest.admin_url}: PUT namespaces/bench/refused was answered with 409"):
        rest.make_namespace("refused")


def test_nobody_there_is_an_error_that_names_the_address():
    assert not Rest("http://127.0.0.1:1").is_ready("/readyz")
    with pytest.raises(BenchError, match=r"http://127\.0\.0\.1:1: no answer to PUT"):
        Rest("http://127.0.0.1:1").make_tenant()


def test_ready_is_what_answers_200(rest):
    assert rest.is_ready("/readyz")
    assert not rest.is_ready("/refused")
