"""Compaction with Spark: closed days become few files, with the same lines."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from compliance.line_reader import ROWS
from compliance.stream import compaction
from compliance.stream import log_file as module
from compliance.stream.compaction import CompactionTask, NumberRange, closed_days, compact, plan
from compliance.stream.folder import load, staged
from compliance.stream.log_file import JobPlaces, read_log_file
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import JobRun
from compliance.stream.tables import SplitRows
from tests.compliance.planted import BEGIN, planted, write_file
from tests.compliance.stream.recount import assert_all_there, keys_of

pytestmark = pytest.mark.spark
DAY, NEXT = "2026-11-21", "2026-11-22"


@pytest.fixture
def job(tmp_path):
    return Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "out"), with_usage=False)


def over_midnight(proxy_id="p"):
    log = planted(proxy_id, begin=BEGIN.replace(hour=23, minute=59, second=50))
    for _ in range(20):
        log.tick(1)
    return log.encoded()


def files_of(tmp_path, table, day):
    return sorted(file.name for file in (tmp_path / f"out/{table}/day={day}").glob("*.parquet"))


def test_a_closed_day_is_a_file_and_a_late_one_opens_it_again(spark, tmp_path, job):
    lines = over_midnight()
    for number in range(4):
        part = lines[number * 15 : number * 15 + 15]
        write_file(tmp_path / "log", f"{number}.jsonl", [*part, b"torn", part[0]])
    JobRun(spark, job, lambda _: None).once()
    summary = assert_all_there(spark, tmp_path / "out", tmp_path / "log")
    assert [len(files_of(tmp_path, table, DAY)) for table in ("rows", "malformed", "copies")] == [1, 1, 1]
    before = files_of(tmp_path, "rows", NEXT)
    manifest = json.loads((tmp_path / f"out/_work/days/{DAY}.json").read_text())
    assert manifest["names"] == ["0", "1"]
    # Readers that know of no account find each line once.
    assert keys_of(spark.read.parquet(f"{tmp_path}/out/rows")) == [("p", "boot-1", seq) for seq in range(60)]
    write_file(tmp_path / "log", "late.jsonl", [*over_midnight("late")[:9], lines[0]])
    JobRun(spark, job, lambda _: None).once()
    after = assert_all_there(spark, tmp_path / "out", tmp_path / "log")
    assert (after["rows"], after["duplicates"]) == (summary["rows"] + 9, summary["duplicates"] + 1)
    assert files_of(tmp_path, "rows", NEXT) == before
    # Rows are written again; copies that were put aside before stay as they are.
    assert [len(files_of(tmp_path, table, DAY)) for table in ("rows", "malformed", "copies")] == [1, 1, 2]
    assert json.loads((tmp_path / f"out/_work/days/{DAY}.json").read_text())["names"] == ["0", "1", "late"]


def test_tasks_have_few_rows_and_all_copies_of_a_line(spark, tmp_path, job, monkeypatch):
    most = 12
    monkeypatch.setattr(compaction, "TASK_ROWS", most)
    lines, other = (planted(proxy_id, 20).encoded() for proxy_id in ("p", "q"))
    files = {"a": lines[:30], "b": [*lines[20:50], lines[45]], "c": lines[50:], "d": other[:9], "e": other[9:]}
    for name, own in files.items():
        write_file(tmp_path / "log", f"{name}.jsonl", own)
        read_log_file(f"{tmp_path}/log/{name}.jsonl", job.out)
    ledger = load(job.places)
    assert ledger.doubled() == {"a", "b"}
    compact(spark, job.places, ledger, DAY)
    assert keys_of(spark.read.parquet(f"{tmp_path}/out/rows")) == [
        (run, "boot-1", n) for run in "pq" for n in range(60)
    ]
    assert keys_of(spark.read.parquet(f"{tmp_path}/out/copies")) == [("p", "boot-1", n) for n in (*range(20, 30), 45)]
    of_tasks = [
        pq.read_table(file, columns=["kind", "tenant", "proxy_id", "seq"])
        for file in (tmp_path / f"out/rows/day={DAY}").glob("*.parquet")
    ]
    *others, largest = sorted(rows.num_rows for rows in of_tasks)
    assert (largest, max(others) <= most) == (len(files["e"]), True)
    assert all(rows.equals(rows.sort_by([(name, "ascending") for name in rows.column_names])) for rows in of_tasks)


def test_small_files_give_the_same_as_large_ones(tmp_path, monkeypatch):
    lines, places = over_midnight(), JobPlaces(str(tmp_path / "out"))
    for number in range(4):
        part = [*lines[number * 7 : number * 7 + 10], b"torn"]
        write_file(tmp_path / "log", f"{number}.jsonl", part)
        read_log_file(f"{tmp_path}/log/{number}.jsonl", places.out)
    everything = NumberRange("p", "boot-1", 0, 1000)
    task = CompactionTask(["0"], ["1", "2", "3"], [everything], ["0", "1"])
    made = []
    for most in (0, 5, 4096):
        monkeypatch.setattr(compaction, "_SMALL_ROWS", most)
        written = compaction._write((0, task), out=places.out, day=DAY, attempt=f"try{most}")
        files = {table: f"{staged(places, table, DAY)}/{name}.parquet" for table, name in written}
        made.append({table: pq.read_table(file).to_pylist() for table, file in files.items()})
    assert {table: len(rows) for table, rows in made[0].items()} == {"rows": 33, "copies": 6, "malformed": 2}
    assert made[0] == made[1] == made[2]


def test_many_small_files_are_several_tasks(tmp_path, job, monkeypatch):
    monkeypatch.setattr(compaction, "TASK_FILES", 3)
    for number, line in enumerate(over_midnight()[:8]):
        write_file(tmp_path / "log", f"{number}.jsonl", [line])
        read_log_file(f"{tmp_path}/log/{number}.jsonl", job.out)
    assert [len(task.rows) for task in plan(job.places, load(job.places), DAY)] == [3, 3, 2]


def test_rows_of_a_batch_that_was_given_up_are_in_no_table(spark, tmp_path, job):
    """Its tasks may write after the run has ended the batch: then the file is read again."""
    lines = over_midnight()
    write_file(tmp_path / "log", "0.jsonl", lines[:30])
    run = JobRun(spark, job, lambda _: None)
    run.once()
    write_file(tmp_path / "log", "1.jsonl", lines[30:])
    read_log_file(f"{tmp_path}/log/1.jsonl", str(tmp_path / "out"))
    (tmp_path / "out/_work/files/1.json").unlink()
    compact(spark, job.places, run._ledger, DAY)
    assert keys_of(SplitRows.of(spark, job.places, run._ledger).rows) == [("p", "boot-1", seq) for seq in range(30)]
    JobRun(spark, job, lambda _: None).once()
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")


def test_day_closes_once_all_runs_are_past_it_or_it_is_long_ago(tmp_path):
    places = JobPlaces(f"{tmp_path}/out")
    for name, lines in (("a", over_midnight()), ("b", over_midnight("b")[:15])):
        write_file(tmp_path / "log", f"{name}.jsonl", lines)
        read_log_file(f"{tmp_path}/log/{name}.jsonl", places.out)
        soon, later = BEGIN.replace(day=22), BEGIN.replace(day=24)
        assert closed_days(load(places), soon) == ([DAY] if name == "a" else [])
        assert closed_days(load(places), later) == [DAY]
        assert closed_days(load(places), later.replace(day=25)) == [DAY, NEXT]
        assert closed_days(load(places), later, least_files=2) == ([DAY] if name == "b" else [])


def test_days_before_the_kept_ones_are_deleted_and_stay_counted(spark, tmp_path, job):
    write_file(tmp_path / "log", "a.jsonl", over_midnight())
    JobRun(spark, replace(job, with_usage=True), lambda _: None).once()
    before = json.loads((tmp_path / "out/summary.json").read_text())
    JobRun(spark, replace(job, with_usage=True, retain_days=1), lambda _: None).once()
    assert json.loads((tmp_path / "out/summary.json").read_text()) == before
    tables = ("rows", "usage_minute", "usage_hour", "usage_day")
    days = {table: [path.name for path in (tmp_path / "out" / table).glob("day=*")] for table in tables}
    assert days == {table: [f"day={NEXT}"] for table in tables}
    JobRun(spark, job, lambda _: None).once()
    assert not (tmp_path / f"out/rows/day={DAY}").exists()


def test_a_column_that_is_new_is_null_in_older_rows(spark, tmp_path, job, monkeypatch):
    """Files of an earlier version of the job lack it; compaction brings both together."""
    without = ROWS.remove(ROWS.get_field_index("rejected_bytes"))
    lines = over_midnight()
    places = JobPlaces(job.out)
    write_file(tmp_path / "log", "a.jsonl", lines[:15])
    with monkeypatch.context() as patch:
        whole = module.PartWriter._part
        patch.setattr(module, "ROWS", without)
        patch.setattr(
            module.PartWriter, "_part", lambda self, table, day, schema: Narrow(whole(self, table, day, schema))
        )
        read_log_file(f"{tmp_path}/log/a.jsonl", places.out)
    write_file(tmp_path / "log", "b.jsonl", lines[15:])
    JobRun(spark, job, lambda _: None).once()
    assert_all_there(spark, tmp_path / "out", tmp_path / "log")
    assert "rejected_bytes" in spark.read.parquet(places.of_day("rows", DAY)).columns


class Narrow:
    """Writes the columns of its schema."""

    def __init__(self, writer):
        self._writer = writer

    def write_table(self, table):
        self._writer.write_table(table.select(self._writer.schema.names))
