"""SIGTERM of a run that follows: it ends in order, wherever it is, and the next run goes on."""

import json
import os

import pytest

from tests.compliance.planted import planted, write_file
from tests.compliance.stream.job_process import LONGEST_S, start, stopped_when, wait_until
from tests.compliance.stream.recount import assert_all_there

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES = 4


@pytest.fixture
def follow(tmp_path):
    lines = planted("stopped", 2000).encoded()
    part = len(lines) // FILES
    for number in range(FILES):
        write_file(tmp_path / "log", f"{number}.jsonl", lines[number * part : (number + 1) * part])
        os.utime(tmp_path / "log" / f"{number}.jsonl", (number, number))

    return lambda: run(tmp_path, "--follow", "--every", "0.2")


def run(tmp_path, *options):
    # No two of the files fit into one batch.
    return start(tmp_path / "out", "--access-log", tmp_path / "log", "--batch-mib", "1", *options)


def lines_in(out):
    summary = out / "summary.json"
    return json.loads(summary.read_text())["lines"] if summary.exists() else 0


def test_a_run_that_follows_ends_in_order_in_the_midst_of_a_batch_and_at_rest(spark, tmp_path, follow):
    out = tmp_path / "out"
    stopped_when((out / "_work/checkpoint/offsets/1").exists, follow())
    assert 1500 <= lines_in(out) < 6000
    assert "6,000 lines" in stopped_when(lambda: lines_in(out) == 6000, follow())
    assert_all_there(spark, out, tmp_path / "log")


def test_a_run_that_does_not_follow_says_that_it_was_ended_before_its_time(tmp_path, follow):
    driver = run(tmp_path, "--once")
    wait_until((tmp_path / "out/_work/checkpoint/offsets/0").exists, driver)
    driver.terminate()
    said, troubles = driver.communicate(timeout=LONGEST_S)
    assert (driver.returncode, said) == (1, "")
    assert "ended by a signal before all was read; run it again" in troubles
