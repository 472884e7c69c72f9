"""The judging of all limiters on Spark: `account.py` replays each limiter's lines and its streams' lines.

Lines of one limiter come in the order of their begins. So memory holds one limiter's balances at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.figures.rates import scoped
from compliance.judging.account import judged
from compliance.judging.facts import Judged, LimiterFacts, moment
from compliance.judging.lines import BUCKETS, Line, RunNotes, StreamsLine
from compliance.schema import LIMITER

Notes = Mapping[tuple[str, str], RunNotes]
"""Notes of runs; a run that is not in it has none."""
_UNITS = BUCKETS[:2]
_OF_UNITS = ("limit", "burst", "peak", "peak_burst", "published", "share", "passed", "largest_entry")
_OF_BUCKETS = ("tokens", "overflow", "began")
_LINE = (
    "source",
    "mode",
    *(f"{name}_{unit}" for name in _OF_UNITS for unit in _UNITS),
    "throttled_ms",
    "idle_ms",
    "reserved_ms",
    "rejected_messages",
    *(f"{name}_{bucket}" for name in _OF_BUCKETS for bucket in BUCKETS),
)
_HEAD = ("tenant", "namespace", "seq", "file", "line", "start_us", "end_us", "wall_start", "wall_end", "duration_ms")
_OUT = "tenant string, score double, waits double, facts binary, minute long, " + ", ".join(
    f"{name} double" for name in ("judged_s", "over_s", "waited_s", "short_s")
)


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
        for key, of_limiter in groupby(rows, key=itemgetter(*LIMITER)):
            limiter = dict(zip(LIMITER, key, strict=True))
            seen = _Seen(of_limiter)
            of_run = notes.get((key[0], key[1]), RunNotes()).of_limiter(*key[2:])
            result = judged(limiter, of_run, seen.items())
            result.alone = seen.alone(limiter)
            yield _batch(limiter | {"tenant": seen.tenant}, result)

    return work


class _Seen:
    """The rows of one limiter as they go by."""

    def __init__(self, rows: Iterator[dict[str, Any]]) -> None:
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
                self._named = row if _LIMITS(row) != (None, None) else self._named
                self._passed = [sum(pair) for pair in zip(self._passed, _PASSED(row), strict=True)]
            yield streams_of(row)

    def alone(self, limiter: Mapping[str, Any]) -> LimiterFacts | None:
        """Return the facts of a limit that only streams name; None for others."""
        if self._has_lines or self._first is None or self._last is None or self._named is None:
            return None
        named = self._named
        return LimiterFacts(
            **limiter,
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


def _getter(*names: str) -> Callable[[Mapping[str, Any]], Any]:
    return itemgetter(*(f"{name}_{unit}" for name in names for unit in _UNITS))


_PLACE, _AT, _WALL = itemgetter("file", "line"), itemgetter("start_us", "end_us"), itemgetter("wall_start", "wall_end")
_RATES, _BURSTS = _getter("limit", "peak"), _getter("burst", "peak_burst")
_LIMITS, _LEAST_LIMITS, _PUBLISHED, _PASSED = map(_getter, ("limit", "least_limit", "published", "passed"))
_SHARES, _LARGEST, _OFFERED, _HELD = map(_getter, ("share", "largest_entry", "largest_offered", "held"))
_TOKENS, _OVERFLOW, _BEGAN = (itemgetter(*(f"{name}_{bucket}" for bucket in BUCKETS)) for name in _OF_BUCKETS)
_NONE_OVER = (0.0,) * len(BUCKETS)


def line_of(row: Mapping[str, Any]) -> Line:
    """Make a `Line` of a row of a limiter."""
    passed, largest, overflow = _PASSED(row), _LARGEST(row), _OVERFLOW(row)
    return Line(
        seq=row["seq"],
        place=_PLACE(row),
        at_us=_AT(row),
        wall_us=_WALL(row),
        duration_s=row["duration_ms"] / 1e3,
        source=row["source"],
        mode=row["mode"],
        rates=_RATES(row),
        bursts=_BURSTS(row),
        published=_PUBLISHED(row),
        passed=passed,
        # No entry is larger than all that passed.
        largest=(min(largest[0], passed[0]), min(largest[1], passed[1])),
        waited_s=row["throttled_ms"] / 1e3,
        idle_s=(row["idle_ms"] or 0.0) / 1e3,
        reserved_s=(row["reserved_ms"] or 0.0) / 1e3,
        tokens=_TOKENS(row),
        overflow=tuple(lost or 0.0 for lost in overflow) if any(overflow) else _NONE_OVER,
        rejected=row["rejected_messages"] or 0,
        shares=_SHARES(row),
        began=_BEGAN(row),
    )


def streams_of(row: Mapping[str, Any]) -> StreamsLine:
    """Make a `StreamsLine` of a row of `stream_sums`."""
    most, starving = row["most_served"], row["starving"]
    return StreamsLine(
        seq=row["seq"],
        place=_PLACE(row),
        at_us=_AT(row),
        wall_us=_WALL(row),
        duration_s=row["duration_ms"] / 1e3,
        passed=_PASSED(row),
        largest=_LARGEST(row),
        only_wait_s=row["only_wait_ms"] / 1e3,
        named_wait_s=row["named_wait_ms"] / 1e3,
        limit=_LIMITS(row),
        members=row["members"],
        is_alone=row["is_alone"],
        largest_offered=_OFFERED(row),
        most_served=(most["who"], most["passed_messages"]),
        least_limit=_LEAST_LIMITS(row),
        crossing_wait_s=row["crossing_wait_ms"] / 1e3,
        elsewhere_wait_s=row["elsewhere_wait_ms"] / 1e3,
        starving=starving
        and (starving["who"], _HELD(starving["held"]), _PASSED(starving["passed"]), starving["is_alone"]),
    )


def _batch(limiter: Mapping[str, str], result: Judged) -> pa.RecordBatch:
    minutes, result.minutes = result.minutes, {}
    scores = [window.excess / (window.limit or 1) for window in result.windows]
    owed, kept = result.entitlement, result.kept
    if owed is not None:
        scores.append(max(owed.deficit_s, owed.whole_deficit_s))
    if result.doubts:
        scores.append(max([0.0, *scores]))
    rows: list[dict[str, Any]] = [{"minute": at} | msgspec.structs.asdict(sums) for at, sums in minutes.items()]
    if result.alone is not None or kept.lines or scores:
        facts = msgspec.msgpack.encode(result)
        rows.append({"score": max(scores, default=None), "waits": kept.waited_s, "facts": facts})
    return pa.RecordBatch.from_pylist([{**limiter, **row} for row in rows], schema=_ARROW)


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


def results_of(rows: Sequence[Any]) -> list[Judged]:
    """Return the results of the rows with `facts`."""
    return [msgspec.msgpack.decode(row["facts"], type=Judged) for row in rows]
