import contextlib
import fcntl
from dataclasses import replace

import pytest
from pyspark.errors import StreamingQueryException

from compliance.stream.options import Job, JobError, Sink, Source
from compliance.stream.run import run_with_progress


@pytest.fixture
def job(tmp_path):
    (tmp_path / "log").mkdir()
    return Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "out"))


def said(job, capsys):
    assert run_with_progress(job, follow=False, settings={}) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err


def test_a_missing_folder_is_named(tmp_path, capsys):
    job = Job(Source("files", str(tmp_path / "nowhere")), Sink(), str(tmp_path / "out"))
    assert f"--access-log {tmp_path}/nowhere: no such folder" in said(job, capsys)


def test_a_missing_folder_of_a_file_url_is_named(tmp_path, job, capsys):
    missing = f"file://{tmp_path}/nowhere"
    assert f"--access-log {missing}: no such folder" in said(replace(job, source=Source("files", missing)), capsys)


def test_a_folder_that_spark_would_take_for_a_pattern_is_refused(tmp_path, capsys):
    (tmp_path / "a[1]").mkdir()
    assert "rename the folder" in said(Job(Source("files", f"{tmp_path}/a[1]"), Sink(), f"{tmp_path}/out"), capsys)


@pytest.mark.parametrize("out", ["log", "log/out", "log/../log/rows"])
def test_an_out_in_the_log_is_refused_and_not_made(tmp_path, job, capsys, out):
    message = said(replace(job, out=f"{tmp_path}/{out}"), capsys)
    assert f"--out {tmp_path}/{out}: lies in --access-log {tmp_path}/log, where only files" in message
    assert "give a folder outside of it" in message
    assert list((tmp_path / "log").iterdir()) == []


def test_files_that_are_passed_over_are_told_once_before_anything_is_read(tmp_path, job, capsys, monkeypatch):
    def fails(*_, **__):
        raise JobError("read")

    monkeypatch.setattr("compliance.stream.run.spark_session", fails)
    (tmp_path / "log" / "_p-1.jsonl").touch()
    for folder in (job.source.folder, f"file://{job.source.folder}"):
        assert run_with_progress(replace(job, source=Source("files", folder)), follow=False, settings={}) == 1
        assert capsys.readouterr().err == (
            f"sluice compliance run: --access-log {folder}: passed over: "
            "names that begin with . or _: 1 (_p-1.jsonl): rename them\nsluice compliance run: read\n"
        )


def test_an_out_that_is_a_file_is_named(tmp_path, job, capsys):
    (tmp_path / "out").touch()
    assert f"--out {tmp_path}/out: cannot be written" in said(job, capsys)


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}"])
def test_a_second_run_on_the_same_folder_is_refused_however_it_is_spelled(tmp_path, job, capsys, spelling):
    (tmp_path / "out" / "_work").mkdir(parents=True)
    with (tmp_path / "out" / "_work" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another run is at work on it" in said(replace(job, out=spelling.format(job.out)), capsys)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "OUT/_work/job.json"),
        StreamingQueryException("[STREAM_FAILED] of\nCaused by: java.io.IOException: OUT/x: No space left on device"),
    ],
)
def test_a_disk_that_is_full_is_named_with_the_remedy(job, capsys, monkeypatch, error):
    def fails(*_, **__):
        raise type(error)(*(part.replace("OUT", job.out) if isinstance(part, str) else part for part in parts))

    parts = (error.errno, error.strerror, error.filename) if isinstance(error, OSError) else (str(error),)
    monkeypatch.setattr("compliance.stream.run.spark_session", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr("compliance.stream.run.JobRun", fails)
    message = said(job, capsys)
    assert message.startswith(f"sluice compliance run: --out {job.out}: ")
    assert "No space left on device" in message
    assert message.endswith("; make room there, then run it again: it goes on where it was\n")
