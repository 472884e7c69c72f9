"""One batch of lines: parsed once, to the rows, to the quarantine, into the windows; all of it anew if it runs again.

Lines are parsed into a folder of their own first. Everything after that reads Parquet, a few columns of it; and where
the rows are kept as Parquet, that folder becomes a part of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField

from compliance.parse import quarantined, rows_or_null
from compliance.schema import placed_schema
from compliance.stream import runs, sequence, windows
from compliance.stream.options import Job
from compliance.stream.places import numbered
from compliance.stream.sinks import Tables
from compliance.stream.state import State, Totals
from compliance.stream.storage import Storage
from compliance.stream.summary import Summary, summary
from compliance.stream.window_table import WindowTable
from compliance.stream.windows import CLOSED, LATE, OPEN

PART_OF_OPEN = -1
"""The part of a table of windows that holds those that are still open."""
_NO_DAY = "day=__HIVE_DEFAULT_PARTITION__"


class BatchWriter:
    """Writes batches of one job.

    Args:
        spark: The session.
        job: What is asked for.
        tables: Where tables go.
        on_summary: Told the summary after each batch.
    """

    def __init__(self, spark: SparkSession, job: Job, tables: Tables, on_summary: Callable[[Summary], None]) -> None:
        self._spark = spark
        self._job = job
        self._tables = tables
        self._state = State(spark, job.work)
        self._storage = Storage(spark)
        self._stage = f"{job.work}/stage"
        self._on_summary = on_summary

    def write(self, lines: DataFrame, step: int) -> None:
        """Reads the state before the step, writes all tables' part of the step, and then the state behind it."""
        self._state.begin(step)
        before = self._state.before(step)
        totals = self._state.totals(before)
        placed = numbered(lines)
        rows_or_null(placed).write.mode("overwrite").partitionBy("day").parquet(self._stage)
        staged = self._spark.read.schema(placed_schema(StructField("day", DateType()))).parquet(self._stage)
        counts = _counts(staged)
        malformed = counts.lines - counts.good
        self._quarantine(placed if malformed else None, step)
        good = staged.where(F.col("day").isNotNull())
        rows, distinct, missing = self._distinct(good, counts.good, before, step)
        doubled = totals.rows + counts.good - distinct
        known = self._known_runs(good, before, step)
        watermarks_s = totals.watermark_s, max(totals.watermark_s, self._watermark_s(counts.latest_s))
        has_late = counts.earliest_s < totals.watermark_s
        late = [
            self._windows(rows, table, (before, step), watermarks_s, has_late=has_late) for table in self._job.windows
        ]
        self._keep(rows if doubled else None, step)
        new = Totals(
            lines=totals.lines + counts.lines,
            rows=distinct,
            malformed=totals.malformed + malformed,
            duplicates=totals.duplicates + doubled,
            missing=missing,
            late=reduce(_added, late, totals.late),
            watermark_s=watermarks_s[1],
        )
        self._tell(new, known, step)
        self._state.end(step, new)

    def _watermark_s(self, latest_s: float) -> int:
        # A proxy whose clock is far ahead must not close everybody's windows.
        return int(min(latest_s, time.time()) - self._job.late_after_s)

    def _quarantine(self, lines: DataFrame | None, step: int) -> None:
        """Batches with malformed lines are parsed a second time, for these alone."""
        place = f"{self._job.out}/quarantine/step={step}"
        if lines is None:
            self._storage.remove(place)
        else:
            quarantined(lines).coalesce(1).write.mode("overwrite").json(place)

    def _distinct(self, rows: DataFrame, good: int, before: int | None, step: int) -> tuple[DataFrame, int, int]:
        """Each line that is new once; how many there are now in all, and how many are missing."""
        own, seen = sequence.ranges(rows), self._state.read(before, "seen")
        merged = own if seen is None else sequence.merged(own.unionByName(seen))
        there, missing = sequence.counted(self._state.write(step, "seen", merged))
        if there == self._state.totals(before).rows + good:
            return rows, there, missing
        return sequence.unseen(rows, merged.limit(0) if seen is None else seen), there, missing

    def _known_runs(self, rows: DataFrame, before: int | None, step: int) -> DataFrame:
        own, earlier = runs.runs_of(rows), self._state.read(before, "runs")
        return self._state.write(step, "runs", runs.merged(own if earlier is None else own.unionByName(earlier)))

    def _windows(
        self,
        rows: DataFrame,
        table: WindowTable,
        steps: tuple[int | None, int],
        watermarks_s: tuple[int, int],
        *,
        has_late: bool,
    ) -> dict[str, int]:
        """Adds rows to windows and closes some, by step and watermark before and behind; gives late lines by width."""
        (before, step), stage = steps, f"{self._job.work}/{table.name}"
        earlier = self._state.read(before, table.name)
        both = windows.added_up(rows, None if earlier is None else windows.unpublished(earlier), table)
        told = windows.published(both, table, watermarks_s)
        told.write.mode("overwrite").partitionBy("state", "day").parquet(stage)
        staged = self._spark.read.schema(windows.published_schema(table)).parquet(stage)
        of_state = {state: staged.where(F.col("state") == state).drop("state") for state in (LATE, CLOSED, OPEN)}
        late = of_state[LATE].groupBy("width_s").agg(F.sum("lines")).collect() if has_late else []
        still_open = self._state.write(step, table.name, of_state[OPEN])
        self._tables.replace(table.name, PART_OF_OPEN, still_open)
        if self._storage.exists(f"{stage}/state={CLOSED}"):
            self._tables.adopt(table.name, step, f"{stage}/state={CLOSED}")
        else:
            self._tables.replace(table.name, step, of_state[CLOSED])
        return {str(width): lines for width, lines in late}

    def _keep(self, distinct: DataFrame | None, step: int) -> None:
        """The staged folder becomes the rows, if no line in it is a copy of another."""
        if distinct is not None:
            self._tables.replace("rows", step, distinct)
            return
        self._storage.remove(f"{self._stage}/{_NO_DAY}")
        self._tables.adopt("rows", step, self._stage)

    def _tell(self, totals: Totals, known: DataFrame, step: int) -> None:
        seen = self._state.read(step, "seen")
        assert seen is not None
        told = summary(totals, known, seen)
        self._storage.write(f"{self._job.out}/summary.json", msgspec.json.encode(told).decode() + "\n")
        self._on_summary(told)


@dataclass(frozen=True, slots=True)
class _Counts:
    lines: int
    good: int
    earliest_s: float
    latest_s: float


def _counts(staged: DataFrame) -> _Counts:
    times = F.min(F.unix_micros("start")), F.max(F.unix_micros("end"))
    lines, good, earliest, latest = staged.agg(F.count("*"), F.count("day"), *times).collect()[0]
    return _Counts(lines, good, (earliest or 0) / 1e6, (latest or 0) / 1e6)


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {width: one.get(width, 0) + other.get(width, 0) for width in sorted({*one, *other}, key=int)}
