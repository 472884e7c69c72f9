"""kill -9, of the Java process and of the driver, in the middle of batches: each line counts once all the same."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.compliance.planted import BEGIN, QUICK_JAVA, planted, write_file
from tests.compliance.stream.recount import assert_all_there

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES = 5
SECONDS = 1800
LONGEST_S = 300


def write_log(folder):
    """A file is a batch; copies and malformed lines in it and across files."""
    lines = planted("killed", SECONDS).encoded()
    part = len(lines) // FILES
    for number in range(FILES):
        own = lines[number * part : (number + 1) * part]
        again = lines[max(0, number * part - 7) : number * part + 3]
        write_file(folder, f"{number}.jsonl", [*own, b"torn", *again])
        os.utime(folder / f"{number}.jsonl", (number, number))


def start(folder, out):
    command = [sys.executable, "-m", "sluice", "compliance", "run", "--once"]
    command += ["--access-log", str(folder), "--out", str(out), "--late-after", "120"]
    # No two of the files fit into one batch.
    command += ["--batch-mib", "1"]
    environment = os.environ | {"JAVA_TOOL_OPTIONS": QUICK_JAVA}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def java_of(driver):
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    (java,) = (int(pid) for pid in children if "java" in Path(f"/proc/{pid}/comm").read_text())
    return java


def killed_when(is_time, folder, out, *, victim):
    """Starts a run, kills its driver or its Java as soon as something is there; returns what the run says."""
    driver = start(folder, out)
    until = time.monotonic() + LONGEST_S
    while not is_time():
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)
    os.kill(java_of(driver) if victim == "java" else driver.pid, signal.SIGKILL)
    return driver.communicate(timeout=LONGEST_S), driver.returncode


def finished(folder, out):
    done = start(folder, out)
    said, troubles = done.communicate(timeout=LONGEST_S)
    assert (done.returncode, troubles) == (0, "")
    return said


def test_every_key_is_right_after_the_job_was_killed_five_times(spark, tmp_path):
    folder, out = tmp_path / "log", tmp_path / "out"
    write_log(folder)
    state, commits = out / "_work" / "state", out / "_work" / "checkpoint" / "commits"
    moments = {
        "while the first batch is read": ((out / "_work/checkpoint/offsets/0").exists, "java"),
        "between what is quarantined and the rows": ((out / "quarantine/step=1").exists, "driver"),
        "when the rows are there, but no windows": ((out / "rows/step=2").exists, "java"),
        "before the commit": ((state / "step=3/totals.json").exists, "driver"),
        "between two batches": ((commits / "3").exists, "java"),
    }
    for is_time, victim in moments.values():
        (said, troubles), code = killed_when(is_time, folder, out, victim=victim)
        assert code == (1 if victim == "java" else -signal.SIGKILL)
        if victim == "java":
            assert troubles.count("\n") == 1
            assert "run it again" in troubles
        assert said == ""
    assert "complete up to" in finished(folder, out)
    summary = assert_all_there(spark, out, folder)
    assert summary["missing"] == 0
    assert summary["late"] == {}
    steps = sorted(path.name for path in (out / "rows").glob("step=*"))
    assert finished(folder, out).startswith("nothing new")
    later = planted("killed-later", 60, begin=BEGIN + timedelta(seconds=SECONDS))
    write_file(folder, "later.jsonl", later.encoded())
    finished(folder, out)
    assert_all_there(spark, out, folder)
    assert sorted(path.name for path in (out / "rows").glob("step=*")) == sorted([*steps, f"step={FILES}"])
