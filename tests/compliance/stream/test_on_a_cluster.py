"""`spark-submit` with the wheel, to a real master and a real worker: processes of their own, no local mode."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from compliance.java import find_java
from tests.compliance.planted import QUICK_JAVA, planted, write_file
from tests.compliance.stream.recount import assert_all_there

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]
SPARK = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"


def environment():
    ours = {"JAVA_HOME": str(find_java()), "SPARK_HOME": str(SPARK), "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    return os.environ | ours | {"PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


@contextlib.contextmanager
def running(log, *words):
    with log.open("wb") as out:
        process = subprocess.Popen(
            [SPARK / "bin/spark-class", *words], stdout=out, stderr=subprocess.STDOUT, env=environment()
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def wait_for(log, words):
    until = time.monotonic() + 120
    while words not in log.read_text():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)


@pytest.fixture
def master(tmp_path):
    url = f"spark://127.0.0.1:{free_port()}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with running(tmp_path / "master.log", f"{DEPLOY}.master.Master", *here, "--port", url.rpartition(":")[2]):
        wait_for(tmp_path / "master.log", "I have been elected leader")
        worker = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "worker"), url]
        with running(tmp_path / "worker.log", f"{DEPLOY}.worker.Worker", *here, *worker):
            wait_for(tmp_path / "worker.log", "Successfully registered with master")
            yield url


@pytest.fixture
def wheel(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(
        command, cwd=ROOT, env=os.environ | {"HATCH_BUILD_NO_HOOKS": "true"}, check=True, capture_output=True
    )
    (made,) = (tmp_path / "dist").glob("*.whl")
    return made


def test_the_job_runs_unchanged_on_a_master_and_a_worker(spark, tmp_path, master, wheel):
    folder, out = tmp_path / "log", tmp_path / "out"
    for number in range(3):
        write_file(folder, f"{number}.jsonl", [*planted(f"proxy-{number}", 60).encoded(), b"torn"])
    submit = [SPARK / "bin/spark-submit", "--master", master, "--driver-memory", "512m", "--executor-memory", "512m"]
    submit += ["--conf", "spark.driver.host=127.0.0.1", "--py-files", wheel, ROOT / "deploy/compliance_job.py"]
    submit += ["run", "--once", "--access-log", folder, "--out", out]
    done = subprocess.run(
        [str(word) for word in submit],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "543 lines, 3 malformed" in done.stdout
    assert_all_there(spark, out, folder)
    # An executor of its own did the work.
    assert list((tmp_path / "worker").glob("app-*/0/stderr"))
