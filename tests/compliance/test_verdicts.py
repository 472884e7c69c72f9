"""Days that the job judges: what is in the tables, which days are judged again, and what reports take from it."""

import csv
import json
from dataclasses import replace
from datetime import timedelta

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkValueError

from compliance import storage
from compliance.job import place_of_days
from compliance.stream.run import JobRun
from compliance.verdicts import judge_settled_days
from tests.compliance.days import DAYS, MIDNIGHT, burst_at_midnight, files_of, three_days
from tests.compliance.planted import PlantedLog, planted, topic_of, write_file
from tests.compliance.scenarios import in_a_fleet
from tests.compliance.stream.test_job import job_of

pytestmark = pytest.mark.spark
LATE = f"{DAYS[1]}-late"


@pytest.fixture
def job(spark, tmp_path):
    """Run the job, which judges, over the log and these files of another one."""

    def run(files, *names, judge=judge_settled_days, **more):
        for name in names or files:
            write_file(tmp_path / "log", f"{name}.jsonl", files[name])
        JobRun(spark, replace(job_of(tmp_path), **more), lambda _: None, judge=judge).once()

    return run


def verdicts(folder):
    """The rows of the table, by day, proxy and name."""
    rows = ds.dataset(folder / "out/verdicts", partitioning="hive").to_table().to_pylist()
    return {(str(row["day"]), row["proxy_id"], row["name"].rpartition("/")[2]): row for row in rows}


def of_day(folder, day):
    return {key: row for key, row in verdicts(folder).items() if key[0] == day}


@pytest.mark.slow
def test_a_day_is_judged_once_and_again_when_it_changes(job, worked, tmp_path):
    files = files_of(three_days())
    job(files, *DAYS)
    assert worked() == (DAYS, DAYS)
    before = [of_day(tmp_path, day) for day in DAYS]
    job(files, LATE)
    assert worked() == ([DAYS[1]], DAYS), "the gap concerned the day before, too"
    assert before[0] == of_day(tmp_path, DAYS[0])
    assert before[1] != of_day(tmp_path, DAYS[1])
    job(files, LATE)
    assert worked() == ([], [])


@pytest.mark.slow
def test_what_a_killed_run_has_not_judged_the_next_one_does(job, worked, tmp_path, monkeypatch):
    files = files_of(three_days())
    job(files, *DAYS)
    write, written = storage.write, []

    def ends(place, content):
        written.append(place)
        if "/verdicts/" in place and sum("/verdicts/" in path for path in written) == 2:
            raise KeyboardInterrupt
        write(place, content)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", ends)
        with pytest.raises(KeyboardInterrupt):
            job(files, LATE)
    worked()
    job(files, LATE)
    assert worked() == ([], []), "results were kept before the rows"
    rows = verdicts(tmp_path)
    (tmp_path / "out").rename(tmp_path / "other")
    job(files, LATE)
    assert rows == verdicts(tmp_path)


def test_a_day_without_a_limit_is_judged_once(job, worked, tmp_path):
    log = PlantedLog()
    for _ in range(3):
        log.beat()
    for _ in range(2):
        job({"beats": log.encoded()})
    assert worked().summed == [DAYS[0]]
    assert verdicts(tmp_path) == {}


@pytest.mark.slow
def test_what_is_deleted_by_hand_is_made_again(job, worked, tmp_path):
    files = files_of(burst_at_midnight())
    job(files)
    made = verdicts(tmp_path)
    for state, judged in (("_work/judged", DAYS[:2]), ("verdicts", [])):
        worked()
        storage.remove_folder(str(tmp_path / "out" / state))
        job(files)
        assert worked().judged == judged
        assert verdicts(tmp_path) == made


def test_a_report_of_tables_takes_what_the_job_has_judged(job, reported, worked, tmp_path):
    job(files_of(three_days()))
    worked()
    of_tables = reported("--tables", "report")
    assert worked() == ([], [])
    assert not list(place_of_days(tmp_path / "report", str(tmp_path / "out")).glob("*"))
    assert of_tables["limiters"] == reported("--access-log", "other")["limiters"]


@pytest.mark.slow
def test_fleets_copies_and_torn_lines_are_judged_as_in_a_report(job, reported, worked, tmp_path):
    logs = [log.encoded() for log in in_a_fleet()]
    files = {f"member-{number}": lines for number, lines in enumerate(logs)}
    job(files | {"again": [*logs[0], b"torn"]})
    assert worked().judged == [DAYS[0]]
    of_tables, of_log = reported("--tables", "report"), reported("--access-log", "other")
    assert worked() == ([DAYS[0]], [DAYS[0]]), "by the report of the log alone"
    for part in ("limiters", "fleets", "doubts", "quality"):
        assert of_tables[part] == of_log[part]
    rows = list(csv.DictReader((tmp_path / "other/csv/limits.csv").read_text().splitlines()))
    job_rows = list(verdicts(tmp_path).values())
    assert {name for row in rows for name, cell in row.items() if cell} <= job_rows[0].keys()
    words = ("proxy_id", "containment", "entitlement", "lines", "passed_messages")
    assert sorted([str(row[name]) for name in words] for row in job_rows) == sorted(
        [row[name] for name in words] for row in rows
    )


def test_whole_days_are_judged_with_the_balances_before_them(job, reported, worked, tmp_path):
    job({"log": burst_at_midnight().encoded()})
    worked()
    kept = reported("--tables", "report", "--from", DAYS[1])
    assert worked() == ([], [])
    alone = reported("--access-log", "other", "--from", DAYS[1])
    assert (kept["overall"]["containment"], alone["overall"]["containment"]) == ("violated", "compliant")
    assert [report["quality"]["lines"] for report in (kept, alone)] == [60, 60]
    [row] = of_day(tmp_path, DAYS[1]).values()
    assert (row["containment"], row["worst_containment_passed"]) == ("violated", 150.0)


def test_balances_outlive_the_day_that_retain_deletes(job, reported, worked, tmp_path):
    files = files_of(burst_at_midnight())
    job(files)
    made = verdicts(tmp_path)
    worked()
    job(files, retain_days=1, judge=lambda *_: [DAYS[0]])
    assert len(list(tmp_path.glob("out/rows/*"))) == 2, "a day that the judging needs stays"
    job(files, retain_days=1)
    assert sorted(path.name for path in tmp_path.glob("out/rows/*")) == [f"day={DAYS[1]}"]
    report = reported("--tables", "report")
    assert (report["overall"]["containment"], report["overall"]["coverage"]) == ("violated", 1.0)
    assert (report["quality"]["gaps"], report["quality"]["lines"]) == ([], 60), "those not kept are not missing"
    assert worked() == ([], [])
    assert verdicts(tmp_path) == made


@pytest.mark.parametrize("step_s", [0.000003, pytest.param(-20, marks=pytest.mark.slow)])
def test_a_run_keeps_its_axis_when_its_first_day_is_deleted(job, reported, worked, tmp_path, step_s):
    """Its clock was stepped on that day; or, by a few microseconds, read a little later than the other one."""
    log = PlantedLog(begin=MIDNIGHT - timedelta(seconds=40))
    for second in range(100):
        log.ahead_s += step_s if second == 10 else 0
        log.tick(110 if second == 0 else 100, tokens_messages=0.0)
    files = files_of(log)
    job(files)
    made = of_day(tmp_path, DAYS[1])
    assert {row["containment"] for row in made.values()} == {"compliant"}
    job(files, retain_days=1)
    worked()
    [limit] = reported("--tables", "report")["limiters"]
    assert (limit["containment"], limit["entitlement"], worked()) == ("compliant", "compliant", ([], []))
    for state in ("verdicts", f"_work/judged/{DAYS[1]}.judged"):
        storage.remove_folder(str(tmp_path / "out/verdicts" / f"day={DAYS[1]}"))
        if state != "verdicts":
            (tmp_path / "out" / state).unlink()
        job(files, DAYS[1], retain_days=1)
        assert [words(row) for row in of_day(tmp_path, DAYS[1]).values()] == [words(row) for row in made.values()]


def words(row):
    return [row[name] for name in ("containment", "entitlement", "passed_messages", "lines", "doubts")]


def test_a_loss_that_a_later_run_tells_changes_the_verdict(job, worked, tmp_path):
    log = planted("lossy", 10)
    job({"one": log.encoded()})
    assert {row["entitlement"] for row in verdicts(tmp_path).values()} == {"compliant"}
    after = PlantedLog(proxy_id="lossy", boot_id="boot-2", begin=MIDNIGHT + timedelta(hours=30))
    after.loss("boot-1", 5, lost_from=log.begin, lost_until=log.begin + timedelta(seconds=5))
    after.beat()
    worked()
    job({"two": after.encoded()})
    assert DAYS[0] not in worked().summed
    assert {row["entitlement"] for row in of_day(tmp_path, DAYS[0]).values()} == {"unknown"}


def test_lines_before_a_deleted_day_have_none_of_its_balances(job, worked, tmp_path):
    log = three_days()
    files = files_of(log)
    job({name: files[name] for name in (*DAYS[1:], LATE)})
    job({}, retain_days=1)
    made = of_day(tmp_path, DAYS[2])
    job({DAYS[0]: files[DAYS[0]]})
    assert {key[0] for key in verdicts(tmp_path)} == set(DAYS)
    assert of_day(tmp_path, DAYS[2]) == made


def test_a_number_on_two_days_keeps_neither_for_ever(job, tmp_path):
    log = PlantedLog(begin=MIDNIGHT)
    log.beat(seq=5)
    files = files_of(burst_at_midnight())
    job({DAYS[0]: files[DAYS[0]], "other": log.encoded()}, retain_days=1)
    assert [path.name for path in tmp_path.glob("out/rows/*")] == [f"day={DAYS[1]}"]


def test_a_judging_that_fails_is_said_and_the_job_goes_on(job, tmp_path, capsys):
    def fails(*_):
        raise PySparkValueError("a worker ran out of memory")

    files = files_of(burst_at_midnight())
    job(files, judge=fails)
    assert "days are not judged: " in capsys.readouterr().err
    assert json.loads((tmp_path / "out/summary.json").read_bytes())["rows"] == 120


@pytest.mark.slow
def test_whole_days_of_a_fleet_are_judged_to_their_own_end(job, reported):
    """One of two members leaves at the end of the second day, and the other one goes on."""
    logs = [PlantedLog(proxy_id=f"fleet-{name}", topic=topic_of("fleet"), begin=MIDNIGHT) for name in "ab"]
    for log, seconds in zip(logs, (60, 40), strict=True):
        for second in range(seconds):
            log.second = second if second < 45 else 86_400 + second
            share, before = (0.5, 0.0 if second == 0 else 0.5) if second < 45 else (1.0, 0.5 if second == 45 else 1.0)
            if share != before:
                log.share(before, share, "granted", members=2 if second < 45 else 1)
            passed = round(100 * share) + (5 if second == 0 else 0)
            log.interval(passed, limit_messages=100 * share)
            log.shared(passed, share)
            log.beat(last=(seconds, second) == (40, 39))
    job({log.proxy_id: log.encoded() for log in logs})
    [kept], [alone] = (
        reported(source, out, "--to", DAYS[2])["fleets"]["sums"]
        for source, out in (("--tables", "report"), ("--access-log", "other"))
    )
    assert (kept["verdict"], kept["why"]) == (alone["verdict"], alone["why"])
