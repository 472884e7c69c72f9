"""`spark-submit` with the wheel, to executors that are processes of their own.

Spark's own `local-cluster` has a real cluster's master and worker in the driver's process: processes for these two
would show nothing of the job. The tables are read without Spark, so that this test runs beside those of one session.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from compliance.java import find_java
from tests.compliance.planted import planted, write_file
from tests.compliance.stream.job_process import wait_until
from tests.compliance.stream.recount import Recount
from tests.spark_java import spark_java

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def wheel(tmp_path):
    folder = tmp_path / "dist"
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(
        command, cwd=ROOT, env=os.environ | {"HATCH_BUILD_NO_HOOKS": "true"}, check=True, capture_output=True
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def home(tmp_path):
    """Of Spark, for this run: executors work in folders of it."""
    folder = tmp_path / "spark"
    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


@pytest.fixture
def submit(tmp_path, home, wheel):
    def submitted():
        words = [home / "bin/spark-submit", "--master", "local-cluster[1,1,1024]", "--driver-memory", "512m"]
        words += ["--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1", "--py-files", wheel]
        words += [ROOT / "deploy/compliance_job.py", "run", "--once"]
        words += ["--access-log", tmp_path / "log", "--out", tmp_path / "out"]
        ours = {"JAVA_HOME": str(find_java()), "SPARK_HOME": str(home), "JAVA_TOOL_OPTIONS": spark_java()}
        return subprocess.Popen(
            [str(word) for word in words],
            cwd=tmp_path,
            env=os.environ | ours | {"PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return submitted


def said_by(driver):
    output, troubles = driver.communicate(timeout=400)
    assert driver.returncode == 0, troubles[-3000:]
    return output


def working_executors(folder):
    """The executor in a folder, if its task has begun: it has a Python."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_python = b"pyspark.daemon" in (process / "cmdline").read_bytes()
            if is_python and (process / "cwd").readlink().is_relative_to(folder):
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{parent}/cmdline").read_bytes():
                    yield int(parent)


def test_a_task_whose_executor_dies_is_tried_again_on_another(tmp_path, home, submit):
    folder, out = tmp_path / "log", tmp_path / "out"
    write_file(folder, "a.jsonl", [*planted("again", 2000).encoded(), b"torn"])
    for number in range(2):
        write_file(folder, f"{number}.jsonl", [*planted(f"proxy-{number}", 60).encoded(), b"torn"])
    driver = submit()
    wait_until(lambda: list(working_executors(home / "work")), driver, every_s=0.05)
    for executor in working_executors(home / "work"):
        os.kill(executor, signal.SIGKILL)
    assert "6,363 lines, 3 malformed" in said_by(driver)
    expected = Recount(folder)
    rows = pq.read_table(out / "rows", columns=["proxy_id", "boot_id", "seq"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == sorted(expected.keys)
    malformed = pq.read_table(out / "malformed", columns=["file", "line"]).to_pylist()
    assert sorted(tuple(row.values()) for row in malformed) == sorted(expected.malformed)
    # Executors of their own did the work: the one that died, and another.
    (app,) = (home / "work").glob("app-*")
    assert sorted(path.name for path in app.iterdir()) == ["0", "1"]
