from datetime import UTC, datetime

import pytest

from compliance.stream.window_table import TABLES
from compliance.stream.windows import added_up, published, published_schema, unpublished
from tests.compliance.planted import BEGIN, frame, planted

pytestmark = pytest.mark.spark
TOPICS, LIMITERS = TABLES
BEGIN_S = int(BEGIN.timestamp())


def sums(windows):
    return {(row.width_s, row.window_s - BEGIN_S): (row.lines, row.passed_messages) for row in windows.collect()}


def test_lines_of_several_files_meet_in_their_window(spark):
    rows = frame(spark, [planted("w", 12)])
    whole = sums(added_up(rows.repartition(1), None, TOPICS))
    assert (whole[1, 0], whole[10, 0], whole[60, 0]) == ((1, 110), (10, 1010), (12, 1210))
    assert sums(added_up(rows.repartition(5, "seq"), None, TOPICS)) == whole


def test_windows_of_two_batches_are_those_of_both_together(spark):
    rows = frame(spark, [planted("w", 20)])
    one = added_up(rows.where("seq % 5 < 2"), None, LIMITERS)
    both = added_up(rows.where("seq % 5 >= 2"), unpublished(published(one, LIMITERS, (0, 0))), LIMITERS)
    assert sums(both) == sums(added_up(rows, None, LIMITERS))


def test_a_window_is_closed_when_the_watermark_is_at_its_end(spark):
    windows = added_up(frame(spark, [planted("w", 4)]), None, TOPICS)
    told = published(windows, TOPICS, (BEGIN_S + 1, BEGIN_S + 3)).where("width_s = 1").orderBy("start")
    assert [(row.state, row.is_final) for row in told.collect()] == [
        ("late", True),
        ("closed", True),
        ("closed", True),
        ("open", False),
    ]


def test_readers_get_times_values_and_the_day(spark):
    windows = added_up(frame(spark, [planted("w", 1)]), None, LIMITERS).where("width_s = 10")
    told = published(windows, LIMITERS, (0, BEGIN_S + 10))
    (row,) = told.selectExpr("*", "unix_seconds(end) AS end_s", "unix_seconds(as_of) AS as_of_s").collect()
    assert (row.end_s, row.as_of_s, str(row.day)) == (BEGIN_S + 10, BEGIN_S + 1, "2026-11-21")
    assert (row.level, row.limit_messages, row.passed_messages, row.is_final) == ("topic", 100.0, 110, True)
    assert datetime.fromtimestamp(row.end_s - 10, UTC) == BEGIN


@pytest.mark.parametrize("table", TABLES)
def test_what_is_published_has_the_schema_that_it_is_read_with(spark, table):
    told = published(added_up(frame(spark, [planted("w", 1)]), None, table), table, (0, 0))
    assert [(f.name, f.dataType) for f in told.schema] == [(f.name, f.dataType) for f in published_schema(table)]
