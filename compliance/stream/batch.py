"""One batch: read, tell copies apart, put windows together, write."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructField

from compliance.schema import placed_schema
from compliance.stream import runs
from compliance.stream.options import Job
from compliance.stream.partition_reader import (
    COPIES,
    QUARANTINE,
    ROWS,
    WINDOWS,
    Batch,
    SourceChangedError,
    decoded,
    read,
)
from compliance.stream.runs import Seen
from compliance.stream.sinks import Tables
from compliance.stream.state import State, Storage, Totals
from compliance.stream.summary import Summary, summary
from compliance.stream.windows import WindowTable, by_day, by_state, late_lines, merged, parquet, published

Days = Sequence[tuple[date, bytes]]
"""A Parquet file for each day."""


@dataclass(frozen=True, slots=True)
class WindowFiles:
    """What a batch makes of a table of windows.

    Args:
        table: Which table.
        open: Windows that are still open, to be added to.
        open_days: The same for readers.
        closed_days: Windows that the batch closes.
        late: How many lines came too late, by the width of the window in seconds.
    """

    table: WindowTable
    open: pa.Table
    open_days: Days
    closed_days: Days
    late: Counter[str]


def put_together(
    table: WindowTable, earlier: pa.Table, contents: Sequence[bytes], watermarks_s: tuple[int, int]
) -> WindowFiles:
    """Adds windows of a batch to those that were open, and closes some.

    Args:
        table: Which table.
        earlier: Windows that were open.
        contents: Windows of the batch's parts, as `piece.encoded` gives them.
        watermarks_s: Before the batch and behind it.
    """
    found = by_state(merged(pa.concat_tables([earlier, decoded(contents, table.schema)]), table), watermarks_s)
    return WindowFiles(
        table,
        found.open,
        _days(found.open, table, is_final=False),
        _days(found.closed, table, is_final=True),
        late_lines(found.late),
    )


def _days(windows: pa.Table, table: WindowTable, *, is_final: bool) -> Days:
    told = published(windows, table, is_final=is_final)
    return [(day, parquet(of_day)) for day, of_day in by_day(told.drop_columns("day"), told["day"])]


PART_OF_OPEN = -1
"""The part of a table of windows that holds those that are still open."""
MOST_NEWER = 100
"""So many unknown fields are named."""
_ROWS = placed_schema(StructField("day", DateType()))


class BatchWriter:
    """Writes batches of one job.

    Args:
        spark: The session.
        job: What is asked for.
        tables: Where tables go.
        on_summary: Told the summary after each batch.
    """

    def __init__(self, spark: SparkSession, job: Job, tables: Tables, on_summary: Callable[[Summary], None]) -> None:
        self._job = job
        self._tables = tables
        self._state = State(spark, job.work)
        self._storage = Storage(spark)
        self._on_summary = on_summary

    def write(self, lines: DataFrame, step: int) -> None:
        """Reads the state before the step, writes all tables' part of the step, and then the state behind it."""
        self._state.begin(step)
        self._storage.remove(self._stage(""))
        before = self._state.before(step)
        totals = self._state.totals(before)
        known = Seen.of(self._state.read(before, "seen", runs.SEEN_SCHEMA))
        batch = read(lines, known, self._job.windows)
        known = known.union(*batch.seen().values())
        self._put_aside(batch, step)
        self._keep(batch, step)
        watermarks_s = totals.watermark_s, max(totals.watermark_s, self._watermark_s(batch))
        late = self._windows(batch, (before, step), watermarks_s)
        new = _added(totals, batch, known, late, watermarks_s[1])
        self._tell(new, self._runs(batch, before), known, step)
        self._state.end(step, new)

    def _watermark_s(self, batch: Batch) -> int:
        latest = [max(span.last for _, span in found.spans) for found in batch.parts.values() if found.spans]
        # Partitions of a topic are read side by side: what is left of each is later than its own last line, no other's.
        reached = (max if self._job.source.kind == "files" else min)(latest, default=0)
        # A proxy whose clock is far ahead must not close everybody's windows.
        return int(min(reached / 1e6, time.time()) - self._job.late_after_s)

    def _put_aside(self, batch: Batch, step: int) -> None:
        """Malformed lines, and copies, which the report compares with the lines that were kept."""
        for name, folder, kind in ((QUARANTINE, self._job.out, "json.gz"), (COPIES, self._job.work, "parquet")):
            place = f"{folder}/{name}/step={step}"
            self._storage.remove(place)
            for number, piece in enumerate(batch.of(name)):
                self._storage.put(f"{place}/part-{number:05}.{kind}", piece.content)

    def _keep(self, batch: Batch, step: int) -> None:
        stage = self._stage("rows")
        for number, piece in enumerate(batch.of(ROWS)):
            self._storage.put(f"{stage}/day={piece.day}/part-{number:05}.parquet", piece.content)
        self._tables.adopt("rows", step, stage, _ROWS)

    def _windows(self, batch: Batch, steps: tuple[int | None, int], watermarks_s: tuple[int, int]) -> Counter[str]:
        """Adds the batch's windows to those that were open, and closes some; gives late lines by width."""
        (before, step), tables = steps, self._job.windows
        earlier = [self._state.read(before, table.name, table.schema) for table in tables]
        contents = [[piece.content for piece in batch.of(WINDOWS + table.name)] for table in tables]
        # Side by side: Arrow and numpy work without Python's lock.
        with ThreadPoolExecutor() as pool:
            made = list(pool.map(partial(put_together, watermarks_s=watermarks_s), tables, earlier, contents))
        for one in made:
            self._state.write(step, one.table.name, one.open)
            self._publish(one.table, PART_OF_OPEN, one.open_days)
            self._publish(one.table, step, one.closed_days)
        return sum((one.late for one in made), Counter())

    def _publish(self, table: WindowTable, part: int, days: Days) -> None:
        stage = self._stage(table.name)
        for day, content in days:
            self._storage.put(f"{stage}/day={day}/part-00000.parquet", content)
        told = published(table.schema.empty_table(), table, is_final=True)
        self._tables.adopt(table.name, part, stage, from_arrow_schema(told.schema))

    def _runs(self, batch: Batch, before: int | None) -> runs.Spans:
        earlier = runs.of(self._state.read(before, "runs", runs.RUNS_SCHEMA))
        return runs.merged([earlier, *(dict(found.spans) for found in batch.parts.values())])

    def _tell(self, totals: Totals, spans: runs.Spans, known: Seen, step: int) -> None:
        self._state.write(step, "seen", known.table())
        self._state.write(step, "gaps", runs.gap_table(known))
        self._state.write(step, "runs", runs.table(spans, known))
        told = summary(totals, spans, known, datetime.now(UTC))
        self._storage.write(f"{self._job.out}/summary.json", msgspec.json.encode(told) + b"\n")
        self._on_summary(told)

    def _stage(self, table: str) -> str:
        return f"{self._job.work}/stage/{table}"


def _added(totals: Totals, batch: Batch, known: Seen, late: Counter[str], watermark_s: int) -> Totals:
    parts = batch.parts.values()
    rows = totals.rows + sum(found.rows for found in parts)
    if rows != known.there():
        raise SourceChangedError(f"{rows} rows, but {known.there()} numbers seen: a line is kept twice, or not at all")
    return Totals(
        lines=totals.lines + sum(found.lines for found in parts),
        rows=rows,
        malformed=totals.malformed + sum(found.malformed for found in parts),
        duplicates=totals.duplicates + sum(found.copies for found in parts),
        missing=known.missing(),
        losses=totals.losses + sum(found.losses for found in parts),
        lost=totals.lost + sum(found.lost for found in parts),
        late={width: totals.late.get(width, 0) + late[width] for width in sorted({*totals.late, *late}, key=int)},
        watermark_s=watermark_s,
        newer=_newer(totals, *(found.newer for found in parts)),
    )


def _newer(totals: Totals, *more: Mapping[str, int]) -> dict[str, int]:
    together = sum(map(Counter, more), Counter(totals.newer))
    return dict(together.most_common(MOST_NEWER))
