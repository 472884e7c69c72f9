"""`sluice drain --wait`, as hooks call it before they stop a real process."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

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
