import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from loadgen.admin_rest import AdminRest, AdminRestError
from loadgen.real.process import free_ports

MOVED = {"/moved": "/done", "/round": "/round"}


class Broker(BaseHTTPRequestHandler):
    """Sends us to the leader, and the leader says who asked for what."""

    def do_PUT(self) -> None:
        self.send_response(204 if self.path == "/done" else 307 if self.path in MOVED else 412)
        if self.path in MOVED:
            self.send_header("Location", f"http://{self.headers['Host']}{MOVED[self.path]}")
        self.end_headers()
        if self.path == "/refused":
            self.wfile.write(b"namespace bundle is not owned")

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"brokerUrl": "pulsar://h:1"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Broker) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_answer_is_its_text(url: str) -> None:
    assert AdminRest(url).text("GET", "/lookup") == '{"brokerUrl": "pulsar://h:1"}'


def test_a_change_is_sent_on_to_whoever_has_to_make_it(url: str) -> None:
    assert AdminRest(url).text("PUT", "/moved") == ""


def test_a_refusal_is_told_with_its_words(url: str) -> None:
    with pytest.raises(AdminRestError, match=r"PUT .*/refused: 412 namespace bundle is not owned"):
        AdminRest(url).text("PUT", "/refused")


def test_brokers_that_send_us_round_and_round_are_left(url: str) -> None:
    with pytest.raises(AdminRestError, match=r"PUT .*/round: redirected 5 times"):
        AdminRest(url).text("PUT", "/round")


def test_a_broker_that_is_gone_is_named() -> None:
    (port,) = free_ports(0)
    with pytest.raises(AdminRestError, match=rf"GET http://127.0.0.1:{port}/: no answer: .*refused"):
        AdminRest(f"http://127.0.0.1:{port}").text("GET", "/")


def test_a_health_page_says_yes_or_no(url: str) -> None:
    assert AdminRest(url).is_ready("/anything")
    assert not AdminRest(f"http://127.0.0.1:{free_ports(0)[0]}").is_ready()
