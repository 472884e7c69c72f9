import fcntl
from dataclasses import replace

import pytest

from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import run_with_progress


@pytest.fixture
def job(tmp_path):
    (tmp_path / "log").mkdir()
    return Job(Source("files", str(tmp_path / "log")), Sink(), str(tmp_path / "out"))


def said(job, capsys):
    assert run_with_progress(job, follow=False, settings={}) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


def test_a_missing_folder_is_named(tmp_path, capsys):
    job = Job(Source("files", str(tmp_path / "nowhere")), Sink(), str(tmp_path / "out"))
    assert f"--access-log {tmp_path}/nowhere: no such folder" in said(job, capsys)


def test_a_missing_folder_of_a_file_url_is_named(tmp_path, job, capsys):
    missing = f"file://{tmp_path}/nowhere"
    assert f"--access-log {missing}: no such folder" in said(replace(job, source=Source("files", missing)), capsys)


def test_a_folder_that_spark_would_take_for_a_pattern_is_refused(tmp_path, capsys):
    (tmp_path / "a[1]").mkdir()
    assert "rename the folder" in said(Job(Source("files", f"{tmp_path}/a[1]"), Sink(), f"{tmp_path}/out"), capsys)


def test_an_out_that_is_a_file_is_named(tmp_path, job, capsys):
    (tmp_path / "out").touch()
    assert f"--out {tmp_path}/out: cannot be written" in said(job, capsys)


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}"])
def test_a_second_run_on_the_same_folder_is_refused_however_it_is_spelled(tmp_path, job, capsys, spelling):
    (tmp_path / "out" / "_work").mkdir(parents=True)
    with (tmp_path / "out" / "_work" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another run is at work on it" in said(replace(job, out=spelling.format(job.out)), capsys)
