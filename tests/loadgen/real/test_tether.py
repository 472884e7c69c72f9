import os
import subprocess
import sys

import pytest

from loadgen.real import tether


def run(parent: int, *command: str) -> subprocess.CompletedProcess[str]:
    tethered = [sys.executable, "-I", "-S", str(tether.__file__), str(parent), *command]
    return subprocess.run(tethered, capture_output=True, text=True, timeout=20, check=False)


def test_it_becomes_the_command() -> None:
    done = run(os.getpid(), "sh", "-c", "echo it is me; exit 5")
    assert (done.stdout, done.returncode) == ("it is me\n", 5)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_it_starts_nothing_for_a_parent_that_is_gone() -> None:
    done = run(1, "echo", "too late")
    assert (done.stdout, done.returncode) == ("", 1)
