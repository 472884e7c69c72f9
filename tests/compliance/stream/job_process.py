"""`sluice compliance run` as a process, to be ended in the midst of its work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.spark_java import spark_java
from tests.waiting import wait_for

LONGEST_S = 300


def start(out, *options):
    command = [sys.executable, "-m", "sluice", "compliance", "run", "--out", str(out), *map(str, options)]
    environment = os.environ | {"JAVA_TOOL_OPTIONS": spark_java()}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(is_time, driver, every_s=0.002):
    wait_for(lambda: is_time() or driver.poll() is not None, LONGEST_S, pause_s=every_s)
    assert driver.poll() is None or is_time(), driver.communicate()


def java_of(driver):
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    (java,) = (int(pid) for pid in children if "java" in Path(f"/proc/{pid}/comm").read_text())
    return java


def killed_when(is_time, driver, *, victim):
    """Kills a run's driver or its Java as soon as something is there; returns what the run says."""
    wait_until(is_time, driver)
    os.kill(java_of(driver) if victim == "java" else driver.pid, signal.SIGKILL)
    return driver.communicate(timeout=LONGEST_S), driver.returncode
