"""`sluice drain --wait`, as hooks call it before they stop a real process."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from protocol.exit_codes import ExitCode
from proxy.admin.process_header import PROCESS
from sluice.cli import app
from tests.loadgen.standin.conftest import new_client, running_broker
from tests.proxy.test_taken_over import THIS, InPlace, in_place
from tests.waiting import PATIENCE_S, wait_for


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with running_broker() as (_, address):
        yield address


def awaited_drain(proxy: InPlace, *options: str) -> "subprocess.Popen[str]":
    command = [*THIS, "drain", "--wait", "--admin", proxy.admin.url, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_awaited_drain_returns_when_clients_have_left(tmp_path: Path, broker: str) -> None:
    with in_place(tmp_path, broker) as proxy, closing(new_client(f"{proxy.address},{broker}")) as client:
        producer = client.create_producer(proxy.topic)
        producer.send(b"1")
        out, errors = awaited_drain(proxy, "--json").communicate(timeout=PATIENCE_S)
        shown = json.loads(out)
        assert (shown["phase"], shown["outcome"], shown["streams"], errors) == ("drained", "moved", 0, "")
        assert proxy.processes[0].exit_code is None, "it runs on without clients"
        producer.send(b"2")


def test_awaited_drain_of_a_killed_process_returns(tmp_path: Path, broker: str) -> None:
    drain = {"state": str(tmp_path / "state"), "delay": 600, "period": 1, "timeout": 700}
    with in_place(tmp_path, broker, drain=drain) as proxy, awaited_drain(proxy) as waiting:
        wait_for(lambda: proxy.admin.get_json("/sluice/drain")["phase"] == "delaying")
        proxy.processes[0].kill()
        out, errors = waiting.communicate(timeout=PATIENCE_S)
        assert (waiting.returncode, out, errors) == (0, "the process has ended\n", "")


DELAYING = {"phase": "delaying", "outcome": None, "moved_connections": 0, "moved_streams": 0}
DRAINED = DELAYING | {"phase": "drained", "outcome": "moved"}


class Replicas(BaseHTTPRequestHandler):
    """One address of the processes a and b: the POST reaches a, and each GET the process and answer of `answers`."""

    answers: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        self._answer("a", 202, json.dumps(DELAYING).encode())

    def do_GET(self) -> None:
        process, body = self.answers.pop(0)
        if self.headers.get(PROCESS, process) == process:
            self._answer(process, 200, body)
        else:
            self._answer(process, HTTPStatus.MISDIRECTED_REQUEST, b'{"reason": "nothing was done"}')

    def _answer(self, process: str, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header(PROCESS, process)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def replicas(*answers: tuple[str, Any]) -> Iterator[str]:
    class Answers(Replicas):
        pass

    Answers.answers = [
        (process, (answer if isinstance(answer, str) else json.dumps(answer)).encode()) for process, answer in answers
    ]
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def drained(address: str) -> Result:
    return CliRunner().invoke(app, ["drain", "--wait", "--admin", address])


def test_awaited_drain_asks_the_process_that_drains() -> None:
    with replicas(("a", DELAYING), ("a", DRAINED)) as address:
        assert drained(address).exit_code == ExitCode.DONE


def test_awaited_drain_says_that_another_process_answers() -> None:
    with replicas(("a", DELAYING), ("b", DELAYING | {"phase": "serving"})) as address:
        result = drained(address)
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr == (
        f"sluice: {address}: another process answers than the one that drains; "
        "--admin must be the address of one process\n"
    )


def test_awaited_drain_takes_no_strange_answer_for_the_end() -> None:
    with replicas(("a", "<html>")) as address:
        result = drained(address)
    assert (result.exit_code, result.stdout) == (ExitCode.FAILED, "")
    assert "the answer is not Sluice's" in result.stderr
