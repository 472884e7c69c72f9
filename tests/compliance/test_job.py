import os
from pathlib import Path

import pytest

from compliance.export import USAGE_COLUMNS
from compliance.job import ReportError, closed_files, prepare, write
from compliance.report import make_report
from tests.compliance.facts_made import facts


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ReportError, match=r"--access-log .*/nowhere: no such folder"):
        closed_files(tmp_path / "nowhere")


def test_a_folder_with_open_files_only_is_empty(tmp_path):
    for name in (".a.jsonl", "_b.jsonl", "c.jsonl.tmp", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(ReportError, match="no closed"):
        closed_files(tmp_path)
    (tmp_path / "d.jsonl").touch()
    assert closed_files(tmp_path) == [tmp_path / "d.jsonl"]


def test_a_folder_that_spark_would_take_for_a_pattern_is_refused(tmp_path):
    (tmp_path / "a[1]").mkdir()
    with pytest.raises(ReportError, match="rename the folder"):
        closed_files(tmp_path / "a[1]")
    with pytest.raises(ReportError, match="rename the folder"):
        prepare(tmp_path / "{out}", tmp_path, fresh=False)


def test_an_out_that_is_a_file_is_named(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(ReportError, match=r"--out .*/out: cannot be written"):
        prepare(tmp_path / "out", tmp_path, fresh=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_out_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ReportError, match="cannot be written: Permission denied"):
        prepare(tmp_path / "out", Path("log"), fresh=False)


def test_each_access_log_has_its_own_work_folder_which_fresh_empties(tmp_path):
    work = prepare(tmp_path, tmp_path / "log-1", fresh=False)
    assert work != prepare(tmp_path, tmp_path / "log-2", fresh=False)
    (work / "kept").touch()
    assert list(prepare(tmp_path, tmp_path / "log-1", fresh=False).iterdir()) == [work / "kept"]
    assert list(prepare(tmp_path, tmp_path / "log-1", fresh=True).iterdir()) == []


def test_the_three_files_and_no_halves_are_left(tmp_path):
    write(make_report(facts()), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json", "usage.csv"]
    assert (tmp_path / "usage.csv").read_text() == ",".join(USAGE_COLUMNS) + "\n"
