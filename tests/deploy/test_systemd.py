"""The units of deploy/systemd, by systemd's own tools."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sluice.cli import app
from tests.deploy.manifests import ROOT
from tests.deploy.pod import SLUICE

UNITS = sorted(unit for kind in ("service", "socket", "timer") for unit in (ROOT / "deploy/systemd").glob(f"*.{kind}"))
_MOST_EXPOSED = 15
"""Of 100, as `systemd-analyze security --threshold` counts."""


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units, with a command that this machine has."""
    made = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, made, strict=True):
        copy.write_text(
            unit.read_text().replace("/opt/sluice/bin/sluice", SLUICE[0]).replace("User=sluice", "User=root")
        )
    return made


@pytest.mark.systemd
def test_units_are_as_systemd_has_them(units: list[Path]) -> None:
    assert len(units) == 4
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.systemd
@pytest.mark.parametrize("unit", [unit.name for unit in UNITS if unit.suffix == ".service"])
def test_units_are_hardened(unit: str) -> None:
    file = ROOT / "deploy/systemd" / unit
    words: list[str | Path] = [
        "systemd-analyze",
        "security",
        "--no-pager",
        "--offline=yes",
        "--threshold",
        str(_MOST_EXPOSED),
        file,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert "Overall exposure level" in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_commands_of_a_unit_take_their_arguments(unit: Path) -> None:
    for line in re.findall(r"^ExecStart=/opt/sluice/bin/sluice (.*)$", unit.read_text(), re.MULTILINE):
        command: Any = typer.main.get_group(app)
        words = shlex.split(line)
        while hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        command.make_context("", words)


def test_socket_unit_has_the_address_of_the_readme() -> None:
    (address,) = re.findall(r"^ListenStream=(.*)$", (ROOT / "deploy/systemd/sluice.socket").read_text(), re.MULTILINE)
    assert f"\nlisten: {address}\n" in (ROOT / "README.md").read_text()
