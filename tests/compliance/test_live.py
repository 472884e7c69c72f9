"""A report that is kept up to date while the job follows the log."""

import json
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from compliance.job import alone
from compliance.live import LEAST_S, FollowingReport
from compliance.stream.run import JobRun
from sluice.cli import app
from tests.compliance.planted import planted, write_file
from tests.compliance.stream.test_job import job_of

pytestmark = pytest.mark.spark


class Planned(FollowingReport):
    """One whose time the test moves, and that counts what it would make."""

    def __init__(self, spark: SparkSession, out: Path) -> None:
        super().__init__(spark, "", out, timedelta(hours=1), lambda: self.now)
        self.now, self.made, self.takes, self.says = 1000.0, 0, 0.0, ""

    def _make(self) -> str:
        self.made += 1
        self.now += self.takes
        return self.says


@pytest.fixture
def live(spark, tmp_path):
    return Planned(spark, tmp_path)


def test_report_and_figures_follow_the_log(spark, tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "report").mkdir()
    job, times = job_of(tmp_path), count(0, 1000)
    live = FollowingReport(spark, job.out, tmp_path / "report", timedelta(seconds=6), lambda: next(times))
    run = JobRun(spark, job, lambda _: None, live=live)
    query = run.start(follow=True)
    assert query is not None
    lines, ends = [], []
    try:
        for seconds in (5, 7):
            write_file(tmp_path / "log", f"{seconds}.jsonl", planted(f"live-{seconds}", seconds).encoded())
            run.look()
            query.processAllAvailable()
            report = json.loads((tmp_path / "report/report.json").read_text())
            lines.append(report["quality"]["lines"])
            ends.append(report["overall"]["complete_up_to"])
    finally:
        query.stop()
    assert lines == [15, 30], "of the second log the last six seconds, and of the first one the four that are then"
    assert ends == ["2026-11-21T11:29:05Z"] * 2, "the first log has not ended"
    figures = (tmp_path / "out/metrics.prom").read_text()
    assert "sluice_compliance_lines 36.0" in figures
    assert figures.count("_complete_timestamp_seconds 1.795260545e+09") == 2


def test_lines_that_come_shortly_after_a_report_are_in_the_next(live):
    live.changed()
    live.changed()
    assert live.made == 1
    live.now += LEAST_S
    live.look()
    live.look()
    assert live.made == 2
    live.takes = 3 * LEAST_S
    live.now += LEAST_S
    live.changed()
    live.now += 3 * LEAST_S - 1
    live.changed()
    assert live.made == 3, "at most half of the time goes into reports"
    live.now += 1
    live.look()
    assert live.made == 4


def test_trouble_is_said_once_and_the_job_goes_on(live, capsys):
    for live.says in ("no room", "no room", "", "no room"):
        live.now += LEAST_S
        live.changed()
    assert capsys.readouterr().err.count(": no room\n") == 2


def test_trouble_with_a_report_is_its_own_words(spark, tmp_path, capsys):
    write_file(tmp_path / "log", "a.jsonl", planted("trouble", 3).encoded())
    job = job_of(tmp_path)
    JobRun(spark, job, lambda _: None).once()
    report = FollowingReport(spark, job.out, tmp_path / "nowhere", timedelta(hours=1))
    report.changed()
    assert "--report" in (message := capsys.readouterr().err)
    assert "nowhere" in message
    assert report.complete_up_to is None


def test_report_needs_to_follow_and_a_folder_of_its_own(tmp_path):
    words = ["compliance", "run", "--access-log", str(tmp_path), "--out", str(tmp_path / "out")]
    ended = CliRunner().invoke(app, [*words, "--report", str(tmp_path / "report")])
    assert ended.exit_code == 2
    assert "needs --follow" in ended.output
    with alone(tmp_path / "report", None):
        ended = CliRunner().invoke(app, [*words, "--follow", "--report", str(tmp_path / "report")])
    assert ended.exit_code == 1
    assert "report: another report is written into it" in ended.output
