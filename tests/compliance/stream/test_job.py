"""The job with Spark: files come, and tables are right."""

import json
import os

import pytest

from compliance.stream.ledger import Summary
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import JobRun
from tests.compliance.planted import BEGIN, planted, write_file
from tests.compliance.stream.recount import assert_all_there

pytestmark = pytest.mark.spark


def job_of(tmp_path, **more):
    """Usage is the matter of `test_usage.py`: to add it up takes most of a short run."""
    log, out = str(tmp_path / "log"), str(tmp_path / "out")
    return Job(Source("files", log), Sink(), out, every_s=0.1, **{"with_usage": False} | more)


def run_once(spark, job):
    """Runs the job; returns the number of lines after each batch and at the end."""
    summaries: list[Summary] = []
    JobRun(spark, job, summaries.append).once()
    return [summary.lines for summary in summaries]


def test_files_are_read_once_in_whatever_order_they_come(spark, tmp_path):
    """Old ones too: neither their times nor their names count."""
    lines = planted("p", 30).encoded()
    for name, part in (("b", lines[30:60]), ("c", [*lines[55:], b"torn", lines[0]])):
        write_file(tmp_path / "log", f"{name}.jsonl", part)
    assert run_once(spark, job_of(tmp_path)) == [67, 67]
    write_file(tmp_path / "log", "a.jsonl", lines[:30])
    os.utime(tmp_path / "log" / "a.jsonl", (1, 1))
    assert run_once(spark, job_of(tmp_path)) == [97, 97]
    assert run_once(spark, job_of(tmp_path)) == [97]
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")
    assert json.loads((tmp_path / "out/summary.json").read_text())["missing"] == 0


def test_batches_are_of_a_size(spark, tmp_path):
    for number in range(4):
        write_file(tmp_path / "log", f"{number}.jsonl", planted(f"p-{number}", 1).encoded())
    size = (tmp_path / "log" / "0.jsonl").stat().st_size
    assert run_once(spark, job_of(tmp_path, batch_bytes=2 * size)) == [6, 12, 12]
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")


def test_following_takes_in_files_as_they_come(spark, tmp_path):
    """The log is empty at first."""
    (tmp_path / "log").mkdir()
    summaries: list[Summary] = []
    run = JobRun(spark, job_of(tmp_path, with_usage=True), summaries.append)
    query = run.start(follow=True)
    assert query is not None
    try:
        for name, seconds in (("a", 5), ("b", 7)):
            write_file(tmp_path / "log", f"{name}.jsonl", planted(f"follow-{name}", seconds).encoded())
            run.look()
            query.processAllAvailable()
    finally:
        query.stop()
    assert sorted({summary.lines for summary in summaries}) == [0, 15, 36]
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")


def test_a_name_that_hadoop_has_not_is_read_once_it_has_another(spark, tmp_path):
    write_file(tmp_path / "log", "a:b.jsonl", planted("colon", 3).encoded())
    write_file(tmp_path / "log", "whole %20 größe.jsonl", planted("whole", 3).encoded())
    assert run_once(spark, job_of(tmp_path)) == [9, 9]
    (tmp_path / "log" / "a:b.jsonl").rename(tmp_path / "log" / "a-b.jsonl")
    assert run_once(spark, job_of(tmp_path)) == [18, 18]
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")


def test_rows_that_were_deleted_are_read_again(spark, tmp_path):
    log = planted("p", begin=BEGIN.replace(hour=23, minute=59, second=55))
    for _ in range(10):
        log.tick(1)
    write_file(tmp_path / "log", "a.jsonl", log.encoded())
    run_once(spark, job_of(tmp_path))
    for file in (tmp_path / f"out/rows/day={BEGIN.date()}").glob("*.parquet"):
        file.unlink()
    run_once(spark, job_of(tmp_path))
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")
