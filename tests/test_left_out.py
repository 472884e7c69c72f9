import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_last_lines_name_left_out_tests_when_java_is_missing(tmp_path: Path) -> None:
    """In two processes, as `make test`: its last lines show that it was not the whole."""
    (tmp_path / "tools").mkdir()
    env = {**os.environ, "PATH": str(tmp_path / "tools"), "SLUICE_CACHE": str(tmp_path / "cache"), "JAVA_HOME": ""}
    tests = [
        "tests/real/test_arrivals.py",
        "tests/real/test_identity.py",
        "tests/real/test_fleets.py",
    ]  # the last on request
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", *tests]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last_lines = done.stdout.strip().splitlines()[-3:]
    assert last_lines[0] == "LEFT OUT: 1 tests: no real Pulsar broker"
    assert last_lines[1].strip().startswith("tests/real/test_identity.py::")
    assert last_lines[2].startswith("To run them install Java 17 or newer")


def test_without_openssl_the_last_lines_tell_it_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/proxy/admin/test_listener.py"]
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " tests: no openssl command\n  tests/proxy/admin/test_listener.py::" in done.stdout
    assert done.stdout.splitlines()[-1] == "To run them install openssl."
