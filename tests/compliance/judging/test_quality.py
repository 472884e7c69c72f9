from datetime import timedelta

import pytest
from pyspark.sql import functions as F

from compliance.judging.clocks import moments_of, step_facts
from compliance.judging.quality import gap_facts, run_facts, unknown_lines
from tests.compliance.arrow import kept_of
from tests.compliance.planted import BEGIN, PlantedLog, exact_log, frame

pytestmark = pytest.mark.spark


def log_without(*numbers, **names):
    log = exact_log(10, **names)
    log.lines = [line for line in log.lines if line.seq not in numbers]
    return log


def dropping():
    """The proxy says that it dropped lines, although the numbers have no gap yet."""
    log = exact_log(9, proxy_id="dropping")
    log.beat(dropped_lines=2)
    return log


def pausing():
    """The wall clock goes five seconds ahead: no line is missing, and no time."""
    log = exact_log(5, proxy_id="pausing")
    log.ahead_s += 5
    log.interval(1)
    log.beat()
    return log


def open_tail():
    """Lines of a second whose heartbeat is not written yet."""
    log = exact_log(10, proxy_id="open tail")
    log.interval(1)
    return log


def changing():
    """A limit is changed in the middle, another one at the end."""
    log = exact_log(5, proxy_id="changing")
    log.change()
    for _ in range(5):
        log.tick(100)
    log.change(before="x", after=None)
    return log


@pytest.fixture(scope="module")
def runs(spark):
    logs = [
        exact_log(10, proxy_id="whole"),
        log_without(4, proxy_id="gap"),
        log_without(0, proxy_id="headless"),
        log_without(*range(27, 30), proxy_id="tailless"),
        dropping(),
        pausing(),
        open_tail(),
        changing(),
    ]
    return {row.proxy_id: row for row in facts_of(spark, *logs).collect()}


def facts_of(spark, *logs):
    rows = frame(spark, logs)
    runs, gaps = kept_of(spark, *logs)
    beats = rows.where("kind = 'heartbeat'")
    steps = step_facts(moments_of(rows)).groupBy("proxy_id", "boot_id").agg(F.count("*").alias("clock_steps"))
    return run_facts(runs, gaps, rows, beats, [steps])


@pytest.mark.parametrize(
    ("proxy_id", "missing", "coverage"),
    [
        ("whole", 0, 1.0),
        ("gap", 1, 0.9),
        ("headless", 1, 0.9),
        # What was never written after the last line cannot be missed: the log is complete up to there.
        ("tailless", 0, 1.0),
        ("dropping", 0, 0.9),
        ("pausing", 0, 1.0),
        ("open tail", 0, 1.0),
        ("changing", 0, 1.0),
    ],
)
def test_coverage_is_the_share_of_time_with_all_lines(runs, proxy_id, missing, coverage):
    assert runs[proxy_id].missing == missing
    assert runs[proxy_id].coverage == pytest.approx(coverage)


def test_complete_up_to_is_the_last_heartbeats_end(runs):
    end = (BEGIN + timedelta(seconds=10)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    assert runs["open tail"].complete_up_to == end
    assert runs["open tail"].last > end


def test_a_change_is_neither_a_gap_nor_a_step_of_the_clock(runs):
    assert (runs["changing"].lines, runs["changing"].clock_steps) == (32, 0)
    assert runs["changing"].complete_up_to == runs["whole"].complete_up_to


def test_gaps_are_placed(spark):
    log = log_without(0, 4, 5)
    _, gaps = kept_of(spark, log)
    rows = gap_facts(gaps, frame(spark, [log])).orderBy("after_seq").collect()
    until = ["2026-11-21T11:29:00.000000Z", "2026-11-21T11:29:02.000000Z"]
    assert [(row.after_seq, row.missing) for row in rows] == [(-1, 1), (3, 2)]
    assert [row.until for row in rows] == until
    # Each planted line stands in the file as its number says: the first line has number 0.
    assert [(row.behind.file, row.behind.line) for row in rows] == [("a.jsonl", 2), ("a.jsonl", 7)]


def test_a_stepped_wall_clock_is_counted(spark):
    log = PlantedLog()
    for ahead_s in (0, -10, 0):
        log.ahead_s = ahead_s
        log.beat()
    (run,) = facts_of(spark, log).collect()
    assert run.clock_steps == 2, "there and back"


def test_only_a_known_kind_whose_version_is_not_known_may_hide_something(spark):
    kinds = [("limit (version 2)",), ("weather (version 2)",), ("weather",), ("heartbeat",), ("my limit (version 2)",)]
    rows = [("p", "b", seq, *kind, 0, 0.0) for seq, kind in enumerate(kinds)]
    columns = "proxy_id string, boot_id string, seq long, kind string, mono_us long, duration_ms double"
    lines = spark.createDataFrame(rows, columns)
    unknown = {(row.kind, row.is_newer) for row in unknown_lines(lines).collect()}
    assert unknown == {(kind, kind == "limit (version 2)") for (kind,) in kinds if kind != "heartbeat"}
