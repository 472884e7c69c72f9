import pytest

from compliance.figures.trends import PAIRS, burn_facts
from tests.compliance.planted import BEGIN

pytestmark = pytest.mark.spark
COLUMNS = "tenant string, minute long, judged_s double, over_s double, waited_s double, short_s double"


def burned(spark, bad_minutes, minutes, budget=0.01):
    """A limit judged for all of each minute; in the bad ones it was over for half of it."""
    begin = int(BEGIN.timestamp()) // 60
    rows = [
        ("acme", begin + minute, 60.0, 30.0 if minute in bad_minutes else 0.0, 0.0, 0.0) for minute in range(minutes)
    ]
    return {row.long_s: row for row in burn_facts(spark.createDataFrame(rows, COLUMNS), 1 - budget).collect()}


def test_a_burn_rate_is_bad_time_over_the_budget_in_both_windows(spark):
    # One bad minute of a quarter of an hour: 30 s of 300 s, and 30 s of the 900 s that there are of the hour.
    rows = burned(spark, {10}, 15)
    assert rows[3600].worst == pytest.approx(30 / 660 / 0.01)
    assert rows[3600].worst_at == "2026-11-21T11:40:00.000000Z"
    assert (rows[3600].bad_s, rows[3600].judged_s) == (30, 900)


def test_an_old_story_does_not_burn_at_the_end(spark):
    rows = burned(spark, set(range(5)), 60)
    assert rows[3600].last == 0
    assert rows[3600].worst == pytest.approx(50)


def test_a_blip_alone_does_not_ring_the_long_window(spark):
    rows = burned(spark, {300}, 360)
    assert rows[3600].worst == pytest.approx(30 / 3600 / 0.01)
    assert rows[3600].worst < PAIRS[0].threshold


def test_a_promise_that_was_never_due_has_no_row(spark):
    assert {row.promise for row in burned(spark, {1}, 5).values()} == {"containment"}
