"""All limiters judged on Spark: the lines of each, and what its streams' lines say, go through `account.py`.

Lines of one limiter come in the order of their begins, so what is kept at a time is one limiter's balances.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window as Over

from compliance.clock import rfc3339
from compliance.figures.rates import LEVELS, scoped
from compliance.judging.account import (
    BUCKETS,
    Doubt,
    Judged,
    Line,
    Owed,
    RunNotes,
    Streams,
    Window,
    judged,
)
from compliance.judging.facts import (
    ContainmentFacts,
    DoubtFacts,
    EntitlementFacts,
    KeptFacts,
    LimiterFacts,
)
from compliance.judging.spells import Spelling, Spells
from compliance.schema import BEGIN_OF_1970, BOOT, LIMITER

MOVES = ("attachment", "group", "file")
"""Changes (`what`) by which streams may come under limits that are there already."""
Notes = Mapping[tuple[str, str], RunNotes]
"""What is to be known of runs; of those that are not in it, nothing."""
_UNITS = BUCKETS[:2]
_LINE = (
    "mode",
    *(f"limit_{unit}" for unit in _UNITS),
    *(f"burst_{unit}" for unit in _UNITS),
    *(f"peak_{unit}" for unit in _UNITS),
    *(f"peak_burst_{unit}" for unit in _UNITS),
    *(f"published_{unit}" for unit in _UNITS),
    *(f"passed_{unit}" for unit in _UNITS),
    *(f"largest_entry_{unit}" for unit in _UNITS),
    "throttled_ms",
    "idle_ms",
    "reserved_ms",
    *(f"{what}_{unit}" for what in ("lent", "left") for unit in _UNITS),
    "rejected_messages",
    *(f"tokens_{bucket}" for bucket in BUCKETS),
    *(f"{what}_{bucket}" for what in ("overflow", "lost", "unforeseen") for bucket in BUCKETS),
)
_HEAD = ("tenant", "namespace", "seq", "file", "line", "start_us", "end_us", "wall_start", "wall_end", "duration_ms")
_OUT = "tenant string, score double, waits double, facts binary, minute long, " + ", ".join(
    f"{name} double" for name in ("judged_s", "over_s", "waited_s", "short_s")
)


class Found(msgspec.Struct):
    """What comes out for one limiter of one run, besides its minutes."""

    windows: list[Window]
    owed: Owed | None
    doubts: list[Doubt]
    kept: tuple[int, float, float]
    """Lines, seconds judged, seconds waited."""
    over: Spells | None
    short: Spells | None
    alone: LimiterFacts | None
    """Of a limit that only streams name."""


def judged_limiters(limits: DataFrame, intervals: DataFrame, notes: Notes) -> DataFrame:
    """A row for each limiter of each run, with `facts`, and one for each of its minutes, with sums of seconds.

    Args:
        limits: All lines of limiters, on the axis of `clocks.with_axis`.
        intervals: All lines of streams, on the same.
        notes: Of the runs.
    """
    of_limits = limits.select(*LIMITER, *_head(), *_LINE)
    levels = F.broadcast(limits.select(*BOOT, "direction", "level").distinct())
    both = of_limits.unionByName(stream_sums(intervals, levels), allowMissingColumns=True)
    in_order = both.repartition(*LIMITER).sortWithinPartitions(*LIMITER, "start_us", "seq")
    keys = ", ".join(f"{name} string" for name in LIMITER)
    return in_order.mapInArrow(_worker(dict(notes)), f"{keys}, {_OUT}")


def _head() -> Iterator[Column]:
    for name in _HEAD:
        wall = {"wall_start": "start", "wall_end": "end"}.get(name)
        yield F.unix_micros(wall).alias(name) if wall else F.col(name)


def under_limits(intervals: DataFrame, levels: DataFrame) -> DataFrame:
    """Each line of a stream once for each limit that it is under, or may be: adds `level`, `name` and `under`.

    Args:
        intervals: Lines of streams.
        levels: As of `stream_sums`.
    """
    told = F.split("limit_levels", " ")
    in_use = levels.groupBy(*BOOT, "direction").agg(F.collect_set("level").alias("in_use"))
    known = intervals.join(F.broadcast(in_use), on=[*BOOT, "direction"], how="left")
    has_limit = F.col("limit_level") != ""
    guessed = F.when(F.col("is_exempt"), F.array(F.lit("exempt"))).otherwise(
        F.array_union(F.coalesce("in_use", F.array()), F.when(has_limit, F.array("limit_level")).otherwise(F.array()))
    )
    # What names a limit is under it, whatever else it says.
    named = F.when(has_limit, F.array("limit_level")).otherwise(F.array())
    said = F.array_union(F.when(F.col("limit_levels") == "", F.array()).otherwise(told), named)
    under = F.when(F.col("limit_levels").isNull(), guessed).otherwise(said)
    lines = known.withColumn("is_exempt", is_exempt()).withColumn("under", under)
    is_other = F.col("limit_levels").isNotNull() & ~F.array_contains("under", F.lit("exempt"))
    lines = lines.withColumn("exempt", F.when(is_other, F.lit(False)).otherwise(F.col("exempt")))
    return scoped(lines).where(F.array_contains("under", F.col("level")))


def unbalanced(intervals: DataFrame, limits: DataFrame, torn: Collection[tuple[str, str]]) -> DataFrame:
    """Of each limit whose streams' lines do not add up the first such line, as `DoubtFacts`.

    What a stream offered passed, was dropped, was rejected, or is held.

    Args:
        intervals: All lines of streams.
        limits: All lines of limiters.
        torn: Runs of which lines are missing: there nothing has to add up.
    """
    own = Over.partitionBy(*BOOT, "connection_id", "direction", "stream_id", "topic").orderBy("seq")
    held = {unit: F.col(f"held_{unit}") for unit in _UNITS}
    over = {
        unit: F.col(f"offered_{unit}")
        - F.col(f"passed_{unit}")
        - F.col(f"dropped_{unit}")
        - F.coalesce(f"rejected_{unit}", F.lit(0))
        - held[unit]
        + F.coalesce(F.lag(held[unit]).over(own), F.lit(0))
        for unit in _UNITS
    }
    lines = intervals.withColumns({f"over_{unit}": amount for unit, amount in over.items()})
    broken = lines.where((F.col("over_messages") != 0) | (F.col("over_bytes") != 0))
    for proxy_id, boot_id in torn:
        broken = broken.where((F.col("proxy_id") != proxy_id) | (F.col("boot_id") != boot_id))
    said = F.format_string(
        "of what a stream offered, %d messages and %d bytes neither passed nor are accounted for otherwise",
        "over_messages",
        "over_bytes",
    )
    place = F.struct("file", "seq", "line")
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    first = F.struct(said.alias("said"), *times, place.alias("first_line"), place.alias("last_line"))
    levels = F.broadcast(limits.select(*BOOT, "direction", "level").distinct())
    each = (
        under_limits(broken, levels)
        .groupBy(*LIMITER)
        .agg(F.min_by(first, "seq").alias("first"), F.count("*").alias("times"))
    )
    known = limits.select(*LIMITER).distinct()
    return each.join(known, on=list(LIMITER), how="left_semi").select(
        *LIMITER, F.lit("stream").alias("what"), "first.*", "times"
    )


_SET = (
    ("topic", "topic", "topic"),
    ("topic_of_namespace", "topic", "namespace"),
    ("namespace", "namespace", "total"),
    ("tenant", "tenant", "total"),
    ("partitioned_topic", "partitioned_topic", "total"),
    ("proxy", "proxy", "proxy"),
    ("role", "role", "role"),
    ("address", "address", "address"),
)
"""Of each setting in a change line the level of its limiters, and how their lines call their source."""


def without_effect(changes: DataFrame, limits: DataFrame) -> DataFrame:
    """Of each limiter that goes on as before a change of its own value the first such change, as `DoubtFacts`.

    Its own value it is if its line names the setting as its source, set at run time; or if the value was what stood in
    the setting before and not what stands there since.

    Args:
        changes: All lines of changes.
        limits: All lines of limiters.
    """
    settings = F.array(
        *(F.struct(*(F.lit(one).alias(name) for name, one in zip(_SETTING, row, strict=True))) for row in _SET)
    )
    of_setting = Over.partitionBy(*BOOT, "what", "setting", "name").orderBy("seq")
    neighbours = {
        "changed_before": F.coalesce(F.lag("seq").over(of_setting), F.lit(-1)),
        "changed_again": F.coalesce(F.lead("seq").over(of_setting), F.lit(2**63 - 1)),
    }
    said = changes.withColumns(neighbours).where(
        F.col("before").isNull() | F.col("after").isNull() | (F.col("before") != F.col("after"))
    )
    wanted = said.select(
        *BOOT,
        F.col("what").alias("direction"),
        F.col("setting").alias("of_setting"),
        F.col("name").alias("of"),
        F.col("seq").alias("at"),
        F.col("start").alias("changed"),
        *neighbours,
        *(F.coalesce(name, F.lit("")).alias(name) for name in ("before", "after")),
        F.inline(settings),
    ).where(F.col("of_setting") == F.col("own_setting"))
    value = F.struct("source", "mode", *(f"{what}_{unit}" for what in ("limit", "burst") for unit in _UNITS))
    told = limits.select(*LIMITER, "namespace", "tenant", "seq", "start", "end", "file", "line", value.alias("value"))
    own = F.when(F.col("of_setting") == "topic_of_namespace", F.concat_ws("/", "tenant", "namespace")).otherwise(
        F.when(F.col("of_setting") == "topic", F.regexp_replace("name", r"-partition-(0|[1-9]\d{0,9})$", "")).otherwise(
            F.col("name")
        )
    )
    both = told.join(
        F.broadcast(wanted.withColumnRenamed("own_level", "level")), on=[*BOOT, "direction", "level"], how="inner"
    ).where(own == F.col("of"))
    # Of many changes at once each limiter's line ends when its own value changes: the line at the change may be old.
    is_before = (F.col("seq") < F.col("at")) | (F.col("start") < F.col("changed"))
    is_behind = (F.col("seq") > F.col("at")) & (F.col("start") > F.col("changed"))
    is_before &= F.col("seq") > F.col("changed_before")
    is_behind &= F.col("seq") < F.col("changed_again")
    place = F.struct("file", "seq", "line")
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    behind = F.struct("value", *times, place.alias("place"))
    pairs = both.groupBy(*LIMITER, "at", "before", "after", "own_source").agg(
        F.max_by("value", F.when(is_before, F.col("seq"))).alias("was"),
        F.min_by(behind, F.when(is_behind, F.col("seq"))).alias("now"),
    )
    numbers = F.coalesce("was.limit_messages", "was.limit_bytes").cast("long").cast("string")
    stood = F.concat(F.lit(r"(^|\D)"), numbers, F.lit(r"($|\D)"))
    is_named = F.col("was.source") == F.concat(F.col("own_source"), F.lit(" rest"))
    was_there = F.regexp_like("before", stood) & ~F.regexp_like("after", stood)
    same = pairs.where((F.col("was") == F.col("now.value")) & (is_named | F.coalesce(was_there, F.lit(False))))
    text = F.concat(
        F.lit("it was changed from "),
        F.when(F.col("before") == "", "nothing").otherwise(F.substring("before", 1, 200)),
        F.lit(" to "),
        F.when(F.col("after") == "", "nothing").otherwise(F.substring("after", 1, 200)),
        F.lit(", and its line behind that has the value of before"),
    )
    first = F.struct(text.alias("said"), "now.start", "now.end", "now.place")
    found = same.groupBy(*LIMITER).agg(F.min_by(first, "at").alias("first"), F.count("*").alias("times"))
    return found.select(
        *LIMITER,
        F.lit("change").alias("what"),
        "first.said",
        "first.start",
        "first.end",
        F.col("first.place").alias("first_line"),
        F.col("first.place").alias("last_line"),
        "times",
    )


_OF_ALL = ("proxy", "tenant", "namespace")
"""Levels whose limits hold all deliveries that bear their names; a consumer may be spared narrower ones."""
_OF_ALL_PUBLISHED = tuple(level for level in LEVELS if level != "exempt")
"""Levels whose limits hold all that is published under their names."""


def outsiders(intervals: DataFrame, limits: DataFrame, changes: DataFrame) -> DataFrame:
    """Of each limit that some stream of its name says not to be under the first such line, as `DoubtFacts`.

    Args:
        intervals: All lines of streams, on the axis.
        limits: All lines of limiters, on the same.
        changes: All lines of changes: in a span with one, what is said of its end may not be true of all.
    """
    told = F.split("limit_levels", " ")
    said = intervals.where(F.col("limit_levels").isNotNull() & ~is_exempt() & (F.col("passed_messages") > 0))
    is_publish = F.col("direction") == "publish"
    named = scoped(said.where(is_publish), _OF_ALL_PUBLISHED).unionByName(scoped(said.where(~is_publish), _OF_ALL))
    without = named.where(~F.array_contains(told, F.col("level")))
    streams = without.select(*LIMITER, "start_us", "end_us", "topic", "passed_messages")
    is_in_force = (F.col("mode") != "observe") & (
        F.col("limit_messages").isNotNull() | F.col("limit_bytes").isNotNull()
    )
    own = limits.where(is_in_force).select(
        *LIMITER, "start_us", "end_us", "seq", "start", "end", F.struct("file", "seq", "line").alias("place")
    )
    moments = F.broadcast(
        changes.select(*(F.col(name).alias(f"of_{name}") for name in BOOT), F.col("start").alias("at"))
    )
    is_changed = (
        (F.col("proxy_id") == F.col("of_proxy_id"))
        & (F.col("boot_id") == F.col("of_boot_id"))
        & F.col("at").between(F.col("start"), F.col("end"))
    )
    found = streams.join(own, on=[*LIMITER, "start_us", "end_us"]).join(moments, on=is_changed, how="left_anti")
    text = F.format_string(
        "a stream of %s passed %d messages and says that it is not under it", "topic", "passed_messages"
    )
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    first = F.struct(text.alias("said"), *times, F.col("place").alias("first_line"), F.col("place").alias("last_line"))
    each = found.groupBy(*LIMITER).agg(F.min_by(first, "seq").alias("first"), F.count("*").alias("times"))
    return each.select(*LIMITER, F.lit("outside").alias("what"), "first.*", "times")


_SETTING = ("own_setting", "own_level", "own_source")


def stream_sums(intervals: DataFrame, levels: DataFrame) -> DataFrame:
    """What the lines of streams say of each limit that they are under, or may be, in each span.

    Args:
        intervals: All of them, on the axis.
        levels: Of each run the levels that its limiters are of; for lines that do not name their levels.
    """
    each = under_limits(intervals, levels)
    # What is published counts always, and message by message; but for what workers tell behind a change.
    is_publish = F.col("direction") == "publish"
    charged = {unit: F.coalesce(f"charged_{unit}", f"passed_{unit}") for unit in _UNITS}
    counted = {unit: F.when(is_publish, F.col(f"passed_{unit}")).otherwise(charged[unit]) for unit in _UNITS}
    offered = {unit: F.col(f"offered_{unit}") - F.greatest(F.col("offered_entries") - 1, F.lit(0)) for unit in _UNITS}
    is_told = F.col("limit_levels").isNotNull()
    counts_least = F.when(is_publish | is_told | F.col("charged_messages").isNotNull(), counted["messages"])
    least = counts_least.otherwise(F.least("passed_entries", counted["messages"]))
    largest = {
        unit: F.when(count > 0, F.greatest(count - F.greatest(F.col("passed_entries") - 1, F.lit(0)), F.lit(1)))
        for unit, count in counted.items()
    }
    waited = F.least("throttled_ms", "duration_ms")
    is_named = (F.col("reason") == F.col("level")) & (F.col("reason_name") == F.col("name"))
    names_limit = F.col("limit_level") == F.col("level")
    is_alone = F.size("under") == 1
    is_starving = is_named & (waited >= F.col("duration_ms")) & (is_alone | (F.col("passed_entries") == 0))
    own_name = F.when(F.col("direction") == "publish", F.col("producer_name")).otherwise(F.col("subscription"))
    number = F.format_string("connection %d, stream %d", "connection_id", "stream_id")
    who = F.concat_ws(", ", F.concat_ws(" of ", F.nullif(own_name, F.lit("")), "topic"), number)
    amounts = (F.struct(*(F.col(f"{what}_{unit}") for unit in _UNITS)).alias(what) for what in ("held", "passed"))
    starving = F.when(is_starving, F.struct(who.alias("who"), *amounts, is_alone.alias("is_alone")))
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
        *(F.sum(count).alias(f"charged_{unit}") for unit, count in charged.items()),
        *(F.sum(f"passed_{unit}").alias(f"crossed_{unit}") for unit in _UNITS),
        *(F.coalesce(F.max(size), F.lit(0)).alias(f"largest_entry_{unit}") for unit, size in largest.items()),
        *(F.max(F.when(is_own[unit], F.col(f"limit_{unit}"))).alias(f"limit_{unit}") for unit in _UNITS),
        *(F.max(size).alias(f"largest_offered_{unit}") for unit, size in offered.items()),
        F.coalesce(F.max(F.when(is_alone, waited)), F.lit(0.0)).alias("only_wait_ms"),
        F.coalesce(F.max(F.when(is_named, waited)), F.lit(0.0)).alias("named_wait_ms"),
        F.count("*").alias("members"),
        F.sum(least).alias("least_messages"),
        F.bool_and(is_alone).alias("is_alone"),
        F.min_by(starving, F.when(is_starving, least_served)).alias("starving"),
        F.bool_or(is_told).alias("is_told"),
        F.max(F.when(names_limit, F.col("limit_source"))).alias("source"),
        F.max(F.when(names_limit, F.col("limit_mode"))).alias("named_mode"),
    )
    return sums.select("*", "first.*").drop("first")


_SYSTEM_TOPICS = (
    r"^[a-z-]+://(pulsar/(system/.*|[^/]+/healthcheck)"
    r"|[^/]+/[^/]+/(__change_events|__transaction_(buffer_snapshot(_indexes|_segments)?|pending_ack)))(-partition-.*)?$"
)
"""Pulsar's own topics, of which lines of older proxies do not say that no limit counts them."""


def is_exempt() -> Column:
    """Whether ordinary limits do not count a stream: its line says so, or its topic's name."""
    return F.coalesce("exempt", F.col("topic").rlike(_SYSTEM_TOPICS))


def _worker(notes: dict[tuple[str, str], RunNotes]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for key, of_limiter in groupby(rows, key=lambda row: tuple(row[name] for name in LIMITER)):
            seen = _Seen(key, of_limiter)
            found = judged(notes.get((key[0], key[1]), RunNotes()), seen.items())
            yield _batch(key, seen, found)

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

    def items(self) -> Iterator[Line | Streams]:
        """As values."""
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
        """Of a limit that only streams name."""
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
    """A row of a limiter's line."""
    limits, peaks = _both(row, "limit"), _both(row, "peak")
    idle = row["idle_ms"]
    peak_bursts = _both(row, "peak_burst")
    return Line(
        seq=row["seq"],
        place=(row["file"], row["line"]),
        at_us=(row["start_us"], row["end_us"]),
        wall_us=(row["wall_start"], row["wall_end"]),
        duration_s=row["duration_ms"] / 1e3,
        mode=row["mode"],
        # What the log does not say the capacity of is no limit here: lines of older proxies tell no peak's.
        rates=(*limits, *(peak if burst else None for peak, burst in zip(peaks, peak_bursts, strict=True))),
        bursts=(*_both(row, "burst"), *peak_bursts),
        published=_both(row, "published"),
        passed=_both(row, "passed"),
        # No entry is larger than all that passed.
        largest=_least(_both(row, "largest_entry"), _both(row, "passed")),
        waited_s=min(row["throttled_ms"], row["duration_ms"]) / 1e3,
        idle_s=None if idle is None else idle / 1e3,
        reserved_s=(row["reserved_ms"] or 0.0) / 1e3,
        tokens=tuple(row[f"tokens_{bucket}"] for bucket in BUCKETS),
        overflow=tuple(row[f"overflow_{bucket}"] or 0.0 for bucket in BUCKETS),
        lent=_counts(row, "lent", _UNITS),
        left=_counts(row, "left", _UNITS),
        lost=_counts(row, "lost", BUCKETS),
        unforeseen=_counts(row, "unforeseen", BUCKETS),
        rejected=row["rejected_messages"] or 0,
    )


def streams_of(row: Mapping[str, Any]) -> Streams:
    """A row of `stream_sums`."""
    return Streams(
        seq=row["seq"],
        place=(row["file"], row["line"]),
        at_us=(row["start_us"], row["end_us"]),
        wall_us=(row["wall_start"], row["wall_end"]),
        duration_s=row["duration_ms"] / 1e3,
        passed=_both(row, "passed"),
        largest=_both(row, "largest_entry"),
        only_wait_s=row["only_wait_ms"] / 1e3,
        named_wait_s=row["named_wait_ms"] / 1e3,
        is_told=row["is_told"],
        said=_both(row, "limit"),
        members=row["members"],
        least_messages=row["least_messages"],
        is_alone=row["is_alone"],
        largest_offered=_both(row, "largest_offered"),
        charged=_both(row, "charged"),
        crossed=_both(row, "crossed"),
        starving=row["starving"] and _starving(row["starving"]),
    )


def _starving(row: Mapping[str, Any]) -> tuple[str, tuple[int, int], tuple[int, int], bool]:
    return (row["who"], _both(row["held"], "held"), _both(row["passed"], "passed"), row["is_alone"])


def _counts(row: Mapping[str, Any], what: str, of: Sequence[str]) -> tuple[Any, ...]:
    """Counts that lines leave out where they are 0, and older ones always."""
    return tuple(row[f"{what}_{one}"] or 0 for one in of)


def _least(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), min(one[1], other[1])


def _both(row: Mapping[str, Any], what: str) -> tuple[Any, Any]:
    return row[f"{what}_messages"], row[f"{what}_bytes"]


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return BEGIN_OF_1970 + timedelta(microseconds=micros)


def _batch(key: tuple[str, ...], seen: _Seen, found: Judged) -> pa.RecordBatch:
    minutes = list(found.minutes.items())
    lines = sum(minute.lines for _, minute in minutes)
    judged_s, waited_s = (sum(getattr(minute, name) for _, minute in minutes) for name in ("judged_s", "waited_s"))
    scores = [window.excess / (window.limit or 1) for window in found.windows]
    owed = found.entitlement
    if owed is not None:
        scores.append(max(owed.deficit_s, owed.whole_deficit_s))
    if found.doubts:
        scores.append(max([0.0, *scores]))
    alone = seen.alone()
    kept, over, short = (lines, judged_s, waited_s), _spells(found.over), _spells(found.short)
    payload = Found(found.windows, owed, found.doubts, kept, over, short, alone)
    rows: list[dict[str, Any]] = [
        {
            "score": max(scores, default=None),
            "waits": waited_s,
            "facts": msgspec.msgpack.encode(payload),
        }
    ]
    if alone is None and not lines and not found.windows and owed is None and not found.doubts:
        rows = []
    rows += [{"minute": at} | {name: getattr(minute, name) for name in _KEPT} for at, minute in minutes]
    whose = dict(zip(LIMITER, key, strict=True)) | {"tenant": seen.tenant}
    return pa.RecordBatch.from_pylist([whose | row for row in rows], schema=_ARROW)


def _spells(of: Spelling) -> Spells | None:
    if not of.times:
        return None
    first, longest = moment(of.first_us), moment(of.longest_us)
    return Spells(times=of.times, seconds=of.seconds, first=first, longest=longest, longest_s=of.longest_s)


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
    """What is handed to the judging, of all limiters."""

    containment: list[ContainmentFacts]
    entitlement: list[EntitlementFacts]
    doubts: list[DoubtFacts]
    kept: list[KeptFacts]
    alone: list[LimiterFacts]


def tables_of(rows: Sequence[Any]) -> LimiterTables:
    """The rows with `facts`, as values."""
    tables = LimiterTables([], [], [], [], [])
    for row in rows:
        whose = {name: row[name] for name in LIMITER}
        found = msgspec.msgpack.decode(row["facts"], type=Found)
        tables.containment += [ContainmentFacts(**whose, **_timed(window)) for window in found.windows]
        if found.owed is not None:
            tables.entitlement.append(EntitlementFacts(**whose, **_timed(found.owed)))
        tables.doubts += [DoubtFacts(**whose, **_timed(doubt)) for doubt in found.doubts]
        if found.kept[0]:
            times = dict(zip(("lines", "judged_s", "waited_s"), found.kept, strict=True))
            tables.kept.append(msgspec.convert(whose | times | {"over": found.over, "short": found.short}, KeptFacts))
        if found.alone is not None:
            tables.alone.append(found.alone)
    return tables


def _timed(found: Window | Owed | Doubt) -> dict[str, Any]:
    fields = msgspec.structs.asdict(found)
    start, end = fields.pop("start_us"), fields.pop("end_us")
    return fields | {"start": moment(start), "end": moment(end)}
