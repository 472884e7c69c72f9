import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadgen.bench_limits", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=170, check=False)


def test_what_is_missing_is_one_line(tmp_path):
    done = run(PATH=str(tmp_path), JAVA_HOME="", SLUICE_CACHE=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bench-limits: a real Pulsar broker is needed: install Java 17 or newer")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", [["--quick"], ["--only", "shares"]])
def test_half_a_run_is_not_written_into_a_page(option, tmp_path):
    page = tmp_path / "page.md"
    done = run("--write", str(page), *option)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "bench-limits: --write: a page gets full runs only: leave out --quick and --only"
    ]
    assert not page.exists()


def test_a_section_or_a_row_that_is_none_is_refused():
    for option in (["--rows", "replication"], ["--only", "nothing"]):
        assert "invalid choice" in run(*option).stderr


def test_a_row_of_another_section_is_nothing_to_measure():
    done = run("--rows", "dispatch", "--only", "shares")
    assert done.returncode == 2
    assert done.stderr == "bench-limits: --only: no such row in the section dispatch: leave out --rows\n"


@pytest.mark.real
def test_both_peers_are_measured_against_a_real_broker(tmp_path):
    done = run("--quick", "--only", "shares", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    heading, _, jain, *_ = done.stdout.splitlines()
    assert [cell.strip() for cell in heading.split("|")[2:5]] == ["figure", "broker's own", "through Sluice"]
    # how fair is what the run is for, and no test's business; that something arrived is
    measured = [float(cell.split()[0]) for cell in jain.split("|")[3:5]]
    assert all(0.5 <= index <= 1 for index in measured)
    assert "shares, 1 of 1: Jain's index of the two: broker's own " in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
def test_deliveries_of_both_peers_are_measured_against_a_real_broker(tmp_path):
    done = run("--quick", "--rows", "dispatch", "--only", "group", "--only", "beside", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    heading, _, first, *_ = done.stdout.splitlines()
    assert [cell.strip() for cell in heading.split("|")[2:5]] == ["figure", "broker's own", "through Sluice"]
    assert first.split("|")[2].strip() == "first second"
    assert [line.split(",")[0] for line in done.stderr.splitlines() if " 1 of 1: " in line] == ["group", "beside"]
    assert list(tmp_path.iterdir()) == []
