import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from socketserver import BaseRequestHandler
from typing import ClassVar

import pytest

from adminrest.client import AdminClient, AdminCredentials, AdminError, RequestFailure, trusting
from loadgen.real.process import free_ports
from tests.waiting import wait_for

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
        self.wfile.write(b"words" if self.path == "/words" else b'{"brokerUrl": "pulsar://h:1"}')

    def log_message(self, *_: object) -> None:
        pass


def _served(server: HTTPServer) -> Iterator[str]:
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    yield from _served(HTTPServer(("127.0.0.1", 0), Broker))


def test_an_answer_is_read_as_it_is_or_as_json(url: str) -> None:
    client = AdminClient(url)
    assert client.get("/lookup") == b'{"brokerUrl": "pulsar://h:1"}'
    assert client.get_json("/lookup") == {"brokerUrl": "pulsar://h:1"}


def test_an_answer_that_is_no_json_is_told(url: str) -> None:
    with pytest.raises(AdminError, match=r"GET .*/words: the answer is not JSON") as error:
        AdminClient(url).get_json("/words")
    assert (error.value.trouble, error.value.status) == (RequestFailure.NO_JSON, None)


def test_a_change_is_sent_on_to_whoever_has_to_make_it(url: str) -> None:
    assert AdminClient(url).call("PUT", "/moved", {}) is None


def test_a_client_that_follows_no_redirect_takes_it_for_a_refusal(url: str) -> None:
    with pytest.raises(AdminError) as error:
        AdminClient(url, most_redirects=0).ask("PUT", "/moved")
    assert (error.value.trouble, error.value.status) == (RequestFailure.REFUSED, 307)


def test_a_refusal_is_told_with_its_words(url: str) -> None:
    with pytest.raises(AdminError, match=r"PUT .*/refused: 412 namespace bundle is not owned") as error:
        AdminClient(url).ask("PUT", "/refused")
    assert (error.value.trouble, error.value.status, error.value.reason) == (RequestFailure.REFUSED, 412, None)


def test_brokers_that_send_us_round_and_round_are_left(url: str) -> None:
    with pytest.raises(AdminError, match=r"PUT .*/round: no answer \(it is redirected more than 10 times\)"):
        AdminClient(url).ask("PUT", "/round")


def test_a_broker_that_is_gone_is_named() -> None:
    (port,) = free_ports(0)
    with pytest.raises(AdminError, match=rf"GET http://127.0.0.1:{port}/: no answer \(Connection refused\)") as error:
        AdminClient(f"http://127.0.0.1:{port}").get("/")
    assert error.value.trouble is RequestFailure.DISCONNECTED


class Ending(BaseRequestHandler):
    """Ends each connection as soon as a client has said anything."""

    def handle(self) -> None:
        self.request.recv(65_536)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_server_that_ends_at_once_is_taken_for_one_that_is_gone(scheme: str) -> None:
    """A process may end within a handshake of TLS."""
    access = AdminCredentials(tls=trusting() if scheme == "https" else None)
    for url in _served(HTTPServer(("127.0.0.1", 0), Ending)):
        with pytest.raises(AdminError, match="no answer") as error:
            AdminClient(url.replace("http", scheme), access).get("/")
        assert error.value.trouble is RequestFailure.DISCONNECTED


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_stuck_server_is_not_taken_for_one_that_is_gone(silent: str) -> None:
    with pytest.raises(AdminError, match="timed out") as error:
        AdminClient(silent, timeout_s=0.1).get("/")
    assert error.value.trouble is RequestFailure.NO_ANSWER


class Named(BaseHTTPRequestHandler):
    """Answers with a name that differs from answer to answer, and notes the name that it is asked with."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers["Answered-By"])
        self.send_response(200)
        if self.path == "/named":
            self.send_header("Answered-By", f"process {len(self.asked)}")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_header_of_the_first_answer_goes_with_later_requests() -> None:
    Named.asked.clear()
    for url in _served(HTTPServer(("127.0.0.1", 0), Named)):
        client = AdminClient(url, kept_header="Answered-By")
        for path in ("/", "/named", "/named", "/"):
            client.get(path)
        AdminClient(url).get("/")
    assert Named.asked == [None, None, "process 2", "process 2", None]


def test_a_health_page_says_yes_or_no(url: str) -> None:
    assert AdminClient(url).is_ready("/anything")
    assert not AdminClient(f"http://127.0.0.1:{free_ports(0)[0]}").is_ready()


class Keeping(BaseHTTPRequestHandler):
    """Keeps connections open, notes from which port it is asked, and closes the connection behind `/last`."""

    protocol_version = "HTTP/1.1"
    ports: list[int]
    stands: threading.Barrier

    def do_GET(self) -> None:
        self.ports.append(self.client_address[1])
        if self.path == "/together":
            self.stands.wait(20)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.close_connection = self.path == "/last"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def keeping() -> Iterator[str]:
    Keeping.ports, Keeping.stands = [], threading.Barrier(2)
    yield from _served(ThreadingHTTPServer(("127.0.0.1", 0), Keeping))


def test_within_the_block_gets_share_a_connection_and_outside_each_has_its_own(keeping: str) -> None:
    with AdminClient(keeping) as client:
        client.get("/")
        client.get("/")
    client.get("/")
    client.get("/")
    first, second, *others = Keeping.ports
    assert first == second
    assert len({first, *others}) == 3


def test_a_connection_that_the_server_has_closed_meanwhile_is_made_anew(keeping: str) -> None:
    with AdminClient(keeping) as client:
        client.get("/last")
        client.get("/")
        client.get("/")
    first, second, third = Keeping.ports
    assert first != second == third


def test_two_threads_have_a_connection_each(keeping: str) -> None:
    with ThreadPoolExecutor(2) as threads, AdminClient(keeping) as client:
        assert list(threads.map(client.get, ["/together", "/together"])) == [b"", b""]
    assert len(set(Keeping.ports)) == 2


def test_the_end_of_the_block_ends_what_another_thread_waits_for(keeping: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        with AdminClient(keeping) as client:
            waiting = threads.submit(client.get, "/together")
            wait_for(lambda: Keeping.ports)
        with pytest.raises(AdminError, match="no answer"):
            waiting.result(20)
        Keeping.stands.abort()
