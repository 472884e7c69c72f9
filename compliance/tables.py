"""The tables that a report is made from: those of the report's own job on an access log, or those of another job."""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from compliance import storage
from compliance.excerpt import DAY_US, MARGIN_US, number_of
from compliance.judging.quality import run_of
from compliance.log_lines import KeptLines
from compliance.stream.folder import Ledger, kept_facts, load, sink_of
from compliance.stream.ledger import RunId, first_day_of_now, gap_table, run_table, total
from compliance.stream.log_file import JobPlaces
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import JobRun, alone
from compliance.stream.tables import PASSED_OVER, SplitRows, files_without_copies, malformed_of

FEW_FILES = 64
"""A report reads a day of fewer files as they are: compacting them takes longer."""


@dataclass(frozen=True)
class LogTables:
    """The tables that a job has kept of an access log.

    Args:
        rows: Each line once.
        runs: As `ledger.run_table`.
        gaps: Numbers that are missing, as `ledger.gap_table`.
        quarantine: Malformed lines: `file`, `line`, `text`, `reason`.
        copies: Lines whose number another line in `rows` has; they are in no other table.
        lines: How many rows there are.
        malformed: How many malformed lines there are.
        duplicates: How many copies of lines were read.
        newer: How often which fields were seen that this version does not know.
        passed_over: Files of the log's folder that were not read, and what helps; empty for none.
        unread: How many passed-over files may hold lines of the log.
        days: The days of `rows`, as in `2026-11-21`, ascending.
        retired: The days whose rows are deleted, ascending.
        begun: Runs that have lines on such days.
    """

    rows: KeptLines
    runs: pa.Table
    gaps: pa.Table
    quarantine: DataFrame
    copies: DataFrame
    lines: int
    malformed: int
    duplicates: int
    newer: Mapping[str, int]
    passed_over: str = ""
    unread: int = 0
    days: Mapping[str, "DayOfLog"] = field(default_factory=dict)
    retired: Sequence[str] = ()
    begun: Collection[RunId] = frozenset()

    @cached_property
    def retired_before(self) -> Mapping[str, str]:
        """For each day that follows on one whose rows are deleted, that one."""
        places = ((day, bisect_left(self.retired, day) - 1) for day in self.days)
        before = {day: self.retired[place] for day, place in places if place >= 0}
        return {day: before[day] for earlier, day in pairwise(["", *self.days]) if before.get(day, "") > earlier}


class DayOfLog(NamedTuple):
    """The facts of one day's lines that are known without reading them.

    Args:
        content: A digest of what was read of it: other lines have another one, in the same files or not.
        edge: Another one, of its first minute.
        numbers: The first and the last number of each run.
        is_over: Whether no more lines of it, and of the hour after it, are to be expected.
        is_settled: Whether, besides, no line of it is there twice, and so its rows stay as they are.
    """

    content: str
    edge: str
    numbers: Mapping[RunId, tuple[int, int]]
    is_over: bool
    is_settled: bool


def read_log(spark: SparkSession, access_log: Path, work: Path, on_progress: Callable[[int], None]) -> LogTables:
    """Reads every closed file of a folder that no earlier run has read; gives all that was ever read.

    Args:
        spark: The session.
        access_log: The folder.
        work: Folder of the state between runs; for this log only.
        on_progress: Called now and then with the number of lines read.
    """
    # Usage is for those who look at tables themselves.
    job = Job(
        Source("files", str(access_log.resolve())), Sink(), str(work.resolve()), with_usage=False, least_files=FEW_FILES
    )
    with alone(job):
        JobRun(spark, job, lambda summary: on_progress(summary.lines)).once()
    return read_tables(spark, job.out)


def read_tables(spark: SparkSession, out: str) -> LogTables:
    """Read the tables of a job, with the files that have been read as a whole.

    Args:
        spark: The session.
        out: The job's `--out`.

    Raises:
        JobError: If `out` is no job's or of another version.
    """
    sink_of(out)
    places = JobPlaces(out)
    ledger = load(places)
    both = SplitRows.of(spark, places, ledger)
    every, kept = kept_facts(ledger)
    runs, whole_runs = kept.by_run(), every.by_run()
    # Gaps among lines that are no longer kept do not count.
    gaps = gap_table({run: whole_runs[run] for run in runs}, {run: span.ranges[0][0] for run, span in runs.items()})
    missing: Counter[RunId] = Counter()
    for gap in gaps.to_pylist():
        missing[run_of(gap)] += gap["missing"]
    return LogTables(
        rows=KeptLines(both.rows, files_without_copies(places, ledger), both.doubled),
        runs=run_table(runs, missing),
        gaps=gaps,
        quarantine=malformed_of(spark, places, ledger).drop("day"),
        copies=both.copies,
        lines=sum(span.there for span in runs.values()),
        malformed=every.malformed,
        duplicates=sum(span.read - span.there for span in runs.values()),
        newer=dict(sorted(every.newer.items(), key=lambda field: -field[1])[:MOST_NEWER]),
        days=days_of(ledger, datetime.now(UTC)),
        retired=sorted(day for day, manifest in ledger.days.items() if not manifest.is_kept),
        begun={run for run, span in runs.items() if whole_runs[run].ranges[0] < span.ranges[0]},
        **_passed_over(places),
    )


def days_of(ledger: Ledger, now: datetime) -> dict[str, DayOfLog]:
    """Describe the days that have rows.

    Args:
        ledger: What has been read.
        now: By the clock of this machine.
    """
    open_from = first_day_of_now(total(ledger.totals.values()).by_run(), now, SETTLED)
    doubled = ledger.doubled()
    days = {}
    for day, facts in sorted(ledger.totals.items()):
        manifest = ledger.days.get(day)
        if not facts.rows or (manifest and not manifest.is_kept):
            continue
        live = ledger.live(day)
        parts = {*live, *(manifest.files.get("rows", ()) if manifest else ())}
        runs = sorted(facts.runs)
        begin_us = number_of(day) * DAY_US
        edge = [(*run, span.first, list(span.gaps())) for *run, span in runs if span.first < begin_us + MARGIN_US]
        days[day] = DayOfLog(
            content=digest_of(
                [sorted({*(manifest.names if manifest else ()), *live}), facts.rows, facts.malformed, runs]
            ),
            edge=digest_of(edge),
            numbers={(proxy, boot): (span.ranges[0][0], span.ranges[-1][1]) for proxy, boot, span in runs},
            is_over=day < open_from,
            is_settled=day < open_from and not parts & doubled,
        )
    return days


SETTLED = timedelta(hours=1)
"""The time after a day for which its lines are waited for."""
SETTLED_US = SETTLED // timedelta(microseconds=1)


def digest_of(values: list[Any]) -> str:
    """Return a digest of values; the order of mappings does not count."""
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()


MOST_NEWER = 100
"""The number of unknown fields that are named."""


def _passed_over(places: JobPlaces) -> dict[str, Any]:
    place = f"{places.work}/{PASSED_OVER}"
    content = msgspec.json.decode(storage.read(place)) if storage.exists(place) else {"words": "", "unread": 0}
    return {"passed_over": content["words"], "unread": content["unread"]}
