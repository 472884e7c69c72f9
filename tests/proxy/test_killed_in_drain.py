"""A proxy of two is killed in each step of its drain: clients lose no message, and each producer's order is kept."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.leaving import CrowdSize, StreamCrowd
from proxy.drain import Phase
from tests.loadgen.standin.conftest import running_broker
from tests.proxy.test_taken_over import InPlace, in_place
from tests.waiting import wait_for

SIZE = CrowdSize(streams=16, topics=2, connections=2, period_s=0.05)


def streams(proxy: InPlace) -> int:
    count: int = proxy.admin.call("GET", "/sluice/streams")["totals"]["streams"]
    return count


@contextmanager
def stopped(process: Any) -> Iterator[None]:
    """Have the broker answer nothing, so that the streams of a connection that leaves are never closed."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def drain_until(proxy: InPlace, phase: Phase) -> None:
    proxy.admin.call("POST", "/sluice/drain")
    wait_for(lambda: proxy.admin.call("GET", "/sluice/drain")["phase"] == phase, evidence=proxy.lines)


def kill(proxy: InPlace) -> None:
    """Kill its process, and start the next one on the same ports."""
    proxy.processes[-1].kill()
    proxy.start()


def wait_for_more(crowd: StreamCrowd, more: int = 20) -> None:
    wanted = [len(each.receipts) + more for each in crowd.producers]
    wait_for(lambda: all(len(each.receipts) >= count for each, count in zip(crowd.producers, wanted, strict=True)))


@pytest.mark.slow
def test_kill_in_each_step_of_a_drain_loses_nothing(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    with (
        running_broker() as (broker, address),
        in_place(tmp_path / "a", address) as first,
        in_place(tmp_path / "b", address) as second,
        StreamCrowd([first.address, second.address], SIZE, "killed") as crowd,
    ):
        for phase in (Phase.DELAYING, Phase.MOVING, Phase.DRAINED):
            wait_for_more(crowd)
            busy = max(first, second, key=streams)
            assert streams(busy)
            if phase is Phase.MOVING:
                with stopped(broker):
                    drain_until(busy, phase)
                    kill(busy)
            else:
                drain_until(busy, phase)
                kill(busy)
            wait_for(lambda proxy=busy: proxy.admin.is_ready("/readyz"))  # type: ignore[misc]
        wait_for_more(crowd)
        crowd.end()
        sample = crowd.sample(0, 0)
    assert {key: sample[key] for key in ("failed", "lost", "disordered")} == {"failed": 0, "lost": 0, "disordered": 0}
