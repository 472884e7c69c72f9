"""Streams that a limit does not count although they bear its name, each as `DoubtFacts`.

`account.py` finds contradictions within one limiter's replay.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.figures.rates import scoped
from compliance.figures.scopes import OWN_TOPICS
from compliance.schema import BOOT, LIMITER, rfc3339
from compliance.session import local_frame
from limiter import levels as limiting

_OF_ALL = ("proxy", "tenant", "namespace")
"""Levels whose limits apply to all deliveries under their names; narrower limits may spare a consumer."""
_OF_ALL_PUBLISHED = tuple(level.word for level in limiting.LEVELS if not level.is_of_system)
"""Levels whose limits apply to all messages published under their names."""


def is_exempt() -> Column:
    """Return whether ordinary limits spare a stream: its topic is one of Pulsar's own, whatever its other fields."""
    return F.coalesce("exempt", F.lit(False)) & F.col("topic").rlike(OWN_TOPICS)


def outsiders(intervals: DataFrame, limits: DataFrame, changes: Sequence[tuple[str, str, int]]) -> DataFrame:
    """Find, for each limit, the first line of a stream of its name that claims not to be under it, as `DoubtFacts`.

    Args:
        intervals: All lines of streams, on the axis.
        limits: All lines of limiters, on the same.
        changes: Run and time of each change. In a span with a change, a line names the limits at its end only.
    """
    named_levels = F.split("limit_levels", " ")
    lines = intervals.where(~is_exempt() & (F.col("passed_messages") > 0))
    is_publish = F.col("direction") == "publish"
    named = scoped(lines.where(is_publish), _OF_ALL_PUBLISHED).unionByName(scoped(lines.where(~is_publish), _OF_ALL))
    without = named.where(~F.array_contains(named_levels, F.col("level")))
    is_steady = F.coalesce("steady", F.lit(False))
    is_in_force = (F.col("mode") != "observe") & (
        F.col("limit_messages").isNotNull() | F.col("limit_bytes").isNotNull()
    )
    limited = limits.where(is_in_force)
    # Most lines name each limit that there is: they go no further.
    known = F.broadcast(limited.select(*LIMITER).distinct())
    streams = without.join(known, on=list(LIMITER), how="left_semi").select(
        *LIMITER,
        *("topic", "passed_messages"),
        *(F.col(name).alias(f"of_{name}") for name in ("seq", "start_us", "end_us")),
        is_steady.alias("is_steady"),
    )
    own = limited.select(
        *LIMITER,
        *("start_us", "end_us", "seq", "start", "end"),
        is_steady.alias("steady"),
        F.struct("file", "seq", "line").alias("place"),
    )
    columns = dict.fromkeys((f"of_{name}" for name in BOOT), "string") | {"at_us": "long"}
    moments = F.broadcast(local_frame(intervals.sparkSession, changes, columns))
    is_changed = (
        (F.col("proxy_id") == F.col("of_proxy_id"))
        & (F.col("boot_id") == F.col("of_boot_id"))
        & F.col("at_us").between(F.col("start_us"), F.col("end_us"))
    )
    # A steady line and those of the other side have different spans.
    both = _by_minute(streams, "of_start_us", "of_end_us").join(
        _by_minute(own, "start_us", "end_us"), on=[*LIMITER, "minute"]
    )
    is_same = (F.col("of_start_us") == F.col("start_us")) & (F.col("of_end_us") == F.col("end_us"))
    overlaps = (F.col("of_start_us") < F.col("end_us")) & (F.col("start_us") < F.col("of_end_us"))
    pairs = both.where(is_same | (overlaps & (F.col("is_steady") | F.col("steady"))))
    whole = {"start_us": F.least("start_us", "of_start_us"), "end_us": F.greatest("end_us", "of_end_us")}
    together = pairs.dropDuplicates([*LIMITER, "of_seq", "seq"]).withColumns(whole)
    outside = together.join(moments, on=is_changed, how="left_anti")
    text = F.format_string(
        "a stream of %s passed %d messages, and its line does not name this limit", "topic", "passed_messages"
    )
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    first = F.struct(text.alias("said"), *times, F.col("place").alias("first_line"), F.col("place").alias("last_line"))
    each = outside.groupBy(*LIMITER).agg(F.min_by(first, "seq").alias("first"), F.count("*").alias("times"))
    return each.select(*LIMITER, F.lit("outside").alias("what"), "first.*", "times")


def _by_minute(spans: DataFrame, start: str, end: str) -> DataFrame:
    """Repeat each span for each minute that it touches: adds `minute`."""
    minutes = (F.floor(F.col(moment) / 60_000_000) for moment in (start, end))
    return spans.withColumn("minute", F.explode(F.sequence(*minutes)))


def falsely_exempt(intervals: DataFrame, limits: DataFrame) -> DataFrame:
    """Find, for each limit, the first line of a stream of its names that falsely says to be exempt, as `DoubtFacts`.

    Args:
        intervals: All lines of streams.
        limits: All lines of limiters.
    """
    lines = intervals.where(F.coalesce("exempt", F.lit(False)) & ~is_exempt() & (F.col("passed_messages") > 0))
    named = scoped(lines.withColumn("exempt", F.lit(False)), _OF_ALL_PUBLISHED)
    limiters = limits.where(F.col("mode") != "observe").select(*LIMITER).distinct()
    text = F.format_string(
        "a stream of %s passed %d messages as exempt, and the topic is none of Pulsar's own",
        "topic",
        "passed_messages",
    )
    place = F.struct("file", "seq", "line")
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    first = F.struct(text.alias("said"), *times, place.alias("first_line"), place.alias("last_line"))
    each = named.join(limiters, on=list(LIMITER), how="left_semi").groupBy(*LIMITER)
    doubts = each.agg(F.min_by(first, "seq").alias("first"), F.count("*").alias("times"))
    return doubts.select(*LIMITER, F.lit("exempt").alias("what"), "first.*", "times")
