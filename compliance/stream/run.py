"""One run of the job, without its command line: batches, end, and errors.

A batch reads lines, separates copies, completes windows, and writes the tables.
"""

import contextlib
import fcntl
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DateType, StructField
from rich.console import Console

from compliance.java import JavaNotFoundError
from compliance.log_folder import NOT_WITHIN, is_within, look_into, on_this_machine
from compliance.schema import placed_schema
from compliance.session import cause, disk_trouble, spark_session
from compliance.stream import runs
from compliance.stream.options import Job, JobError, Sink, checked, lines
from compliance.stream.partition_reader import (
    COPIES,
    QUARANTINE,
    ROWS,
    WINDOWS,
    PartitionBatch,
    SourceChangedError,
    decoded,
    read,
)
from compliance.stream.runs import Progress, Seen, Summary, late_so_far, late_words, summary
from compliance.stream.storage import State, Storage, Tables, TableTotals, tables_of
from compliance.stream.windows import WindowTable, by_day, by_state, late_lines, merged, parquet, published

Days = Sequence[tuple[date, bytes]]
"""A Parquet file for each day."""


@dataclass(frozen=True, slots=True)
class WindowFiles:
    """The result of a batch for one table of windows.

    Args:
        table: The table.
        open: Windows that are still open, and will be added to.
        open_days: The open windows as readers get them.
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
    """Add the windows of a batch to those that were open, and close those that the watermark has passed.

    Args:
        table: Which table.
        earlier: Windows that were open.
        contents: Windows of the batch's parts, as `piece.encoded` gives them.
        watermarks_s: Before the batch and after it.
    """
    sorted_windows = by_state(merged(pa.concat_tables([earlier, decoded(contents, table.schema)]), table), watermarks_s)
    return WindowFiles(
        table,
        sorted_windows.open,
        _days(sorted_windows.open, table, is_final=False),
        _days(sorted_windows.closed, table, is_final=True),
        late_lines(sorted_windows.late),
    )


def _days(windows: pa.Table, table: WindowTable, *, is_final: bool) -> Days:
    rows = published(windows, table, is_final=is_final)
    return [(day, parquet(of_day)) for day, of_day in by_day(rows.drop_columns("day"), rows["day"])]


PART_OF_OPEN = -1
"""The part of a table of windows that holds those that are still open."""
MOST_NEWER = 100
"""The number of unknown fields that are named."""
_ROWS = placed_schema(StructField("day", DateType()))


class BatchWriter:
    """The writer of one job's batches.

    Args:
        spark: The session.
        job: The options.
        tables: Where tables go.
        on_summary: Called with the summary after each batch.
    """

    def __init__(self, spark: SparkSession, job: Job, tables: Tables, on_summary: Callable[[Summary], None]) -> None:
        self._job = job
        self._tables = tables
        self._state = State(spark, job.work)
        self._storage = Storage(spark)
        self._on_summary = on_summary

    def write(self, lines: DataFrame, step: int) -> None:
        """Reads the state before the step, writes all tables' part of the step, and then the state after it."""
        self._state.begin(step)
        self._storage.remove(self._stage(""))
        before = self._state.before(step)
        totals = self._state.totals(before)
        seen = Seen.of(self._state.read(before, "seen", runs.SEEN_SCHEMA))
        batch = read(lines, seen, self._job.windows)
        seen = seen.union(*batch.seen().values())
        self._put_aside(batch, step)
        self._keep(batch, step)
        watermarks_s = totals.watermark_s, max(totals.watermark_s, self._watermark_s(batch))
        late = self._windows(batch, (before, step), watermarks_s)
        new = _added(totals, batch, seen, late, watermarks_s[1])
        self._tell(new, self._runs(batch, before), seen, step)
        self._state.end(step, new)

    def _watermark_s(self, batch: PartitionBatch) -> int:
        latest = [max(span.last for _, span in part.spans) for part in batch.parts.values() if part.spans]
        # Partitions of a topic are read side by side: the rest of each is later than its own last line only.
        reached = (max if self._job.source.kind == "files" else min)(latest, default=0)
        # A proxy whose clock is far ahead must not close everybody's windows.
        return int(min(reached / 1e6, time.time()) - self._job.late_after_s)

    def _put_aside(self, batch: PartitionBatch, step: int) -> None:
        """Malformed lines, and copies, which the report compares with the lines that were kept."""
        for name, folder, kind in ((QUARANTINE, self._job.out, "json.gz"), (COPIES, self._job.work, "parquet")):
            place = f"{folder}/{name}/step={step}"
            self._storage.remove(place)
            for number, piece in enumerate(batch.of(name)):
                self._storage.put(f"{place}/part-{number:05}.{kind}", piece.content)

    def _keep(self, batch: PartitionBatch, step: int) -> None:
        stage = self._stage("rows")
        for number, piece in enumerate(batch.of(ROWS)):
            self._storage.put(f"{stage}/day={piece.day}/part-{number:05}.parquet", piece.content)
        self._tables.adopt("rows", step, stage, _ROWS)

    def _windows(
        self, batch: PartitionBatch, steps: tuple[int | None, int], watermarks_s: tuple[int, int]
    ) -> Counter[str]:
        """Adds the batch's windows to those that were open, and closes some; gives late lines by width."""
        (before, step), tables = steps, self._job.windows
        earlier = [self._state.read(before, table.name, table.schema) for table in tables]
        contents = [[piece.content for piece in batch.of(WINDOWS + table.name)] for table in tables]
        # Side by side: Arrow and numpy work without Python's lock.
        with ThreadPoolExecutor() as pool:
            made = list(pool.map(partial(put_together, watermarks_s=watermarks_s), tables, earlier, contents))
        for files in made:
            self._state.write(step, files.table.name, files.open)
            self._publish(files.table, PART_OF_OPEN, files.open_days)
            self._publish(files.table, step, files.closed_days)
        return sum((files.late for files in made), Counter())

    def _publish(self, table: WindowTable, part: int, days: Days) -> None:
        stage = self._stage(table.name)
        for day, content in days:
            self._storage.put(f"{stage}/day={day}/part-00000.parquet", content)
        rows = published(table.schema.empty_table(), table, is_final=True)
        self._tables.adopt(table.name, part, stage, from_arrow_schema(rows.schema))

    def _runs(self, batch: PartitionBatch, before: int | None) -> runs.RunSpans:
        earlier = runs.of(self._state.read(before, "runs", runs.RUNS_SCHEMA))
        return runs.merged([earlier, *(dict(part.spans) for part in batch.parts.values())])

    def _tell(self, totals: TableTotals, spans: runs.RunSpans, seen: Seen, step: int) -> None:
        self._state.write(step, "seen", seen.table())
        self._state.write(step, "gaps", runs.gap_table(seen))
        self._state.write(step, "runs", runs.table(spans, seen))
        new = summary(totals, spans, seen, datetime.now(UTC))
        self._storage.write(f"{self._job.out}/summary.json", msgspec.json.encode(new) + b"\n")
        self._on_summary(new)

    def _stage(self, table: str) -> str:
        return f"{self._job.work}/stage/{table}"


def _added(totals: TableTotals, batch: PartitionBatch, seen: Seen, late: Counter[str], watermark_s: int) -> TableTotals:
    parts = batch.parts.values()
    rows = totals.rows + sum(part.rows for part in parts)
    if rows != seen.there():
        raise SourceChangedError(f"{rows} rows, but {seen.there()} numbers seen: a line is kept twice, or not at all")
    return TableTotals(
        lines=totals.lines + sum(part.lines for part in parts),
        rows=rows,
        malformed=totals.malformed + sum(part.malformed for part in parts),
        duplicates=totals.duplicates + sum(part.copies for part in parts),
        missing=seen.missing(),
        losses=totals.losses + sum(part.losses for part in parts),
        lost=totals.lost + sum(part.lost for part in parts),
        late={width: totals.late.get(width, 0) + late[width] for width in sorted({*totals.late, *late}, key=int)},
        watermark_s=watermark_s,
        newer=_newer(totals, *(part.newer for part in parts)),
    )


def _newer(totals: TableTotals, *more: Mapping[str, int]) -> dict[str, int]:
    together = sum(map(Counter, more), Counter(totals.newer))
    return dict(together.most_common(MOST_NEWER))


_INTO = " into "
_LEAST_TASKS = "spark.sql.files.minPartitionNum"


def start(spark: SparkSession, job: Job, on_summary: Callable[[Summary], None], *, follow: bool) -> StreamingQuery:
    """Start reading the lines that no earlier run with this `out` has read.

    Args:
        spark: The session.
        job: The options.
        on_summary: Called with the summary after each batch.
        follow: Go on until stopped; else end after the present lines.

    Raises:
        JobError: If `out` is another source's, sink's or version's, or a connector is missing.
    """
    spark.conf.set("spark.sql.shuffle.partitions", str(max(2, spark.sparkContext.defaultParallelism)))
    _claim(Storage(spark), job)
    State(spark, job.work).check()
    job.look()
    writer = BatchWriter(spark, job, tables_of(spark, job), on_summary)
    stream = lines(spark, job).writeStream.foreachBatch(writer.write).option("checkpointLocation", job.checkpoint)
    trigger = stream.trigger(processingTime=f"{job.every_s} seconds") if follow else stream.trigger(availableNow=True)
    # A file goes to one task, unless it is very large: the rest of a file that is cut is read twice (`Numbering`).
    # The stream keeps the settings with which it starts; queries of its tables are faster with cut files.
    spark.conf.set(_LEAST_TASKS, "1")
    try:
        return trigger.start()
    finally:
        spark.conf.unset(_LEAST_TASKS)


def sink_of(storage: Storage, out: str) -> Sink:
    """Return the sink of the job that `out` belongs to.

    Raises:
        JobError: If it is no job's.
    """
    mark = _mark(out)
    if not storage.exists(mark):
        raise JobError(f"{out}: no tables of `sluice compliance run` in it; give that command's --out")
    kind, _, catalog = storage.read(mark).decode().rpartition(_INTO)[2].partition(" ")
    return Sink(kind, catalog)


def _mark(out: str) -> str:
    return f"{out}/_work/source"


def _claim(storage: Storage, job: Job) -> None:
    """Lines of two sources in one table would be judged as one log."""
    mark = _mark(job.out)
    ours = f"{job.source.kind} {job.source.folder}".strip() + f"{_INTO}{job.sink.kind} {job.sink.catalog}".rstrip()
    if not storage.exists(mark):
        storage.write(mark, ours.encode())
        return
    theirs = storage.read(mark).decode()
    if theirs != ours:
        raise JobError(f"--out {job.out}: holds {theirs}, not {ours}; give each its own folder")


_LOOK_EVERY_S = 1
_AGAIN = "run it again: it goes on where it was"


def run_with_progress(job: Job, *, follow: bool, settings: Mapping[str, str]) -> int:
    """Run the job. Returns the exit code: 0 when done (or ended by a signal, while following), else 1.

    Args:
        job: The options.
        follow: Go on until SIGTERM or SIGINT; else end after the present lines.
        settings: Of Spark, from the user.
    """
    try:
        checked(job)
        _check_folders(job)
        log = _log_file(job)
    except JobError as error:
        return _fail(str(error))
    try:
        _tell_passed_over(job)
        with _alone(job), spark_session(log, settings) as spark, Progress(Console(stderr=True)) as progress:
            before = late_so_far(spark, job)
            query = start(spark, job, progress.on_summary, follow=follow)
            _wait(query, progress, job, follow=follow)
    except (JobError, JavaNotFoundError) as error:
        return _fail(str(error))
    except (ConnectionError, Py4JNetworkError):
        return _fail(f"Spark's Java process is gone: killed, or out of memory (its log: {log}); {_AGAIN}")
    except OSError as error:
        return _fail(_trouble(str(error), job) or f"{error.filename or job.out}: {error.strerror or error}")
    except (PySparkException, Py4JError) as error:
        reason = cause(error)
        return _fail(_trouble(reason, job) or f"Spark failed: {reason} (its log: {log}); {_AGAIN}")
    print(progress.last_words(job.out))  # noqa: T201 - a command's answer
    if words := late_words(before, progress.late, job):
        _say(words)
    return 0


def _wait(query: StreamingQuery, progress: Progress, job: Job, *, follow: bool) -> None:
    """Wait until the stream or a signal ends the run; the next run repeats a batch that was under way.

    Raises:
        JobError: If a signal ends a run without `follow`.
    """
    is_stopping = False

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what `signal` calls
        nonlocal is_stopping
        is_stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not query.awaitTermination(_LOOK_EVERY_S):
            progress.on_look(query.lastProgress)
            if follow:
                job.look()
            if is_stopping:
                query.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if is_stopping and not follow:
        raise JobError(f"ended by a signal before all was read; {_AGAIN}")


@contextlib.contextmanager
def _alone(job: Job) -> Iterator[None]:
    """Two runs at once on one folder would write over each other."""
    work = on_this_machine(job.work)
    if work is None:
        yield
        return
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JobError(
                f"--out {job.out}: another run is at work on it; wait for it, or give another folder"
            ) from error
        yield


def _check_folders(job: Job) -> None:
    named = {"--access-log": job.source.folder, "--out": job.out}
    for option, path in named.items():
        # Spark's readers take these for patterns, even where they come from a listing.
        if special := set("*?[]{}\\") & set(path):
            raise JobError(f"{option} {path}: Spark reads {' '.join(sorted(special))} as a pattern; rename the folder")
    folder = on_this_machine(job.source.folder)
    if job.source.folder and folder and not folder.is_dir():
        raise JobError(f"--access-log {job.source.folder}: no such folder; give the folder that the proxy writes")
    if job.source.folder and is_within(job.out, job.source.folder):
        raise JobError(f"--out {job.out}: lies in --access-log {job.source.folder}, {NOT_WITHIN}")


def _tell_passed_over(job: Job) -> None:
    folder = on_this_machine(job.source.folder)
    if job.source.folder and folder and (words := look_into(folder).words()):
        _say(f"--access-log {job.source.folder}: passed over: {words}")


def _log_file(job: Job) -> Path:
    work = on_this_machine(job.work)
    if work is None:
        return Path(tempfile.mkdtemp(prefix="sluice-compliance-")) / "spark.log"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"--out {job.out}: cannot be written: {error.strerror}") from error
    return work / "spark.log"


def _trouble(text: str, job: Job) -> str | None:
    if job.source.folder:
        text = text.replace(job.shown, job.source.folder)
    trouble = disk_trouble(text, {"--access-log": job.source.folder, "--out": job.out})
    return trouble and f"{trouble}, then {_AGAIN}"


def _fail(message: str) -> int:
    _say(message)
    return 1


def _say(message: str) -> None:
    print(f"sluice compliance run: {message}", file=sys.stderr)  # noqa: T201 - a command's answer
