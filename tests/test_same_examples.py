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


RUNS: dict[str, tuple[list[str], dict[str, str]]] = {
    "same": ([], {}),
    "in CI": ([], {"CI": "true"}),
    "fuzz": (["--hypothesis-profile=fuzz"], {}),
}
"""Runs of a new clone: options of pytest, and variables of the environment."""


def test_runs_try_the_same_examples_and_fuzz_others(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST"))}
    kept |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "_hypothesis_pytestplugin", "-p", "tests.examples", "-p", "no:cacheprovider"]
    started = {}
    for name, (options, env) in RUNS.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "test_property.py").write_text(PROPERTY)
        command = [sys.executable, "-m", "pytest", "-q", "-s", *plugins, "-c", os.devnull, "--rootdir", ".", *options]
        started[name] = subprocess.Popen(command, cwd=folder, env=kept | env, stdout=subprocess.PIPE, text=True)
    tried = {}
    for name, run in started.items():
        output, _ = run.communicate(timeout=60)
        assert run.returncode == 0, output
        tried[name] = [line for line in output.splitlines() if "[" in line]
    same, others = tried["same"], tried["fuzz"]
    assert tried["in CI"] == same != []
    assert len(others) == 1000
    assert [{line.split()[0] for line in lines} for lines in (same, others)] == [{"100"}, {"500"}]
    assert others[: len(same)] != same
