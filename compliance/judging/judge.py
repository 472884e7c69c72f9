"""The judging of all limiters on Spark: `account.py` replays each limiter's lines and its streams' lines.

Lines of one limiter come in the order of their begins. So memory holds one limiter's balances at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.figures.rates import scoped
from compliance.judging.account import judged
from compliance.judging.facts import (
    ContainmentFacts,
    Doubt,
    DoubtFacts,
    EntitlementFacts,
    Judged,
    KeptFacts,
    LimiterFacts,
    Owed,
    Spelling,
    Spells,
    Window,
)
from compliance.judging.lines import BUCKETS, Line, RunNotes, StreamsLine
from compliance.schema import BEGIN_OF_1970, LIMITER

Notes = Mapping[tuple[str, str], RunNotes]
"""Notes of runs; a run that is not in it has none."""
_UNITS = BUCKETS[:2]
_LINE = (
    "source",
    "mode",
    *(f"limit_{unit}" for unit in _UNITS),
    *(f"burst_{unit}" for unit in _UNITS),
    *(f"peak_{unit}" for unit in _UNITS),
    *(f"peak_burst_{unit}" for unit in _UNITS),
    *(f"published_{unit}" for unit in _UNITS),
    *(f"share_{unit}" for unit in _UNITS),
    *(f"passed_{unit}" for unit in _UNITS),
    *(f"largest_entry_{unit}" for unit in _UNITS),
    "throttled_ms",
    "idle_ms",
    "reserved_ms",
    "rejected_messages",
    *(f"tokens_{bucket}" for bucket in BUCKETS),
    *(f"overflow_{bucket}" for bucket in BUCKETS),
    *(f"began_{bucket}" for bucket in BUCKETS),
)
_HEAD = ("tenant", "namespace", "seq", "file", "line", "start_us", "end_us", "wall_start", "wall_end", "duration_ms")
_OUT = "tenant string, score double, waits double, facts binary, minute long, " + ", ".join(
    f"{name} double" for name in ("judged_s", "over_s", "waited_s", "short_s")
)


class JudgedLimiter(msgspec.Struct):
    """The result for one limiter of one run, without its minutes."""

    windows: list[Window]
    owed: Owed | None
    doubts: list[Doubt]
    kept: tuple[int, float, float]
    """Lines, seconds judged, seconds waited."""
    over: Spells | None
    short: Spells | None
    alone: LimiterFacts | None
    """The facts of a limit that only streams name; None for others."""


def with_waits(lines: DataFrame) -> DataFrame:
    """Bound each line's wait by its length: a longer one would owe more than was due."""
    return lines.withColumn("throttled_ms", F.least("throttled_ms", "duration_ms"))


def judged_limiters(limits: DataFrame, intervals: DataFrame, notes: Notes) -> DataFrame:
    """Judge all limiters: a row for each limiter of each run (`facts`), and one for each of its minutes (sums).

    Args:
        limits: All lines of limiters, as `with_waits`, on the axis of `clocks.with_axis`.
        intervals: All lines of streams, on the same axis.
        notes: Notes of the runs.
    """
    of_limits = limits.select(*LIMITER, *_head(), *_LINE)
    both = of_limits.unionByName(stream_sums(intervals), allowMissingColumns=True)
    in_order = both.repartition(*LIMITER).sortWithinPartitions(*LIMITER, "start_us", "seq")
    keys = ", ".join(f"{name} string" for name in LIMITER)
    return in_order.mapInArrow(_worker(dict(notes)), f"{keys}, {_OUT}")


def _head() -> Iterator[Column]:
    for name in _HEAD:
        wall = {"wall_start": "start", "wall_end": "end"}.get(name)
        yield F.unix_micros(wall).alias(name) if wall else F.col(name)


def under_limits(intervals: DataFrame) -> DataFrame:
    """Repeat each line of a stream for each limit that it is under: adds `level`, `name` and `under`."""
    levels = F.when(F.col("limit_levels") == "", F.array()).otherwise(F.split("limit_levels", " "))
    # A line that names a limit is under it, whatever its other fields are.
    named = F.when(F.col("limit_level") == "", F.array()).otherwise(F.array("limit_level"))
    lines = intervals.withColumn("under", F.array_union(levels, named))
    is_exempt = F.coalesce("exempt", F.lit(False)) & F.array_contains("under", F.lit("exempt"))
    return scoped(lines.withColumn("exempt", is_exempt)).where(F.array_contains("under", F.col("level")))


def held_ms(*, whole: bool = False) -> Column:
    """Return the milliseconds for which something of a stream had been held at the end of its line, by `held_since`.

    Args:
        whole: Also count the time before the line.
    """
    until_ms = (F.unix_micros("end") - F.unix_micros("held_since")) / 1e3
    within_ms = until_ms if whole else F.least(until_ms, F.col("duration_ms"))
    # Spark's least of null and a value is the value.
    return F.when(F.col("held_since").isNull(), F.lit(0.0)).otherwise(within_ms)


def stream_sums(intervals: DataFrame) -> DataFrame:
    """Sum up, for each limit and span, the lines of the streams under it.

    Args:
        intervals: All lines of streams, on the axis.
    """
    each = under_limits(intervals)
    # Published messages always count, and one by one.
    is_publish = F.col("direction") == "publish"
    charged = {unit: F.coalesce(f"charged_{unit}", f"passed_{unit}") for unit in _UNITS}
    counted = {unit: F.when(is_publish, F.col(f"passed_{unit}")).otherwise(charged[unit]) for unit in _UNITS}
    # Spark's least of null and a value is the value.
    offered = {
        unit: F.least(
            F.col(f"offered_{unit}") - F.greatest(F.col("offered_entries") - 1, F.lit(0)), f"largest_entry_{unit}"
        )
        for unit in _UNITS
    }
    passed = {unit: count - F.greatest(F.col("passed_entries") - 1, F.lit(0)) for unit, count in counted.items()}
    largest = {
        unit: F.when(counted[unit] > 0, F.greatest(F.least(most, f"largest_entry_{unit}"), F.lit(1)))
        for unit, most in passed.items()
    }
    waited = F.least(F.greatest("throttled_ms", held_ms()), "duration_ms")
    is_named = (F.col("reason") == F.col("level")) & (F.col("reason_name") == F.col("name"))
    names_limit = F.col("limit_level") == F.col("level")
    is_alone = F.size("under") == 1
    is_starving = is_named & (waited >= F.col("duration_ms")) & (is_alone | (F.col("passed_entries") == 0))
    own_name = F.when(F.col("direction") == "publish", F.col("producer_name")).otherwise(F.col("subscription"))
    number = F.format_string("connection %d, stream %d", "connection_id", "stream_id")
    stream_name = F.concat_ws(", ", F.concat_ws(" of ", F.nullif(own_name, F.lit("")), "topic"), number)
    amounts = (F.struct(*(F.col(f"{amount}_{unit}") for unit in _UNITS)).alias(amount) for amount in ("held", "passed"))
    starving = F.when(is_starving, F.struct(stream_name.alias("who"), *amounts, is_alone.alias("is_alone")))
    least_served = F.struct("passed_messages", "passed_bytes", "held_since", "seq")
    first = F.min_by(F.struct("file", "line", "tenant", "namespace"), "seq").alias("first")
    # The limit of bytes may be another level's, unless no limit counts messages.
    is_own = {"messages": names_limit, "bytes": names_limit & F.col("limit_messages").isNull()}
    sums = each.groupBy(*LIMITER, "start_us", "end_us").agg(
        first,
        F.min("seq").alias("seq"),
        F.min(F.unix_micros("start")).alias("wall_start"),
        F.max(F.unix_micros("end")).alias("wall_end"),
        F.max("duration_ms").alias("duration_ms"),
        *(F.sum(count).alias(f"passed_{unit}") for unit, count in counted.items()),
        *(F.coalesce(F.max(size), F.lit(0)).alias(f"largest_entry_{unit}") for unit, size in largest.items()),
        *(F.max(F.when(is_own[unit], F.col(f"limit_{unit}"))).alias(f"limit_{unit}") for unit in _UNITS),
        *(F.min(F.when(is_own[unit], F.col(f"limit_{unit}"))).alias(f"least_limit_{unit}") for unit in _UNITS),
        *(F.max(size).alias(f"largest_offered_{unit}") for unit, size in offered.items()),
        F.coalesce(F.max(F.when(is_alone, waited)), F.lit(0.0)).alias("only_wait_ms"),
        F.coalesce(F.max(F.when(is_named, waited)), F.lit(0.0)).alias("named_wait_ms"),
        F.coalesce(F.sum(F.when(~is_alone, waited)), F.lit(0.0)).alias("crossing_wait_ms"),
        F.coalesce(F.sum(F.when(~is_alone & ~is_named, waited)), F.lit(0.0)).alias("elsewhere_wait_ms"),
        F.count("*").alias("members"),
        F.bool_and(is_alone).alias("is_alone"),
        F.min_by(starving, F.when(is_starving, least_served)).alias("starving"),
        F.max_by(F.struct(stream_name.alias("who"), F.col("passed_messages")), "passed_messages").alias("most_served"),
        F.max(F.when(names_limit, F.col("limit_source"))).alias("source"),
        F.max(F.when(names_limit, F.col("limit_mode"))).alias("named_mode"),
    )
    return sums.select("*", "first.*").drop("first")


_OWN_TOPICS = (
    r"^persistent://(pulsar/(system|[^/:]+:[0-9]+)/[^/]*"
    r"|[^/]+/[^/]+/((__change_events|__transaction_buffer_snapshot(_indexes|_segments)?)(-partition-[^-/]+){0,2}"
    r"|[^/]*__transaction_pending_ack(-partition-[^-/]+)?))$"
)
"""Pulsar's own topics. Source: protocol.topic_name.TopicName.is_system"""


def is_exempt() -> Column:
    """Return whether ordinary limits spare a stream: its topic is one of Pulsar's own, whatever its other fields."""
    return F.coalesce("exempt", F.lit(False)) & F.col("topic").rlike(_OWN_TOPICS)


def _worker(notes: dict[tuple[str, str], RunNotes]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for key, of_limiter in groupby(rows, key=lambda row: tuple(row[name] for name in LIMITER)):
            seen = _Seen(key, of_limiter)
            of_run = notes.get((key[0], key[1]), RunNotes())
            result = judged(of_run.of_limiter(*key[2:]), seen.items())
            yield _batch(key, seen, result)

    return work


class _Seen:
    """The rows of one limiter as they go by."""

    def __init__(self, key: tuple[str, ...], rows: Iterator[dict[str, Any]]) -> None:
        self._key = key
        self._rows = rows
        self._first: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None
        self._named: dict[str, Any] | None = None
        self._passed = [0, 0]
        self._has_lines = False
        self.tenant = ""

    def items(self) -> Iterator[Line | StreamsLine]:
        """Yield the rows as values, in order."""
        for row in self._rows:
            self.tenant = row["tenant"] or self.tenant
            if row["mode"] is not None:
                self._has_lines = True
                yield line_of(row)
                continue
            if not self._has_lines:
                self._first, self._last = self._first or row, row
                self._named = row if _both(row, "limit") != (None, None) else self._named
                self._passed = [sum(pair) for pair in zip(self._passed, _both(row, "passed"), strict=True)]
            yield streams_of(row)

    def alone(self) -> LimiterFacts | None:
        """Return the facts of a limit that only streams name; None for others."""
        if self._has_lines or self._first is None or self._last is None or self._named is None:
            return None
        proxy_id, boot_id, direction, level, name = self._key
        named = self._named
        return LimiterFacts(
            proxy_id=proxy_id,
            boot_id=boot_id,
            direction=direction,
            level=level,
            name=name,
            tenant=named["tenant"],
            namespace=named["namespace"],
            source=named["source"] or "",
            mode=named["named_mode"] or "enforce",
            limit_messages=named["limit_messages"],
            limit_bytes=named["limit_bytes"],
            burst_messages=None,
            burst_bytes=None,
            values=1,
            is_relative=False,
            was_limited=True,
            passed_messages=self._passed[0],
            passed_bytes=self._passed[1],
            rejected_messages=0,
            rejected_bytes=0,
            throttled_s=0.0,
            first=moment(self._first["wall_start"]),
            last=moment(self._last["wall_end"]),
        )


def line_of(row: Mapping[str, Any]) -> Line:
    """Make a `Line` of a row of a limiter."""
    return Line(
        seq=row["seq"],
        place=(row["file"], row["line"]),
        at_us=(row["start_us"], row["end_us"]),
        wall_us=(row["wall_start"], row["wall_end"]),
        duration_s=row["duration_ms"] / 1e3,
        source=row["source"],
        mode=row["mode"],
        rates=(*_both(row, "limit"), *_both(row, "peak")),
        bursts=(*_both(row, "burst"), *_both(row, "peak_burst")),
        published=_both(row, "published"),
        passed=_both(row, "passed"),
        # No entry is larger than all that passed.
        largest=(
            min(row["largest_entry_messages"], row["passed_messages"]),
            min(row["largest_entry_bytes"], row["passed_bytes"]),
        ),
        waited_s=row["throttled_ms"] / 1e3,
        idle_s=(row["idle_ms"] or 0.0) / 1e3,
        reserved_s=(row["reserved_ms"] or 0.0) / 1e3,
        tokens=tuple(row[f"tokens_{bucket}"] for bucket in BUCKETS),
        overflow=tuple(row[f"overflow_{bucket}"] or 0.0 for bucket in BUCKETS),
        rejected=row["rejected_messages"] or 0,
        shares=_both(row, "share"),
        began=tuple(row[f"began_{bucket}"] for bucket in BUCKETS),
    )


def streams_of(row: Mapping[str, Any]) -> StreamsLine:
    """Make a `StreamsLine` of a row of `stream_sums`."""
    return StreamsLine(
        seq=row["seq"],
        place=(row["file"], row["line"]),
        at_us=(row["start_us"], row["end_us"]),
        wall_us=(row["wall_start"], row["wall_end"]),
        duration_s=row["duration_ms"] / 1e3,
        passed=_both(row, "passed"),
        largest=_both(row, "largest_entry"),
        only_wait_s=row["only_wait_ms"] / 1e3,
        named_wait_s=row["named_wait_ms"] / 1e3,
        limit=_both(row, "limit"),
        members=row["members"],
        is_alone=row["is_alone"],
        largest_offered=_both(row, "largest_offered"),
        most_served=(row["most_served"]["who"], row["most_served"]["passed_messages"]),
        least_limit=_both(row, "least_limit"),
        crossing_wait_s=row["crossing_wait_ms"] / 1e3,
        elsewhere_wait_s=row["elsewhere_wait_ms"] / 1e3,
        starving=row["starving"] and _starving(row["starving"]),
    )


def _starving(row: Mapping[str, Any]) -> tuple[str, tuple[int, int], tuple[int, int], bool]:
    return (row["who"], _both(row["held"], "held"), _both(row["passed"], "passed"), row["is_alone"])


def _both(row: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    return row[f"{name}_messages"], row[f"{name}_bytes"]


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return BEGIN_OF_1970 + timedelta(microseconds=micros)


def _batch(key: tuple[str, ...], seen: _Seen, result: Judged) -> pa.RecordBatch:
    minutes = list(result.minutes.items())
    lines = sum(minute.lines for _, minute in minutes)
    judged_s, waited_s = (sum(getattr(minute, name) for _, minute in minutes) for name in ("judged_s", "waited_s"))
    scores = [window.excess / (window.limit or 1) for window in result.windows]
    owed = result.entitlement
    if owed is not None:
        scores.append(max(owed.deficit_s, owed.whole_deficit_s))
    if result.doubts:
        scores.append(max([0.0, *scores]))
    alone = seen.alone()
    kept, over, short = (lines, judged_s, waited_s), _spells(result.over), _spells(result.short)
    payload = JudgedLimiter(result.windows, owed, result.doubts, kept, over, short, alone)
    rows: list[dict[str, Any]] = [
        {
            "score": max(scores, default=None),
            "waits": waited_s,
            "facts": msgspec.msgpack.encode(payload),
        }
    ]
    if alone is None and not lines and not result.windows and owed is None and not result.doubts:
        rows = []
    rows += [{"minute": at} | {name: getattr(minute, name) for name in _KEPT} for at, minute in minutes]
    key_columns = dict(zip(LIMITER, key, strict=True)) | {"tenant": seen.tenant}
    return pa.RecordBatch.from_pylist([key_columns | row for row in rows], schema=_ARROW)


def _spells(spelling: Spelling) -> Spells | None:
    if not spelling.times:
        return None
    first, longest = moment(spelling.first_us), moment(spelling.longest_us)
    return Spells(
        times=spelling.times, seconds=spelling.seconds, first=first, longest=longest, longest_s=spelling.longest_s
    )


_KEPT = ("judged_s", "over_s", "waited_s", "short_s")
_ARROW = pa.schema(
    [
        *((name, pa.string()) for name in (*LIMITER, "tenant")),
        *((name, pa.float64()) for name in ("score", "waits")),
        ("facts", pa.binary()),
        ("minute", pa.int64()),
        *((name, pa.float64()) for name in _KEPT),
    ]
)


class LimiterTables(msgspec.Struct):
    """The tables of all limiters that the judging takes."""

    containment: list[ContainmentFacts]
    entitlement: list[EntitlementFacts]
    doubts: list[DoubtFacts]
    kept: list[KeptFacts]
    alone: list[LimiterFacts]


def tables_of(rows: Sequence[Any]) -> LimiterTables:
    """Return the rows with `facts`, as values."""
    tables = LimiterTables([], [], [], [], [])
    for row in rows:
        key = {name: row[name] for name in LIMITER}
        result = msgspec.msgpack.decode(row["facts"], type=JudgedLimiter)
        tables.containment += [ContainmentFacts(**key, **_timed(window)) for window in result.windows]
        if result.owed is not None:
            tables.entitlement.append(EntitlementFacts(**key, **_timed(result.owed)))
        tables.doubts += [DoubtFacts(**key, **_timed(doubt)) for doubt in result.doubts]
        if result.kept[0]:
            times = dict(zip(("lines", "judged_s", "waited_s"), result.kept, strict=True))
            tables.kept.append(msgspec.convert(key | times | {"over": result.over, "short": result.short}, KeptFacts))
        if result.alone is not None:
            tables.alone.append(result.alone)
    return tables


def _timed(facts: Window | Owed | Doubt) -> dict[str, Any]:
    fields = msgspec.structs.asdict(facts)
    start, end = fields.pop("start_us"), fields.pop("end_us")
    return fields | {"start": moment(start), "end": moment(end)}
