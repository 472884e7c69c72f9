import pytest

from compliance.stream.options import Job, JobError, Sink, Source
from compliance.stream.run import start
from compliance.stream.runs import Summary
from compliance.tables import read_tables
from tests.compliance.planted import planted, write_file
from tests.compliance.stream.recount import assert_all_there

pytestmark = pytest.mark.spark


def job_of(tmp_path, name="log"):
    return Job(Source("files", str(tmp_path / name)), Sink(), str(tmp_path / "out"), every_s=0.1)


def test_following_takes_in_files_as_they_come_and_stops_when_told(spark, tmp_path):
    write_file(tmp_path / "log", "a.jsonl", planted("follow", 5).encoded())
    told: list[Summary] = []
    job = job_of(tmp_path)
    query = start(spark, job, told.append, follow=True)
    try:
        query.processAllAvailable()
        write_file(tmp_path / "log", "b.jsonl", planted("follow-later", 7).encoded())
        job.look()
        query.processAllAvailable()
    finally:
        query.stop()
    assert [summary.lines for summary in told] == [15, 36]
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")


def test_two_logs_do_not_share_a_folder(spark, tmp_path):
    for name in ("log", "other"):
        write_file(tmp_path / name, "a.jsonl", planted("shared", 1).encoded())
    assert start(spark, job_of(tmp_path), lambda _: None, follow=False).awaitTermination(120)
    with pytest.raises(JobError, match=r"holds files .*/log into parquet, not files .*/other"):
        start(spark, job_of(tmp_path, "other"), lambda _: None, follow=False)


def test_a_folder_of_another_version_is_refused_by_job_and_report(spark, tmp_path):
    write_file(tmp_path / "log", "a.jsonl", planted("before", 1).encoded())
    assert start(spark, job_of(tmp_path), lambda _: None, follow=False).awaitTermination(120)
    (tmp_path / "out/_work/state/step=0/totals.json").write_text('{"lines": 3}')
    with pytest.raises(JobError, match="of version 0"):
        start(spark, job_of(tmp_path), lambda _: None, follow=False)
    with pytest.raises(JobError, match="of version 0"):
        read_tables(spark, f"{tmp_path}/out")


def test_a_name_that_hadoop_has_not_is_told_and_the_file_is_read_once_it_has_another(spark, tmp_path):
    write_file(tmp_path / "log", "a:b.jsonl", planted("colon", 3).encoded())
    write_file(tmp_path / "log", "whole.jsonl", planted("whole", 3).encoded())
    told: list[Summary] = []
    assert start(spark, job_of(tmp_path), told.append, follow=False).awaitTermination(120)
    assert [summary.lines for summary in told] == [9]
    (tmp_path / "log" / "a:b.jsonl").rename(tmp_path / "log" / "a-b.jsonl")
    assert start(spark, job_of(tmp_path), lambda _: None, follow=False).awaitTermination(120)
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")
