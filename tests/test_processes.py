"""How the tests are shared out to several processes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_all_tests_of_a_module_run_in_one_process() -> None:
    """Else each would make the module's broker, Spark session or Sluice anew."""
    modules = ("tests/protocol/test_frames.py", "tests/protocol/test_flow.py")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *modules], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line for line in done.stdout.splitlines() if line.startswith("[gw")]
    assert len(ran) > len(modules)
    for module in modules:
        assert len({line.split()[0] for line in ran if module in line}) == 1
