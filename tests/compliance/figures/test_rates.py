from datetime import timedelta

import pytest

from compliance.figures.rates import limiter_rates, peak_facts, topic_rates
from tests.compliance.planted import BEGIN, TOPIC, PlantedLog, frame

pytestmark = pytest.mark.spark
KEYS = "proxy_id string, direction string, level string, name string"
SPAN = f"{KEYS}, step_s long, from_s double, to_s double"


def wanted(spark, proxy_id="proxy-1", step_s=1, seconds=1000):
    begin = BEGIN.timestamp()
    return spark.createDataFrame([(proxy_id, "publish", "topic", TOPIC, step_s, begin, begin + seconds)], SPAN)


def topics(spark, log, step_s):
    return topic_rates(frame(spark, [log], "interval"), wanted(spark, "", step_s)).orderBy("step").collect()


def limits(spark, log, **more):
    lines = frame(spark, [log], "limit")
    return limiter_rates(lines, frame(spark, [log], "interval"), wanted(spark, **more)).orderBy("step").collect()


def test_a_line_is_spread_over_the_steps_that_it_touches(spark):
    log = PlantedLog()
    log.begin += timedelta(milliseconds=250)
    log.interval(100)
    assert [row.passed_messages for row in topics(spark, log, 1)] == pytest.approx([75, 25])


def test_rates_are_per_second_whatever_the_step(spark):
    log = PlantedLog()
    for _ in range(10):
        log.interval(100)
        log.beat()
    assert [row.passed_messages for row in topics(spark, log, 5)] == [100, 100]


def test_a_line_whose_end_is_before_its_start_is_not_spread_backwards(spark):
    log = PlantedLog()
    log.interval(100, end=log.begin - timedelta(hours=1))
    assert topics(spark, log, 1) == []


def test_a_line_is_as_long_as_its_own_clock_says_whatever_the_wall_clock_was_stepped_by(spark):
    log = PlantedLog()
    log.interval(100, end=log.begin + timedelta(days=365))
    assert len(topics(spark, log, 1)) == 1


def test_a_line_of_a_year_stays_two_rows(spark):
    log, year = PlantedLog(), timedelta(days=365)
    log.interval(100, end=log.begin + year, duration_ms=year.total_seconds() * 1e3)
    assert len(topics(spark, log, 1)) == 2


def test_other_topics_are_left_out(spark):
    log = PlantedLog(topic="persistent://acme/orders/other")
    log.interval(100)
    assert topics(spark, log, 1) == []


def test_a_limit_has_its_own_account_and_what_its_streams_offered(spark):
    log = PlantedLog()
    for _ in range(2):
        log.interval(60, offered=90, stream_id=1)
        log.interval(40, offered=70, stream_id=2)
        log.limit(100)
        log.beat()
    rows = limits(spark, log)
    assert [(row.offered_messages, row.passed_messages, row.limit_messages) for row in rows] == [(160, 100, 100)] * 2


def test_what_is_outside_of_the_wanted_time_is_left_out(spark):
    log = PlantedLog()
    for _ in range(9):
        log.tick(100)
    assert len(limits(spark, log, seconds=4)) == 4


def test_the_highest_average_over_each_resolution_stands_beside_what_was_allowed(spark):
    log = PlantedLog()
    for second in range(20):
        log.tick(110 if second == 12 else 100)
    names = spark.createDataFrame([("proxy-1", "publish", "topic", TOPIC)], KEYS)
    peaks = {row.step_s: row for row in peak_facts(frame(spark, [log], "limit"), names).collect()}
    assert (peaks[1].highest, peaks[1].allowed, peaks[1].at) == (110, 100 + 10 + 1, "2026-11-21T11:29:12.000000Z")
    assert (peaks[10].highest, peaks[10].allowed) == (101, 100 + 1.1)
    # The log is shorter than a minute: an average over all of it is the lower for it.
    assert peaks[60].highest == pytest.approx(2010 / 60)


def test_a_limit_without_lines_has_its_streams_account(spark):
    log = PlantedLog()
    log.interval(60, offered=90, stream_id=1, limit_level="topic", limit_messages=50.0)
    log.interval(40, offered=70, stream_id=2, limit_level="topic", limit_messages=50.0)
    (row,) = limits(spark, log)
    assert (row.offered_messages, row.passed_messages, row.limit_messages, row.burst_messages) == (160, 100, 50, None)
