import csv
import os
import subprocess
import sys
from typing import Any

import pytest
from markupsafe import escape
from typer.testing import CliRunner

from compliance import job as report_job
from compliance.report.report import fleet_lines
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import JobRun
from sluice.cli import app
from tests.compliance.judging.facts_made import facts
from tests.compliance.planted import exact_log, topic_of, write_file


def report(*arguments, **environment):
    command = [sys.executable, "-m", "sluice", "report", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=os.environ | environment
    )


@pytest.fixture
def told():
    """The command in this process."""
    return lambda *arguments: CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_an_error_is_one_line_and_no_traceback(tmp_path):
    """Matplotlib finds no folder for its cache, as under cron: it would log that."""
    no_home = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), "/proc/none") | {"MPLCONFIGDIR": ""}
    ended = report("--access-log", tmp_path / "nowhere", "--out", tmp_path / "out", **no_home)
    assert ended.returncode == 1
    assert (
        ended.stderr
        == f"sluice report: --access-log {tmp_path}/nowhere: no such folder; give the folder that the proxy writes\n"
    )


def test_a_url_of_this_machine_is_a_folder_and_another_is_refused_in_one_place(told, tmp_path):
    ended = told("--access-log", f"file://{tmp_path}/nowhere", "--out", f"file:{tmp_path}/out")
    assert f"--access-log {tmp_path}/nowhere: no such folder" in ended.stderr
    refused = told("--access-log", tmp_path, "--out", "s3a://bucket/out")
    assert (refused.exit_code, "s3a://bucket/out: give a folder of this machine" in refused.stderr) == (2, True)


def test_without_spark_it_says_what_to_install(tmp_path):
    """A package of that name that cannot be imported stands before the real one."""
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('no', name='pyspark')")
    first = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv[0] = 'sluice'"
    code = f"{first}; import sluice.cli; sluice.cli.main()"
    arguments = ["report", "--access-log", str(tmp_path), "--out", str(tmp_path)]
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "sluice report: pyspark is not installed: run `pip install 'pulsar-sluice[report]'`\n"


@pytest.mark.spark
def test_it_says_the_verdict_and_writes_page_json_and_tables(planted_run, planted_report):
    """In this process, whose Java runs already. That of a real one says no more: `tests/proxy/test_new_level.py`."""
    ended, folder, out = planted_run
    passed_over = "names that begin with . or _: 2 (.open.jsonl, _open.jsonl): rename them"
    noted = f"sluice report: --access-log {folder}: passed over: {passed_over}\n"
    assert (ended.exit_code, ended.stderr) == (3, noted)
    first, *of_fleets, last = ended.stdout.splitlines()
    exceeded = sum(limiter.containment == "violated" for limiter in planted_report.limiters)
    assert first.startswith("violated: ")
    assert f"{exceeded} limits exceeded" in first
    assert of_fleets == fleet_lines(planted_report.fleets)
    assert last == f"{out}/report.html"
    with (out / "usage.csv").open(newline="") as file:
        (row,) = (row for row in csv.DictReader(file) if row["topic"] == topic_of("exact"))
    assert row["passed_messages"] == "3010"
    page = (out / "report.html").read_text()
    assert {rate.name for rate in planted_report.rates if escape(rate.name) not in page} == set()


def content(tables):
    """All that a report is made from."""
    frames = (tables.rows.frame, tables.quarantine, tables.copies)
    rows = [sorted(map(str, frame.select(sorted(frame.columns)).collect())) for frame in frames]
    return [*rows, tables.runs.to_pylist(), tables.gaps.to_pylist()], tables.lines, tables.newer, tables.unread


@pytest.mark.spark
def test_a_log_and_a_jobs_tables_give_the_same_report(spark, report_command, tmp_path, monkeypatch):
    contents: list[Any] = []

    def gather(spark, tables, *more):
        contents.append(content(tables))
        return facts()

    monkeypatch.setattr(report_job, "gather", gather)
    lines = exact_log(5).encoded()
    write_file(tmp_path / "log", "a.jsonl", [*lines[:9], b"torn", lines[0]])
    write_file(tmp_path / "log", "b.jsonl", lines[6:])
    job = Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "tables"), with_usage=False)
    JobRun(spark, job, lambda _: None).once()
    for source in (["--access-log", tmp_path / "log"], ["--tables", tmp_path / "tables"]):
        ended = report_command(*source, "--out", tmp_path / "out")
        assert (ended.exit_code, ended.stderr) == (0, "")
        assert ended.stdout.endswith(f"\n{tmp_path}/out/report.html\n")
    of_log, of_tables = contents
    assert of_tables == of_log
    assert [len(rows) for rows in of_log[0]] == [15, 1, 4, 1, 0]


def test_either_a_log_or_tables_are_reported_on(told, tmp_path):
    for both in ([], ["--access-log", tmp_path, "--tables", tmp_path]):
        ended = told(*both, "--out", tmp_path / "out")
        assert ended.exit_code == 2
        assert ended.stderr.startswith("sluice report: give either --access-log")


def test_logs_of_several_folders_are_not_passed_over(told, tmp_path):
    ended = told("--access-log", tmp_path / "1", "--access-log", tmp_path / "2", "--out", tmp_path / "out")
    assert ended.exit_code == 2
    assert "give one folder" in ended.stderr


def test_proposed_limits_that_do_not_fit_are_named_before_anything_is_read(told, tmp_path):
    (tmp_path / "limits.yaml").write_text("limits: [{level: topic}]")
    ended = told("--access-log", tmp_path, "--out", tmp_path / "out", "--what-if", tmp_path / "limits.yaml")
    assert ended.exit_code == 1
    message = "limits[0]: messages and bytes: give at least one of them"
    assert ended.stderr == f"sluice report: --what-if {tmp_path}/limits.yaml: {message}\n"
    assert not (tmp_path / "out").exists()
