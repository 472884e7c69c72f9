import shutil

import pytest

from compliance.stream.options import Job, JobError, Sink, Source
from compliance.stream.run import start
from compliance.tables import read_log, read_tables
from tests.compliance.planted import exact_log, write_file

pytestmark = pytest.mark.spark


def keys(tables):
    return sorted(tuple(row) for row in tables.rows.select("proxy_id", "boot_id", "seq").collect())


def test_a_batch_that_was_not_committed_is_not_counted_twice(spark, tmp_path):
    """Killed after everything was written and before the commit: the same batch runs again over its own parts."""
    lines = exact_log(3).encoded()
    write_file(tmp_path / "log", "a.jsonl", [*lines, b"broken", lines[0]])
    read_log(spark, tmp_path / "log", tmp_path / "work", lambda _: None)
    shutil.rmtree(tmp_path / "work" / "_work" / "checkpoint" / "commits")
    tables = read_log(spark, tmp_path / "log", tmp_path / "work", lambda _: None)
    assert keys(tables) == [("proxy-1", "boot-1", seq) for seq in range(9)]
    assert [(row.text, row.file, row.line) for row in tables.quarantine.collect()] == [("broken", "a.jsonl", 10)]
    assert [row.read for row in tables.runs.collect()] == [10]
    assert not (tmp_path / "work" / "limiter_windows").exists()


def test_tables_of_another_job_are_read_up_to_its_last_whole_batch(spark, tmp_path):
    """A batch under way has written rows, but not yet the state behind them."""
    job = Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "out"))
    for name, seconds in (("a", 3), ("b", 5)):
        write_file(tmp_path / "log", f"{name}.jsonl", exact_log(seconds, proxy_id=name).encoded())
        start(spark, job, lambda _: None, follow=False).awaitTermination()
    assert (len(keys(read_tables(spark, job.out))), read_tables(spark, job.out).lines) == (24, 24)
    (tmp_path / "out" / "_work" / "state" / "step=1" / "totals.json").unlink()
    assert keys(read_tables(spark, job.out)) == [("a", "boot-1", seq) for seq in range(9)]


def test_a_log_without_a_valid_line_has_no_rows(spark, tmp_path):
    write_file(tmp_path / "log", "a.jsonl", [b"broken"])
    tables = read_log(spark, tmp_path / "log", tmp_path / "work", lambda _: None)
    assert (keys(tables), tables.lines, tables.quarantine.count()) == ([], 0, 1)


def test_what_is_no_job_s_is_refused(spark, tmp_path):
    with pytest.raises(JobError, match="no tables of `sluice compliance run` in it"):
        read_tables(spark, str(tmp_path))
