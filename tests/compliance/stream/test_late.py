from dataclasses import replace

import pytest

from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import start
from compliance.stream.runs import late_so_far, late_words
from tests.compliance.planted import planted, write_file

JOB = Job(Source("files", "/log"), Sink(), "/out")


def test_it_is_said_how_many_were_late_in_this_run_and_what_helps():
    told = late_words({"1": 5, "10": 3}, {"1": 1205, "10": 3, "60": 7}, JOB)
    assert told.startswith("late lines: 1,200 for windows of 1 s, 7 for windows of 60 s: they are in rows, but not in")
    assert "--late-after of more than 60 " in told
    assert "--batch-mib" in told
    assert "another --out" in told
    assert "rsync -t" in told


def test_of_topics_no_order_of_files_is_to_blame():
    assert "rsync" not in late_words({}, {"1": 5}, replace(JOB, source=Source("kafka")))


@pytest.mark.parametrize("late", [{}, {"1": 5, "3600": 2}])
def test_what_earlier_runs_have_told_is_not_told_again(late):
    assert late_words(late, late, JOB) == ""


@pytest.mark.spark
def test_a_run_knows_what_those_before_it_have_counted(spark, tmp_path):
    job = Job(Source("files", f"{tmp_path}/log"), Sink(), f"{tmp_path}/out", late_after_s=10)
    lines = planted("late", 40).encoded()
    assert late_so_far(spark, job) == {}
    for name, of_file in (("a.jsonl", lines[6:]), ("b.jsonl", lines[:6])):
        write_file(tmp_path / "log", name, of_file)
        assert start(spark, job, lambda _: None, follow=False).awaitTermination(120)
    assert late_so_far(spark, job) == {"1": 4, "10": 4}
