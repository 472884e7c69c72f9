import pytest

from compliance.figures.limits import limiter_facts, limiters_of
from compliance.figures.traffic import DAYS, MINUTES, STREAMS, tenant_day_facts, topic_facts
from tests.compliance.arrow import limits_of, summed_of
from tests.compliance.planted import PlantedLog


def two_streams():
    log = PlantedLog()
    log.interval(5, offered=9, stream_id=1)
    log.interval(7, offered=7, stream_id=2, delay_max_ms=12.5)
    log.interval(2, offered=2, direction="dispatch", stream_id=1, subscription="s")
    log.beat()
    log.interval(3, offered=0, stream_id=1, held_messages=1, limit_messages=50.0)
    log.beat()
    return log


def values(rows, *names):
    return [tuple(row[name] for name in names) for row in rows.to_pylist()]


def test_a_topic_is_the_sum_of_its_streams_per_direction():
    topics = topic_facts(summed_of(STREAMS, two_streams()))
    names = ("direction", "offered_messages", "passed_messages", "held_messages", "delay_max_ms", "limit_messages")
    assert values(topics, *names) == [("publish", 16, 15, 1, 12.5, 50.0), ("dispatch", 2, 2, 0, 0.0, 100.0)]


def test_usage_has_a_row_for_each_day_topic_and_direction():
    days = summed_of(DAYS, two_streams())
    assert values(days, "day", "direction", "passed_bytes") == [
        ("2026-11-21", "publish", 1500),
        ("2026-11-21", "dispatch", 200),
    ]


def test_a_limiter_shows_the_value_last_in_force():
    log = PlantedLog()
    log.limit(100)
    log.limit(50, rate=50.0)
    names = ("limit_messages", "values", "passed_messages", "throttled_s")
    assert values(limiter_facts(**limiters_of(limits_of(log))), *names) == [(50, 2, 150, 2.0)]


def test_what_was_rejected_was_offered_and_did_not_pass():
    log = PlantedLog()
    log.interval(5, offered=9, held_messages=1, rejected_messages=3, rejected_bytes=300)
    log.beat()
    log.interval(1, offered=0, held_messages=0)
    names = ("offered_messages", "passed_messages", "rejected_messages", "rejected_bytes")
    assert values(topic_facts(summed_of(STREAMS, log)), *names) == [(9, 6, 3, 300)]


def test_lines_without_a_count_of_rejected_messages_have_none():
    topics = topic_facts(summed_of(STREAMS, two_streams(), rejected_messages=None))
    assert values(topics, "rejected_messages") == [(0,), (0,)]


def test_a_limit_that_is_only_observed_was_no_limit():
    log = PlantedLog()
    log.limit(100, mode="observe")
    log.limit(100, mode="observe")
    names = ("mode", "was_limited", "limit_messages", "passed_messages", "passed_bytes", "throttled_s")
    assert values(limiter_facts(**limiters_of(limits_of(log))), *names) == [("observe", False, 100, 0, 0, 0)]
    log.limit(70, mode="reject")
    assert values(limiter_facts(**limiters_of(limits_of(log))), *names) == [("reject", True, 100, 70, 7000, 1)]


def test_relative_limit_is_one_value_while_publish_rates_change():
    log = PlantedLog()
    for published in (0.0, 0.1, 99.7):
        log.limit(100, rate=10 + published, published_messages=published)
        log.second += 1
    names = ("values", "is_relative", "limit_messages")
    assert values(limiter_facts(**limiters_of(limits_of(log))), *names) == [(1, True, pytest.approx(109.7))]


def test_a_tenants_day_has_its_highest_minute():
    log = PlantedLog()
    for passed in (60, 600, 0):
        log.interval(passed, throttled_ms=250.0)
        log.second += 60
    days = tenant_day_facts(summed_of(MINUTES, log))
    assert values(days, "day", "tenant", "direction") == [("2026-11-21", "acme", "publish")]
    names = ("passed_messages", "peak_messages_per_s", "peak_bytes_per_s", "throttled_s")
    assert values(days, *names) == [(660, 10, 1000, pytest.approx(0.75))]
