"""With a Java that only says what pulsar-perf says; `make bench` runs the real one."""

from pathlib import Path

import pytest

from loadgen.real import perf
from loadgen.real.errors import ProcessFailed
from loadgen.real.perf import Traffic, consuming, pass_through, producing, seconds_between
from tests.loadgen.real.conftest import MAVEN_THAT_WORKS, Tool, java_that_says

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
    monkeypatch.setattr(perf, "_START_S", 0.0)
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
