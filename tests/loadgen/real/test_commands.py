"""`python -m loadgen.real`, pulsar-admin and pulsar-perf, with a Java that only says what they say."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.data_path import pulsar_perf
from bench.data_path.pulsar_perf import Traffic, consuming, pass_through, producing, seconds_between
from bench.meters import children
from loadgen.real.jars import ProcessFailed
from tests.loadgen.real.conftest import MAVEN_THAT_WORKS, Tool, java_that_says
from tests.real.pulsar_admin import PulsarAdmin

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadgen.real", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("arguments", [["--check"], ["--listen-file", "never-written"]])
def test_what_is_missing_is_one_line_and_exit_code_1(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("a real Pulsar 4.0.8 broker: install Java 17 or newer")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.real
def test_broker_announces_itself_when_healthy_and_cleans_up(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    listen_file = tmp_path / "listen.json"
    command = [sys.executable, "-m", "loadgen.real", "--listen-file", str(listen_file)]
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            announced = process.stderr.readline()
            addresses = json.loads(listen_file.read_text())
            assert addresses["service_url"] in announced
            assert addresses["admin_url"] in announced
            (java,) = children(process.pid)
            assert ".jsa" in Path(f"/proc/{java}/maps").read_text(), "it started without the archive of its classes"
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["listen.json"]


ADMIN = PulsarAdmin("http://127.0.0.1:1", "pulsar://127.0.0.1:2")
PRINT_THE_REST = 'while [ "$1" != org.apache.pulsar.admin.cli.PulsarAdminTool ]; do shift; done'


def test_the_tool_gets_its_addresses_by_file_and_the_arguments_as_they_are(tool: Tool) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    version = f"case $1 in -version) {java_that_says('17')}; exit;; esac"
    tool("java", f'{version}\n{PRINT_THE_REST}\nwhile read line; do echo "$line"; done < $2\nshift 2; echo "$@"')
    assert ADMIN.run("topics", "list", "a/b").splitlines() == [
        "webServiceUrl=http://127.0.0.1:1/",
        "brokerServiceUrl=pulsar://127.0.0.1:2/",
        "topics list a/b",
    ]


def test_a_refusal_names_the_command_and_what_it_said(tool: Tool) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    tool("java", f"{java_that_says('17')}\necho Namespace does not exist; exit 1")
    with pytest.raises(ProcessFailed, match=r"pulsar-admin topics list a/b: ended with code 1\n(.|\n)*does not exist"):
        ADMIN.run("topics", "list", "a/b")


TRAFFIC = Traffic(rate=1000, size=100, is_batched=False, messages=500)
PRODUCED = """\
23:59:59.500 INFO  PerformanceProducer - Created 1 producers
00:00:01.500 INFO  PerformanceProducer - ------ DONE (reached the maximum number: 500 of production) ------"""
PERF = f"""\
echo "$@" >> $RUNS
case " $* " in
*" produce "*) echo '{PRODUCED}'; exec sleep 60;;
*) echo '12:00:00.000 INFO  PerformanceConsumer - Start receiving from 1 consumers';;
esac"""


@pytest.fixture
def java(tool: Tool, tools: Path) -> Tool:
    """Put a java in place: what it does when it is not asked for its version."""
    (tools / "sleep").symlink_to("/bin/sleep")
    tool("mvn", MAVEN_THAT_WORKS)
    return lambda _, script: tool("java", f"case $1 in -version) {java_that_says('17')}; exit;; esac\n{script}")


def test_both_get_their_work_and_the_producer_s_seconds_count(java: Tool, tmp_path: Path) -> None:
    java("java", PERF)
    assert pass_through("pulsar://h:1", "a-topic", TRAFFIC, tmp_path / "perf") == 250
    consumer, producer = [line for line in (tmp_path / "runs").read_text().splitlines() if "PulsarPerfTestTool" in line]
    assert consumer.endswith("client.conf consume -u pulsar://h:1 -m 500 -ss perf -sp Earliest a-topic")
    assert producer.endswith(
        "client.conf produce -u pulsar://h:1 -r 1000 -m 500 -s 100 -o 500 --disable-batching a-topic"
    )


def test_who_ends_before_its_work_is_done_is_told(java: Tool, tmp_path: Path) -> None:
    java("java", "echo 'no such host'; exit 3")
    with pytest.raises(ProcessFailed, match=r"pulsar-perf consume ended with code 3(.|\n)*no such host"):
        pass_through("pulsar://h:1", "a-topic", TRAFFIC, tmp_path / "perf")


def test_who_never_begins_is_told(java: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsar_perf, "_START_S", 0.0)
    java("java", "exec sleep 60")
    with pytest.raises(ProcessFailed, match="pulsar-perf consume was not done within 0 s"):
        pass_through("pulsar://h:1", "a-topic", TRAFFIC, tmp_path / "perf")


def test_batches_are_the_client_s_default() -> None:
    assert "--disable-batching" in producing(TRAFFIC)
    assert "--disable-batching" not in producing(Traffic(1, 1, is_batched=True, messages=1))
    assert consuming(TRAFFIC)[0] == "consume"


def test_times_of_day_go_over_midnight() -> None:
    assert seconds_between(PRODUCED, "Created", "DONE") == 2
    with pytest.raises(ProcessFailed, match="did not say: gone"):
        seconds_between(PRODUCED, "Created", "gone")
