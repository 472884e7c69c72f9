from datetime import timedelta

import pytest

from compliance.figures.trends import headroom_facts
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def days(peaks):
    """One ten-second line a day, in which that share of 100/s was used."""
    log = PlantedLog()
    for peak in peaks:
        head = log._head
        log.limit(int(1000 * peak), start=head["start"], end=head["start"] + timedelta(seconds=10), duration_ms=1e4)
        log.second += 86400
    return log


def headroom(spark, log):
    (row,) = headroom_facts(frame(spark, [log], "limit")).collect()
    return row


def test_time_near_the_limit_is_counted_and_the_fullest_moment_named(spark):
    row = headroom(spark, days([0.5, 0.79, 0.8, 0.95, 0.2]))
    assert (row.steps, row.near_steps, row.peak) == (5, 2, pytest.approx(0.95))
    assert row.peak_at == "2026-11-24T11:29:00.000000Z"
    assert row.typical == pytest.approx(0.79)


def test_a_straight_rise_has_its_slope_and_no_error(spark):
    row = headroom(spark, days([0.1, 0.2, 0.3, 0.4, 0.5]))
    assert (row.slope, row.now) == (pytest.approx(0.1), pytest.approx(0.5))
    assert row.slope_error == pytest.approx(0, abs=1e-6)


def test_the_error_of_a_slope_is_that_of_the_textbook(spark):
    row = headroom(spark, days([0.1, 0.3, 0.2, 0.4]))
    # x = 0…3, slope 0.08, residuals -0.03, 0.09, -0.09, 0.03 about the line: s² = 0.018 / 2, over Sxx = 5.
    assert row.slope == pytest.approx(0.08)
    assert row.slope_error == pytest.approx((0.018 / 2 / 5) ** 0.5)


def test_one_day_has_no_trend(spark):
    row = headroom(spark, days([0.5]))
    assert (row.days, row.slope, row.slope_error, row.now) == (1, None, None, None)


def test_the_fuller_of_the_two_buckets_counts(spark):
    log = PlantedLog()
    log.limit(100, limit_bytes=5000.0, burst_bytes=500.0)
    assert headroom(spark, log).peak == pytest.approx(2 / 10)
