from datetime import timedelta

import pytest
from pyspark.sql import functions as F

from compliance.report.logs import opened
from compliance.tables import LogTables
from tests.compliance.arrow import kept_of
from tests.compliance.planted import PlantedLog, exact_log, frame

pytestmark = pytest.mark.spark


def tables_of(spark, *logs):
    rows = frame(spark, logs)
    runs, gaps = kept_of(spark, *logs)
    return LogTables(rows, runs, gaps, spark.createDataFrame([], "file string"), rows.count())


def test_each_kind_is_kept_with_its_own_columns_and_its_place(spark):
    log = exact_log(2)
    log.change()
    log.reject(3)
    with opened(tables_of(spark, log)) as logs:
        counts = [frame.count() for frame in (logs.lines, logs.limits, logs.intervals, logs.others)]
        assert counts == [8, 2, 2, 4]
        assert [(row.who, row.file, row.line) for row in logs.of("change").collect()] == [("ann", "a.jsonl", 7)]
        assert "who" not in logs.of("reject").columns
        assert "largest_entry_messages" not in logs.intervals.columns


def test_lines_of_a_limiter_stand_together_and_in_order(spark):
    logs = [exact_log(20, proxy_id=f"proxy-{number}") for number in range(5)]
    with opened(tables_of(spark, *logs)) as opened_logs:
        rows = opened_logs.limits.select("proxy_id", "seq", F.spark_partition_id().alias("part")).collect()
    assert len({(row.proxy_id, row.part) for row in rows}) == 5
    for part in {row.part for row in rows}:
        mine = [(row.proxy_id, row.seq) for row in rows if row.part == part]
        assert mine == sorted(mine)


def test_lines_know_whether_the_clock_was_put_back(spark):
    log = PlantedLog()
    log.tick(1)
    log.begin -= timedelta(seconds=30)
    log.tick(1)
    with opened(tables_of(spark, log)) as logs:
        assert [row.epoch for row in logs.limits.orderBy("seq").collect()] == [0, 1]
        assert [row.epoch for row in logs.intervals.orderBy("seq").collect()] == [0, 1]
