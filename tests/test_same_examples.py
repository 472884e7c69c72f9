import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROPERTY = """
from hypothesis import given, strategies as st
from tests.limiter.long_run import SHARE

@given(st.lists(st.integers()))
def test_what_is_tried(one):
    print(SHARE, one)
"""


def tried(folder: Path, *options: str, **env: str) -> list[str]:
    """What a property of a new clone is tried with."""
    (folder / "test_property.py").write_text(PROPERTY)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.examples", "-p", "no:cacheprovider"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST"))}
    done = subprocess.run(
        [*command, "--rootdir", str(folder), "-c", os.devnull, *options, str(folder / "test_property.py")],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "[" in line]


@pytest.mark.parametrize("env", [{}, {"CI": "true"}], ids=["outside CI", "in CI"])
def test_each_run_tries_the_same_examples(tmp_path: Path, env: dict[str, str]) -> None:
    assert tried(tmp_path, **env) == tried(tmp_path) != []


def test_fuzz_tries_others(tmp_path: Path) -> None:
    first, second = (tried(tmp_path, "--hypothesis-profile=fuzz") for _ in range(2))
    assert len(first) == len(second) == 1000
    assert first != second
