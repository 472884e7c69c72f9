import shutil

import pytest

from compliance.ingest import Folders, ingest, read_quarantine, read_rows
from tests.compliance.planted import exact_log, write_file

pytestmark = pytest.mark.spark


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path / "log", tmp_path / "work")


def test_a_batch_that_was_not_committed_is_not_counted_twice(spark, folders):
    """Killed after the rows were written and before the commit: the same batch runs again over its own folder."""
    write_file(folders.access_log, "a.jsonl", [*exact_log(3).encoded(), b"broken"])
    ingest(spark, folders, lambda _: None)
    shutil.rmtree(folders.checkpoint / "commits")
    ingest(spark, folders, lambda _: None)
    assert read_rows(spark, folders).count() == 9
    assert [(row.line, row.file) for row in read_quarantine(spark, folders).collect()] == [("broken", "a.jsonl")]
    assert list(folders.rows.glob("batch=0/day=2026-11-21/*.parquet"))


def test_nothing_read_is_no_rows(spark, folders):
    assert read_rows(spark, folders).count() == 0
    assert read_quarantine(spark, folders).count() == 0
