"""Each example, run as a reader would, and its printed figures."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compliance.real_log import judged_compliant

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text())
LONGEST_S = 120

OF_THE_MACHINE = re.compile(r" at \d+/s: |: half of the receipts within |: equal shares: |: too long to tell$")
"""Claims that fail where the machine is slow. The access log tells whether Sluice kept anything back."""

_HEADER = re.compile(r"^ +seconds .*$", re.MULTILINE)
_ROW = re.compile(r"^ +\d+\.\d(?: +\d+/s)+ +\S+$", re.MULTILINE)
_COUNT = re.compile(r"(\d+)/s")
Table = list[list[int]]
"""Messages a second, as the columns have it; the limit last where it is a number."""


@dataclass(frozen=True)
class Shown:
    """What an example printed."""

    text: str
    tables: list[Table]


def run(script: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it as a reader would; what it leaves behind is left in `folder`."""
    command = [sys.executable, str(EXAMPLES / script), *options]
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )


Show = Callable[[str], Shown]
Played = dict[str, Future[subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {script: tmp_path_factory.mktemp("example") for script in SCRIPTS}


@pytest.fixture(scope="module")
def played(folders: dict[str, Path]) -> Iterator[Played]:
    """Two at a time: each waits for most of its eight seconds."""
    with ThreadPoolExecutor(2) as threads:
        yield {script: threads.submit(_play, script, folder) for script, folder in folders.items()}


def _play(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "tmp").mkdir()
    return run(script, folder / "tmp", "--access-log", str(folder / "log"))


@pytest.fixture
def show(played: Played, folders: dict[str, Path]) -> Show:
    return lambda script: _shown(script, folders[script], played[script].result())


def _shown(script: str, folder: Path, ended: subprocess.CompletedProcess[str]) -> Shown:
    """It must have ended well, tidied up, and left a log that is judged compliant: nothing over, nothing kept back."""
    failed = re.findall(r"^ +FAILED +(.+)$", ended.stdout, re.MULTILINE)
    assert [claim for claim in failed if not OF_THE_MACHINE.search(claim)] == []
    assert ended.returncode == bool(failed), ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert re.search("^NOT SHOWN: " if failed else "^SHOWN: ", ended.stdout, re.MULTILINE)
    assert list((folder / "tmp").iterdir()) == []
    has_limits = "\nlimits:" in (EXAMPLES / script).read_text()
    assert judged_compliant(folder / "log") == ({"publish"} if has_limits else set())
    _, *tables = _HEADER.split(ended.stdout)
    return Shown(ended.stdout, [_rows(table) for table in tables])


def _rows(table: str) -> Table:
    return [[int(rate) for rate in _COUNT.findall(row)] for row in _ROW.findall(table)]


def column(rows: Table, place: int) -> list[int]:
    return [row[place] for row in rows]


def test_a_sustained_rate(show: Show) -> None:
    shown = show("sustained_rate.py")
    (rows,) = shown.tables
    assert set(column(rows, -1)) == {200}
    assert "1200 sent, 1200 receipts, 1200 arrived" in shown.text


def test_a_burst_up_to_the_peak_and_then_the_sustained_rate(show: Show) -> None:
    shown = show("burst_to_peak.py")
    (rows,) = shown.tables
    limits = column(rows, -1)
    assert set(limits) == {300, 100}
    assert limits == sorted(limits, reverse=True)
    assert "1000 sent, 1000 receipts, 1000 arrived" in shown.text


def test_noisy_neighbours(show: Show) -> None:
    shown = show("noisy_neighbour.py")
    assert [set(column(rows, -1)) for rows in shown.tables] == [{200}, {300}]
    assert "200 sent, 200 receipts, 200 arrived" in shown.text


def test_an_operator_s_block(show: Show) -> None:
    shown = show("operators_block.py")
    before, blocked, unblocked = shown.tables
    assert max(column(before, 1)) > 0
    # what was on its way may still come
    came = column(blocked, 1)
    assert set(came[came.index(0) :]) == {0}
    assert max(column(unblocked, 1)) > 0
    assert all(max(column(rows, 2)) > 0 for rows in shown.tables), "the cash desk"
    assert "is blocked by Sluice: loops since the last release" in shown.text
    assert "unblocked: producer runaway" in shown.text


def test_a_wrong_broker_is_named_without_a_traceback(tmp_path: Path) -> None:
    ended = run("sustained_rate.py", tmp_path, "--broker", "nowhere")
    assert ended.returncode == 1
    assert ended.stderr.startswith("NOT SHOWN: ")
    assert "'nowhere': has no scheme; write it as pulsar://HOST:PORT" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_readme_has_each_example_s_command(script: str) -> None:
    assert f"`.venv/bin/python docs/examples/{script}`" in (EXAMPLES / "README.md").read_text()
    assert f".venv/bin/python docs/examples/{script}" in (EXAMPLES / script).read_text()


def test_the_readme_s_commands_exist() -> None:
    commands = re.findall(r"\.venv/bin/python (docs/\S+\.py)", (EXAMPLES / "README.md").read_text())
    assert len(commands) >= 4
    assert [command for command in commands if not (ROOT / command).is_file()] == []
