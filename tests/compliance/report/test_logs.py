import pytest

from compliance.log_lines import KeptLines
from compliance.logs import Logs
from compliance.tables import LogTables
from tests.compliance.arrow import kept_of
from tests.compliance.planted import PlantedLog, exact_log, frame

pytestmark = pytest.mark.spark


def tables_of(spark, *logs):
    rows = frame(spark, logs)
    runs, gaps = kept_of(*logs)
    none = spark.createDataFrame([], "file string")
    counts = {"lines": rows.count(), "malformed": 0, "duplicates": 0}
    return LogTables(KeptLines.of_frame(rows), runs, gaps, quarantine=none, copies=none, newer={}, **counts)


def test_each_kind_is_kept_with_its_own_columns(spark):
    log = exact_log(2)
    log.change()
    log.reject(3)
    logs = Logs.of(tables_of(spark, log))
    assert [frame.count() for frame in (logs.limits, logs.intervals, logs.shares)] == [2, 2, 0]
    [change] = logs.sums["changes"].to_pylist()
    assert (change["who"], change["seq"], logs.sums["refusals"]["rejected"].to_pylist()) == ("ann", 6, [3])
    assert "burst_messages" not in logs.intervals.columns


def test_lines_have_their_place_on_an_axis_without_steps(spark):
    log = PlantedLog()
    log.tick(1)
    log.ahead_s -= 30
    log.tick(1)
    logs = Logs.of(tables_of(spark, log))
    for frame_ in (logs.limits, logs.intervals):
        (first, second) = frame_.orderBy("seq").collect()
        assert (second.start_us, second.end_us - second.start_us) == (first.end_us, 1_000_000)
