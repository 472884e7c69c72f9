import gc
import json
import os
from pathlib import Path

import pytest

import loadgen.load.main as load_main
from loadgen.load.main import Request, main
from loadgen.load.results import Books
from loadgen.load.run import Order, Surroundings, run
from tests.loadgen.load.fake_clients import FakeBroker, FakeTime

SCENARIO = "tenants: {t: {topics: {n/x: {pattern: {kind: steady, rate: 10}}}}}"
TOPIC = "persistent://t/n/x"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    broker = FakeBroker()
    time = FakeTime(broker.tick)

    def run_with_fakes(order: Order, around: Surroundings) -> Books:
        return run(order, Surroundings(time.clock, time.sleep, broker.clients, around.progress))

    monkeypatch.setattr(load_main, "run", run_with_fakes)
    return broker


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    file = tmp_path / "load.yaml"
    file.write_text(SCENARIO)
    return Request(file, "pulsar://proxy", "pulsar://broker", 2, 1, tmp_path / "counts.json", None)


def changed(request: Request, **changes: object) -> Request:
    return Request(**({name: getattr(request, name) for name in Request.__slots__} | changes))


def test_counts_are_written_and_nothing_is_said_when_all_went_well(
    broker: FakeBroker, request_: Request, capfd: Capture
) -> None:
    assert main(request_) == 0
    assert request_.out is not None
    assert json.loads(request_.out.read_text())["topics"][TOPIC]["receipts"] == 21
    assert capfd.readouterr() == ("", "")


def test_a_lost_message_is_exit_code_1_and_a_line(broker: FakeBroker, request_: Request, capfd: Capture) -> None:
    broker.loses = TOPIC
    assert main(request_) == 1
    assert capfd.readouterr().err == f"sluice load: {TOPIC}: 21 receipts whose message did not arrive\n"


def test_without_out_the_counts_go_to_stdout(broker: FakeBroker, request_: Request, capfd: Capture) -> None:
    assert main(changed(request_, out=None)) == 0
    assert json.loads(capfd.readouterr().out)["verified"]


def test_live_lines_go_to_their_file(broker: FakeBroker, request_: Request, tmp_path: Path) -> None:
    assert main(changed(request_, live=str(tmp_path / "live.jsonl"))) == 0
    lines = (tmp_path / "live.jsonl").read_text().splitlines()
    assert len(lines) > 4
    assert json.loads(lines[-1])["topics"][TOPIC]["received"] == 21


def test_live_lines_can_go_to_stdout(broker: FakeBroker, request_: Request, capfd: Capture) -> None:
    assert main(changed(request_, live="-")) == 0
    assert TOPIC in json.loads(capfd.readouterr().out.splitlines()[0])["topics"]


def test_stdout_is_stdouts_again_afterwards(broker: FakeBroker, request_: Request, capfd: Capture) -> None:
    main(request_)
    os.write(1, b"still here\n")
    assert capfd.readouterr().out == "still here\n"


def test_the_collector_works_again_afterwards(broker: FakeBroker, request_: Request) -> None:
    main(request_)
    assert gc.isenabled()


def test_a_bad_scenario_is_exit_code_2_and_one_line_a_reason(request_: Request, capfd: Capture) -> None:
    request_.scenario.write_text(SCENARIO.replace("rate: 10", "rate: 0"))
    assert main(request_) == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_an_out_file_that_cannot_be_written_is_named_before_the_run(
    broker: FakeBroker, request_: Request, capfd: Capture
) -> None:
    assert main(changed(request_, out=Path("/nowhere/counts.json"))) == 2
    assert "/nowhere/counts.json: No such file or directory" in capfd.readouterr().err
    assert broker.urls == []
