"""The account of what has been read: of each file and day the numbers of lines, runs, and the sequence numbers there.

A file's facts are written after its rows, so what has facts has been read. They add up: those of a day, or of all, are
the sum of those of its files, in any order. Lines are never kept here, only ranges of their numbers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import reduce
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compliance.judging import facts
from compliance.judging.facts import RunEnd
from compliance.schema import BEGIN_OF_1970, BOOT, TIME

Longs = npt.NDArray[np.int64]
Ranges = list[tuple[int, int]]
"""First and last number of each range, both inclusive; ascending, with gaps between."""
RunId = tuple[str, str]
"""A proxy, and which of its runs."""


class RunSpan(msgspec.Struct, frozen=True, array_like=True):
    """The facts of one run in some lines. Times are microseconds since 1970.

    Args:
        first: The earliest begin of a line.
        last: The latest end.
        complete_up_to: The time up to which its heartbeats say that all lines are there; None: there is none.
        has_ended: Whether the run came to an orderly end.
        dropped_lines: Lines that the run reports as lost.
        read: Lines, copies included.
        ranges: The sequence numbers that are there.
    """

    first: int
    last: int
    complete_up_to: int | None
    has_ended: bool
    dropped_lines: int
    read: int
    ranges: Ranges

    def __add__(self, other: "RunSpan") -> "RunSpan":
        """Join the facts of other lines of the run."""
        complete = [span.complete_up_to for span in (self, other) if span.complete_up_to is not None]
        return RunSpan(
            first=min(self.first, other.first),
            last=max(self.last, other.last),
            complete_up_to=max(complete, default=None),
            has_ended=self.has_ended or other.has_ended,
            dropped_lines=max(self.dropped_lines, other.dropped_lines),
            read=self.read + other.read,
            ranges=union(self.ranges, other.ranges),
        )

    @property
    def there(self) -> int:
        """The number of sequence numbers that are there."""
        return sum(last - first + 1 for first, last in self.ranges)

    @property
    def without_copies(self) -> "RunSpan":
        """The facts of the same lines, once each."""
        return msgspec.structs.replace(self, read=self.there)

    @property
    def missing(self) -> int:
        """The number of sequence numbers below the largest that are not there."""
        return self.ranges[-1][1] + 1 - self.there

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the number before each gap (-1: none is), and how many are missing."""
        for (_, before), (after, _) in pairwise([(0, -1), *self.ranges]):
            if after - before > 1:
                yield before, after - before - 1


Runs = dict[RunId, RunSpan]


class DayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of some lines of one day.

    Args:
        rows: Lines that are records, copies included.
        malformed: Lines that are none.
        losses: Records in which a proxy reports that it has lost others, or may have.
        lost: Lines that the proxy reports as lost, where it knows their number.
        newer: Fields that this version does not know, with their number.
        runs: The runs of the records.
        hours: Hours since 1970 in which a record begins.
    """

    rows: int = 0
    malformed: int = 0
    losses: int = 0
    lost: int = 0
    newer: dict[str, int] = {}
    runs: list[tuple[str, str, RunSpan]] = []
    hours: list[int] = []

    def __add__(self, other: "DayFacts") -> "DayFacts":
        """Join the facts of other lines."""
        return DayFacts(
            rows=self.rows + other.rows,
            malformed=self.malformed + other.malformed,
            losses=self.losses + other.losses,
            lost=self.lost + other.lost,
            newer={name: self.newer.get(name, 0) + other.newer.get(name, 0) for name in {**self.newer, **other.newer}},
            runs=[(*run, span) for run, span in joined([self.by_run(), other.by_run()]).items()],
            hours=sorted({*self.hours, *other.hours}),
        )

    def by_run(self) -> Runs:
        """Return the facts of each run."""
        return {(proxy, boot): span for proxy, boot, span in self.runs}


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one file of the log.

    Args:
        name: The name of its Parquet files, without their ending.
        file: The name that its rows have for it.
        days: By day, as in `2026-11-21`.
    """

    name: str
    file: str
    days: dict[str, DayFacts]


def joined(many: Iterable[Runs]) -> Runs:
    """Join the facts of runs from several files or days."""
    together: defaultdict[RunId, list[RunSpan]] = defaultdict(list)
    for runs in many:
        for run, span in runs.items():
            together[run].append(span)
    return {run: _joined(parts) for run, parts in together.items()}


def _joined(parts: list[RunSpan]) -> RunSpan:
    """The sum in halves: ranges of many files are merged a few times, and not each time a file comes."""
    if len(parts) < 3:
        return reduce(RunSpan.__add__, parts)
    middle = len(parts) // 2
    return _joined(parts[:middle]) + _joined(parts[middle:])


def total(many: Iterable[DayFacts]) -> DayFacts:
    """Join the facts of many files or days."""
    parts = list(many)
    while len(parts) > 1:
        parts = [reduce(DayFacts.__add__, parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return parts[0] if parts else DayFacts()


def facts_of(rows: pa.Table) -> dict[str, DayFacts]:
    """Return the facts of records, by day.

    Args:
        rows: With the columns of `line_reader.ROWS`.
    """
    if not rows:
        return {}
    days = rows["start"].cast(pa.date32())
    bounds = pc.min_max(days).as_py()
    if bounds["min"] == bounds["max"]:
        return {bounds["min"].isoformat(): _of_day(rows)}
    return {
        day.isoformat(): _of_day(rows.filter(pc.equal(days, pa.scalar(day, pa.date32()))))
        for day in pc.unique(days).to_pylist()
    }


def _of_day(rows: pa.Table) -> DayFacts:
    is_loss = pc.equal(rows["kind"], "loss")
    lost = rows["lost_lines"].filter(is_loss)
    hours = np.unique(np.floor_divide(rows["start"].cast(pa.int64()).to_numpy(), 3_600_000_000))
    return DayFacts(
        rows=rows.num_rows,
        losses=len(lost),
        lost=pc.sum(lost).as_py() or 0,
        runs=[(*run, span) for run, span in sorted(_runs_of(rows).items())],
        hours=hours.tolist(),
    )


def _runs_of(rows: pa.Table) -> Runs:
    is_beat = pc.equal(rows["kind"], "heartbeat")
    columns = {
        **{name: rows[name] for name in BOOT},
        "seq": rows["seq"],
        "first": rows["start"].cast(pa.int64()),
        "last": rows["end"].cast(pa.int64()),
        "complete_up_to": pc.if_else(is_beat, pc.coalesce(rows["complete_until"], rows["end"]).cast(pa.int64()), None),
        "has_ended": pc.if_else(is_beat, rows["last"], False),
        "dropped_lines": pc.if_else(is_beat, rows["dropped_lines"], 0),
    }
    largest = [(name, "max") for name in ("last", "complete_up_to", "has_ended", "dropped_lines")]
    sums = [("first", "min"), *largest, ("proxy_id", "count"), ("seq", "list")]
    grouped = pa.table(columns).group_by(list(BOOT), use_threads=False).aggregate(sums)
    values = [grouped["_".join(column)].to_pylist() for column in sums[:-1]]
    numbers = grouped["seq_list"].combine_chunks()
    keys = (grouped[name].to_pylist() for name in BOOT)
    return {
        (proxy, boot): RunSpan(*(*span, ranges_of(numbers[place].values.to_numpy())))
        for place, (proxy, boot, *span) in enumerate(zip(*keys, *values, strict=True))
    }


def ranges_of(numbers: Longs) -> Ranges:
    """Return the ranges that numbers make up."""
    distinct = np.unique(numbers)
    # The difference to the one before, as the largest number has no successor.
    begins = np.flatnonzero(np.diff(distinct, prepend=distinct[:1] - 2) > 1)
    ends = np.append(begins[1:] - 1, len(distinct) - 1)[: len(begins)]
    return list(zip(distinct[begins].tolist(), distinct[ends].tolist(), strict=True))


def union(*many: Ranges) -> Ranges:
    """Join ranges; those that overlap or touch become one."""
    together: Ranges = []
    for first, last in sorted(range_ for ranges in many for range_ in ranges):
        if together and first - 1 <= together[-1][1]:
            together[-1] = together[-1][0], max(last, together[-1][1])
        else:
            together.append((first, last))
    return together


def with_copies(files: Mapping[str, Iterable[DayFacts]]) -> set[str]:
    """Return the files that hold lines whose number another of them has, or that have a number twice.

    Args:
        files: Facts by the files' names.
    """
    doubled: set[str] = set()
    ranges: defaultdict[RunId, list[tuple[int, int, str]]] = defaultdict(list)
    for name, days in files.items():
        # A number that is on two days is as much a copy as one that is twice on one.
        runs = joined(day.by_run() for day in days)
        if any(run.read != run.there for run in runs.values()):
            doubled.add(name)
        for key, run in runs.items():
            ranges[key] += [(first, last, name) for first, last in run.ranges]
    for of_run in ranges.values():
        reached, holder = -1, ""
        for first, last, name in sorted(of_run):
            if first <= reached:
                doubled |= {name, holder}
            if last > reached:
                reached, holder = last, name
    return doubled


RUNS = pa.schema(
    dict.fromkeys(BOOT, pa.string())
    | dict.fromkeys(("first", "last", "complete_up_to"), TIME)
    | {"has_ended": pa.bool_(), "dropped_lines": pa.int64(), "read": pa.int64()}
    | dict.fromkeys(("there", "missing"), pa.int64())
)
GAPS = pa.schema(dict.fromkeys(BOOT, pa.string()) | dict.fromkeys(("after_seq", "missing"), pa.int64()))


def run_table(runs: Runs, missing: Mapping[RunId, int]) -> pa.Table:
    """Return a row for each run, with its numbers of lines and of lines that are missing."""
    rows = [(*run, *msgspec.structs.astuple(span)[:-1], span.there, missing[run]) for run, span in sorted(runs.items())]
    return _table(rows, RUNS)


def gap_table(runs: Runs, first_kept: Mapping[RunId, int] = MappingProxyType({})) -> pa.Table:
    """Return a row for each gap in the numbers of a run.

    Args:
        runs: The facts of each run.
        first_kept: Per run, its first number that is kept: gaps that end before it are left out.
    """
    return _table(
        [
            (*run, before, missing)
            for run, span in sorted(runs.items())
            for before, missing in span.gaps()
            if before + missing + 1 >= first_kept.get(run, 0)
        ],
        GAPS,
    )


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


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
    lines: int
    rows: int
    malformed: int
    duplicates: int
    missing: int
    """Lines below the last of their run that are not there, whatever the reason."""
    losses: int
    """The number of reports of proxies that lines are lost, or may be."""
    lost: int
    """Lines that they say to have lost, where they know how many: those that are missing are most often these."""
    days: list[str]
    """Days that have rows or malformed lines."""
    gaps: list[GapSummary]
    runs: list[RunSummary]


def summary(days: Mapping[str, DayFacts], now: datetime) -> Summary:
    """Return the summary of days.

    Args:
        days: The facts of each day.
        now: By the clock of this machine.
    """
    whole = total(days.values())
    runs = whole.by_run()
    distinct = sum(run.there for run in runs.values())
    latest = sorted(runs.items(), key=lambda item: (-item[1].last, item[0]))[:MOST_RUNS]
    return Summary(
        complete_up_to=_or_none(complete_up_to(runs, now)),
        lines=whole.rows + whole.malformed,
        rows=distinct,
        malformed=whole.malformed,
        duplicates=whole.rows - distinct,
        missing=sum(run.missing for run in runs.values()),
        losses=whole.losses,
        lost=whole.lost,
        days=sorted(days),
        gaps=[GapSummary(**row) for row in gap_table(runs).slice(0, MOST_GAPS).to_pylist()],
        runs=[
            RunSummary(
                **dict(zip(BOOT, run, strict=True)),
                first=rfc3339(span.first),
                last=rfc3339(span.last),
                complete_up_to=_or_none(span.complete_up_to),
                has_ended=span.has_ended,
                dropped_lines=span.dropped_lines,
                read=span.read,
            )
            for run, span in latest
        ],
    )


def complete_up_to(runs: Runs, now: datetime) -> int | None:
    """Return the time up to which the log is complete (`facts.complete_up_to`), microseconds since 1970."""
    ends = (RunEnd(*run, span.last, span.complete_up_to, span.has_ended) for run, span in runs.items())
    return facts.complete_up_to(ends, (now + facts.AHEAD - BEGIN_OF_1970) // timedelta(microseconds=1))


ABANDONED = timedelta(days=2)
"""The age at which a day is over though a run has not come past it: its proxy is gone."""


def first_day_of_now(runs: Runs, now: datetime, margin: timedelta = timedelta()) -> str:
    """Return the first day, as in `2026-11-21`, of which further lines are to be expected.

    Args:
        runs: The facts of all runs: earlier days are over when all runs are past them, or long ago.
        now: By the clock of this machine.
        margin: The time by which runs have to be past a day.
    """
    abandoned = (now - ABANDONED).date().isoformat()
    reached = complete_up_to(runs, now)
    if reached is None:
        return abandoned
    return max(abandoned, rfc3339(max(0, reached - margin // timedelta(microseconds=1)))[: len(abandoned)])


def rfc3339(micros: int) -> str:
    """Microseconds since 1970 as text that any JSON reader takes for a UTC time."""
    return (BEGIN_OF_1970 + timedelta(microseconds=micros)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _or_none(micros: int | None) -> str | None:
    return None if micros is None else rfc3339(micros)
