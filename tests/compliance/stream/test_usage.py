"""Usage by native Spark: the same sums as by hand, each line once, and no row through Python or the driver."""

import json
import re
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F

from compliance.stream import source, usage
from compliance.stream.folder import load
from compliance.stream.log_file import JobPlaces, read_log_file
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import JobRun
from compliance.stream.usage import DAY, HOUR, MINUTE, minutes_of, of_windows, refresh
from tests.compliance.planted import BEGIN, planted, write_file

pytestmark = pytest.mark.spark
WIDTH_S = {MINUTE: 60, HOUR: 3600, DAY: 86400}


def busy(proxy_id, begin=BEGIN, seconds=150):
    log = planted(proxy_id, begin=begin)
    for second in range(seconds):
        histogram = [0, second % 3, 1] if second % 2 else []
        log.interval(second, delay_hist=histogram, delay_sum_ms=second / 2, delay_max_ms=float(second % 50))
        log.interval(1, direction="dispatch", limit_messages=None)
        log.limit(second)
        log.beat()
    return log


def recounted(lines, table):
    """Lines, passed messages, the longest wait and the histogram of each window, in plain Python."""
    windows: Any = defaultdict(lambda: [0, 0, 0.0, []])
    for line in {(line.proxy_id, line.seq): line for line in lines}.values():
        if type(line).__struct_config__.tag != "interval":
            continue
        start = int(line.start.timestamp()) // WIDTH_S[table] * WIDTH_S[table]
        window = windows[start, line.topic, line.direction]
        window[0] += 1
        window[1] += line.passed_messages
        window[2] = max(window[2], line.delay_max_ms)
        length = max(len(window[3]), len(line.delay_hist))
        both = [[*counts, *[0] * (length - len(counts))] for counts in (window[3], line.delay_hist)]
        window[3] = [count + other for count, other in zip(*both, strict=True)]
    return dict(windows)


def kept(spark, out, table):
    rows = spark.read.parquet(f"{out}/{table}").withColumn("start_s", F.unix_seconds("start")).collect()
    windows = {
        (row.start_s, row.topic, row.direction): [row.lines, row.passed_messages, row.delay_max_ms, row.delay_hist]
        for row in rows
    }
    assert len(windows) == len(rows)
    return windows


def job(tmp_path):
    return Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "out"))


def assert_right(spark, tmp_path, *logs):
    for table in usage.TABLES:
        assert kept(spark, tmp_path / "out", table) == recounted([line for log in logs for line in log.lines], table)


def test_each_line_is_in_its_minute_hour_and_day_once(spark, tmp_path):
    """A later run adds a late file, copies of lines, and hours that are new."""
    late, midnight = busy("late"), busy("midnight", BEGIN.replace(hour=23, minute=58, second=50))
    lines = late.encoded()
    write_file(tmp_path / "log", "a.jsonl", lines[200:])
    write_file(tmp_path / "log", "m.jsonl", midnight.encoded())
    JobRun(spark, job(tmp_path), lambda _: None).once()
    write_file(tmp_path / "log", "b.jsonl", [*lines[:210], b"torn", lines[3]])
    JobRun(spark, job(tmp_path), lambda _: None).once()
    assert_right(spark, tmp_path, late, midnight)


def test_only_hours_with_new_lines_are_made_again(spark, tmp_path):
    places = JobPlaces(str(tmp_path / "out"))
    logs = [busy(f"p-{hour}", BEGIN + timedelta(hours=hour), 10) for hour in range(2)]
    for log in logs:
        write_file(tmp_path / "log", f"{log.proxy_id}.jsonl", log.encoded())
        read_log_file(f"{tmp_path}/log/{log.proxy_id}.jsonl", places.out)
        refresh(spark, places, load(places))
        if log is logs[0]:
            first = {file: file.stat().st_mtime_ns for file in (tmp_path / "out/usage_minute").rglob("*.parquet")}
    assert_right(spark, tmp_path, *logs)
    now = {file: file.stat().st_mtime_ns for file in (tmp_path / "out/usage_minute").rglob("*.parquet")}
    assert {file: now.get(file) for file in first} == first
    refresh(spark, places, load(places))
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "out/usage_minute").rglob("*.parquet")} == now


def test_proxy_without_clients_has_no_usage(spark, tmp_path):
    """And clients that come later are counted."""
    idle, log = planted("idle"), busy("p", seconds=10)
    idle.beat()
    for each in (idle, log):
        write_file(tmp_path / "log", f"{each.proxy_id}.jsonl", each.encoded())
        JobRun(spark, job(tmp_path), lambda _: None).once()
        assert [*(tmp_path / "out").glob("usage_day/*")] == [] or each is log
    assert_right(spark, tmp_path, idle, log)


def test_usage_that_was_not_finished_is_made_again(spark, tmp_path):
    log = busy("p", seconds=10)
    write_file(tmp_path / "log", "a.jsonl", log.encoded())
    JobRun(spark, job(tmp_path), lambda _: None).once()
    (account,) = (tmp_path / "out/_work/usage").iterdir()
    account.write_text(json.dumps([]))
    for file in (tmp_path / "out/usage_hour").rglob("*.parquet"):
        file.unlink()
    JobRun(spark, job(tmp_path), lambda _: None).once()
    assert_right(spark, tmp_path, log)


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_no_row_of_usage_goes_through_python_or_the_driver(spark, tmp_path):
    """Every leaf of the plans is a scan of Parquet files, and every node is Spark's own."""
    places = JobPlaces(str(tmp_path / "out"))
    lines = busy("p", seconds=10).encoded()
    other = busy("q", BEGIN + timedelta(hours=1), 10).encoded()
    for name, part in (("a", lines), ("b", lines[5:]), ("c", other)):
        write_file(tmp_path / "log", f"{name}.jsonl", part)
        read_log_file(f"{tmp_path}/log/{name}.jsonl", places.out)
    ledger = load(places)
    assert ledger.doubled() == {"a", "b"}
    refresh(spark, places, ledger)
    by_files, by_rows = minutes_of(spark, places, ledger, {day: {*facts.hours} for day, facts in ledger.totals.items()})
    assert all("/_work/minutes/" in file for file in by_files.inputFiles())
    assert all("/rows/" in file for file in by_rows.inputFiles())
    hours = of_windows(spark.read.parquet(places.table(MINUTE)), HOUR)
    for frame in (by_files, by_rows, hours):
        plan = plan_of(frame)
        assert "HashAggregate" in plan
        assert "SortAggregate" not in plan
        assert not re.search(r"Python|Arrow|Pandas|ExistingRDD|LocalTableScan|Collect|Broadcast", plan)
        leaves = [line for line in plan.splitlines() if "Scan" in line]
        assert leaves
        assert all("FileScan parquet" in leaf for leaf in leaves)


def test_the_driver_gets_a_row_for_each_file_and_none_for_lines(spark, tmp_path, monkeypatch):
    for number in range(3):
        write_file(tmp_path / "log", f"{number}.jsonl", busy(f"p-{number}", seconds=20).encoded())
    seen = []

    def facts_in(batch, *job_and_step):
        seen.append(batch.collect())
        return source.facts_in(batch, *job_and_step)

    monkeypatch.setattr("compliance.stream.run.facts_in", facts_in)
    JobRun(spark, replace(job(tmp_path), with_usage=False), lambda _: None).once()
    ((order,),) = seen
    assert order.value.count(".jsonl") == 3
