import pytest

from tests.compliance.judging.checked import crosschecked
from tests.compliance.planted import PlantedLog

pytestmark = pytest.mark.spark


def checked(spark, log):
    return crosschecked(spark, [log]).collect()


def test_a_namespace_total_is_checked_against_all_its_topics(spark):
    log = PlantedLog()
    for topic in ("a", "b"):
        log.interval(60, topic=f"persistent://acme/orders/{topic}")
    log.interval(500, tenant="other", topic="persistent://other/orders/c")
    log.limit(120, level="namespace", name="acme/orders")
    (row,) = checked(spark, log)
    assert (row.name, row.basis, row.passed, row.allowed) == ("acme/orders", "streams", 120, 111)


def test_streams_before_the_limit_was_set_are_not_held_against_it(spark):
    log = PlantedLog()
    log.interval(5000)
    log.beat()
    log.interval(100)
    log.limit(100)
    (row,) = checked(spark, log)
    assert row.passed == 100


def test_streams_in_an_idle_gap_are_not_compared(spark):
    log = PlantedLog()
    log.tick(100)
    log.interval(5000)
    log.beat()
    log.tick(100)
    (row,) = checked(spark, log)
    assert row.passed == 100


def test_what_does_not_count_against_limits_is_not_held_against_them(spark):
    log = PlantedLog()
    log.interval(1000, charged_messages=60, charged_bytes=6000)
    log.interval(500, charged_messages=0, charged_bytes=0)
    log.interval(40)
    log.limit(100, limit_bytes=1e6, burst_bytes=1e5)
    assert {row.unit: row.passed for row in checked(spark, log)} == {"messages": 100, "bytes": 10_000}


def test_a_stream_that_no_limit_was_charged_for_is_found(spark):
    """It says itself what counts by rule; what merely went past its limits counts."""
    log = PlantedLog()
    log.interval(500, limit_level="", limit_messages=None)
    log.limit(100)
    (row,) = checked(spark, log)
    assert (row.passed, row.allowed) == (500, 111)
