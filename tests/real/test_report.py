"""The report's totals are what the clients counted, to the message, and what the broker counted, to the byte."""

import csv
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.conftest import sluice_or_broker
from tests.real.publishers import Rounds, by_java
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import open_sender, payload, quiet_client, receive
from tests.spark_java import spark_java
from tests.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark, pytest.mark.usefixtures("needs_limits")]

NAMES = ("plain", "batched", "limited", "slow", "refused", "dropped")
PLAIN, BATCHED, LIMITED, SLOW, REFUSED, DROPPED = (topic_name("report", name) for name in NAMES)
COUNTS = {PLAIN: 700, BATCHED: 2300, LIMITED: 150, SLOW: 120}
LIMITS: dict[str, Any] = {
    LIMITED: {"publish": {"messages": 50}},
    SLOW: {"dispatch": {"messages": 40}},
    REFUSED: {"publish": {"messages": 20, "mode": "reject"}},
    DROPPED: {"publish": {"messages": "1/min"}},
}
DROPPED_COUNT = 40
HELD_SOURCE = Path(__file__).with_name("held_publisher.py")


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


def refuse(sluice: SluiceProcess) -> Counter[str]:
    """What became of each message of a Java client that sends more than the limit lets pass.

    It sends all of them at once. Of one that sends in bursts, interval after interval, lines do not tell whether it was
    refused while the bucket was full: how many intervals its bursts fall into is up to the machine.
    """
    outcomes = by_java(sluice.service_url, REFUSED, Rounds("single", rounds=1, in_round=150))
    fates = Counter(fate.said.split()[0] for fate in outcomes)
    assert set(fates) == {"stored", "NotAllowedException"}
    return fates


def drop(sluice: SluiceProcess) -> int:
    """A client that is killed while all but its first message are held; returns how many receipts it got."""
    command = [sys.executable, str(HELD_SOURCE), sluice.service_url, DROPPED, str(DROPPED_COUNT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        try:
            # The first receipt may come before the last message.
            assert client.stdout
            assert client.stdout.readline() == "receipt\n"
            wait_until_held(sluice, DROPPED_COUNT - 1)
        finally:
            client.kill()
        return 1 + client.stdout.read().count("receipt\n")


def wait_until_held(sluice: SluiceProcess, messages: int) -> None:
    wait_for(
        lambda: sum(stream["held_messages"] for stream in sluice.streams(DROPPED)) == messages,
        evidence=lambda: sluice.streams(DROPPED),
        pause_s=0.02,
    )


def totals(usage: Path, column: str) -> dict[tuple[str, str], int]:
    sums: Counter[tuple[str, str]] = Counter()
    with usage.open(newline="") as lines:
        for row in csv.DictReader(lines):
            sums[row["topic"], row["direction"]] += int(row[column])
    return dict(sums)


def make_report(access_log: Path, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "sluice", "report", "--access-log", str(access_log), "--out", str(out)]
    done = subprocess.run(
        command,
        env=os.environ | {"JAVA_TOOL_OPTIONS": spark_java()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made: dict[str, Any] = json.loads((out / "report.json").read_text())
    return made


def reasons(report: dict[str, Any]) -> str:
    """Why the whole is not compliant: the headline, what contradicts itself, and what each limit may be lacking."""
    limits = [
        f"{row['direction']} {row['name']}: {row['containment']}, {row['entitlement']}, "
        f"unseen {row['unseen_percent']} %, {row['worst_containment']}, {row['worst_entitlement']}"
        for row in report["limiters"]
        if {row["containment"], row["entitlement"]} - {"compliant", "no limit"}
    ]
    return "\n".join([report["headline"], report["sentence"], *map(str, report["doubts"]), *limits])


@pytest.fixture(scope="module")
def played(real_broker: StandaloneBroker, rest: PulsarRest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report, its folder, what the clients counted (by topic: offered, passed, dropped, rejected), the broker's."""
    folder = tmp_path_factory.mktemp("report")
    rest.ensure_namespace("report")
    sluice = sluice_or_broker(folder / "sluice", real_broker, {"limits": {"topics": LIMITS}})
    try:
        exchange(sluice)
        fates, receipts = refuse(sluice), drop(sluice)
        stats = {topic: rest.stats(topic) for topic in (*COUNTS, REFUSED, DROPPED)}
    finally:
        sluice.stop()
    counted = {topic: (count, count, 0, 0) for topic, count in COUNTS.items()}
    counted[REFUSED] = (fates.total(), fates["stored"], 0, fates["NotAllowedException"])
    counted[DROPPED] = (DROPPED_COUNT, receipts, DROPPED_COUNT - receipts, 0)
    return make_report(sluice.access_log, folder / "out"), folder / "out", counted, stats


def test_the_report_s_totals_are_what_the_clients_counted(played: Any) -> None:
    report, _, counted, _ = played
    fields = ("offered_messages", "passed_messages", "dropped_messages", "rejected_messages")
    published = {
        row["topic"]: tuple(row[name] for name in fields) for row in report["topics"] if row["direction"] == "publish"
    }
    assert published == counted
    dispatched = {
        row["topic"]: tuple(row[name] for name in fields) for row in report["topics"] if row["direction"] == "dispatch"
    }
    assert dispatched == {topic: (count, count, 0, 0) for topic, count in COUNTS.items()}
    assert all(row["held_messages"] == 0 for row in report["topics"])


def test_usage_is_what_clients_and_broker_counted(played: Any) -> None:
    _, out, counted, stats = played
    usage = out / "usage.csv"
    dispatched = {(topic, "dispatch"): count for topic, count in COUNTS.items()}
    offered, passed = ({(topic, "publish"): counts[place] for topic, counts in counted.items()} for place in (0, 1))
    assert totals(usage, "offered_messages") == offered | dispatched
    assert totals(usage, "passed_messages") == passed | dispatched
    published = {(topic, "publish"): stats[topic]["bytesInCounter"] for topic in stats}
    assert totals(usage, "passed_bytes") == published | {
        (topic, "dispatch"): stats[topic]["bytesOutCounter"] for topic in COUNTS
    }


def test_every_limit_is_judged_and_kept(played: Any) -> None:
    report, _, counted, _ = played
    limits = {(row["direction"], row["name"]): row for row in report["limiters"]}
    judged = {("publish", LIMITED), ("dispatch", SLOW), ("publish", REFUSED), ("publish", DROPPED)}
    assert {key for key, row in limits.items() if row["containment"] == "compliant"} == judged, reasons(report)
    assert report["overall"]["containment"] == "compliant", reasons(report)
    short = [row for row in limits.values() if row["entitlement"] not in {"compliant", "no limit"}]
    # On a busy machine the proxy may be late, and its own lines say so.
    assert all(row["worst_entitlement"]["late_s"] > 0.1 for row in short), reasons(report)
    assert limits["publish", REFUSED]["rejected_messages"] == counted[REFUSED][3]
    assert report["quality"]["missing"] == report["quality"]["quarantined"] == 0
