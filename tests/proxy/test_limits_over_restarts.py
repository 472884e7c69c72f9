"""Real processes that are killed and ended again and again give no second burst: a broker counts what it receives."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.loadgen.standin.conftest import new_client, running_broker
from tests.proxy.test_taken_over import FILLED_S, LIMIT, LIMITED, LIMITS, InPlace, held_over, in_place
from tests.real.demand import publishing
from tests.real.receiving_end import ReceivingEnd
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.traffic import open_sender
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


def _config(state: Path) -> dict[str, Any]:
    return {
        "drain": {"state": str(state), "delay": 0, "period": 0.2, "timeout": 1},
        "limits": {"topics": {TOPIC: {"publish": {"messages": f"{RATE}/s", "burst_messages": BURST}}}},
    }


def _run_often(folder: Path, ends: list[str]) -> None:
    config = _config(folder / "state")
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


def test_signal_in_a_start_keeps_the_balances(tmp_path: Path) -> None:
    """It comes when the process has taken them and reads thousands of limits, and cannot do as it says yet."""
    topics = {f"persistent://public/default/{number}": {"publish": {"messages": 9}} for number in range(2000)}
    with running_broker() as (_, address), in_place(tmp_path, address, limits={"topics": topics}) as proxy:
        assert proxy.processes[0].stop() == 0
        file = tmp_path / "state" / "front.limits"
        left = file.read_bytes()
        assert b'"left":' in left
        starts = proxy.start()
        while file.read_bytes() == left:  # the shortest time from then is what is tried
            pass
        os.kill(starts.pid, signal.SIGTERM)
        wait_for(lambda: starts.exit_code is not None, evidence=proxy.lines)
        assert starts.exit_code == 0
        assert b'"left":' in file.read_bytes()


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A folder with a file system of its own, which a few files fill."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as filled:
        while filled.write(bytes(512)):
            pass


def test_full_disk_at_the_end_of_a_drain_gives_no_burst(tmp_path: Path) -> None:
    """It is full when the first run ends, and through the second one; both say that the next run begins empty."""
    state, rest = tmp_path / "state", tmp_path / "state" / "rest"
    config = _config(state)
    with _small_disk(state), running_broker("--counts", str(tmp_path / "counts.json")) as (broker, address):
        began = time.monotonic()
        for run in range(3):
            if run == 2:
                rest.unlink()
            sluice = start_sluice(tmp_path, f"pulsar://{address}", config, env={"SLUICE_DRAIN__TIMEOUT": "1"})
            if run == 0:
                _fill(rest)
            _flood(sluice, "end")
        lasted = time.monotonic() - began
        broker.terminate()
        broker.wait(30)
    passed = json.loads((tmp_path / "counts.json").read_text())["topics"][TOPIC]["received_messages"]
    assert 3 * ENOUGH <= passed <= RATE * lasted + 3
    lost = "balances of limits are not kept: the next run begins with empty buckets"
    full = "when this run began: it cannot be written: No space left on device"
    lines = [json.loads(line) for line in (tmp_path / "sluice.log").read_text().splitlines()]
    assert [line["error"] for line in lines if line["event"] == lost] == ["No space left on device", full]
    assert [line["outcome"] for line in lines if line["event"] == "drained"]
    assert _found(tmp_path) == ["empty"] * 3


def _knows(proxy: InPlace, members: int) -> bool:
    return bool(proxy.admin.get_json("/sluice/fleet")["members_known"] == members)


def _roll(members: list[InPlace]) -> None:
    """Drain each member, and start it again, one after the other."""
    for member in members:
        before = member.processes[-1]
        os.kill(before.pid, signal.SIGTERM)
        wait_for(lambda process=before: process.exit_code == 0, evidence=member.lines)  # type: ignore[misc]
        member.start()
        wait_for(partial(member.admin.is_ready, "/readyz"), evidence=member.lines)
        for each in members:
            wait_for(partial(_knows, each, len(members)), evidence=member.lines)


@pytest.mark.slow
def test_limit_holds_in_each_interval_of_a_roll(tmp_path: Path) -> None:
    """Two members of a fleet share it. The load goes on through the roll, and comes back when the buckets are full.

    The member that is rolled last is the coordinator.
    """
    with running_broker() as (_, address), ExitStack() as opened:
        members = list[InPlace]()
        for name in "ab":
            (tmp_path / name).mkdir()
            fleet = {"proxy_id": name, "fleet": {"name": "rolled"}}
            members.append(opened.enter_context(in_place(tmp_path / name, address, limits=LIMITS, **fleet)))
        for each in members:
            wait_for(partial(_knows, each, 2), evidence=each.lines)
        end = opened.enter_context(
            ReceivingEnd(f"pulsar://{address}", LIMITED, lambda: chain.from_iterable(each.pids() for each in members))
        )
        senders = []
        for number in range(4):
            turn = [members[number % 2].address, members[1 - number % 2].address]
            client = opened.enter_context(closing(new_client(",".join(turn))))
            senders.append(open_sender(client, LIMITED, f"sender-{number}", send_timeout_millis=0))
        end.rest(FILLED_S)
        with publishing(*senders, pending=LIMIT // 2):
            end.wait_for_more(2 * LIMIT)
            _roll(members)
            end.wait_for_more(LIMIT)
        end.rest(FILLED_S)
        with publishing(*senders, pending=LIMIT // 2):
            end.wait_for_more(2 * LIMIT)
        for sender in senders:
            sender.producer.flush()
            assert not sender.errors
        wait_for(lambda: len(end.arrivals) >= sum(len(sender.sent) for sender in senders))
        assert end.excess(held_over(len(members), len(members))) <= 0
