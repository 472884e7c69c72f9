"""Batches written one after the other, as Spark would, without a stream around them."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import BatchWriter
from compliance.stream.storage import tables_of
from tests.compliance.planted import BEGIN, planted, write_file
from tests.compliance.stream.recount import assert_all_there, windows_in

pytestmark = pytest.mark.spark


@pytest.fixture
def job(tmp_path):
    return Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "out"), late_after_s=10)


@pytest.fixture
def write(spark, job):
    writer = BatchWriter(spark, job, tables_of(spark, job), lambda _: None)

    def written(name, step):
        text = spark.read.text(f"{job.source.folder}/{name}")
        place = F.col("_metadata.file_name").alias("file"), F.col("_metadata.file_block_start").alias("block")
        writer.write(text.select("value", *place), step)

    return written


def summary_of(tmp_path):
    return json.loads((tmp_path / "out" / "summary.json").read_text())


def test_batches_that_run_again_change_nothing(spark, tmp_path, write):
    lines = planted("again", 30).encoded()
    write_file(tmp_path / "log", "a.jsonl", [*lines[:45], b"broken", b"", lines[3]])
    write_file(tmp_path / "log", "b.jsonl", [*lines[40:], b"{}"])
    for name, step in (("a.jsonl", 0), ("a.jsonl", 0), ("b.jsonl", 1), ("b.jsonl", 1)):
        write(name, step)
    summary = assert_all_there_but_the_empty_object(spark, tmp_path)
    assert (summary["malformed"], summary["duplicates"], summary["missing"]) == (3, 6, 0)
    reasons = spark.read.json(f"{tmp_path}/out/quarantine").orderBy("file", "line").collect()
    assert [(row.file, row.line, row.reason) for row in reasons] == [
        ("a.jsonl", 46, "not exactly one complete JSON object"),
        ("a.jsonl", 47, "empty line"),
        ("b.jsonl", 51, "missing: kind"),
    ]


def assert_all_there_but_the_empty_object(spark, tmp_path):
    """The recount takes whatever is no JSON for malformed; the other line is looked at by the test itself."""
    text = (tmp_path / "log" / "b.jsonl").read_text()
    (tmp_path / "log" / "b.jsonl").write_text(text.replace("{}", "broken"))
    return assert_all_there(spark, tmp_path / "out", tmp_path / "log")


def test_late_lines_are_counted_and_kept_and_change_no_closed_window(spark, tmp_path, write):
    lines = planted("late", 40).encoded()
    write_file(tmp_path / "log", "a.jsonl", lines[6:])
    write_file(tmp_path / "log", "b.jsonl", lines[:6])
    write("a.jsonl", 0)
    before = windows_in(spark, tmp_path / "out")
    write("b.jsonl", 1)
    summary = summary_of(tmp_path)
    # Two seconds of an interval, a limit and a heartbeat: windows of 1 s and 10 s are closed, longer ones open.
    assert summary["late"] == {"1": 4, "10": 4}
    assert (summary["rows"], summary["missing"], summary["gaps"]) == (120, 0, [])
    after = windows_in(spark, tmp_path / "out")
    assert {key for key in after if after[key] != before.get(key)} == {key for key in after if key[1] >= 60}


def test_gaps_are_told_until_they_are_filled(tmp_path, write):
    lines = planted("gap", 10).encoded()
    write_file(tmp_path / "log", "a.jsonl", lines[:12] + lines[15:])
    write_file(tmp_path / "log", "b.jsonl", lines[12:15])
    write("a.jsonl", 0)
    assert summary_of(tmp_path)["missing"] == 3
    assert summary_of(tmp_path)["gaps"] == [{"proxy_id": "gap", "boot_id": "boot-1", "after_seq": 11, "missing": 3}]
    write("b.jsonl", 1)
    assert (summary_of(tmp_path)["missing"], summary_of(tmp_path)["gaps"]) == (0, [])


def test_a_clock_far_ahead_closes_no_other_proxys_windows(tmp_path, write):
    ahead = planted("ahead", 1)
    ahead.begin = ahead.begin.replace(year=2199)
    ahead.tick(5)
    write_file(tmp_path / "log", "a.jsonl", ahead.encoded())
    write("a.jsonl", 0)
    assert not summary_of(tmp_path)["watermark"].startswith("2199")


def test_lines_before_1970_are_late_before_the_year_1_malformed(spark, tmp_path, write):
    """The watermark begins at 1970; a clock that was never set begins there, too."""
    ancient, across = (planted(name, begin=BEGIN.replace(year=1)) for name in ("ancient", "across"))
    across.begin = datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC)
    ancient.tick(5)
    for _ in range(4):
        across.tick(5)
    before = json.dumps(json.loads(ancient.encoded()[0]) | {"start": "0001-01-01T00:00:00+01:00"}).encode()
    write_file(tmp_path / "log", "a.jsonl", [*ancient.encoded(), *across.encoded(), before])
    write("a.jsonl", 0)
    summary = summary_of(tmp_path)
    # An interval and a limit of the year 1, and of the last two seconds of 1969.
    assert summary["late"] == dict.fromkeys(("1", "10", "60", "300", "3600"), 6)
    assert (summary["rows"], summary["malformed"]) == (15, 1)
    kept = spark.read.parquet(f"{tmp_path}/out/rows").groupBy(F.year("start").alias("year")).count().collect()
    assert sorted(map(tuple, kept)) == [(1, 3), (1969, 6), (1970, 6)]
    assert {key[2] for key in windows_in(spark, tmp_path / "out")} == {0, 1}


def test_a_topic_is_complete_as_far_as_its_slowest_partition(spark, tmp_path, job):
    """Batch after batch takes a share of each: one may hold ten minutes in it, another half a minute."""
    topic = replace(job, source=Source("kafka"))
    writer = BatchWriter(spark, topic, tables_of(spark, topic), lambda _: None)
    lines = [line.decode() for line in planted("topic", 600).encoded()]
    partitions = lines[::2], lines[1::2]
    write_file(tmp_path / "log", "a.jsonl", [line.encode() for line in lines])
    behind = 0, 0
    for step, ends in enumerate([(900, 50), (900, 900)]):
        read = [
            (line, f"t/{number}", offset)
            for number, (begin, end) in enumerate(zip(behind, ends, strict=True))
            for offset, line in enumerate(partitions[number][begin:end], begin)
        ]
        parts = [[row for row in read if row[1] == f"t/{number}"] for number in (0, 1)]
        rdd = spark.sparkContext.parallelize(parts, 2).flatMap(list)
        writer.write(spark.createDataFrame(rdd, "value string, file string, line long"), step)
        behind = ends
    assert assert_all_there(spark, tmp_path / "out", tmp_path / "log")["late"] == {}
