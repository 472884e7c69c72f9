import errno
import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from compliance.job import ReportError, listed, write
from compliance.report.provenance import LIST, as_list, of_list, seal
from compliance.report.report import make_report
from sluice.cli import app
from tests.compliance.judging.facts_made import facts

NAMES = ("a.jsonl", "b.jsonl.zst")


@pytest.fixture
def reported(tmp_path):
    """A log and its report, and the command."""
    log, out = tmp_path / "log", tmp_path / "out"
    (out / "work").mkdir(parents=True)
    log.mkdir()
    for name in NAMES:
        (log / name).write_bytes(name.encode())
    content = listed([log / name for name in NAMES], out / "work")
    write(sealed(content), out, content)
    return (
        log,
        out,
        lambda *more: CliRunner().invoke(
            app, ["report", "--verify", "--access-log", str(log), "--out", str(out), *more]
        ),
    )


def sealed(content):
    return msgspec.structs.replace(make_report(facts()), log_sha256=seal(content))


def test_unchanged_files_are_verified(reported):
    _, out, verify = reported
    ended = verify()
    assert (ended.exit_code, ended.stdout) == (0, "2 files are as the report read them\n")
    assert seal((out / LIST).read_bytes()) in (out / "report.html").read_text()


def test_changed_files_are_named(reported):
    log, _, verify = reported
    (log / "a.jsonl").write_bytes(b"other")
    ended = verify()
    assert ended.exit_code == 3
    assert ended.stdout.splitlines() == [
        "1 file is as the report read it",
        "1 file is not as the report read it: a.jsonl",
    ]


def test_a_check_as_json_has_all_names_and_the_code(reported):
    log, _, verify = reported
    (log / "a.jsonl").write_bytes(b"other")
    check = json.loads(verify("--json").stdout)
    names = {"same": ["b.jsonl.zst"], "changed": ["a.jsonl"], "gone": [], "newer": []}
    assert check == {"proved": False, "exit_code": 3, **names}
    ended = verify("-q")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (3, "", "")


def test_files_that_are_gone_cannot_be_checked(reported):
    log, _, verify = reported
    (log / "a.jsonl").unlink()
    (log / "c.jsonl").touch()
    ended = verify()
    assert ended.exit_code == 3
    assert ended.stdout.splitlines()[1:] == [
        "1 file is gone and cannot be checked: a.jsonl",
        "1 file is newer than the report: c.jsonl",
    ]


def test_list_that_was_edited_is_refused(reported):
    log, out, verify = reported
    (log / "a.jsonl").write_bytes(b"other")
    (out / LIST).write_bytes(listed([log / name for name in NAMES], log.parent))
    ended = verify()
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert f"{LIST} is not the list that the report was made with" in ended.stderr


def test_report_without_a_list_says_so(reported):
    _, out, verify = reported
    write(make_report(facts()), out)
    assert not (out / LIST).exists()
    assert "this report has no list of files" in verify().stderr


@pytest.mark.parametrize("content", [b"", b"[]", b'{"log_sha256": 5}', b'{"log_sha256": "\xff"}'])
def test_damaged_report_is_named_with_the_remedy(reported, content):
    _, out, verify = reported
    (out / "report.json").write_bytes(content)
    ended = verify()
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert f"{out / 'report.json'}: is no report" in ended.stderr.replace("\n", "")
    assert "make the report again" in ended.stderr.replace("\n", " ")


def test_files_are_read_once_and_kept_where_they_are_deleted(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"1")
    first = listed([file], tmp_path)
    file.write_bytes(b"2")
    assert listed([file], tmp_path) == first
    assert listed([], tmp_path) == first
    assert listed([tmp_path / "deleted-meanwhile.jsonl"], tmp_path) == first


def test_list_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(name.encode())
    first = listed([tmp_path / "a.jsonl"], tmp_path)

    def fill_disk(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fill_disk)
    with pytest.raises(ReportError, match=f"{LIST}: No space left on device"):
        listed([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path)
    assert (tmp_path / LIST).read_bytes() == first
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "b.jsonl", LIST}


def test_list_is_that_of_sha256sum(reported):
    log, out, _ = reported
    assert as_list(of_list((out / LIST).read_bytes())) == (out / LIST).read_bytes()
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", str(out / LIST)], cwd=log, check=True)
