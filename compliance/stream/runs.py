"""Runs of proxies in the log: the sequence numbers seen, and the time up to which each run is complete.

The module also prints summaries of batches, progress, and lines that came too late for their windows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from rich.console import Console

from compliance.judging import facts
from compliance.judging.facts import RunEnd
from compliance.schema import BEGIN_OF_1970, BOOT, TIME
from compliance.stream.options import Job
from compliance.stream.storage import State, TableTotals

Longs = npt.NDArray[np.int64]
RunId = tuple[str, str]
"""A proxy, and which of its runs."""
SEEN_SCHEMA = pa.schema(
    dict.fromkeys(BOOT, pa.string()) | dict.fromkeys(("from_seq", "to_seq"), pa.int64()),
)
GAPS = pa.schema(dict.fromkeys(BOOT, pa.string()) | dict.fromkeys(("after_seq", "missing"), pa.int64()))
_NONE: Longs = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class Gap:
    """Consecutive numbers that are missing.

    Args:
        run: The run.
        after_seq: The last number before the gap; -1 if there is none.
        missing: How many numbers are missing.
    """

    run: RunId
    after_seq: int
    missing: int


class Seen:
    """The sequence numbers that have been seen, by run.

    Args:
        ranges: For each run, first and last number of each range (both inclusive); ascending, with gaps between.
    """

    def __init__(self, ranges: Mapping[RunId, Longs] | None = None) -> None:
        self.ranges = dict(ranges or {})

    def added(self, run: RunId, numbers: Longs) -> npt.NDArray[np.bool_]:
        """Adds numbers; returns which were new. Of several copies the first is new."""
        before = self.ranges.get(run, _NONE)
        is_new = np.zeros(len(numbers), np.bool_)
        distinct, first = np.unique(numbers, return_index=True)
        is_new[first] = ~_within(before, distinct)
        self.ranges[run] = _union(before, _ranges_of(distinct))
        return is_new

    def union(self, *others: "Seen") -> "Seen":
        """Join the numbers that this or any other has seen."""
        together: dict[RunId, list[Longs]] = {}
        for seen in (self, *others):
            for run, ranges in seen.ranges.items():
                together.setdefault(run, []).append(ranges)
        return Seen({run: _union(*parts) for run, parts in together.items()})

    def there(self, run: RunId | None = None) -> int:
        """Return the number of sequence numbers that are there, of a run or in all."""
        return sum(self._there(key) for key in self._runs(run))

    def missing(self, run: RunId | None = None) -> int:
        """Return the number of sequence numbers missing below the largest of each run."""
        return sum(int(self.ranges[key][-1, 1]) + 1 - self._there(key) for key in self._runs(run))

    def gaps(self) -> Iterator[Gap]:
        """Yield the gaps, run by run, in order."""
        for run in sorted(self.ranges):
            after = -1
            for first, last in self.ranges[run].tolist():
                if first - after > 1:
                    yield Gap(run, after, first - after - 1)
                after = last

    def table(self) -> pa.Table:
        """Return the table in which the numbers are kept."""
        ranges = [self.ranges[run] for run in sorted(self.ranges)]
        runs = [run for run in sorted(self.ranges) for _ in self.ranges[run]]
        both = np.concatenate([_NONE, *ranges])
        columns = [*([run[at] for run in runs] for at in range(2)), both[:, 0], both[:, 1]]
        return pa.table(columns, schema=SEEN_SCHEMA)

    @staticmethod
    def of(kept: pa.Table) -> "Seen":
        """Return the numbers of a table that `table` gave."""
        together: dict[RunId, list[tuple[int, int]]] = {}
        for proxy, boot, first, last in zip(*(kept[name].to_pylist() for name in SEEN_SCHEMA.names), strict=True):
            together.setdefault((proxy, boot), []).append((first, last))
        return Seen({run: np.array(ranges, np.int64) for run, ranges in together.items()})

    def _runs(self, run: RunId | None) -> list[RunId]:
        return [key for key in (self.ranges if run is None else [run]) if len(self.ranges.get(key, _NONE))]

    def _there(self, run: RunId) -> int:
        return sum(last - first + 1 for first, last in self.ranges[run].tolist())


def gap_table(seen: Seen) -> pa.Table:
    """Return the table of all gaps, as it is stored."""
    return table_of_rows([(*gap.run, gap.after_seq, gap.missing) for gap in seen.gaps()], GAPS)


def table_of_rows(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Rows as a table, be there any or none."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _ranges_of(distinct: Longs) -> Longs:
    """Return the ranges, first and last number, that ascending distinct numbers make up."""
    begins = np.flatnonzero(np.diff(distinct, prepend=distinct[:1] - 2) > 1)
    ends = np.append(begins[1:] - 1, len(distinct) - 1)[: len(begins)]
    return np.stack([distinct[begins], distinct[ends]], axis=1)


def _within(ranges: Longs, numbers: Longs) -> npt.NDArray[np.bool_]:
    if not len(ranges):
        return np.zeros(len(numbers), np.bool_)
    at = np.searchsorted(ranges[:, 0], numbers, side="right") - 1
    is_within: npt.NDArray[np.bool_] = (at >= 0) & (numbers <= ranges[np.maximum(at, 0), 1])
    return is_within


def _union(*many: Longs) -> Longs:
    """Ranges that overlap or touch become one."""
    ranges = np.concatenate(many)
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    highest = np.maximum.accumulate(ranges[:, 1])
    # The begin less one, not the end and one: the largest number has no successor.
    begins = np.flatnonzero(np.concatenate([[True], ranges[1:, 0] - 1 > highest[:-1]])[: len(ranges)])
    ends = np.append(begins[1:] - 1, len(ranges) - 1)[: len(begins)]
    return np.stack([ranges[begins, 0], highest[ends]], axis=1)


RUNS_SCHEMA = pa.schema(
    dict.fromkeys(BOOT, pa.string())
    | dict.fromkeys(("first", "last", "complete_up_to"), TIME)
    | {"has_ended": pa.bool_(), "dropped_lines": pa.int64(), "read": pa.int64()}
    | dict.fromkeys(("there", "missing"), pa.int64())
)
FIELDS = ("start", "end", "kind", "last", "dropped_lines", *BOOT)
"""The fields of a line that are needed."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The facts of one run, from its lines.

    Args:
        first: Its first moment, microseconds since 1970.
        last: Its last.
        complete_up_to: The end of its last heartbeat; None: there is none.
        has_ended: Whether the run came to an orderly end.
        dropped_lines: Lines that the run reports as lost.
        read: Lines of the run, copies included.
    """

    first: int
    last: int
    complete_up_to: int | None
    has_ended: bool
    dropped_lines: int
    read: int


RunSpans = dict[RunId, Span]


def spans_of(lines: pa.Table) -> RunSpans:
    """Compute the spans of lines that have `FIELDS`."""
    is_beat = pc.equal(lines["kind"], "heartbeat")
    columns = {
        **{name: lines[name] for name in BOOT},
        "first": lines["start"].cast(pa.int64()),
        "last": lines["end"].cast(pa.int64()),
        "complete_up_to": pc.if_else(is_beat, lines["end"].cast(pa.int64()), None),
        "has_ended": pc.if_else(is_beat, lines["last"], False),
        "dropped_lines": pc.if_else(is_beat, lines["dropped_lines"], 0),
    }
    largest = [(name, "max") for name in ("last", "complete_up_to", "has_ended", "dropped_lines")]
    sums = [("first", "min"), *largest, ("proxy_id", "count")]
    grouped = pa.table(columns).group_by(list(BOOT), use_threads=False).aggregate(sums)
    values = (grouped["_".join(column)].to_pylist() for column in sums)
    keys = (grouped[name].to_pylist() for name in BOOT)
    return {(proxy, boot): Span(*span) for proxy, boot, *span in zip(*keys, *values, strict=True)}


def merged(many: Iterable[RunSpans]) -> RunSpans:
    """Merge the spans of runs from several parts or batches."""
    together: RunSpans = {}
    for spans in many:
        for run, span in spans.items():
            together[run] = _both(together[run], span) if run in together else span
    return together


def _both(one: Span, other: Span) -> Span:
    complete = [span.complete_up_to for span in (one, other) if span.complete_up_to is not None]
    return Span(
        min(one.first, other.first),
        max(one.last, other.last),
        max(complete, default=None),
        one.has_ended or other.has_ended,
        max(one.dropped_lines, other.dropped_lines),
        one.read + other.read,
    )


def complete_up_to(runs: RunSpans, now: datetime) -> int | None:
    """Return the time up to which the log is complete (`facts.complete_up_to`), microseconds since 1970."""
    ends = (RunEnd(*run, span.last, span.complete_up_to, span.has_ended) for run, span in runs.items())
    return facts.complete_up_to(ends, (now + facts.AHEAD - BEGIN_OF_1970) // timedelta(microseconds=1))


def rfc3339(micros: int) -> str:
    """Microseconds since 1970 as text that any JSON reader takes for a UTC time."""
    return (BEGIN_OF_1970 + timedelta(microseconds=micros)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def table(runs: RunSpans, seen: Seen) -> pa.Table:
    """Return the table in which runs are kept, with their numbers of lines and of lines that are missing."""
    rows = [(*run, *msgspec.structs.astuple(runs[run]), seen.there(run), seen.missing(run)) for run in sorted(runs)]
    return table_of_rows(rows, RUNS_SCHEMA)


def of(kept: pa.Table) -> RunSpans:
    """Return the runs of a table that `table` gave."""
    micros = [column.cast(pa.int64()) if column.type == TIME else column for column in kept.columns]
    rows = zip(*(column.to_pylist() for column in micros), strict=True)
    return {(proxy, boot): Span(*span) for proxy, boot, *span, _, _ in rows}


MOST_RUNS = 1000
MOST_GAPS = 100


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of one run of one proxy."""

    proxy_id: str
    boot_id: str
    first: str
    last: str
    complete_up_to: str | None
    has_ended: bool
    dropped_lines: int
    read: int
    """Lines, copies included."""


class GapSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive lines that are missing."""

    proxy_id: str
    boot_id: str
    after_seq: int
    missing: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of everything so far."""

    complete_up_to: str | None
    """Every proxy's lines are there up to this moment, except missing ones; null: unknown."""
    watermark: str
    """Windows that end by then are closed."""
    lines: int
    rows: int
    malformed: int
    duplicates: int
    late: dict[str, int]
    """Lines too late for their window, by its width in seconds. They are in `rows`."""
    missing: int
    """Lines below the last of their run that are not there, whatever the reason."""
    losses: int
    """The number of reports of proxies that lines are lost, or may be."""
    lost: int
    """Lines that they say to have lost, where they know how many: those that are missing are most often these."""
    gaps: list[GapSummary]
    runs: list[RunSummary]


def summary(totals: TableTotals, spans: RunSpans, seen: Seen, now: datetime) -> Summary:
    """Return the summary after a batch.

    Args:
        totals: The batch's.
        spans: Of all runs so far.
        seen: Numbers so far.
        now: By the clock of this machine.
    """
    latest = sorted(spans.items(), key=lambda run: (-run[1].last, run[0]))[:MOST_RUNS]
    return Summary(
        complete_up_to=_or_none(complete_up_to(spans, now)),
        watermark=datetime.fromtimestamp(totals.watermark_s, UTC).isoformat(),
        lines=totals.lines,
        rows=totals.rows,
        malformed=totals.malformed,
        duplicates=totals.duplicates,
        late=totals.late,
        missing=totals.missing,
        losses=totals.losses,
        lost=totals.lost,
        gaps=[
            GapSummary(**_whose(gap.run), after_seq=gap.after_seq, missing=gap.missing)
            for gap in islice(seen.gaps(), MOST_GAPS)
        ],
        runs=[_run(run, span) for run, span in latest],
    )


def _run(run: RunId, span: Span) -> RunSummary:
    return RunSummary(
        **_whose(run),
        first=rfc3339(span.first),
        last=rfc3339(span.last),
        complete_up_to=_or_none(span.complete_up_to),
        has_ended=span.has_ended,
        dropped_lines=span.dropped_lines,
        read=span.read,
    )


def _whose(run: RunId) -> dict[str, str]:
    return dict(zip(BOOT, run, strict=True))


def _or_none(micros: int | None) -> str | None:
    return None if micros is None else rfc3339(micros)


Late = Mapping[str, int]
"""Lines by the width of their window in seconds."""
_ORDER = (
    "files are read in the order in which they were last modified, so a copy of the log should keep these times "
    "(cp -p, rsync -t); "
)


def late_so_far(spark: SparkSession, job: Job) -> Late:
    """Late lines that earlier runs with this `out` have counted.

    Raises:
        JobError: If another version of the job wrote it.
    """
    state = State(spark, job.work)
    return state.totals(state.newest()).late


def late_words(before: Late, after: Late, job: Job) -> str:
    """Return the note on lines that came too late in a run; empty if none was.

    Args:
        before: Before the run.
        after: After the run.
        job: The run's options.
    """
    new = {int(width): lines - before.get(width, 0) for width, lines in after.items() if lines > before.get(width, 0)}
    if not new:
        return ""
    counted = ", ".join(f"{new[width]:,} for windows of {width} s" for width in sorted(new))
    order = _ORDER if job.source.kind == "files" else ""
    return (
        f"late lines: {counted}: they are in rows, but not in these windows, which later lines had closed; {order}"
        f"a --late-after of more than {job.late_after_s} keeps windows open longer; those that are closed come right "
        "only with another --out, and there with such a --late-after, or a --batch-mib that holds all of the log"
    )


class Progress:
    """A line of progress on a terminal; nothing is written where standard error is none.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._status = console.status("looking for new lines")
        self._summary: Summary | None = None
        self._batches = 0
        self._rate = 0.0

    def __enter__(self) -> Self:
        """Begins to draw."""
        self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stops drawing."""
        self._status.stop()

    def on_summary(self, summary: Summary) -> None:
        """Show the progress after each batch."""
        self._summary = summary
        self._batches += 1
        self._draw()

    def on_look(self, progress: Any) -> None:
        """Show the progress, now and then; `progress` is Spark's own of the last batch, or None."""
        if progress is not None:
            self._rate = progress.processedRowsPerSecond or self._rate
        self._draw()

    @property
    def late(self) -> Late:
        """Late lines by the last batch; nothing without a batch."""
        return self._summary.late if self._summary else {}

    def last_words(self, out: str) -> str:
        """Return the text that is printed at the end."""
        if self._summary is None:
            return f"nothing new; {out}/summary.json says what there is"
        return f"{_words(self._summary)}\n{out}/summary.json"

    def _draw(self) -> None:
        if self._summary is not None:
            self._status.update(f"{_words(self._summary)}; {self._rate:,.0f} lines/s, batch {self._batches}")


def _words(summary: Summary) -> str:
    late = max(summary.late.values(), default=0)
    counted = {"malformed": summary.malformed, "twice": summary.duplicates, "missing": summary.missing}
    counted |= {"declared lost": summary.lost, "late": late}
    troubles = "".join(f", {number:,} {word}" for word, number in counted.items() if number)
    return f"{summary.lines:,} lines{troubles}; complete up to {summary.complete_up_to or 'no heartbeat yet'}"
