import pytest

from compliance.usage import limiter_facts, topic_facts, usage_facts
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def two_streams():
    log = PlantedLog()
    log.interval(5, offered=9, stream_id=1)
    log.interval(7, offered=7, stream_id=2, delay_max_ms=12.5)
    log.interval(2, offered=2, direction="dispatch", stream_id=1, subscription="s")
    log.beat()
    log.interval(3, offered=0, stream_id=1, held_messages=1, limit_messages=50.0)
    log.beat()
    return log


def test_a_topic_is_the_sum_of_its_streams_per_direction(spark):
    topics = {row.direction: row for row in topic_facts(frame(spark, [two_streams()], "interval")).collect()}
    publish = topics["publish"]
    assert (publish.offered_messages, publish.passed_messages, publish.held_messages) == (16, 15, 1)
    assert (publish.delay_max_ms, publish.limit_messages) == (12.5, 50.0)
    assert topics["dispatch"].passed_messages == 2


def test_usage_has_a_row_for_each_day_topic_and_direction(spark):
    rows = usage_facts(frame(spark, [two_streams()], "interval")).collect()
    assert {(row.day, row.direction, row.passed_bytes) for row in rows} == {
        ("2026-11-21", "publish", 1500),
        ("2026-11-21", "dispatch", 200),
    }


def test_a_limiter_shows_the_value_last_in_force(spark):
    log = PlantedLog()
    log.limit(100)
    log.limit(50, rate=50.0)
    (row,) = limiter_facts(frame(spark, [log], "limit")).collect()
    assert (row.limit_messages, row.values, row.passed_messages, row.throttled_s) == (50, 2, 150, 2.0)
