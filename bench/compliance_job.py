"""`python -m bench compliance` times the job and Spark's bare reading of the same logs, and prints or writes the table.

A log is one proxy's: a hundred topics, a line of stream and of limiter for each and second. Each reading is timed in a
process of its own that has just started Spark.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType
from rich.console import Console

from accesslog.record import AnyLine, HeartbeatLine, IntervalLine, LimitLine
from compliance.schema import row_schema
from compliance.session import spark_session
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import start

TOPICS = 100
LINES_A_FILE = 100_000
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def write_log(folder: Path, lines: int) -> int:
    """Writes so many lines in closed files; returns their bytes."""
    folder.mkdir(parents=True)
    encoder, made, size = msgspec.json.Encoder(), islice(_lines(), lines), 0
    for number in count():
        part = encoder.encode_lines(list(islice(made, LINES_A_FILE)))
        if not part:
            return size
        (folder / f"{number:06}.jsonl").write_bytes(part)
        size += len(part)
    raise AssertionError


def _lines() -> Iterator[AnyLine]:
    numbers = count()
    for second in count():
        start = _BEGIN + timedelta(seconds=second)
        for topic in range(TOPICS):
            passed = 90 + (second + topic) % 20
            for template in (_INTERVAL, _LIMIT):
                yield msgspec.structs.replace(
                    template,
                    seq=next(numbers),
                    start=start,
                    end=start + _SECOND,
                    tenant=f"tenant-{topic % 10}",
                    passed_entries=passed,
                    passed_messages=passed,
                    passed_bytes=100 * passed,
                    throttled_ms=12.5 * (topic % 7),
                    **_named(template, topic),
                )
        yield msgspec.structs.replace(_HEARTBEAT, seq=next(numbers), start=start, end=start + _SECOND)


def _named(template: AnyLine, topic: int) -> dict[str, str]:
    name = f"persistent://tenant-{topic % 10}/orders/topic-{topic}"
    return {"topic": name} if isinstance(template, IntervalLine) else {"name": name}


_OF_EACH: Mapping[str, Any] = {
    "proxy_id": "proxy-1",
    "boot_id": "boot-1",
    "seq": 0,
    "start": _BEGIN,
    "end": _BEGIN,
    "duration_ms": 1000.0,
}
_HEARTBEAT = HeartbeatLine(
    **_OF_EACH,
    dropped_lines=0,
    last=False,
)
_INTERVAL = IntervalLine(
    **_OF_EACH,
    direction="publish",
    tenant="",
    namespace="orders",
    topic="",
    connection_id=17,
    client_address="10.0.0.17:50000",
    client_version="Pulsar-CPP-v4.2.0",
    stream_id=3,
    producer_name="producer-17",
    subscription="",
    offered_entries=100,
    offered_messages=100,
    offered_bytes=10_000,
    passed_entries=0,
    passed_messages=0,
    passed_bytes=0,
    dropped_messages=0,
    dropped_bytes=0,
    held_messages=0,
    held_bytes=0,
    throttled_ms=0.0,
    delay_max_ms=12.5,
    reason="topic",
    limit_level="topic",
    limit_messages=100.0,
    limit_bytes=None,
    permits_asked=0,
    permits_granted=0,
)
_LIMIT = LimitLine(
    **_OF_EACH,
    direction="publish",
    level="topic",
    name="",
    tenant="",
    namespace="orders",
    source="topic file",
    mode="enforce",
    limit_messages=100.0,
    limit_bytes=None,
    burst_messages=10.0,
    burst_bytes=None,
    passed_entries=0,
    passed_messages=0,
    passed_bytes=0,
    largest_entry_messages=1,
    largest_entry_bytes=100,
    throttled_ms=0.0,
)


def bare(spark: SparkSession, log: str, out: str) -> None:  # noqa: ARG001 - it writes nothing
    """Spark's own JSON source with the log's schema; every field is parsed, and its values are counted."""
    # Times as text: reading them so costs it less.
    types = {f.name: StringType() if f.dataType == TimestampType() else f.dataType for f in row_schema().fields}
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    spark.read.schema(schema).json(log).agg(*(F.count(name) for name in schema.names)).collect()


def job(spark: SparkSession, log: str, out: str) -> None:
    """The whole job, from the first file to the last table."""
    start(spark, Job(Source("files", log), Sink(), out), lambda _: None, follow=False).awaitTermination()


def _reading(what: str, log: str, out: str) -> float:
    """Return the seconds that one reading takes, with a Spark just started."""
    with spark_session(Path(out).with_suffix(".log")) as session:
        began = time.perf_counter()
        {"bare": bare, "job": job}[what](session, log, out)
        return time.perf_counter() - began


BEGIN = "<!-- bench-compliance: written by `make bench-compliance`, not by hand -->"
END = "<!-- bench-compliance: end -->"


@dataclass(frozen=True, slots=True)
class LogRow:
    """One size of log, with the times of all its runs."""

    lines: int
    size: int
    bare_s: float
    job_s: float


def section(rows: list[LogRow], machine: str) -> str:
    """Return the section with its marks."""
    table = [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
    for row in rows:
        grown = (row.job_s / row.lines) / (rows[0].job_s / rows[0].lines)
        cells = [f"{row.lines:,}", f"{row.size / 1e6:,.0f}", f"{row.bare_s:.1f} s", f"{row.job_s:.1f} s"]
        cells += [f"{row.lines / row.job_s:,.0f}", f"{row.bare_s / row.job_s:.2f}", f"{grown:.2f}"]
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join([BEGIN, "## The compliance job", "", _HOW, "", *table, "", f"Measured on {machine}.", END])


def placed(page: str, made: str) -> str:
    """Return the page with the section in place of its former self, or at the end."""
    before, mark, rest = page.partition(BEGIN)
    if not mark:
        return f"{page.rstrip()}\n\n{made}\n"
    return before + made + rest.partition(END)[2]


_HEAD = ("lines", "MB", "bare", "the job", "job, lines/s", "bare ÷ job", "time a line ÷ first row's")
_HOW = """\
Made by `make bench-compliance`, which writes this section itself.

- **The job** is `sluice compliance run --once` on an empty folder: parse, check of every rule, rows
  as Parquet, duplicates, gaps, windows of five lengths.
- **Bare** is Spark's own JSON source with the same schema on the same files. It parses every field
  and counts its values; it checks and writes nothing.
- **Times.** The two run by turns, each in a process of its own that has just started Spark. Spark's
  start is not counted, its warming up is. A number is the least of the runs."""


_MILLION = 1_000_000


def main(words: Sequence[str]) -> int:
    """Time every size in both ways, or with `--reading` one log in one way."""
    parser = argparse.ArgumentParser(prog="python -m bench compliance", description=__doc__)
    parser.add_argument("--millions", default="1,4,16", help="sizes of the logs, in millions of lines")
    parser.add_argument("--runs", type=int, default=1, help="of each; the least counts")
    parser.add_argument("--write", type=Path, help="page to put the table in")
    parser.add_argument("--reading", nargs=3, metavar=("WHAT", "LOG", "OUT"), help="time one reading, bare or job")
    said = parser.parse_args(words)
    if said.reading:
        print(_reading(*said.reading))  # noqa: T201 - the answer
        return 0
    console = Console(stderr=True)
    sizes = [int(float(size) * _MILLION) for size in said.millions.split(",")]
    made = section([_measured(lines, said.runs, console) for lines in sizes], _machine())
    if said.write:
        said.write.write_text(placed(said.write.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(made)  # noqa: T201 - the answer
    return 0


def _measured(lines: int, runs: int, console: Console) -> LogRow:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder, console.status("") as status:
        status.update(f"{lines:,} lines: writing the log")
        size = write_log(Path(folder, "log"), lines)
        least = {"bare": float("inf"), "job": float("inf")}
        for run in range(runs):
            for what, seconds in list(least.items()):
                status.update(f"{lines:,} lines: {what}, run {run + 1} of {runs}")
                least[what] = min(seconds, _timed(what, Path(folder), run))
        return LogRow(lines, size, least["bare"], least["job"])


def _timed(what: str, folder: Path, run: int) -> float:
    arguments = (what, str(folder / "log"), str(folder / f"{what}-{run}"))
    command = [sys.executable, "-m", "bench", "compliance", "--reading", *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: S603 - our own


def _machine() -> str:
    return f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}, Spark in local mode"
