"""SIGTERM of a run: it ends in order, wherever it is, and the next run goes on."""

import contextlib
import json
import os
import signal
from typing import Any

import pytest

from compliance.stream import run as stream
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import Progress
from tests.compliance.planted import planted, write_file
from tests.compliance.stream.recount import assert_all_there

pytestmark = pytest.mark.spark
FILES = 4
BATCH_MIB = 1
"""No two of the files fit into one batch."""


@pytest.fixture
def log(tmp_path):
    lines = planted("stopped", 2000).encoded()
    part = len(lines) // FILES
    for number in range(FILES):
        write_file(tmp_path / "log", f"{number}.jsonl", lines[number * part : (number + 1) * part])
        os.utime(tmp_path / "log" / f"{number}.jsonl", (number, number))
    return tmp_path / "log"


@pytest.fixture
def run_here(spark, tmp_path, log, monkeypatch, capsys):
    """The run of this process, whose Java runs already: its signal comes when it looks whether one came."""

    def run(is_time, *, follow):
        def look(*_):
            if is_time():
                signal.raise_signal(signal.SIGTERM)

        monkeypatch.setattr(stream, "spark_session", lambda *_, **__: contextlib.nullcontext(spark))
        monkeypatch.setattr(stream, "_LOOK_EVERY_S", 0.05)
        monkeypatch.setattr(Progress, "on_look", look)
        limits: dict[str, Any] = {"batch_bytes": BATCH_MIB * 2**20, "every_s": 0.2, "with_usage": False}
        job = Job(Source("files", str(log)), Sink(), str(tmp_path / "out"), **limits)
        return stream.run_with_progress(job, follow=follow, settings={}), *capsys.readouterr()

    return run


def lines_in(out):
    summary = out / "summary.json"
    return json.loads(summary.read_text())["lines"] if summary.exists() else 0


def test_following_run_ends_in_order_amid_a_batch_and_at_rest(spark, tmp_path, log, run_here):
    out = tmp_path / "out"
    assert run_here((out / "_work/checkpoint/offsets/1").exists, follow=True)[::2] == (0, "")
    assert 1500 <= lines_in(out) < 6000
    code, output, troubles = run_here(lambda: lines_in(out) == 6000, follow=True)
    assert (code, "6,000 lines" in output, troubles) == (0, True, "")
    assert_all_there(spark, out, log)


def test_a_run_that_does_not_follow_says_that_it_was_ended_before_its_time(tmp_path, run_here):
    out = tmp_path / "out"
    code, output, troubles = run_here((out / "_work/checkpoint/offsets/0").exists, follow=False)
    assert (code, output) == (1, "")
    assert "ended by a signal before all was read; run it again" in troubles
    assert lines_in(out) < 6000
