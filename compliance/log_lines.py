"""Lines of a log, as Spark's tasks read them: from Parquet files, in columns (Arrow), without a row that Java reads.

Only what these files cannot say alone comes from a data frame of Spark's: the rows of files that have copies of each
other's lines.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance import storage
from compliance.excerpt import WHOLE_LOG, Excerpt, only
from compliance.schema import arrow_schema

LINES = pa.schema([*arrow_schema(), ("file", pa.string()), ("line", pa.int64()), ("day", pa.date32())])
"""Lines as tasks get them."""
LEAST_ROWS, MOST_ROWS = 128 * 1024, 512 * 1024
"""Rows that a task reads; the least is a row group."""
TASKS_A_CORE = 4
_LINES_AT_ONCE = 100_000
"""Lines of which a task makes one table."""

Work = Callable[[Iterator[pa.Table]], Iterator[pa.RecordBatch]]
"""The work of a task on its lines."""


class LinesFile(NamedTuple):
    """A Parquet file of lines of one day, or every so-many-th of its row groups.

    Args:
        place: The file.
        day: The day, as in `2026-11-21`.
        rows: About how many rows these are.
        first: The first of these row groups.
        step: The distance from one of them to the next.
    """

    place: str
    day: str
    rows: int
    first: int = 0
    step: int = 1


@dataclass(frozen=True)
class KeptLines:
    """Lines, each once.

    Args:
        frame: All of them, as Spark reads them.
        files: Parquet files that have no line of another one, and none twice.
        others: The lines of `frame` that are in none of these files; None: there is none.
        excerpt: The part of them that tasks get.
        days: The only days of which they get lines; None: all.
    """

    frame: DataFrame
    files: Sequence[LinesFile] = ()
    others: DataFrame | None = None
    excerpt: Excerpt = WHOLE_LOG
    days: frozenset[str] | None = None

    @staticmethod
    def of_frame(frame: DataFrame) -> "KeptLines":
        """Return lines that only Spark can read."""
        return KeptLines(frame, others=frame)

    def within(self, excerpt: Excerpt) -> "KeptLines":
        """Return a part of the lines."""
        return replace(self, excerpt=excerpt)

    def of_days(self, days: Iterable[str]) -> "KeptLines":
        """Return the lines of some days."""
        only = frozenset(days)
        files = [file for file in self.files if file.day in only]
        others = self.others and self.others.where(F.col("day").isin(*only))
        return replace(self, files=files, others=others, days=only)

    @property
    def lines(self) -> DataFrame:
        """The lines, as Spark reads them."""
        lines = self.frame if self.excerpt.is_whole else self.frame.where(_condition(self.excerpt))
        return lines if self.days is None else lines.where(F.col("day").isin(*self.days))

    def done(self, work: Work, columns: Collection[str], kinds: Collection[str], result: str) -> DataFrame:
        """Return what tasks make of lines.

        Args:
            work: The work of each task, which gets large tables.
            columns: Those that it needs.
            kinds: The kinds of lines that it gets; all where there is none.
            result: The columns of its results, as SQL writes them.
        """
        made = []
        if not self.excerpt.is_whole:
            columns = dict.fromkeys((*columns, "start", "tenant", "topic"))
            work = _within(self.excerpt, work)
        if self.files or self.others is None:
            tasks = self._tasks()
            # Spark hands over numbers, and each task knows what to read: no row comes from Java.
            numbers = self.frame.sparkSession.range(0, len(tasks), 1, max(1, len(tasks)))
            made.append(numbers.mapInArrow(_reading(tasks, list(columns), list(kinds), work), result))
        if self.others is not None:
            own = self.others.where(F.col("kind").isin(*kinds)) if kinds else self.others
            made.append(own.select(*columns).mapInArrow(_taking(work), result))
        return made[0] if len(made) == 1 else made[0].unionByName(made[1])

    def _tasks(self) -> list[list[LinesFile]]:
        cores = self.frame.sparkSession.sparkContext.defaultParallelism
        files = [file for file in self.files if self.excerpt.has_day(file.day)]
        most = sum(file.rows for file in files) // (cores * TASKS_A_CORE)
        most = min(MOST_ROWS, max(LEAST_ROWS, most))
        return storage.in_parts(_pieces(files, most), lambda file: (file.rows,), (most,))


def _pieces(files: Iterable[LinesFile], most: int) -> Iterator[LinesFile]:
    for file in files:
        step = max(1, -(-file.rows // most))
        yield from (file._replace(rows=file.rows // step, first=first, step=step) for first in range(step))


def _condition(excerpt: Excerpt) -> Column:
    """Return `Excerpt.of` as a condition of Spark's."""
    start, tenant, topic = F.col("start"), F.col("tenant"), F.col("topic")
    bounds = [start >= F.lit(excerpt.begin)] if excerpt.begin else []
    bounds += [start < F.lit(excerpt.end)] if excerpt.end else []
    if excerpt.tenant:
        is_own = reduce(or_, (topic.startswith(begin) for begin in excerpt.topics))
        bounds += [tenant.isNull() | (tenant == excerpt.tenant), topic.isNull() | is_own]
    return reduce(and_, bounds)


def _within(excerpt: Excerpt, work: Work) -> Work:
    return lambda tables: work(excerpt.of(table) for table in tables)


def _reading(
    tasks: Sequence[Sequence[LinesFile]], columns: list[str], kinds: list[str], work: Work
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = (file for batch in batches for number in batch["id"].to_pylist() for file in tasks[number])
        return work(large(table for file in files for table in lines_in(file, columns, kinds)))

    return read


def _taking(work: Work) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return lambda batches: work(large(pa.Table.from_batches([batch]) for batch in batches))


def lines_in(file: LinesFile, columns: Sequence[str], kinds: Collection[str]) -> Iterator[pa.Table]:
    """Read columns of a file, row group by row group; a column that the file lacks is null.

    Args:
        file: The file.
        columns: Of `LINES`.
        kinds: The kinds of lines that are read; all where there is none.
    """
    day = pa.scalar(date.fromisoformat(file.day))
    with closing(storage.at_random(file.place)) as source:
        parquet = pq.ParquetFile(source, read_dictionary=["kind"], coerce_int96_timestamp_unit="us")
        there = set(parquet.schema_arrow.names)
        names = [name for name in columns if name in there]
        for group in range(file.first, parquet.num_row_groups, file.step):
            chosen = pc.is_in(parquet.read_row_group(group, ["kind"])["kind"], pa.array(kinds)) if kinds else None
            if chosen is not None and not pc.any(chosen).as_py():
                continue
            rows = parquet.read_row_group(group, names, use_threads=False)
            if chosen is not None:
                rows = only(rows, chosen)
            fields = [LINES.field(name) for name in columns]
            yield pa.Table.from_arrays(
                [
                    rows[field.name].cast(field.type)
                    if field.name in there
                    else pa.repeat(day if field.name == "day" else pa.scalar(None, field.type), len(rows))
                    for field in fields
                ],
                schema=pa.schema(fields),
            )


def large(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Gather tables: large ones take less time."""
    gathered: list[pa.Table] = []
    for table in tables:
        gathered.append(table)
        if sum(map(len, gathered)) >= _LINES_AT_ONCE:
            yield pa.concat_tables(gathered).combine_chunks()
            gathered = []
    if gathered:
        yield pa.concat_tables(gathered).combine_chunks()
