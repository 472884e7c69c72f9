"""The tables that a report is made from: those of the report's own job on an access log, or those of another job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, LongType, StructField, StructType

from compliance.log_folder import TOLD
from compliance.schema import placed_schema
from compliance.session import local_frame
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import sink_of, start
from compliance.stream.runs import GAPS
from compliance.stream.runs import RUNS_SCHEMA as RUNS
from compliance.stream.storage import State, Storage, tables_of

_QUARANTINE = {"file": "string", "line": "long", "text": "string", "reason": "string"}


@dataclass(frozen=True)
class LogTables:
    """The tables that a job has kept of an access log.

    Args:
        rows: Each line once.
        runs: As `stream.runs.table`.
        gaps: Numbers that are missing, as `stream.seen.gap_table`.
        quarantine: Malformed lines: `file`, `line`, `text`, `reason`.
        copies: Lines whose number had been seen, as rows; they are in no other table.
        lines: How many rows there are.
        newer: How often which fields were seen that this version does not know.
        passed_over: Files of the log's folder that were not read, and what helps; empty for none.
        unread: How many passed-over files may hold lines of the log.
    """

    rows: DataFrame
    runs: DataFrame
    gaps: DataFrame
    quarantine: DataFrame
    copies: DataFrame
    lines: int
    newer: Mapping[str, int]
    passed_over: str = ""
    unread: int = 0


def read_log(spark: SparkSession, access_log: Path, work: Path, on_progress: Callable[[int], None]) -> LogTables:
    """Reads every closed file of a folder that no earlier run has read; gives all that was ever read.

    Args:
        spark: The session.
        access_log: The folder.
        work: Folder of the state between runs; for this log only.
        on_progress: Called now and then with the number of lines read.
    """
    # Windows are for those who look at tables themselves.
    job = Job(Source("files", str(access_log.resolve())), Sink(), str(work.resolve()), windows=())
    start(spark, job, lambda summary: on_progress(summary.lines), follow=False).awaitTermination()
    return read_tables(spark, job.out)


def read_tables(spark: SparkSession, out: str) -> LogTables:
    """Read the tables of a job, up to its last whole batch.

    Args:
        spark: The session.
        out: The job's `--out`.

    Raises:
        JobError: If `out` is no job's or of another version, or its connector is missing.
    """
    storage = Storage(spark)
    job = Job(Source("files"), sink_of(storage, out), out)
    state = State(spark, job.work)
    step = state.newest()
    totals = state.totals(step)
    rows = _rows(spark, job)
    # At once: the job may go on and remove its old states.
    runs, gaps = (
        None if step is None else spark.read.parquet(state.place(step, name)).localCheckpoint()
        for name in ("runs", "gaps")
    )
    last = -1 if step is None else step
    quarantine = f"{out}/quarantine"
    malformed = (
        spark.read.schema(", ".join(" ".join(column) for column in _QUARANTINE.items()))
        .json(quarantine)
        .where(F.col("step") <= last)
        .drop("step")
        if storage.exists(quarantine)
        else None
    )
    return LogTables(
        # A batch may be under way.
        rows=rows.where(F.col("step") <= last),
        runs=_or_none(spark, runs, _types(from_arrow_schema(RUNS))),
        gaps=_or_none(spark, gaps, _types(from_arrow_schema(GAPS))),
        quarantine=_or_none(spark, malformed, _QUARANTINE),
        copies=_copies(spark, job, last),
        lines=totals.rows,
        newer=totals.newer,
        **_passed_over(storage, job),
    )


def _rows(spark: SparkSession, job: Job) -> DataFrame:
    schema = placed_schema(StructField("step", LongType()), StructField("day", DateType()))
    return _or_none(spark, tables_of(spark, job).read("rows", schema), _types(schema))


def _passed_over(storage: Storage, job: Job) -> dict[str, Any]:
    place = f"{job.work}/{TOLD}"
    content = msgspec.json.decode(storage.read(place)) if storage.exists(place) else {"words": "", "unread": 0}
    return {"passed_over": content["words"], "unread": content["unread"]}


def _copies(spark: SparkSession, job: Job, last: int) -> DataFrame:
    schema = placed_schema(StructField("step", LongType()))
    place = f"{job.work}/copies"
    if not Storage(spark).exists(place):
        return _or_none(spark, None, _types(schema))
    return spark.read.schema(schema).parquet(place).where(F.col("step") <= last)


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def _or_none(spark: SparkSession, frame: DataFrame | None, types: Mapping[str, str]) -> DataFrame:
    return local_frame(spark, [], types) if frame is None else frame
