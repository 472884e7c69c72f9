from datetime import UTC, datetime, timedelta

import pytest

from compliance.stream.windows import TABLES, WIDTHS_S, is_closed, merged, published, windows_of
from tests.compliance.planted import BEGIN, PlantedLog, frame, planted

pytestmark = pytest.mark.spark
TOPICS, LIMITERS = TABLES
BEGIN_S = int(BEGIN.timestamp())


def sums(windows):
    return {(row.width_s, row.window_s - BEGIN_S): (row.lines, row.passed_messages) for row in windows.collect()}


def test_windows_of_all_widths_hold_what_starts_in_them(spark):
    log = planted("w", 12)
    found = sums(windows_of(frame(spark, [log]), TOPICS))
    assert {second: found[1, second] for second in (0, 1, 11)} == {0: (1, 110), 1: (1, 100), 11: (1, 100)}
    assert (found[10, 0], found[10, 10], found[60, 0]) == ((10, 1010), (2, 200), (12, 1210))
    # 11:29 is in the five minutes from 11:25 and in the hour from 11:00.
    assert (found[300, -240], found[3600, -1740]) == ((12, 1210), (12, 1210))


def test_all_widths_divide_the_longest():
    assert [width for width in WIDTHS_S if WIDTHS_S[-1] % width] == []


def test_windows_of_two_batches_are_those_of_both_together(spark):
    log = planted("w", 20)
    rows = frame(spark, [log])
    one, other = (windows_of(rows.where(condition), LIMITERS) for condition in ("seq % 5 < 2", "seq % 5 >= 2"))
    whole = windows_of(rows, LIMITERS)
    assert sums(merged(one.unionByName(other), LIMITERS)) == sums(whole)


def test_the_limit_is_that_of_the_line_that_ends_last(spark):
    log = PlantedLog()
    log.limit(1, rate=50.0, end=BEGIN + timedelta(milliseconds=900))
    log.limit(1, rate=20.0, end=BEGIN + timedelta(milliseconds=400))
    found = windows_of(frame(spark, [log]), LIMITERS).where("width_s = 1").select("last.*").collect()
    assert [row.limit_messages for row in found] == [50.0]


def test_a_window_is_closed_when_the_watermark_is_at_its_end(spark):
    windows = windows_of(frame(spark, [planted("w", 3)]), TOPICS)
    closed = sums(windows.where(is_closed(BEGIN_S + 2)))
    assert sorted(closed) == [(1, 0), (1, 1)]


def test_readers_get_times_values_and_the_day(spark):
    windows = windows_of(frame(spark, [planted("w", 1)]), LIMITERS).where("width_s = 10")
    (row,) = published(windows, LIMITERS, is_final=True).selectExpr("*", "unix_seconds(end) AS end_s").collect()
    assert (row.end_s, str(row.day)) == (BEGIN_S + 10, "2026-11-21")
    assert (row.level, row.limit_messages, row.passed_messages, row.is_final) == ("topic", 100.0, 110, True)
    assert datetime.fromtimestamp(row.end_s - 10, UTC) == BEGIN
