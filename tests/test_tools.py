"""What `make` leaves to tools/, with programs that only write down how they are called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then
    mkdir -p .venv/bin
    for name in python pip ruff mypy lint-imports pytest sluice; do
        printf '#!/bin/sh\\necho "%s $*" >> "$CALLS"\\ntest "%s" != "$FAILS"\\n' $name $name > .venv/bin/$name
        chmod +x .venv/bin/$name
    done
fi
"""


@pytest.fixture
def clone(tmp_path):
    return tmp_path / "clone"


@pytest.fixture
def make(tmp_path, clone):
    calls, python = tmp_path / "calls", tmp_path / "python"
    for name in ("tools", "requirements"):
        shutil.copytree(ROOT / name, clone / name)
    for name in ("Makefile", "pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, clone)
    (clone / "protocol").mkdir()
    (clone / "protocol/walk.py").touch()
    python.write_text(PYTHON)
    python.chmod(0o755)

    def run(*words, fails="", code=0):
        calls.write_text("")
        env = {**os.environ, "CALLS": str(calls), "FAILS": fails}
        command = ["make", *words, f"PYTHON={python}"]
        done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == bool(code), done.stdout + done.stderr
        return [line.split(" ")[0] for line in calls.read_text().splitlines() if not line.startswith("python ")]

    return run


def test_environment_is_made_once_and_built_on_source_changes(make, clone):
    assert make("env") == ["sluice"]
    assert make("env") == []
    os.utime(clone / "protocol/walk.py", (2**32, 2**32))
    assert make("env") == ["sluice"]


def test_make_test_checks_and_then_runs_all_tests(make):
    *_, last = calls = make("test")
    assert sorted(calls) == ["lint-imports", "mypy", "pytest", "pytest", "ruff", "ruff", "sluice"]
    assert last == "pytest"


@pytest.mark.parametrize("fails", ["mypy", "ruff", "lint-imports"])
def test_a_check_that_fails_fails_make_test(make, fails):
    assert "pytest" not in make("test", fails=fails, code=2)


def test_a_build_that_fails_fails_make_test(make):
    make("test", fails="sluice", code=2)


def test_a_lock_that_changes_is_installed(make, clone):
    make("env")
    os.utime(clone / "requirements/all.lock", (2**32, 2**32))
    assert make("env") == ["sluice"]


def test_the_makefile_is_read_in_a_minute():
    assert len((ROOT / "Makefile").read_text().splitlines()) <= 80
