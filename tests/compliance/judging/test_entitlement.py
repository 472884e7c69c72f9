import random

import pytest

from compliance.judging.entitlement import entitlement_facts, owed_lines
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def random_log(seed):
    chance = random.Random(seed)
    log = PlantedLog(proxy_id=f"random-{seed:02}")
    for _ in range(chance.randrange(1, 40)):
        log.second += chance.choice((0, 0, 0, 4))
        waited = chance.choice((0.0, 300.0, 1000.0, 1000.0))
        more = {"limit_bytes": chance.choice((None, 5000.0)), "burst_bytes": 1000.0}
        log.limit(chance.choice((0, 60, 100, 100)), rate=chance.choice((50.0, 100.0)), throttled_ms=waited, **more)
        log.second += 1
    return log


def served_s(line):
    buckets = [(line.passed_messages, line.limit_messages), (line.passed_bytes, line.limit_bytes)]
    return max(passed / limit for passed, limit in buckets if limit)


def slack_s(line):
    buckets = [(max(1, line.largest_entry_messages), line.limit_messages), (line.largest_entry_bytes, line.limit_bytes)]
    return max(entry / limit for entry, limit in buckets if limit)


def largest_deficit_s(log):
    """By trial of every ten seconds that end with a line; None where nobody waited."""
    slack = max(slack_s(line) for line in log.lines)
    deficits = []
    for last in log.lines:
        window = [
            line
            for line in log.lines
            if line.throttled_ms and line.end <= last.end and (last.end - line.end).total_seconds() < 10
        ]
        if last.throttled_ms:
            owed = 0.99 * sum(line.throttled_ms / 1e3 for line in window)
            deficits.append(owed - sum(map(served_s, window)) - slack)
    return max(deficits, default=None)


def test_the_largest_deficit_is_that_of_every_ten_seconds(spark):
    logs = [random_log(seed) for seed in range(60)]
    found = {
        row.proxy_id: row.deficit_s for row in entitlement_facts(owed_lines(frame(spark, logs, "limit"))).collect()
    }
    expected = {log.proxy_id: largest_deficit_s(log) for log in logs}
    assert any(deficit and deficit > 0 for deficit in expected.values())
    assert found == pytest.approx({name: deficit for name, deficit in expected.items() if deficit is not None})


def test_nobody_is_owed_anything_while_nobody_waits(spark):
    log = PlantedLog()
    log.limit(0, throttled_ms=0.0)
    assert entitlement_facts(owed_lines(frame(spark, [log], "limit"))).collect() == []


def test_a_long_wait_for_less_than_one_message_is_no_shortfall(spark):
    log = PlantedLog()
    for second in range(60):
        log.limit(int(second == 0), rate=1 / 60)
        log.second += 1
    (row,) = entitlement_facts(owed_lines(frame(spark, [log], "limit"))).collect()
    assert row.deficit_s < 0
    assert row.whole_deficit_s < 0


def test_a_limit_that_is_only_observed_owes_nothing(spark):
    log = PlantedLog()
    for _ in range(12):
        log.limit(20, mode="observe")
        log.beat()
    lines = frame(spark, [log], "limit")
    assert entitlement_facts(owed_lines(lines)).count() == 0


def test_a_limit_that_rejects_owes_its_rate_while_somebody_waits(spark):
    log = PlantedLog()
    for _ in range(12):
        log.limit(50, mode="reject", rejected_messages=30)
        log.beat()
    (row,) = entitlement_facts(owed_lines(frame(spark, [log], "limit"))).collect()
    assert (row.waited_s, row.served_s) == (10, 5)


def test_the_worst_window_says_what_passed_and_what_was_owed_though_it_was_kept(spark):
    log, other = PlantedLog(), PlantedLog(proxy_id="without bytes")
    for passed, waited in ((1000, 0.0), (500, 500.0), (987, 1000.0)):
        log.limit(passed, rate=1000.0, throttled_ms=waited, limit_bytes=200_000.0, burst_bytes=20_000.0)
        log.second += 1
    other.limit(99)
    rows = entitlement_facts(owed_lines(frame(spark, [log, other], "limit"))).orderBy("proxy_id").collect()
    amounts = [(row.passed_messages, row.passed_bytes, row.owed_messages, row.owed_bytes) for row in rows]
    assert [row.deficit_s < 0 for row in rows] == [True, True]
    assert amounts == [(1487, 148_700, 1500, 300_000), (99, 9_900, 100, None)]
