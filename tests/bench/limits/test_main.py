import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.harness import WIDTH
from bench.limits import command as bench
from tests.short_lived import SHORT_LIVED

ROOT = Path(__file__).parents[3]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "limits", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=170, check=False)


def called(*arguments):
    return bench.main(arguments)


def test_what_is_missing_is_one_line(tmp_path):
    done = run(PATH=str(tmp_path), JAVA_HOME="", SLUICE_CACHE=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bench limits: a real Pulsar broker is needed: install Java 17 or newer")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", [["--quick"], ["--only", "shares"]])
def test_half_a_run_is_not_written_into_a_page(option, tmp_path, capsys):
    page = tmp_path / "page.md"
    assert called("--write", str(page), *option) == 2
    message = "bench limits: --write: a page gets full runs only: leave out --quick and --only\n"
    assert capsys.readouterr().err == message
    assert not page.exists()


@pytest.mark.parametrize("about", ["publish", "dispatch"])
def test_the_section_fits_the_page_and_holds_the_tables(about):
    text = bench.section(about, "| the table |", {})
    assert text.startswith(f"## {about.capitalize()} limits: the broker's own, and Sluice's\n")
    assert "\n| the table |\n" in text
    assert "`python -m bench limits --write" in text
    assert "hot modules " in " ".join(text.split())
    assert max(len(line) for line in text.splitlines()) <= WIDTH


@pytest.mark.slow
@pytest.mark.real
def test_shares_are_measured_at_a_real_broker_and_through_sluice(tmp_path):
    done = run("--quick", "--only", "shares", TMPDIR=str(tmp_path), JAVA_TOOL_OPTIONS=SHORT_LIVED)
    assert done.returncode == 0, done.stderr
    heading, _, jain, *_ = (line for line in done.stdout.splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in heading.split("|")[2:4]] == ["broker's own", "through Sluice"]
    # how fair is what the run is for, and no test's business; that something arrived is
    measured = [float(cell) for cell in jain.split("|")[2:4]]
    assert all(0.5 <= index <= 1 for index in measured)
    assert "shares, 1 of 1: broker's own: " in done.stderr
    rows = [line.split(",")[0] for line in done.stderr.splitlines() if " 1 of 1: " in line]
    assert rows == ["shares", "shares"], "a line for each peer"
    assert list(tmp_path.iterdir()) == []
