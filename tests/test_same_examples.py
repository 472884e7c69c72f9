import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROPERTY = """
from hypothesis import given, strategies as st
from tests.examples import examples

@given(st.lists(st.integers()))
def test_what_is_tried(one):
    print(examples(100), one)
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


def test_runs_try_the_same_examples_and_fuzz_others(tmp_path: Path) -> None:
    same = tried(tmp_path)
    assert tried(tmp_path, CI="true") == same != []
    others = tried(tmp_path, "--hypothesis-profile=fuzz")
    assert len(others) == 1000
    assert [{line.split()[0] for line in lines} for lines in (same, others)] == [{"100"}, {"500"}]
    assert others[: len(same)] != same
