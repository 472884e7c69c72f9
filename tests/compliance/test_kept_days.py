"""Reports on a log that grows: days that have not changed are loaded, and the report is that of one made anew."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compliance.figures.sums import summed_by_day
from compliance.judging.judge import Judging
from compliance.report import kept_days
from tests.compliance.planted import PlantedLog, write_file

pytestmark = pytest.mark.spark
MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)
DAYS = ["2026-11-21", "2026-11-22", "2026-11-23"]


def three_days():
    """A limit that lasts over two midnights, one that has no line around one, and a change of the first."""
    log = PlantedLog(begin=MIDNIGHT - timedelta(seconds=20))
    for day in range(2):
        for second in range(40):
            log.second = 86_400 * day + second
            if second == 25 and day:
                log.change(before='{"a": 100}', after='{"a": 90}')
            rate = 90.0 if day and second >= 25 else 100.0
            passed = int(rate) + (10 if second == 0 else 0)
            log.interval(passed, limit_messages=rate)
            log.limit(passed, rate=rate, tokens_messages=0.0)
            if second in {3, 33}:
                log.limit(7, name="rare", throttled_ms=0.0, tokens_messages=3.0, began_messages=None)
            log.beat()
    return log


def files_of(log):
    """Its lines, by the file in which each is: one a day, and a part of the second day that comes late."""
    files: dict[str, list[Any]] = {}
    for line in log.lines:
        name = f"{line.start.date()}-late" if 80 <= line.seq < 90 else f"{line.start.date()}"
        files.setdefault(name, []).append(line)
    return {name: PlantedLog(lines=lines).encoded() for name, lines in files.items()}


@pytest.fixture
def worked(monkeypatch):
    """The days that each report has read for its sums, and those that it has judged."""
    days: dict[str, list[str]] = {"summed": [], "judged": []}

    def summed(lines, wanted):
        days["summed"] += sorted(DAYS if lines.days is None else lines.days)
        return summed_by_day(lines, wanted)

    def judged(self, lines, shards):
        days["judged"] += [day for day in DAYS if self.excerpt.has_day(day)]
        return of(self, lines, shards)

    of = Judging.of
    monkeypatch.setattr(kept_days, "summed_by_day", summed)
    monkeypatch.setattr(Judging, "of", judged)

    def since():
        """What was done since the last call."""
        done = days["summed"][:], days["judged"][:]
        days["summed"].clear()
        days["judged"].clear()
        return done

    return since


@pytest.fixture
def made(report_command, tmp_path):
    """Make the report in a folder; returns what report.json holds, but for the moment."""

    def make(out):
        said = report_command("--access-log", tmp_path / "log", "--out", tmp_path / out)
        assert said.exit_code == 0, said.output
        report = json.loads((tmp_path / out / "report.json").read_bytes())
        return {name: value for name, value in report.items() if name not in ("read_at", "log_sha256")}

    return make


def kept_in(folder):
    return sorted(path.name for path in folder.glob("out/work/*/days/*"))


@pytest.mark.slow
def test_only_days_that_changed_are_read_and_judged_again(made, worked, tmp_path):
    files = files_of(three_days())
    late = next(name for name in files if name.endswith("late"))
    for day in (DAYS[0], DAYS[1]):
        write_file(tmp_path / "log", f"{day}.jsonl", files[day])
    first = made("out")
    assert worked() == (DAYS[:2], DAYS[:2])
    assert kept_in(tmp_path) == [f"{day}.{what}" for day in DAYS[:2] for what in ("judged", "sums")]
    assert made("out") == first
    assert worked() == ([], [])
    write_file(tmp_path / "log", f"{DAYS[2]}.jsonl", files[DAYS[2]])
    grown = made("out")
    assert worked() == ([DAYS[2]], DAYS[1:]), "the first minute of a day may end lines of the day before"
    assert grown == made("anew")
    worked()
    write_file(tmp_path / "log", f"{late}.jsonl", files[late])
    whole = made("out")
    assert worked() == ([DAYS[1]], DAYS), "balances go on from day to day, and a gap concerns the day before it, too"
    assert whole == made("another")
    worked()
    assert (first["quality"]["missing"], whole["quality"]["missing"]) == (10, 0)
    assert made("out") == whole
    assert worked() == ([], [])


@pytest.mark.parametrize("damage", [b"", b"no days", None])
def test_a_kept_day_that_is_damaged_or_gone_is_made_again(made, worked, tmp_path, damage):
    for name, lines in files_of(three_days()).items():
        write_file(tmp_path / "log", f"{name}.jsonl", lines)
    first = made("out")
    for name in (f"{DAYS[0]}.sums", f"{DAYS[1]}.judged"):
        (place,) = tmp_path.glob(f"out/work/*/days/{name}")
        if damage is None:
            place.unlink()
            place.mkdir()
        else:
            place.write_bytes(damage or place.read_bytes()[:-40])
    worked()
    assert made("out") == first
    assert worked() == ([DAYS[0]], [DAYS[1]])
