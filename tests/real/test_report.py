"""The report's totals are what the clients counted, to the message, and what the broker counted, to the byte."""

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.conftest import sluice_or_broker
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import open_sender, payload, quiet_client, receive

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.usefixtures("needs_limits")]

PLAIN, BATCHED, LIMITED = (topic_name("report", name) for name in ("plain", "batched", "limited"))
COUNTS = {PLAIN: 700, BATCHED: 2300, LIMITED: 150}
CONFIG = {"limits": {"topics": {LIMITED: {"publish": {"messages": 50}}}}}


def exchange(sluice: SluiceProcess) -> None:
    """Send and receive COUNTS through Sluice."""
    client = quiet_client(sluice.service_url)
    try:
        consumers = {topic: client.subscribe(topic, "s") for topic in COUNTS}
        for topic, count in COUNTS.items():
            sender = open_sender(client, topic, "p", batching_enabled=topic == BATCHED)
            sender.send_all([payload("p", index) for index in range(count)])
            assert len(receive(consumers[topic], count)) == count
    finally:
        client.close()


def totals(usage: Path, column: str) -> dict[tuple[str, str], int]:
    sums: Counter[tuple[str, str]] = Counter()
    with usage.open(newline="") as lines:
        for row in csv.DictReader(lines):
            sums[row["topic"], row["direction"]] += int(row[column])
    return dict(sums)


def make_report(access_log: Path, out: Path) -> None:
    command = [sys.executable, "-m", "sluice", "report", "--access-log", str(access_log), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def measured_broker(real_broker: StandaloneBroker, rest: PulsarRest) -> StandaloneBroker:
    rest.ensure_namespace("report")
    return real_broker


def test_the_report_s_totals_are_what_was_counted(
    measured_broker: StandaloneBroker, rest: PulsarRest, tmp_path: Path
) -> None:
    sluice = sluice_or_broker(tmp_path / "sluice", measured_broker, CONFIG)
    try:
        exchange(sluice)
        stats = {topic: rest.stats(topic) for topic in COUNTS}
    finally:
        sluice.stop()
    make_report(sluice.access_log, tmp_path / "out")
    usage = tmp_path / "out" / "usage.csv"
    counted = {(topic, way): count for topic, count in COUNTS.items() for way in ("publish", "dispatch")}
    assert totals(usage, "offered_messages") == counted
    assert totals(usage, "passed_messages") == counted
    assert totals(usage, "passed_bytes") == {
        (topic, way): stats[topic][counter]
        for topic in COUNTS
        for way, counter in (("publish", "bytesInCounter"), ("dispatch", "bytesOutCounter"))
    }
