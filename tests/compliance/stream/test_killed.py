"""kill -9, of the Java process and of the driver, in the middle of batches: each line counts once all the same."""

import os
import signal
from datetime import timedelta

import pytest

from compliance.stream import run as stream
from compliance.stream.options import Job, Sink, Source
from compliance.stream.runs import Summary
from tests.compliance.planted import BEGIN, planted, write_file
from tests.compliance.stream.job_process import LONGEST_S, killed_when, start
from tests.compliance.stream.recount import assert_all_there

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES = 5
SECONDS = 1800
LATE_AFTER_S = 120
BATCH_MIB = 1


def write_log(folder):
    """A file is a batch; copies and malformed lines in it and across files."""
    lines = planted("killed", SECONDS).encoded()
    part = len(lines) // FILES
    for number in range(FILES):
        own = lines[number * part : (number + 1) * part]
        again = lines[max(0, number * part - 7) : number * part + 3]
        write_file(folder, f"{number}.jsonl", [*own, b"torn", *again])
        os.utime(folder / f"{number}.jsonl", (number, number))


def once(folder, out):
    # No two of the files fit into one batch.
    return start(out, "--once", "--access-log", folder, "--late-after", LATE_AFTER_S, "--batch-mib", BATCH_MIB)


def lines_read(spark, job):
    """Of all together, after each batch of one more run."""
    told: list[Summary] = []
    assert stream.start(spark, job, told.append, follow=False).awaitTermination(LONGEST_S)
    return [summary.lines for summary in told]


def test_every_key_is_right_after_the_job_was_killed_five_times(spark, tmp_path):
    folder, out = tmp_path / "log", tmp_path / "out"
    write_log(folder)
    state, commits = out / "_work" / "state", out / "_work" / "checkpoint" / "commits"
    moments = {
        "while the first batch is read": ((out / "_work/checkpoint/offsets/0").exists, "java"),
        "between what is quarantined and the rows": ((out / "quarantine/step=1").exists, "driver"),
        "when the rows are there, but no windows": ((out / "rows/step=2").exists, "java"),
        "before the commit": ((state / "step=3/totals.json").exists, "driver"),
        "between two batches": ((commits / "3").exists, "java"),
    }
    for is_time, victim in moments.values():
        (said, troubles), code = killed_when(is_time, once(folder, out), victim=victim)
        assert code == (1 if victim == "java" else -signal.SIGKILL)
        if victim == "java":
            assert troubles.count("\n") == 1
            assert "run it again" in troubles
        assert said == ""
    # The sixth begins in this process, whose Java runs already.
    job = Job(Source("files", str(folder)), Sink(), str(out), LATE_AFTER_S, BATCH_MIB * 2**20)
    assert lines_read(spark, job)
    summary = assert_all_there(spark, out, folder)
    assert summary["missing"] == 0
    assert summary["late"] == {}
    steps = sorted(path.name for path in (out / "rows").glob("step=*"))
    assert lines_read(spark, job) == []
    later = planted("killed-later", 60, begin=BEGIN + timedelta(seconds=SECONDS))
    write_file(folder, "later.jsonl", later.encoded())
    assert lines_read(spark, job)
    assert_all_there(spark, out, folder)
    assert sorted(path.name for path in (out / "rows").glob("step=*")) == sorted([*steps, f"step={FILES}"])
