import pytest

from compliance.stream.options import Job, JobError, Sink, Source
from compliance.stream.run import JobRun
from compliance.tables import read_log, read_tables
from tests.compliance.planted import exact_log, write_file

pytestmark = pytest.mark.spark


def keys(tables):
    return sorted(tuple(row) for row in tables.rows.frame.select("proxy_id", "boot_id", "seq").collect())


def job(tmp_path):
    return Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "out"), with_usage=False, least_files=9)


def test_a_report_reads_each_line_once_and_keeps_no_usage(spark, tmp_path):
    lines = exact_log(3).encoded()
    write_file(tmp_path / "log", "a.jsonl", [*lines, b"broken", lines[0]])
    for _ in range(2):
        tables = read_log(spark, tmp_path / "log", tmp_path / "work", lambda _: None)
        assert keys(tables) == [("proxy-1", "boot-1", seq) for seq in range(9)]
        assert [(row.text, row.file, row.line) for row in tables.quarantine.collect()] == [("broken", "a.jsonl", 10)]
        assert tables.runs["read"].to_pylist() == [10]
        assert [(row.seq, row.line) for row in tables.copies.collect()] == [(0, 11)]
    assert sorted(path.name for path in (tmp_path / "work").iterdir() if path.is_dir()) == [
        "_work",
        "malformed",
        "rows",
    ]


def test_rows_of_a_file_that_is_being_read_are_in_no_table(spark, tmp_path):
    for name, seconds in (("a", 3), ("b", 5)):
        write_file(tmp_path / "log", f"{name}.jsonl", exact_log(seconds, proxy_id=name).encoded())
    JobRun(spark, job(tmp_path), lambda _: None).once()
    assert (len(keys(read_tables(spark, f"{tmp_path}/out"))), read_tables(spark, f"{tmp_path}/out").lines) == (24, 24)
    (tmp_path / "out/_work/files/b.json").unlink()
    assert keys(read_tables(spark, f"{tmp_path}/out")) == [("a", "boot-1", seq) for seq in range(9)]


def test_lines_that_files_have_in_common_are_kept_once(spark, tmp_path):
    lines = exact_log(10).encoded()
    other = exact_log(2, proxy_id="other").encoded()
    for name, part in (("a", lines[:20]), ("b", lines[10:]), ("c", other)):
        write_file(tmp_path / "log", f"{name}.jsonl", part)
    JobRun(spark, job(tmp_path), lambda _: None).once()
    tables = read_tables(spark, f"{tmp_path}/out")
    assert keys(tables) == [("other", "boot-1", seq) for seq in range(6)] + [
        ("proxy-1", "boot-1", seq) for seq in range(30)
    ]
    assert [(row.file, row.seq) for row in tables.copies.orderBy("seq").collect()] == [
        ("b.jsonl", seq) for seq in range(10, 20)
    ]


def test_a_log_without_a_valid_line_has_no_rows(spark, tmp_path):
    write_file(tmp_path / "log", "a.jsonl", [b"broken"])
    tables = read_log(spark, tmp_path / "log", tmp_path / "work", lambda _: None)
    assert (keys(tables), tables.lines, tables.quarantine.count()) == ([], 0, 1)


def test_what_is_no_job_s_is_refused(spark, tmp_path):
    with pytest.raises(JobError, match="no tables of `sluice compliance run` in it"):
        read_tables(spark, str(tmp_path))
