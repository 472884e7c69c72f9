"""A run dies in the midst of its batches: each line counts once all the same.

Killed for good: the Java process, and the driver. And in this process, at each single step by which a batch changes
what is stored.
"""

import contextlib
import os
import signal
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from pyspark.sql import functions as F

from compliance.stream import run as stream
from compliance.stream.options import Job, Sink, Source
from compliance.stream.partition_reader import PartitionBatch, read
from compliance.stream.run import BatchWriter
from compliance.stream.runs import Summary
from compliance.stream.storage import Storage, tables_of
from tests.compliance.planted import BEGIN, planted, write_file
from tests.compliance.stream.job_process import LONGEST_S, killed_when, start
from tests.compliance.stream.recount import assert_all_there

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LATE_AFTER_S = 120
BATCH_MIB = 1


def write_log(folder, files, seconds):
    """A file is a batch; copies and malformed lines in it and across files."""
    lines = planted("killed", seconds).encoded()
    part = len(lines) // files
    for number in range(files):
        own = lines[number * part : (number + 1) * part]
        again = lines[max(0, number * part - 7) : number * part + 3]
        write_file(folder, f"{number}.jsonl", [*own, b"torn", *again])
        os.utime(folder / f"{number}.jsonl", (number, number))


# ---- killed for good

FILES = 3
SECONDS = 1080


def once(folder, out):
    # No two of the files fit into one batch.
    return start(out, "--once", "--access-log", folder, "--late-after", LATE_AFTER_S, "--batch-mib", BATCH_MIB)


def lines_read(spark, job):
    """Of all together, after each batch of one more run."""
    told: list[Summary] = []
    assert stream.start(spark, job, told.append, follow=False).awaitTermination(LONGEST_S)
    return [summary.lines for summary in told]


def test_every_key_is_right_after_java_was_killed_and_then_the_driver(spark, tmp_path):
    folder, out = tmp_path / "log", tmp_path / "out"
    write_log(folder, FILES, SECONDS)
    moments = {
        "when the rows are there, but no windows": ((out / "rows/step=0").exists, "java"),
        "between what is quarantined and the rows": ((out / "quarantine/step=1").exists, "driver"),
    }
    for is_time, victim in moments.values():
        (said, troubles), code = killed_when(is_time, once(folder, out), victim=victim)
        assert code == (1 if victim == "java" else -signal.SIGKILL)
        if victim == "java":
            assert troubles.count("\n") == 1
            assert "run it again" in troubles
        assert said == ""
    # The third begins in this process, whose Java runs already.
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


# ---- dead at each step


class DiedError(BaseException):
    """No `except` of the job sees it, as none would see a kill."""


class Deaths:
    """Dies at one change of what is stored: a file is half written then, a folder is still where it was.

    Args:
        monkeypatch: For `Storage`.
    """

    def __init__(self, monkeypatch):
        self._left = 0
        for name in ("put", "remove", "move"):
            monkeypatch.setattr(Storage, name, self._dying(name, getattr(Storage, name)))

    def before(self, write):
        """Write, dead before one more change each time, until all are made; gives how many these are."""
        for place in count(1):
            self._left = place
            with contextlib.suppress(DiedError):
                write()
                break
        self._left = 0
        return place - 1

    def _dying(self, name, change):
        def changed(storage, path, *more):
            self._left -= 1
            if self._left == 0:
                if name == "put":
                    (content,) = more
                    change(storage, path, content[: len(content) // 2])
                raise DiedError
            change(storage, path, *more)

        return changed


def test_every_key_is_right_wherever_in_a_batch_a_run_dies(spark, tmp_path, monkeypatch):
    """The first batch and the second, which closes windows, die at each of their changes; the third goes on."""
    folder, out = tmp_path / "log", tmp_path / "out"
    write_log(folder, FILES, 90)
    job = Job(Source("files", str(folder)), Sink(), str(out), late_after_s=10)
    deaths = Deaths(monkeypatch)
    batches: list[tuple[Any, PartitionBatch]] = []

    def read_once(lines, known, windows):
        """Whoever knows the same reads the same: Spark need not do it again."""
        if not batches or batches[-1][0] != known.table():
            batches.append((known.table(), read(lines, known, windows)))
        return batches[-1][1]

    monkeypatch.setattr(stream, "read", read_once)
    for step in range(FILES):
        text = spark.read.text(f"{folder}/{step}.jsonl").select(
            "value", F.col("_metadata.file_name").alias("file"), F.col("_metadata.file_block_start").alias("block")
        )
        write = partial(BatchWriter(spark, job, tables_of(spark, job), lambda _: None).write, text, step)
        if step < FILES - 1:
            assert deaths.before(write) > 20
        # Once more: dead behind the last change, and before Spark's commit.
        for _ in range(2):
            write()
    assert len(batches) == FILES
    assert_all_there(spark, out, folder)
