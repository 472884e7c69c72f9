import json
import os
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import compliance.job
from compliance.job import (
    COMPRESSED,
    LITTLE_BYTES,
    Origin,
    ReportError,
    alone,
    closed_files,
    prepare,
    run,
    settings_for,
    write,
)
from compliance.report.page import USAGE_COLUMNS
from compliance.report.report import make_report
from sluice.cli import app
from tests.compliance.judging.facts_made import facts


@pytest.mark.parametrize("given", [{}, {"access_log": Path("log"), "tables": "tables"}])
def test_exactly_one_origin_is_given(given):
    with pytest.raises(ReportError, match=r"either --access-log .* or --tables"):
        Origin(**given)


def test_tables_that_are_none_are_named(tmp_path):
    with pytest.raises(ReportError, match=r"--tables .*/nowhere: no tables of `sluice compliance run`"):
        run(Origin(tables=f"{tmp_path}/nowhere"), tmp_path / "out", on_step=print)
    with pytest.raises(ReportError, match=r"--tables file:.*/nowhere: no tables of `sluice compliance run`"):
        run(Origin(tables=f"file:{tmp_path}/nowhere"), tmp_path / "out", on_step=print)
    with pytest.raises(ReportError, match=r"--tables .*a\[1\]: Spark reads .* as a pattern"):
        run(Origin(tables=f"{tmp_path}/a[1]"), tmp_path / "out", on_step=print)


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 3)])
def test_json_has_the_verdict_and_the_exit_code(tmp_path, monkeypatch, strict, code):
    report = make_report(facts())
    report = msgspec.structs.replace(report, overall=msgspec.structs.replace(report.overall, verdict="unknown"))
    monkeypatch.setattr(compliance.job, "run", lambda *_, **__: report)
    log = tmp_path / "log"
    log.mkdir()
    (log / "_odd.jsonl").touch()
    command = ["report", "--access-log", str(log), "--out", str(tmp_path / "out"), *strict]
    ended = CliRunner().invoke(app, [*command, "--json"])
    answer = json.loads(ended.stdout)
    assert (ended.exit_code, answer["exit_code"], ended.stderr) == (code, code, "")
    assert (answer["verdict"], answer["headline"]) == ("unknown", report.headline)
    assert answer["report"] == str(tmp_path / "out" / "report.html")
    assert "_odd.jsonl" in answer["passed_over"]
    quiet = CliRunner().invoke(app, ["-q", *command])
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (code, "", "")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ReportError, match=r"--access-log .*/nowhere: no such folder"):
        closed_files(tmp_path / "nowhere")


def test_a_folder_with_open_files_only_is_empty(tmp_path):
    for name in (".a.jsonl", "_b.jsonl", "c.jsonl.tmp", "notes.txt"):
        (tmp_path / name).touch()
    none = r"no closed \*.jsonl.zst or \*.jsonl file in it"
    message = none + r"; passed over: names that begin with . or _: 2 \(.a.jsonl, _b.jsonl\): rename"
    with pytest.raises(ReportError, match=message):
        closed_files(tmp_path)
    for name in (".a.jsonl", "_b.jsonl"):
        (tmp_path / name).unlink()
    with pytest.raises(ReportError, match="the proxy closes them by age or size"):
        closed_files(tmp_path)
    (tmp_path / "d.jsonl").touch()
    assert closed_files(tmp_path) == [tmp_path / "d.jsonl"]


def take(out, access_log):
    with alone(out, access_log):
        pass


@pytest.mark.parametrize("access_log", [Path("log"), None])
def test_second_report_into_one_folder_is_refused(tmp_path, access_log):
    with alone(tmp_path / "out", None):
        with pytest.raises(ReportError, match=r"--out .*/out: another report is written into it; wait for it"):
            take(tmp_path / "out", access_log)
        take(tmp_path / "other", access_log)
    take(tmp_path / "out", access_log)


def test_a_folder_that_spark_would_take_for_a_pattern_is_refused(tmp_path):
    (tmp_path / "a[1]").mkdir()
    with pytest.raises(ReportError, match="rename the folder"):
        closed_files(tmp_path / "a[1]")
    with pytest.raises(ReportError, match="rename the folder"):
        take(tmp_path / "{out}", tmp_path)


def test_an_out_in_the_log_is_refused_and_not_made(tmp_path):
    for out in (tmp_path, tmp_path / "report"):
        with pytest.raises(ReportError, match=r"--out .*: lies in --access-log .*give a folder outside of it"):
            take(out, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_out_that_is_a_file_is_named(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(ReportError, match=r"--out .*/out: cannot be written"):
        take(tmp_path / "out", tmp_path / "log")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_out_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ReportError, match="cannot be written: Permission denied"):
        take(tmp_path / "out", Path("log"))


def test_only_little_data_does_without_the_second_compiler(tmp_path):
    work = tmp_path / "work"
    (tmp_path / "a.jsonl").touch()
    assert settings_for([tmp_path / "a.jsonl"], work)
    with (tmp_path / "b.jsonl").open("wb") as file:
        file.truncate(LITTLE_BYTES)
    assert settings_for([tmp_path / "b.jsonl"], work) == {}
    with (tmp_path / "c.jsonl.zst").open("wb") as file:
        file.truncate(LITTLE_BYTES // COMPRESSED[".zst"])
    assert settings_for([tmp_path / "c.jsonl.zst"], work) == {}
    (work / "rows" / "step=0").mkdir(parents=True)
    (tmp_path / "b.jsonl").rename(work / "rows" / "step=0" / "kept.parquet")
    assert settings_for([tmp_path / "a.jsonl"], work) == {}


def test_each_access_log_has_its_own_work_folder_which_fresh_empties(tmp_path):
    work = prepare(tmp_path, tmp_path / "log-1", fresh=False)
    assert work != prepare(tmp_path, tmp_path / "log-2", fresh=False)
    (work / "kept").touch()
    assert list(prepare(tmp_path, tmp_path / "log-1", fresh=False).iterdir()) == [work / "kept"]
    assert list(prepare(tmp_path, tmp_path / "log-1", fresh=True).iterdir()) == []


def test_page_json_and_tables_are_left_no_halves_and_no_older_tables(tmp_path):
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "what-if.csv").touch()
    (tmp_path / "tenants").mkdir()
    (tmp_path / "tenants" / "gone.html").touch()
    write(make_report(facts()), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "csv",
        "report.html",
        "report.json",
        "tenants",
        "usage.csv",
    ]
    assert {path.name for path in (tmp_path / "tenants").iterdir()} == {
        f"acme.{kind}" for kind in ("html", "json", "csv", "parquet")
    }
    assert {"limits.csv", "verdicts.csv"} <= {path.name for path in (tmp_path / "csv").iterdir()}
    assert not [path for path in (tmp_path / "csv").iterdir() if path.suffix != ".csv" or path.stem == "what-if"]
    assert (tmp_path / "usage.csv").read_text() == ",".join(USAGE_COLUMNS) + "\n"


def test_file_that_cannot_be_replaced_leaves_no_half(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(ReportError, match=r"--out .*: cannot be written: Is a directory"):
        write(make_report(facts()), tmp_path)
    assert not [path for path in tmp_path.iterdir() if "report.html" in path.name and path.is_file()]
