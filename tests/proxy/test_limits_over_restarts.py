"""A real process that is killed and ended again and again gives no second burst: a broker counts what it receives."""

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.loadgen.standin.conftest import new_client, running_broker
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.waiting import wait_for

TOPIC = "persistent://public/default/often"
RATE, BURST, FLOOD, ENOUGH = 20, 500, 300, 5


def _flood(sluice: SluiceProcess, how: str) -> None:
    """Send more than the rate has room for, until some messages have receipts; then end the proxy."""
    received: list[None] = []

    def on_receipt(result: pulsar.Result, _id: object) -> None:
        if result == pulsar.Result.Ok:
            received.append(None)

    with closing(new_client(sluice.service_url.partition("//")[2])) as client:
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(FLOOD):
            producer.send_async(b"%d" % number, on_receipt)
        wait_for(lambda: len(received) >= ENOUGH)
        assert sluice.process is not None
        sluice.process.kill() if how == "kill" else sluice.stop()


def _found(folder: Path) -> list[str]:
    """The finding of each start, by the operator's log."""
    events = {"limits begin with empty buckets, which fill from now on": "empty"}
    events["limits go on with the balances of the run before"] = "balances"
    lines: list[dict[str, Any]] = [json.loads(line) for line in (folder / "sluice.log").read_text().splitlines()]
    return [events[line["event"]] for line in lines if line.get("event") in events]


def _run_often(folder: Path, ends: list[str]) -> None:
    config = {
        "drain": {"state": str(folder / "state"), "delay": 0, "period": 0.2, "timeout": 1},
        "limits": {"topics": {TOPIC: {"publish": {"messages": f"{RATE}/s", "burst_messages": BURST}}}},
    }
    counts = folder / "counts.json"
    with running_broker("--counts", str(counts)) as (broker, address):
        began = time.monotonic()
        for how in ends:
            _flood(start_sluice(folder, f"pulsar://{address}", config), how)
        lasted = time.monotonic() - began
        broker.terminate()
        broker.wait(30)
    passed = json.loads(counts.read_text())["topics"][TOPIC]["received_messages"]
    assert ENOUGH * len(ends) <= passed <= RATE * lasted + len(ends)
    assert _found(folder) == ["empty" if before == "kill" else "balances" for before in ("kill", *ends[:-1])]


def test_process_ended_and_killed_passes_its_rate_and_no_burst(tmp_path: Path) -> None:
    _run_often(tmp_path, ["kill", "end", "end", "kill", "end"])


@pytest.mark.on_request
def test_process_killed_50_times_passes_its_rate_and_no_burst(tmp_path: Path) -> None:
    _run_often(tmp_path, ["kill"] * 50)
