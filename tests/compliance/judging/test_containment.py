"""The one-pass computation against a second one that tries every window."""

import random

import pytest

from compliance.judging.containment import containment_facts, judged_lines, units_in_force
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def worst_window(lines, unit):
    return containment_facts(judged_lines(lines, [unit]))


def random_log(seed):
    """A limiter that obeys nothing, with idle seconds and changes of its value."""
    chance = random.Random(seed)
    log = PlantedLog(proxy_id=f"random-{seed:02}")
    rate: float | None = 100.0
    for _ in range(chance.randrange(1, 40)):
        log.second += chance.choice((0, 0, 0, 1, 5))
        rate = chance.choice((rate, rate, rate, 50.0, 100.0, None))
        passed = chance.choice((0, 80, 100, 130))
        largest = chance.randrange(1, 20) if passed else 0
        log.limit(passed, rate=rate, largest_entry_messages=largest)
        log.second += 1
    return log


def largest_excess(log):
    """By trial of all windows; None where nothing passed under a limit."""
    lines = log.lines
    excesses = []
    for i, first in enumerate(lines):
        passed = 0
        for last in lines[i:]:
            if last.limit_messages is None or last.limit_messages != first.limit_messages:
                break
            passed += last.passed_messages
            elapsed_s = (last.end - first.start).total_seconds()
            allowed = first.burst_messages + first.limit_messages * elapsed_s + last.largest_entry_messages
            if last.passed_messages:
                excesses.append(passed - allowed)
    return max(excesses, default=None)


def test_the_largest_excess_is_that_of_all_windows(spark):
    logs = [random_log(seed) for seed in range(60)]
    found = {row.proxy_id: row.excess for row in worst_window(frame(spark, logs, "limit"), "messages").collect()}
    expected = {log.proxy_id: largest_excess(log) for log in logs}
    assert any(excess and excess > 0 for excess in expected.values())
    assert found == pytest.approx({name: excess for name, excess in expected.items() if excess is not None})


def test_bytes_are_judged_by_their_own_limit(spark):
    log = PlantedLog()
    log.limit(10, limit_messages=None, burst_messages=None, limit_bytes=500.0, burst_bytes=50.0)
    (worst,) = worst_window(frame(spark, [log], "limit"), "bytes").collect()
    assert (worst.unit, worst.passed, worst.allowed) == ("bytes", 1000, 50 + 500 + 100)


def test_a_limit_that_is_only_observed_cannot_be_exceeded(spark):
    log = PlantedLog()
    for _ in range(3):
        log.limit(500, mode="observe")
        log.beat()
    assert worst_window(frame(spark, [log], "limit"), "messages").count() == 0


def test_a_limit_that_rejects_is_judged_as_one_that_holds(spark):
    log = PlantedLog()
    log.limit(150, mode="reject", rejected_messages=50)
    (worst,) = worst_window(frame(spark, [log], "limit"), "messages").collect()
    assert worst.excess == 150 - (10 + 100 + 1)


def test_no_window_spans_a_time_in_which_the_limit_was_only_observed(spark):
    """What went on then is not in these lines."""
    log = PlantedLog()
    for mode, passed in (("enforce", 111), ("observe", 900), ("enforce", 111)):
        log.limit(passed, mode=mode)
        log.second += 1
    (worst,) = worst_window(frame(spark, [log], "limit"), "messages").collect()
    assert (worst.passed, worst.excess) == (111, 0)


def test_units_are_those_of_limits_that_were_in_force(spark):
    log = PlantedLog()
    log.limit(1, limit_bytes=1.0, burst_bytes=1.0, mode="observe")
    assert units_in_force(frame(spark, [log], "limit")) == ()
    log.limit(1)
    assert units_in_force(frame(spark, [log], "limit")) == ("messages",)
    assert judged_lines(frame(spark, [log], "limit"), ()).count() == 1


@pytest.mark.parametrize(("passed", "burst", "excess"), [(332, 30.0, [1.0]), (331, 30.0, [0.0]), (332, None, [])])
def test_a_peak_rate_is_judged_by_its_own_bucket_if_the_log_tells_of_it(spark, passed, burst, excess):
    """500 are there at once, but not at more than 300 a second."""
    log = PlantedLog()
    log.limit(passed, burst_messages=500.0, peak_messages=300.0, peak_burst_messages=burst)
    lines = frame(spark, [log], "limit")
    units = units_in_force(lines)
    assert ("peak_messages" in units) == bool(excess)
    found = {(row.unit, row.is_peak): row.excess for row in containment_facts(judged_lines(lines, units)).collect()}
    assert found.pop(("messages", False)) < 0
    assert list(found) == [("messages", True)] * len(excess)
    assert list(found.values()) == excess


def test_a_peak_that_is_only_observed_is_none(spark):
    log = PlantedLog()
    log.limit(900, mode="observe", peak_messages=300.0, peak_burst_messages=30.0)
    assert units_in_force(frame(spark, [log], "limit")) == ()


def test_a_large_entry_that_overdrew_the_bucket_is_not_held_against_the_line_behind_it(spark):
    """30 messages at once, at 10/s with a burst of 1, and nothing for the two seconds that pay for them."""
    log = PlantedLog()
    for passed in (30, 0, 0, 30, 0, 41, 0):
        log.limit(passed, rate=10.0, largest_entry_messages=min(passed, 30))
        log.second += 1
    lines = judged_lines(frame(spark, [log], "limit"), ["messages"])
    assert [row.is_over for row in lines.orderBy("seq").collect()] == [False] * 5 + [True, False]
