"""`spark-submit` with the wheel, to a real master and a real worker: processes of their own, no local mode."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from compliance.java import find_java
from loadgen.real.process import free_port
from tests.compliance.planted import QUICK_JAVA, planted, write_file
from tests.compliance.stream.job_process import wait_until
from tests.compliance.stream.recount import assert_all_there
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]
SPARK = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"


def environment():
    ours = {"JAVA_HOME": str(find_java()), "SPARK_HOME": str(SPARK), "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    return os.environ | ours | {"PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}


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


def wait_for_words(log, words):
    wait_for(lambda: words in log.read_text(), 120, log.read_text, pause_s=0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The folder of a master and a worker, and the master's URL."""
    folder = tmp_path_factory.mktemp("cluster")
    url = f"spark://127.0.0.1:{free_port()}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with running(folder / "master.log", f"{DEPLOY}.master.Master", *here, "--port", url.rpartition(":")[2]):
        wait_for_words(folder / "master.log", "I have been elected leader")
        worker = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "worker"), url]
        with running(folder / "worker.log", f"{DEPLOY}.worker.Worker", *here, *worker):
            wait_for_words(folder / "worker.log", "Successfully registered with master")
            yield folder, url


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(
        command, cwd=ROOT, env=os.environ | {"HATCH_BUILD_NO_HOOKS": "true"}, check=True, capture_output=True
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def submit(tmp_path, cluster, wheel):
    def submitted():
        words = [SPARK / "bin/spark-submit", "--master", cluster[1], "--driver-memory", "512m"]
        words += ["--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1", "--py-files", wheel]
        words += [ROOT / "deploy/compliance_job.py", "run", "--once"]
        words += ["--access-log", tmp_path / "log", "--out", tmp_path / "out"]
        return subprocess.Popen(
            [str(word) for word in words],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return submitted


def said_by(driver):
    said, troubles = driver.communicate(timeout=400)
    assert driver.returncode == 0, troubles[-3000:]
    return said


def working_executors(folder):
    """The executor in a folder, if its task has begun: it has a Python."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_python = b"pyspark.daemon" in (process / "cmdline").read_bytes()
            if is_python and (process / "cwd").readlink().is_relative_to(folder):
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{parent}/cmdline").read_bytes():
                    yield int(parent)


def test_a_task_whose_executor_dies_is_tried_again_on_another(spark, tmp_path, cluster, submit):
    folder, out = tmp_path / "log", tmp_path / "out"
    write_file(folder, "a.jsonl", [*planted("again", 2000).encoded(), b"torn"])
    for number in range(2):
        write_file(folder, f"{number}.jsonl", [*planted(f"proxy-{number}", 60).encoded(), b"torn"])
    driver = submit()
    wait_until(lambda: list(working_executors(cluster[0])), driver, every_s=0.05)
    for executor in working_executors(cluster[0]):
        os.kill(executor, signal.SIGKILL)
    assert "6,363 lines, 3 malformed" in said_by(driver)
    assert_all_there(spark, out, folder)
    # Executors of their own did the work: the one that died, and another.
    (app,) = (cluster[0] / "worker").glob("app-*")
    assert sorted(path.name for path in app.iterdir()) == ["0", "1"]
