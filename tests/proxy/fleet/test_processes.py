"""Two `sluice serve` of one fleet on the stand-in broker: limits that differ, names, a broker that is lost."""

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adminrest.client import AdminClient
from sluice.cli import app
from tests.loadgen.standin.conftest import running_broker
from tests.proxy.wire import TOPIC
from tests.real.sluice_process import SluiceProcess, launch_sluice
from tests.waiting import wait_for

LIMITS = {"topics": {TOPIC: {"publish": {"messages": "2/h"}}}}
PLACE = f"publish topic {TOPIC}"
Start = Callable[..., list[SluiceProcess]]


@pytest.fixture
def broker() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with running_broker() as running:
        yield running


@pytest.fixture
def start(tmp_path: Path, broker: tuple[object, str]) -> Iterator[Start]:
    """Starts members of one fleet, each with these keys of its own as well, and ends them."""
    running: list[SluiceProcess] = []

    def launch(*own: dict[str, Any]) -> list[SluiceProcess]:
        for number, keys in enumerate(own):
            fleet = {"name": "front", "cycle": 0.05, "lease": 0.6}
            config = {"proxy_id": f"sluice-{number}", "policies": {"topic": "none"}, "fleet": fleet, **keys}
            running.append(launch_sluice(tmp_path / str(number), f"pulsar://{broker[1]}", config))
        for member in running:
            member.wait_ready()
        return running

    yield launch
    for member in running:
        member.stop()


def metric(sluice: SluiceProcess, name: str) -> float:
    page = AdminClient(sluice.admin_url).get("/metrics").decode()
    (line,) = [line for line in page.splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def says(sluice: SluiceProcess, text: str) -> bool:
    return sluice.process is not None and text in sluice.process.log_path.read_text()


def limit_sets(sluice: SluiceProcess) -> list[dict[str, Any]]:
    return list(sluice.get("/sluice/fleet")["limit_sets"])


def test_members_with_different_limits_say_so(start: Start) -> None:
    having, lacking = start({"limits": LIMITS}, {})
    for sluice in (having, lacking):
        wait_for(partial(limit_sets, sluice))
        sets = sorted(limit_sets(sluice), key=lambda limit_set: limit_set["limits"])
        assert [(limit_set["limits"], limit_set["names"], limit_set["is_here"]) for limit_set in sets] == [
            (0, ["sluice-1"], sluice is lacking),
            (1, ["sluice-0"], sluice is having),
        ]
        assert metric(sluice, "sluice_fleet_limit_sets") == 2
        shown = CliRunner().invoke(app, ["fleet", "--admin", sluice.admin_url.removeprefix("http://")])
        assert "members have different limits; compare them" in shown.output
        assert shown.output.count("has these") == 1


def coordinates(member: SluiceProcess) -> bool:
    """Whether a member knows the shares of all."""
    return member.get("/sluice/fleet")["fleet_limits"] is not None


def test_two_members_of_one_name_are_reported(start: Start) -> None:
    members = start({"proxy_id": "twin"}, {"proxy_id": "twin"})
    wait_for(lambda: any(coordinates(member) for member in members))
    leader = next(member for member in members if coordinates(member))
    wait_for(partial(metric, leader, "sluice_fleet_names_taken_twice"))
    assert [member["has_twin"] for member in leader.get("/sluice/fleet")["members"]] == [True, True]
    shown = CliRunner().invoke(app, ["fleet", "--admin", leader.admin_url.removeprefix("http://")])
    assert "several members have one name: twin; give each its own proxy_id" in shown.output
    wait_for(lambda: says(leader, "several members have one name"))


def test_a_member_without_its_broker_says_so(start: Start, broker: tuple[subprocess.Popen[str], str]) -> None:
    (alone,) = start({})

    def shown() -> Any:
        return alone.get("/sluice/fleet")

    wait_for(lambda: shown()["coordinator"] == "sluice-0")
    broker[0].kill()
    wait_for(lambda: not shown()["coordinator"])
    state = shown()
    assert (state["state"], state["epoch"], state["last_coordinator"]) == ("connecting", 0, "sluice-0")
    output = CliRunner().invoke(app, ["fleet", "--admin", alone.admin_url.removeprefix("http://")]).output
    assert "coordinator: none is heard; sluice-0 answered last, " in output
    assert "following" not in output
