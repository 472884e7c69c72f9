"""SIGTERM of a run that follows: it ends in order, wherever it is, and the next run goes on."""

import json
import os

import pytest

from tests.compliance.planted import planted, write_file
from tests.compliance.stream.job_process import start, stopped_when
from tests.compliance.stream.recount import assert_all_there

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES = 3


@pytest.fixture
def follow(tmp_path):
    lines = planted("stopped", 1500).encoded()
    part = len(lines) // FILES
    for number in range(FILES):
        write_file(tmp_path / "log", f"{number}.jsonl", lines[number * part : (number + 1) * part])
        os.utime(tmp_path / "log" / f"{number}.jsonl", (number, number))

    def started():
        # No two of the files fit into one batch.
        options = ("--follow", "--every", "0.2", "--batch-mib", "1")
        return start(tmp_path / "out", "--access-log", tmp_path / "log", *options)

    return started


def lines_in(out):
    summary = out / "summary.json"
    return json.loads(summary.read_text())["lines"] if summary.exists() else 0


def test_a_run_that_follows_ends_in_order_in_the_midst_of_a_batch_and_at_rest(spark, tmp_path, follow):
    out = tmp_path / "out"
    stopped_when((out / "_work/checkpoint/offsets/1").exists, follow())
    assert 1500 <= lines_in(out) <= 3000
    assert "4,500 lines" in stopped_when(lambda: lines_in(out) == 4500, follow())
    assert_all_there(spark, out, tmp_path / "log")
