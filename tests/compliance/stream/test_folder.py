"""The job's folder without Spark: what has been read is what is there."""

import contextlib
import json
import shutil
from itertools import count

import pytest

from compliance import storage
from compliance.stream.folder import DayManifest, claim, finish, forget_files, load, recover, retire, sink_of, staged
from compliance.stream.log_file import JobPlaces, read_log_file
from compliance.stream.options import Job, JobError, Sink, Source
from tests.compliance.planted import BEGIN, planted, write_file

DAY, NEXT = "2026-11-21", "2026-11-22"


@pytest.fixture
def places(tmp_path):
    return JobPlaces(str(tmp_path / "out"))


@pytest.fixture
def read(tmp_path, places):
    """Reads a file of some of a log's lines, over midnight."""
    log = planted("a", begin=BEGIN.replace(hour=23, minute=59, second=50))
    for _ in range(20):
        log.tick(1)
    lines = log.encoded()

    def made(name, first=0, last=60, *more):
        write_file(tmp_path / "log", f"{name}.jsonl", [*lines[first:last], *more])
        return read_log_file(f"{tmp_path}/log/{name}.jsonl", places.out)

    return made


def parts_of(places, table="rows"):
    return {
        (day.removeprefix("day="), name)
        for day in storage.folders(places.table(table))
        for name, _ in storage.files(f"{places.table(table)}/{day}")
    }


def test_what_has_been_read_is_found_again(places, read):
    read("a", 0, 40)
    read("b", 40, 60, b"torn")
    ledger = load(places)
    assert set(ledger.files) == {"a", "b"}
    assert {day: (facts.rows, facts.malformed) for day, facts in ledger.totals.items()} == {DAY: (30, 0), NEXT: (30, 1)}
    assert (ledger.extra, ledger.doubled()) == ([], set())
    assert recover(places).totals == ledger.totals


@pytest.mark.parametrize("lost", [f"rows/day={NEXT}", "rows", "malformed"])
def test_a_file_whose_rows_are_gone_has_not_been_read(places, read, lost):
    read("a", 0, 60, b"torn")
    read("b", 0, 5)
    shutil.rmtree(f"{places.out}/{lost}")
    ledger = load(places)
    assert "a" not in ledger.files
    assert ("b" in ledger.files) == (lost != "rows")
    recover(places)
    assert not storage.exists(places.facts("a"))
    assert not [name for _, name in parts_of(places) if name == "a.parquet"]


@pytest.mark.parametrize("damage", [b"", b"{}", b"\0\0\0", b'{"name":"a","file":"a","days":{"x":5}}'])
def test_a_file_whose_facts_are_damaged_has_not_been_read(places, read, damage):
    read("a")
    storage.write(places.facts("a"), damage)
    assert load(places).files == {}
    assert load(places).totals == {}


def test_rows_without_facts_belong_to_no_table_and_are_removed(places, read):
    read("a", 0, 10)
    read("b", 10, 60)
    storage.remove(places.facts("b"))
    tables = ("_work/minutes", "rows")
    assert sorted(load(places).extra) == [(table, day, "b") for table in tables for day in (DAY, NEXT)]
    assert recover(places).extra == []
    assert parts_of(places) == {(DAY, "a.parquet")}


def test_lines_in_common_are_found_in_files_and_compacted_days(places, read):
    read("a", 0, 20)
    read("b", 10, 30)
    read("c", 30, 60)
    assert load(places).doubled() == {"a", "b"}
    compacted(places)
    assert load(places).doubled() == set()
    read("late", 5, 6)
    assert load(places).doubled() == {"late", "part-0"}


def compacted(places):
    """The first day, compacted; the files that are moved have any content."""
    ledger = load(places)
    storage.write(f"{staged(places, 'rows', DAY)}/part-0.parquet", b"rows")
    manifest = DayManifest(names=list(ledger.live(DAY)), files={"rows": ["part-0"]}, facts=ledger.totals[DAY])
    finish(places, DAY, manifest)
    return ledger.totals


def test_compacted_day_keeps_its_facts_and_late_file_reopens_it(places, read):
    read("a", 0, 20)
    read("b", 20, 60)
    totals = compacted(places)
    assert load(places).totals == totals
    assert parts_of(places) == {(DAY, "part-0.parquet"), (NEXT, "b.parquet")}
    assert load(places).live(DAY) == {}
    read("late", 0, 7)
    assert set(load(places).live(DAY)) == {"late"}
    assert load(places).totals[DAY].rows == totals[DAY].rows + 7


def test_compaction_ended_at_any_step_is_finished_by_the_next(places, read, monkeypatch):
    for name, first, last in (("a", 0, 20), ("b", 20, 60)):
        read(name, first, last, b"torn")
    shutil.copytree(places.out, f"{places.out}-before")
    totals = load(places).totals
    names = ("move", "remove", "remove_folder")
    whole = {name: getattr(storage, name) for name in names}
    steps = count()

    def ending(name, most):
        def step(*arguments):
            if next(steps) == most:
                raise KeyboardInterrupt
            return whole[name](*arguments)

        return step

    for most in range(100):
        shutil.rmtree(places.out)
        shutil.copytree(f"{places.out}-before", places.out)
        steps = count()
        for name in names:
            monkeypatch.setattr(storage, name, ending(name, most))
        with contextlib.suppress(KeyboardInterrupt):
            compacted(places)
            break
        monkeypatch.undo()
        assert recover(places).totals == totals
        assert parts_of(places) == {(DAY, "part-0.parquet"), (NEXT, "b.parquet")}
        assert storage.files(f"{places.work}/compact") == []
    assert most > 4


def test_days_that_are_not_kept_leave_their_facts(places, read):
    read("a", 0, 40, b"torn")
    ledger = recover(places)
    totals = dict(ledger.totals)
    retire(places, ledger, 1)
    assert (ledger.totals, load(places).totals, recover(places).totals) == (totals, totals, totals)
    assert parts_of(places) == {(NEXT, "a.parquet")}
    assert parts_of(places, "malformed") == set()
    # A file of such a day is not read again, and a late one is counted and not kept.
    assert set(load(places).files) == {"a"}
    read("late", 0, 3)
    ledger = recover(places)
    retire(places, ledger, 1)
    assert parts_of(places) == {(NEXT, "a.parquet")}
    assert load(places).totals[DAY].rows == 33


def test_files_gone_from_the_log_are_forgotten_once_compacted(places, read):
    read("a", 0, 20)
    read("b", 20, 60)
    totals = compacted(places)
    ledger = load(places)
    forget_files(places, ledger, {"a"})
    assert set(ledger.files) == {"a", "b"}
    forget_files(places, ledger, set())
    assert (set(ledger.files), ledger.totals) == ({"b"}, totals)
    assert load(places).totals == totals


def test_a_damaged_account_of_a_day_is_named_with_the_remedy(places, read):
    read("a")
    compacted(places)
    storage.write(f"{places.work}/days/{DAY}.json", b"{}")
    with pytest.raises(JobError, match=rf"_work/days/{DAY}\.json: cannot be read: delete the folder of the job"):
        load(places)


def job(places, folder="log", kind="parquet"):
    return Job(Source("files", folder), Sink(kind), places.out)


def test_two_jobs_do_not_share_a_folder(places):
    claim(job(places))
    claim(job(places))
    with pytest.raises(JobError, match="holds files log into parquet, not files other into parquet"):
        claim(job(places, "other"))
    with pytest.raises(JobError, match="holds files log into parquet, not files log into delta"):
        claim(job(places, kind="delta"))
    assert sink_of(places.out) == Sink("parquet")


def test_a_folder_of_no_job_is_named(tmp_path):
    with pytest.raises(JobError, match="no tables of `sluice compliance run` in it"):
        sink_of(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content"),
    [("source", "files log into parquet"), ("state/step=0/totals.json", "{}"), ("job.json", "\0")]
    + [("job.json", json.dumps({"version": version})) for version in (1, 3)],
)
def test_a_folder_of_another_version_is_refused_with_the_remedy(tmp_path, places, name, content):
    storage.write(f"{places.work}/{name}", content.encode())
    for asks in (lambda: claim(job(places)), lambda: sink_of(places.out)):
        with pytest.raises(JobError, match=r"of another version of the job.*: delete this folder .* and run it again"):
            asks()
