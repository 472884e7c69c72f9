"""The examination of a running proxy."""

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from limiter.policies import Policies
from proxy.checkup import MOST_LISTED, BrokerAnswer, Checkup, Finding, UnreachableLimits, disks, kernel, of_broker
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.degraded import Degraded, DegradedStates
from proxy.descriptors import Shortage
from proxy.slices import Slices
from proxy.tls.certificates import Expiry
from sluice.cli import app
from tests.proxy.admin_client import Admin
from tests.proxy.file_limits import policies_of

DAY = 86_400
NOW = 1_800_000_000.0


def expiry(days: float) -> Expiry:
    return Expiry("tls.certificate", Path("/tls.crt"), "CN=sluice", 1, NOW + days * DAY)


async def examined(**differs: Any) -> list[Finding]:
    async def sound() -> dict[str, BrokerAnswer]:
        return {"pulsar://b:6650": BrokerAnswer(None)}

    parts: dict[str, Any] = {
        "brokers": sound,
        "broker_clock": None,
        "expiries": tuple,
        "states": DegradedStates(),
        "shortage": None,
        "connections": 100,
        "folders": {},
        "policies": Policies(),
        "slices": Slices(Counters()),
        "clock": lambda: NOW,
    }
    return await Checkup(**(parts | differs)).findings()


async def test_sound_process_has_no_problem() -> None:
    found = await examined(expiries=lambda: (expiry(100),))
    assert {each.severity for each in found if each.check != "kernel"} == {"ok"}
    assert {each.check for each in found} == {"brokers", "certificates", "degraded", "descriptors", "kernel", "limits"}


@pytest.mark.parametrize(
    ("version", "severity", "said"),
    [
        ("Pulsar Server4.0.8", "ok", "a answers, with Pulsar 4.0.8"),
        ("Pulsar Server5.0.0-M1", "ok", "a answers, with Pulsar 5.0.0-M1"),
        ("Pulsar Server2.10.6", "warning", "a has Pulsar 2.10.6; Sluice is tried with 2.11 to 5.0"),
        ("Pulsar Server5.1", "warning", "a has Pulsar 5.1; Sluice is tried with 2.11 to 5.0"),
        ("Pulsar Server", "ok", "a answers"),
    ],
)
def test_a_broker_s_version_is_compared(version: str, severity: str, said: str) -> None:
    found = of_broker("a", BrokerAnswer(None, version))
    assert (found.severity, found.text) == (severity, said)


@pytest.mark.parametrize(
    ("ahead_s", "severity", "said"),
    [
        (1.9, "ok", "agree within 2 s"),
        (3.2, "warning", "the broker's clock is 3 s ahead of this machine's"),
        (-90.0, "warning", "the broker's clock is 90 s behind this machine's"),
    ],
)
async def test_a_broker_s_clock_is_compared(ahead_s: float, severity: str, said: str) -> None:
    async def ask() -> float:
        return ahead_s

    (found,) = [each for each in await examined(broker_clock=ask) if each.check == "clock"]
    assert found.severity == severity
    assert said in found.text


async def test_a_clock_that_cannot_be_asked_is_named() -> None:
    async def fail() -> float:
        raise OSError("http://b:8080 cannot be reached")

    (found,) = [each for each in await examined(broker_clock=fail) if each.check == "clock"]
    assert found == (
        "clock",
        "warning",
        "the broker's clock is not known: http://b:8080 cannot be reached",
        "see admin_forward.url",
    )


async def test_problems_come_first_with_their_remedies() -> None:
    async def asked() -> dict[str, BrokerAnswer]:
        return {"a": BrokerAnswer(None), "b": BrokerAnswer("broker b does not answer: time over")}

    state = Degraded("fleet_cut_off", "the coordinator is not heard", "look at the broker")
    found = await examined(
        brokers=asked,
        expiries=lambda: (expiry(-1), expiry(10), expiry(31)),
        states=DegradedStates(watched=[lambda: [state]]),
        shortage=Shortage("the process may open 10 files", "raise the limit"),
    )
    severities = [each.severity for each in found]
    assert severities == sorted(severities, key=["problem", "warning", "ok"].index)
    problems = {each.check: each for each in found if each.severity == "problem"}
    assert set(problems) == {"brokers", "certificates", "degraded", "descriptors"}
    assert problems["degraded"].text == "fleet_cut_off: the coordinator is not heard"
    assert problems["descriptors"] == ("descriptors", "problem", "the process may open 10 files", "raise the limit")
    assert all(each.remedy for each in found if each.severity != "ok")
    assert [each.severity for each in found if each.check == "certificates"] == ["problem", "warning", "ok"]


@pytest.mark.parametrize(
    ("ports", "queue", "severities"),
    [
        ("32768\t60999\n", "4096\n", ["ok", "ok"]),
        ("32768 33000", "128", ["warning", "warning"]),
        ("no numbers", "128", []),
    ],
)
def test_kernel_is_held_against_the_connections(tmp_path: Path, ports: str, queue: str, severities: list[str]) -> None:
    (tmp_path / "ports").write_text(ports)
    (tmp_path / "queue").write_text(queue)
    found = list(kernel(10_000, tmp_path / "ports", tmp_path / "queue"))
    assert [each.severity for each in found] == severities


@pytest.mark.parametrize(("free", "severity"), [(50, "ok"), (5, "ok"), (4, "warning"), (0, "problem")])
def test_disks_are_judged_by_their_free_part(monkeypatch: pytest.MonkeyPatch, free: int, severity: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100, free=free))
    (found,) = disks({"access_log.dir": Path("/log")})
    assert found.severity == severity
    assert bool(found.remedy) is (severity != "ok")


def test_missing_folder_is_a_problem(tmp_path: Path) -> None:
    (found,) = disks({"access_log.dir": tmp_path / "none"})
    assert (found.severity, found.text) == (
        "problem",
        f"access_log.dir: {tmp_path / 'none'}: No such file or directory",
    )


def unreachable(limits: dict[str, Any]) -> list[Finding]:
    looking = UnreachableLimits(policies_of(Config.model_validate({"limits": limits}).limits))
    for _ in looking.looking():
        pass
    return looking.findings()


TENANT = {"tenants": {"acme": {"publish": {"messages": 100, "bytes": "1MB"}}}}


def test_limit_above_a_wider_one_is_found() -> None:
    topic = "persistent://acme/shop/orders"
    (found,) = unreachable({**TENANT, "topics": {topic: {"publish": {"messages": 500, "bytes": "1kB"}}}})
    assert found.severity == "warning"
    assert found.text == f"publish limit of topic {topic}, 500 messages/s, is above that of tenant acme, 100 messages/s"


@pytest.mark.parametrize(
    "limits",
    [
        {**TENANT, "topics": {"persistent://acme/shop/orders": {"publish": {"messages": 100}}}},
        {**TENANT, "topics": {"persistent://other/shop/orders": {"publish": {"messages": 500}}}},
        {**TENANT, "topics": {"persistent://acme/shop/orders": {"dispatch": {"messages": 500}}}},
        {
            "tenants": {"acme": {"publish": {"messages": 100, "mode": "observe"}}},
            "topics": {"persistent://acme/shop/orders": {"publish": {"messages": 500}}},
        },
        {**TENANT, "namespaces": {"acme/*": {"publish_total": {"messages": 500}}}},
    ],
)
def test_limit_that_can_be_reached_is_not(limits: dict[str, Any]) -> None:
    assert [each.severity for each in unreachable(limits)] == ["ok"]


def test_total_of_a_namespace_is_looked_at() -> None:
    (found,) = unreachable({**TENANT, "namespaces": {"acme/shop": {"publish_total": {"bytes": "2MB"}}}})
    assert found.text.startswith("publish limit of namespace acme/shop, 2e+06 bytes/s, is above that of tenant acme")


def test_list_of_limits_is_bounded() -> None:
    many = {f"persistent://acme/shop/t{number}": {"publish": {"messages": 500}} for number in range(30)}
    found = unreachable({**TENANT, "topics": many})
    assert len(found) == MOST_LISTED + 1
    assert found[-1].text == "10 further limits like these"


async def test_command_shows_findings_and_its_exit_code(make_admin: Any) -> None:
    admin: Admin = await make_admin(broker="pulsar://127.0.0.1:1")
    address = f"127.0.0.1:{admin.client.port}"
    done = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--admin", address])
    assert done.exit_code == 1
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("problem  brokers      broker pulsar://127.0.0.1:1 does not answer: ")
    assert second.startswith("                      to do: check its address")
    assert done.stderr.startswith("sluice: 1 problems in ")


def test_options_of_streams_need_it() -> None:
    done = CliRunner().invoke(app, ["doctor", "--tenant", "acme"])
    assert done.exit_code == 2
    assert "add --streams" in done.stderr
