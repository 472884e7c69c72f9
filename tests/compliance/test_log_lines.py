"""Lines as tasks read them: each once, without Java where no file has copies, and with even work."""

import re
from datetime import date
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compliance.log_lines import LINES, KeptLines, LinesFile, lines_in
from compliance.stream.folder import load
from compliance.stream.log_file import JobPlaces, read_log_file
from compliance.stream.tables import SplitRows, files_without_copies
from tests.compliance.arrow import rows_of
from tests.compliance.planted import exact_log, write_file

KEYS = ("proxy_id", "kind", "seq")


def keys_of(tables):
    return [tuple(row[name] for name in KEYS) for table in tables for row in table.to_pylist()]


def written(tmp_path, rows, groups=1):
    place = f"{tmp_path}/a.parquet"
    pq.write_table(rows, place, row_group_size=-(-len(rows) // groups))
    return LinesFile(place, "2026-11-21", len(rows))


def test_a_file_gives_the_columns_and_kinds_that_are_asked_for(tmp_path):
    file = written(tmp_path, rows_of(exact_log(3)))
    (lines,) = lines_in(file, [*KEYS, "start", "day"], ["limit"])
    assert keys_of([lines]) == [key for key in keys_of(lines_in(file, KEYS, ())) if key[1] == "limit"]
    assert set(lines["day"].to_pylist()) == {date(2026, 11, 21)}
    assert lines.schema == pa.schema([LINES.field(name) for name in (*KEYS, "start", "day")])
    assert list(lines_in(file, KEYS, ["reject"])) == []


def test_a_column_that_an_earlier_version_had_not_is_null(tmp_path):
    file = written(tmp_path, rows_of(exact_log(3)).drop_columns(["passed_bytes", "limit_source"]))
    (lines,) = lines_in(file, ["passed_bytes", "limit_source", "seq"], ())
    assert lines.schema == pa.schema([LINES.field(name) for name in ("passed_bytes", "limit_source", "seq")])
    assert [column.null_count for column in lines.columns] == [9, 9, 0]


def test_parts_of_a_file_have_each_row_group_once(tmp_path):
    file = written(tmp_path, rows_of(exact_log(7)), groups=5)
    parts = [list(lines_in(file._replace(first=first, step=3), KEYS, ())) for first in range(3)]
    assert [len(part) for part in parts] == [2, 2, 1]
    assert sorted(keys_of(table for part in parts for table in part)) == sorted(keys_of(lines_in(file, KEYS, ())))


def counted(tables):
    """The keys of a task's lines, in one row."""
    keys = [f"{proxy} {seq}" for proxy, _, seq in keys_of(tables)]
    yield pa.RecordBatch.from_arrays([pa.array([keys], pa.list_(pa.string()))], ["keys"])


def done(lines):
    return lines.done(counted, KEYS, ["limit", "interval"], "keys array<string>")


@pytest.mark.spark
def test_tasks_share_the_row_groups_of_large_files(spark, tmp_path):
    file = written(tmp_path, rows_of(exact_log(40)), groups=4)
    of_tasks = [row.keys for row in done(KeptLines(spark.range(0), [file._replace(rows=2**19)])).collect()]
    assert len(of_tasks) == 4
    own = keys_of(lines_in(file, KEYS, ["limit", "interval"]))
    assert sorted(chain(*of_tasks)) == sorted(f"{proxy} {seq}" for proxy, _, seq in own)
    assert max(map(len, of_tasks)) - min(map(len, of_tasks)) <= 1


@pytest.mark.spark
@pytest.mark.parametrize("overlap", [0, 6])
def test_java_reads_only_rows_of_files_that_have_copies(spark, tmp_path, overlap):
    """The plan has no scan of rows, or one for these files; no node takes rows to the driver."""
    places, lines = JobPlaces(f"{tmp_path}/out"), exact_log(8).encoded()
    other = exact_log(3, proxy_id="other").encoded()
    for name, part in (("a", lines[:12]), ("b", lines[12 - overlap :]), ("c", other)):
        write_file(tmp_path / "log", f"{name}.jsonl", part)
        read_log_file(f"{tmp_path}/log/{name}.jsonl", places.out)
    ledger = load(places)
    rows = SplitRows.of(spark, places, ledger)
    files = files_without_copies(places, ledger)
    assert [file.place.rpartition("/")[2] for file in files] == [
        f"{name}.parquet" for name in ("c" if overlap else "abc")
    ]
    made = done(KeptLines(rows.rows, files, rows.doubled))
    plan = made._jdf.queryExecution().executedPlan().toString()
    assert not re.search(r"ExistingRDD|LocalTableScan|Collect|Broadcast", plan)
    assert ("FileScan" in plan) == bool(overlap)
    keys = [key for row in made.collect() for key in row.keys]
    kept = rows.rows.where("kind IN ('limit', 'interval')").select("proxy_id", "seq").collect()
    assert sorted(keys) == sorted(f"{row.proxy_id} {row.seq}" for row in kept)
