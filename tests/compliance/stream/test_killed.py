"""A run is killed in the midst of its work: each line counts once all the same.

The steps within a task and a compaction are taken one by one in `test_log_file.py` and `test_folder.py`, those of usage
in `test_usage.py`.
"""

import signal

import pytest

from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import JobRun
from tests.compliance.planted import planted, write_file
from tests.compliance.stream.job_process import killed_when, start
from tests.compliance.stream.recount import assert_all_there

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES = 6


def test_every_line_is_there_after_java_and_driver_are_killed(spark, tmp_path):
    """Copies and malformed lines are in the files and across them."""
    folder, out = tmp_path / "log", tmp_path / "out"
    lines = planted("killed", 1000).encoded()
    part = len(lines) // FILES
    for number in range(FILES):
        own = lines[number * part : (number + 1) * part]
        again = lines[max(0, number * part - 7) : number * part + 3]
        write_file(folder, f"{number}.jsonl", [*own, b"torn", *again])
    moments = {
        "when a file has been read": (lambda: len(list(out.glob("_work/files/*.json"))) > 0, "java"),
        "when a day is being compacted": (lambda: any(out.glob("_work/compact/day=*/rows")), "driver"),
    }
    for is_time, victim in moments.values():
        (output, troubles), code = killed_when(is_time, start(out, "--once", "--access-log", folder), victim=victim)
        assert code == (1 if victim == "java" else -signal.SIGKILL)
        if victim == "java":
            assert (troubles.count("\n"), "run it again" in troubles) == (1, True), troubles
        assert output == ""
    job = Job(Source("files", str(folder)), Sink(), str(out))
    for _ in range(2):
        JobRun(spark, job, lambda _: None).once()
        summary = assert_all_there(spark, out, folder)
        assert summary["missing"] == 0
    usage = spark.read.parquet(f"{out}/usage_day").collect()
    assert sum(row.lines for row in usage) == 1000
