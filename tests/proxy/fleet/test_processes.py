"""Two `sluice serve` that are peers: what their files do not agree on holds in both, and both tell of it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from loadgen.real.process import free_ports, wait_until
from sluice.cli import app
from tests.proxy.tcp import broker_on_loopback, connect_to
from tests.proxy.wire import TOPIC, connect, connected, producer, producer_success, sends
from tests.real.sluice_process import SluiceProcess, launch_sluice

LIMITS = {"topics": {TOPIC: {"publish": {"messages": "2/h"}}}}
PLACE = f"publish topic {TOPIC}"
Start = Callable[..., list[SluiceProcess]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts peers of one fleet, each with these keys of its own besides, and ends them."""
    running: list[SluiceProcess] = []

    def launch(broker: str, *own: dict[str, Any]) -> list[SluiceProcess]:
        peers = [f"127.0.0.1:{port}" for port in free_ports(*[0] * len(own))]
        for number, (listen, keys) in enumerate(zip(peers, own, strict=True)):
            fleet = {"name": "front", "peers": peers, "listen": listen, "cycle": 0.05, "lease": 0.4}
            config = {"proxy_id": f"sluice-{number}", "policies": {"topic": "none"}, "fleet": fleet, **keys}
            running.append(launch_sluice(tmp_path / str(number), f"pulsar://{broker}", config))
        return running

    yield launch
    for one in running:
        one.stop()


def metric(sluice: SluiceProcess, name: str) -> float:
    with urlopen(f"{sluice.admin_url}/metrics") as answer:
        (line,) = [line for line in answer.read().decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def says(sluice: SluiceProcess, text: str) -> bool:
    return sluice.process is not None and text in sluice.process.log_path.read_text()


def differing(sluice: SluiceProcess) -> list[dict[str, Any]]:
    rules: dict[str, Any] = sluice.get("/sluice/fleet")["rules"]
    return list(rules["differing"])


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_limit_that_stands_in_one_file_holds_in_both_processes_and_is_told_in_both(
    start: Start, workers: int
) -> None:
    seen = Counter[str]()
    async with broker_on_loopback(seen, stores=True) as broker:
        having, lacking = start(broker, {"limits": LIMITS}, {"workers": workers})  # in this thread: with it they end
        for one in (having, lacking):
            await asyncio.to_thread(one.wait_ready)
            assert await asyncio.to_thread(wait_until, partial(differing, one), 10)
            ((rule,)) = await asyncio.to_thread(differing, one)
            assert (rule["limit"], rule["value"]) == (PLACE, "messages 0.000555555555556/s, burst 1")
            assert rule["having"] == ["sluice-0"]
            assert await asyncio.to_thread(metric, one, "sluice_fleet_rules_disagreed") == 1
            assert await asyncio.to_thread(wait_until, partial(says, one, "members do not have the same limits"), 10)
            told = CliRunner().invoke(app, ["fleet", "--admin", one.admin_url.removeprefix("http://")])
            assert "members disagree: 1 limits are not the same in all" in told.output
        assert (rule["here"], rule["is_here"]) == (None, False)

        client = await connect_to(lacking.service_url.removeprefix("pulsar://"))
        client.send(connect(), producer())
        assert [await client.hear() for _ in range(2)] == [connected(), producer_success()]
        client.send(*sends(10))
        assert await client.hear() is not None
        assert await asyncio.to_thread(wait_until, lambda: lacking.streams(TOPIC)[0]["offered_messages"] == 10, 10)
        (stream,) = await asyncio.to_thread(lacking.streams, TOPIC)
        assert (seen["SEND"], stream["held_messages"]) == (1, 9)
        client.writer.close()


async def test_two_processes_of_one_name_are_told_by_the_coordinator(start: Start) -> None:
    async with broker_on_loopback() as broker:
        leader, other = start(broker, {"proxy_id": "twin"}, {"proxy_id": "twin"})
        for one in (leader, other):
            await asyncio.to_thread(one.wait_ready)
        twins = partial(metric, leader, "sluice_fleet_names_taken_twice")
        assert await asyncio.to_thread(wait_until, twins, 10)
        shown = await asyncio.to_thread(leader.get, "/sluice/fleet")
        assert [one["has_twin"] for one in shown["members"]] == [True, True]
        told = CliRunner().invoke(app, ["fleet", "--admin", leader.admin_url.removeprefix("http://")])
        assert told.output.count("twin (several have this name)") >= 1
        assert await asyncio.to_thread(wait_until, lambda: says(leader, "several members have one name"), 10)


async def test_of_a_coordinator_that_was_killed_the_other_says_so_and_why_it_is_not_reached(start: Start) -> None:
    async with broker_on_loopback() as broker:
        leader, other = start(broker, {}, {})
        for one in (leader, other):
            await asyncio.to_thread(one.wait_ready)

        def shown() -> Any:
            return other.get("/sluice/fleet")

        assert await asyncio.to_thread(wait_until, lambda: shown()["coordinator"] == "sluice-0", 10)
        assert [one["last_error"] for one in (await asyncio.to_thread(shown))["peers"]] == [""]
        leader.process.kill()  # type: ignore[union-attr]
        leader.process = None
        assert await asyncio.to_thread(wait_until, lambda: not shown()["coordinator"], 10)
        state = await asyncio.to_thread(shown)
        assert (state["state"], state["epoch"], state["last_coordinator"]) == ("connecting", 0, "sluice-0")
        (peer,) = state["peers"]
        assert (peer["dialled"], peer["dials"]) == (False, False)
        assert peer["last_error"]
        told = CliRunner().invoke(app, ["fleet", "--admin", other.admin_url.removeprefix("http://")]).output
        assert "coordinator: none is heard; sluice-0 answered last, " in told
        assert f"peer {peer['address']}: is not reached, does not reach this member (" in told
        assert "following" not in told
