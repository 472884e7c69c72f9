"""The examination of a running proxy."""

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from fleet.member import FleetMember
from fleet.messages import Grants, VersionSet
from fleet.settings import FleetSettings
from limiter.policies import Policies
from proxy.checkup import (
    BrokerAnswer,
    Checkup,
    Finding,
    disks,
    kernel,
    of_broker,
    of_clocks,
    writable,
)
from proxy.counters import Counters
from proxy.degraded import Degraded, DegradedStates
from proxy.descriptors import Shortage
from proxy.slices import Slices
from proxy.tls.certificates import Expiry
from sluice.cli import app
from tests.proxy.admin_client import Admin
from tests.proxy.hung_call import HungCall

DAY = 86_400
NOW = 1_800_000_000.0


def expiry(days: float) -> Expiry:
    return Expiry("tls.certificate", Path("/tls.crt"), "CN=sluice", 1, NOW + days * DAY)


async def examined(**differs: Any) -> list[Finding]:
    async def sound() -> dict[str, BrokerAnswer]:
        return {"pulsar://b:6650": BrokerAnswer(None)}

    async def sound_clock() -> dict[str, float | str]:
        return {"http://b:8080": 0.0}

    parts: dict[str, Any] = {
        "brokers": sound,
        "broker_clocks": sound_clock,
        "expiries": tuple,
        "states": DegradedStates(),
        "shortage": None,
        "connections": 100,
        "folders": {},
        "member": None,
        "shared": frozenset(),
        "policies": Policies(),
        "slices": Slices(Counters()),
        "clock": lambda: NOW,
    }
    return await Checkup(**(parts | differs)).findings()


async def test_sound_process_has_no_problem() -> None:
    findings = await examined(expiries=lambda: (expiry(100),))
    assert {each.severity for each in findings if each.check != "kernel"} == {"ok"}
    checks = {"brokers", "certificates", "clock", "degraded", "descriptors", "kernel", "limits"}
    assert {each.check for each in findings} == checks


@pytest.mark.parametrize(
    ("version", "severity", "text"),
    [
        ("Pulsar Server4.0.8", "ok", "a answers, with Pulsar 4.0.8"),
        ("Pulsar Server5.0.0-M1", "ok", "a answers, with Pulsar 5.0.0-M1"),
        ("Pulsar Server2.10.6", "warning", "a has Pulsar 2.10.6; Sluice is tried with 2.11 to 5.0"),
        ("Pulsar Server5.1", "warning", "a has Pulsar 5.1; Sluice is tried with 2.11 to 5.0"),
        ("Pulsar Server", "ok", "a answers"),
    ],
)
def test_a_broker_s_version_is_compared(version: str, severity: str, text: str) -> None:
    finding = of_broker("a", BrokerAnswer(None, version))
    assert (finding.severity, finding.text) == (severity, text)


@pytest.mark.parametrize(
    ("ahead_s", "severity", "text"),
    [
        (1.9, "ok", "the clocks of this machine and of http://b:8080 agree within 2 s"),
        (3.2, "warning", "the clock of http://b:8080 is 3 s ahead of this machine's"),
        (-90.0, "warning", "the clock of http://b:8080 is 90 s behind this machine's"),
        ("it is down", "warning", "the clock of http://b:8080 is not known: it is down"),
    ],
)
def test_each_broker_s_clock_is_compared(ahead_s: float | str, severity: str, text: str) -> None:
    other, finding = of_clocks({"http://a:8080": 0.0, "http://b:8080": ahead_s})
    assert other.severity == "ok"
    assert finding.severity == severity
    assert finding.text.startswith(text)
    assert bool(finding.remedy) is (severity != "ok")


async def test_clocks_that_are_not_asked_are_a_finding() -> None:
    (finding,) = [each for each in await examined(broker_clocks=None) if each.check == "clock"]
    assert finding.severity == "warning"
    assert "were not asked" in finding.text
    assert "admin_forward.url" in finding.remedy


def grants(version: str, *sets: VersionSet) -> Grants:
    return Grants("f", "one", 7, 3, version=version, version_sets=sets)


@pytest.mark.parametrize(
    ("heard", "severity", "text"),
    [
        (None, "warning", "the versions of the fleet's members are not known: no coordinator is heard"),
        (grants("0.2.0"), "ok", "all 3 members run Sluice 0.2.0"),
        (
            grants("0.2.0", VersionSet("0.2.0", 7, ("a", "b")), VersionSet("", 1, ("c",))),
            "warning",
            "members run different versions of Sluice: 0.2.0 in a, b and 5 more; unknown in c",
        ),
    ],
)
async def test_versions_of_a_fleet_s_members_are_compared(heard: Grants | None, severity: str, text: str) -> None:
    member = FleetMember(FleetSettings("f"), "one", 1, 0, version="0.2.0")
    if heard is not None:
        member.take(heard, 1)
    (finding,) = [each for each in await examined(member=member) if each.check == "versions"]
    assert (finding.severity, finding.text) == (severity, text)
    assert bool(finding.remedy) is (severity != "ok")


async def test_problems_come_first_with_their_remedies() -> None:
    async def asked() -> dict[str, BrokerAnswer]:
        return {"a": BrokerAnswer(None), "b": BrokerAnswer("broker b does not answer: time over")}

    state = Degraded("fleet_cut_off", "the coordinator is not heard", "look at the broker")
    findings = await examined(
        brokers=asked,
        expiries=lambda: (expiry(-1), expiry(10), expiry(31)),
        states=DegradedStates(watched=[lambda: [state]]),
        shortage=Shortage("the process may open 10 files", "raise the limit"),
    )
    severities = [each.severity for each in findings]
    assert severities == sorted(severities, key=["problem", "warning", "ok"].index)
    problems = {each.check: each for each in findings if each.severity == "problem"}
    assert set(problems) == {"brokers", "certificates", "degraded", "descriptors"}
    assert problems["degraded"].text == "fleet_cut_off: the coordinator is not heard"
    assert problems["descriptors"] == ("descriptors", "problem", "the process may open 10 files", "raise the limit")
    assert all(each.remedy for each in findings if each.severity != "ok")
    assert [each.severity for each in findings if each.check == "certificates"] == ["problem", "warning", "ok"]


@pytest.mark.parametrize(
    ("ports", "queue", "severities"),
    [
        ("32768\t60999\n", "4096\n", ["ok", "ok"]),
        ("32768 33000", "128", ["warning", "warning"]),
        ("no numbers", "128", ["warning"]),
    ],
)
def test_kernel_is_held_against_the_connections(tmp_path: Path, ports: str, queue: str, severities: list[str]) -> None:
    (tmp_path / "ports").write_text(ports)
    (tmp_path / "queue").write_text(queue)
    findings = list(kernel(10_000, tmp_path / "ports", tmp_path / "queue"))
    assert [each.severity for each in findings] == severities


def test_hidden_kernel_settings_are_a_finding_with_the_remedy(tmp_path: Path) -> None:
    (finding,) = kernel(10_000, tmp_path / "ports", tmp_path / "queue")
    assert (finding.severity, "are not readable" in finding.text) == ("warning", True)
    assert "ProcSubset=all" in finding.remedy


def test_a_file_is_made_in_each_folder_and_removed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    findings = list(writable({"access_log.dir": tmp_path, "drain.state": tmp_path / "none", "x": tmp_path / "file"}))
    assert [each.severity for each in findings] == ["ok", "problem", "problem"]
    assert findings[1].text == f"drain.state: no file can be made in {tmp_path / 'none'}: No such file or directory"
    assert findings[1].remedy
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("free", "severity"), [(50, "ok"), (5, "ok"), (4, "warning"), (0, "problem")])
def test_disks_are_judged_by_their_free_part(monkeypatch: pytest.MonkeyPatch, free: int, severity: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100, free=free))
    (finding,) = disks({"access_log.dir": Path("/log")})
    assert finding.severity == severity
    assert bool(finding.remedy) is (severity != "ok")


def test_missing_folder_is_a_problem(tmp_path: Path) -> None:
    (finding,) = disks({"access_log.dir": tmp_path / "none"})
    assert (finding.severity, finding.text) == (
        "problem",
        f"access_log.dir: {tmp_path / 'none'}: No such file or directory",
    )


async def test_folder_that_hangs_holds_no_other_finding_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reading = HungCall(monkeypatch, "proxy.checkup.disks")
    findings = await examined(folders={"access_log.dir": tmp_path})
    (folder,) = (each for each in findings if each.check in {"disk", "folder"})
    assert folder.text == f"access_log.dir: {tmp_path}: its file system does not answer"
    assert folder.severity == "problem"
    assert {"kernel", "limits"} <= {each.check for each in findings}
    reading.end()


async def test_command_shows_findings_and_its_exit_code(make_admin: Any) -> None:
    admin: Admin = await make_admin(broker="pulsar://127.0.0.1:1")
    address = f"127.0.0.1:{admin.client.port}"
    done = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--admin", address])
    assert done.exit_code == 3
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("problem  brokers      broker pulsar://127.0.0.1:1 does not answer: ")
    assert second.startswith("                      to do: check its address")
    assert done.stderr.startswith("sluice: 1 problem in ")


def test_options_of_streams_need_it() -> None:
    done = CliRunner().invoke(app, ["doctor", "--tenant", "acme"])
    assert done.exit_code == 2
    assert "add --streams" in done.stderr
