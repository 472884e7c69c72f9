"""`python -m bench compliance` times the job and Spark's bare reading of the same logs, and prints or writes the table.

A log is one proxy's: a hundred topics, a line of stream and of limiter for each and second. Each reading is timed in a
process of its own that has just started Spark.
"""

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType
from rich.console import Console

from accesslog.record import AnyLine, HeartbeatLine, IntervalLine, LimitLine
from bench import harness
from bench.harness import BenchError, Figure, Found, Goal, Row, Sample, Section, in_rounds, last_line
from compliance.schema import row_schema
from compliance.session import spark_session
from compliance.stream.folder import load
from compliance.stream.log_file import JobPlaces
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import JobRun
from compliance.verdicts import judge_settled_days

TOPICS = 100
LINES_A_FILE = 100_000
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def write_log(folder: Path, lines: int) -> int:
    """Write `lines` lines in closed files; return their bytes."""
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
        times: Mapping[str, Any] = {"start": start, "end": start + _SECOND, "mono_us": (second + 1) * 1_000_000}
        for topic in range(TOPICS):
            passed = 90 + (second + topic) % 20
            for template in (_INTERVAL, _LIMIT):
                yield msgspec.structs.replace(
                    template,
                    seq=next(numbers),
                    **times,
                    tenant=f"tenant-{topic % 10}",
                    passed_entries=passed,
                    passed_messages=passed,
                    passed_bytes=100 * passed,
                    throttled_ms=12.5 * (topic % 7),
                    **_named(template, topic),
                )
        yield msgspec.structs.replace(_HEARTBEAT, seq=next(numbers), **times)


def _named(template: AnyLine, topic: int) -> dict[str, str]:
    name = f"persistent://tenant-{topic % 10}/orders/topic-{topic}"
    return {"topic": name} if isinstance(template, IntervalLine) else {"name": name}


_OF_EACH: Mapping[str, Any] = {
    "proxy_id": "proxy-1",
    "boot_id": "boot-1",
    "seq": 0,
    "start": _BEGIN,
    "end": _BEGIN,
    "mono_us": 0,
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
    limit_levels="topic",
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
    JobRun(spark, Job(Source("files", log), Sink(), out), lambda _: None).once()


def verdicts(spark: SparkSession, log: str, out: str) -> None:  # noqa: ARG001 - the job has read the log
    """Judging the days of a job's tables."""
    places = JobPlaces(out)
    judge_settled_days(spark, places, load(places), lambda _: None)


def duckdb(log: str, out: str) -> None:
    """DuckDB's load of the same files into a table of a database on disk; left out where DuckDB is not installed."""
    module = importlib.import_module("duckdb")
    with module.connect(f"{out}.duckdb") as database:
        database.sql(f"CREATE TABLE lines AS SELECT * FROM read_json('{log}/*.jsonl', format='newline_delimited')")  # noqa: S608 - our own path


def report(log: str, out: str) -> None:
    """The report of a log that nothing has read before, as its command makes it, Spark's start included."""
    _report("--access-log", log, out)


def report_of_tables(log: str, out: str) -> None:  # noqa: ARG001 - the job has read the log
    """The report of a job's tables whose days are judged, Spark's start included."""
    _report("--tables", out, f"{out}-report")


def _report(option: str, source: str, out: str) -> None:
    command = [sys.executable, "-m", "sluice", "report", option, source, "--out", out]
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if made.returncode:
        raise BenchError(f"the report failed: {last_line(made.stderr)}")


DUCKDB, BARE, REPORT, JOB = "DuckDB", "bare Spark", "the report", "the job"
VERDICTS, OF_TABLES = "its verdicts", "the report of its tables"
WITH_SPARK = {BARE: bare, JOB: job, VERDICTS: verdicts}
WITHOUT = {DUCKDB: duckdb, REPORT: report, OF_TABLES: report_of_tables}
_IN_TURN = (DUCKDB, BARE, REPORT, JOB, VERDICTS, OF_TABLES)
_SHOWN = (DUCKDB, BARE, REPORT, OF_TABLES, VERDICTS, JOB)
OF_THE_JOB = (JOB, VERDICTS, OF_TABLES)
"""Steps that share a folder of tables."""
NAME = "compliance"
_MILLION = 1_000_000
_FIGURES = (
    Figure("seconds", "time", " s", 1, (Goal("≤", 0.33, BARE), Goal("≤", 2.0, DUCKDB), Goal("≤", None, REPORT))),
    Figure("rate", "lines/s"),
    Figure("size", "size of the log", " MB"),
)
_TEXT = """\
## The compliance job

Made by `python -m bench compliance --write docs/benchmarks.md`, which writes this section itself.

{tables}

Measured on {machine}, Spark in local mode.

- **The job** is `sluice compliance run --once` on an empty folder, without its verdicts: parse,
  check of every rule, rows as Parquet, duplicates, gaps, usage by minute, hour and day, compaction.
- **Its verdicts** are the rest of that command: the limits of each day are judged.
- **The report of its tables** takes them from there. **The report** is `sluice report --access-log`
  on the same files, which reads, judges and draws.
- **DuckDB** loads the same files into a table, with the types that it finds; it checks nothing.
- **Bare Spark** is its own JSON source with the same schema on the same files. It parses every
  field and counts its values; it checks and writes nothing.
- **Times.** They take turns, each in a process of its own. Spark's start counts for the reports
  alone, its warming up for all but DuckDB."""

LogRow = Row[int]
"""A size of log, measured by writing this number of lines."""


def log_row(lines: int) -> LogRow:
    """Return the row of a log of `lines` lines."""
    return Row(f"{lines}", f"a log of {lines:,} lines", _FIGURES, lines, _SHOWN)


def main(words: Sequence[str]) -> int:
    """Time every size in all ways, or with `--reading` one log in one way."""
    parser = harness.parser(NAME, __doc__, rounds=1)
    parser.add_argument("--millions", default="1,4,16", help="sizes of the logs, in millions of lines")
    parser.add_argument("--reading", nargs=3, metavar=("READING", "LOG", "OUT"), help="time the one of this name")
    arguments = parser.parse_args(words)
    if arguments.reading:
        print(_reading(*arguments.reading))  # noqa: T201 - the answer
        return 0
    rows = [log_row(int(float(size) * _MILLION)) for size in arguments.millions.split(",")]
    section = Section(NAME, rows, text)
    return harness.carry_out(NAME, arguments.write, [section], partial(_measured, rows, arguments.rounds))


def text(tables: str, _measurements: Found) -> str:
    """Return the text of the section."""
    return harness.prose(_TEXT.format(tables=tables, machine=harness.machine()))


def _reading(name: str, log: str, out: str) -> float:
    """Return the seconds that one reading takes; where it is given a Spark, that has just started."""
    if name in WITHOUT:
        began = time.perf_counter()
        WITHOUT[name](log, out)
        return time.perf_counter() - began
    with spark_session(Path(out).with_suffix(".log")) as session:
        began = time.perf_counter()
        WITH_SPARK[name](session, log, out)
        return time.perf_counter() - began


def _measured(rows: Sequence[LogRow], rounds: int) -> Found:
    console = Console(stderr=True)
    measurements = {}
    for row in rows:
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
            size = write_log(Path(folder, "log"), row.measure)
            play = partial(_round, Path(folder), row.measure, size)
            measurements[row.name] = in_rounds(row, rounds, play, console.print)
    return measurements


def _round(folder: Path, lines: int, size: int, number: int) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for name in _IN_TURN:
        if name == DUCKDB and importlib.util.find_spec("duckdb") is None:
            continue
        out = folder / f"{JOB if name in OF_THE_JOB else name}-{number}"
        arguments = (name, str(folder / "log"), str(out))
        command = [sys.executable, "-m", "bench", NAME, "--reading", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        if done.returncode:
            raise BenchError(f"{name} failed: {last_line(done.stderr)}")
        seconds = float(done.stdout)
        samples[name] = [{"seconds": seconds, "rate": lines / seconds, "size": size / 1e6}]
    return samples
