import pytest

from compliance.judging.containment import judged_lines
from compliance.judging.entitlement import owed_lines
from compliance.judging.kept import kept_facts, kept_lines
from tests.compliance.planted import PlantedLog, exact_log, frame

pytestmark = pytest.mark.spark


def all_kept(spark, log):
    lines = frame(spark, [log], "limit")
    return kept_facts(kept_lines(judged_lines(lines), owed_lines(lines))).collect()


def kept(spark, log):
    (row,) = all_kept(spark, log)
    return row


def test_a_second_that_is_over_is_one_second_whatever_comes_after_it(spark):
    log = exact_log(20)
    log.tick(150)
    for _ in range(20):
        log.tick(100)
    row = kept(spark, log)
    assert (row.lines, row.judged_s, row.over_s) == (41, 41, 1)


def test_what_creeps_over_is_over_in_every_line_that_adds_to_it(spark):
    log = exact_log(10)
    for _ in range(10):
        log.tick(105)
    assert kept(spark, log).over_s == 10


def test_after_a_rest_the_account_begins_anew(spark):
    log = exact_log(5)
    log.tick(150)
    for _ in range(3):
        log.tick(0, throttled_ms=0.0)
    log.tick(300)
    assert kept(spark, log).over_s == 2


def test_the_time_of_a_shortfall_is_that_of_the_lines_that_end_a_short_window(spark):
    log = exact_log(20)
    log.tick(0)
    for _ in range(20):
        log.tick(100)
    row = kept(spark, log)
    # The empty second is in ten windows.
    assert (row.waited_s, row.short_s, row.over_s) == (41, 10, 0)


def test_a_line_is_counted_once_for_both_units(spark):
    log = PlantedLog()
    log.limit(200, limit_bytes=1000.0, burst_bytes=100.0)
    row = kept(spark, log)
    assert (row.lines, row.judged_s, row.over_s) == (1, 1, 1)


def test_a_limit_that_is_only_observed_is_not_judged(spark):
    log = PlantedLog()
    log.limit(500, mode="observe")
    assert all_kept(spark, log) == []
