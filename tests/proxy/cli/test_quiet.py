"""`-q` and `--json` of the commands that ask a running proxy."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from sluice.cli import app
from tests.proxy.admin_client import Admin
from tests.proxy.policies.test_commands import sluice

LIMITS = {"namespaces": {"acme/shop": {"publish": {"messages": 9}}}}
TOPIC = "acme/shop/orders"
DONE = {
    "apply": ["apply", "FILE"],
    "backup": ["backup", "BACKUP"],
    "block": ["block", "role", "eve"],
    "diff": ["diff", "FILE"],
    "doctor": ["doctor"],
    "export to a file": ["export", "--output", "OUT", "--force"],
    "kick": ["kick", "--role", "eve", "--dry-run"],
    "unblock": ["unblock", "role", "eve"],
}
SHOWN = {
    "audit": ["audit"],
    "blocks": ["blocks"],
    "explain": ["explain", TOPIC],
    "export": ["export"],
    "top": ["top", "--once", "--interval", "100ms"],
}


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    with capture_logs():
        yield


def filled(words: list[str], folder: Path) -> list[str | Path]:
    (folder / "FILE").write_text("limits: {namespaces: {acme/shop: {publish: {messages: 8}}}}")
    return [folder / word if word in {"FILE", "BACKUP", "OUT"} else word for word in words]


@pytest.mark.parametrize("command", DONE)
async def test_quiet_prints_nothing_where_the_code_says_it(make_admin, tmp_path: Path, command: str) -> None:
    admin: Admin = await make_admin(limits=LIMITS)
    words = filled(DONE[command], tmp_path)
    loud = await sluice(admin, *words)
    for line in (["-q", *words], [*words, "-q"]):
        done = await sluice(admin, *line)
        assert (done.stdout, done.stderr, done.exit_code) == ("", "", loud.exit_code)


@pytest.mark.parametrize("command", [*DONE, *SHOWN])
async def test_quiet_leaves_the_json_that_is_asked_for(make_admin, tmp_path: Path, command: str) -> None:
    admin: Admin = await make_admin(limits=LIMITS)
    done = await sluice(admin, "-q", *filled((DONE | SHOWN)[command], tmp_path), "--json")
    assert json.loads(done.stdout) is not None
    assert done.stderr == ""


@pytest.mark.parametrize("command", SHOWN)
async def test_quiet_leaves_what_a_command_only_shows(make_admin, tmp_path: Path, command: str) -> None:
    admin: Admin = await make_admin(limits=LIMITS)
    done = await sluice(admin, *filled(SHOWN[command], tmp_path), "-q")
    assert done.stdout.strip()
    assert done.stderr == ""


async def test_an_error_is_printed_even_quietly(make_admin) -> None:
    done = await sluice(await make_admin(), "-q", "block", "shoe", "eve")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("sluice: ")


async def test_export_as_json_is_the_configuration(make_admin, tmp_path: Path) -> None:
    admin: Admin = await make_admin(limits=LIMITS)
    shown = json.loads((await sluice(admin, "export", "--json")).stdout)
    assert shown["limits"] == LIMITS
    file = tmp_path / "limits.yaml"
    counts = json.loads((await sluice(admin, "export", "--json", "--output", file)).stdout)
    assert counts == {"file": str(file), "limits": 1, "attachments": 0, "blocks": 0}
    assert file.read_text() == (await sluice(admin, "export")).stdout


async def test_backup_and_restore_as_json_count(make_admin, tmp_path: Path) -> None:
    admin: Admin = await make_admin()
    await admin.ask("POST", "/admin/v2/namespaces/acme/shop/publishRate", json={"publishThrottlingRateInMsg": 5})
    saved = json.loads((await sluice(admin, "backup", tmp_path / "saved", "--json")).stdout)
    assert (saved["policies"], saved["changes"]) == (1, 1)
    command = ["restore", str(tmp_path / "saved"), str(tmp_path / "policies.db"), "--json"]
    restored = json.loads(CliRunner().invoke(app, command).stdout)
    assert restored == {"store": str(tmp_path / "policies.db"), "policies": 1, "changes": 1, "warnings": []}
    again = CliRunner().invoke(app, [*command[:-1], "--replace", "-q"])
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "")
