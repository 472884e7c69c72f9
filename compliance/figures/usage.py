"""Totals: what each limiter, topic and day saw."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.clock import rfc3339
from compliance.schema import BOOT, LIMITER, OBSERVED

TOPIC = ("tenant", "namespace", "topic", "direction")
STREAM = (*BOOT, "connection_id", "stream_id", *TOPIC)
_FLOWS = ("offered_messages", "offered_bytes", "passed_messages", "passed_bytes")
_LOST = ("dropped_messages", "dropped_bytes", "rejected_messages", "rejected_bytes")
_IN_FORCE = ("limit_messages", "limit_bytes", "burst_messages", "burst_bytes", "source", "mode", "tenant", "namespace")
_COUNTED = ("passed_messages", "passed_bytes", "rejected_messages", "rejected_bytes")
_PUBLISHED = ("published_messages", "published_bytes")


def limiter_facts(limit_lines: DataFrame) -> DataFrame:
    """Each limiter of each run, as `LimiterFacts`."""
    is_in_force = F.col("mode") != OBSERVED
    is_limited = F.col("limit_messages").isNotNull() | F.col("limit_bytes").isNotNull()
    is_relative = F.coalesce(*(F.col(name) for name in _PUBLISHED)).isNotNull()
    sums = limit_lines.groupBy(*LIMITER).agg(
        F.max_by(F.struct(*_IN_FORCE, is_relative.alias("is_relative")), "seq").alias("in_force"),
        F.count_distinct(F.struct(_configured("messages"), _configured("bytes"))).alias("values"),
        F.bool_or(is_in_force & is_limited).alias("was_limited"),
        *(_sum(F.when(is_in_force, F.col(name))).alias(name) for name in _COUNTED),
        (_sum(F.when(is_in_force, F.col("throttled_ms"))) / 1e3).alias("throttled_s"),
        rfc3339(F.min("start")).alias("first"),
        rfc3339(F.max("end")).alias("last"),
    )
    return sums.select("*", "in_force.*").drop("in_force")


def topic_facts(interval_lines: DataFrame) -> DataFrame:
    """Each topic and direction over everything, as `TopicFacts`; held is what the streams' last lines say."""
    last = F.struct("held_messages", "held_bytes", "limit_level", "limit_messages", "limit_bytes", "end")
    streams = interval_lines.groupBy(*STREAM).agg(
        *_sums(*_FLOWS, *_LOST, "throttled_ms"),
        F.max("delay_max_ms").alias("delay_max_ms"),
        F.min("start").alias("first"),
        F.max("end").alias("last_end"),
        F.max_by(last, "seq").alias("last"),
    )
    limit = F.struct("last.limit_level", "last.limit_messages", "last.limit_bytes")
    topics = streams.groupBy(*TOPIC).agg(
        *_sums(*_FLOWS, *_LOST),
        F.sum("last.held_messages").alias("held_messages"),
        F.sum("last.held_bytes").alias("held_bytes"),
        (F.sum("throttled_ms") / 1e3).alias("throttled_s"),
        F.max("delay_max_ms").alias("delay_max_ms"),
        F.max_by(limit, "last.end").alias("limit"),
        rfc3339(F.min("first")).alias("first"),
        rfc3339(F.max("last_end")).alias("last"),
    )
    return topics.select("*", "limit.*").drop("limit")


def usage_facts(interval_lines: DataFrame) -> DataFrame:
    """Each topic and direction per UTC day, as `UsageFacts`; a line counts on the day in which it starts."""
    day = F.date_format("day", "yyyy-MM-dd").alias("day")
    return interval_lines.groupBy(day, *TOPIC).agg(*_sums(*_FLOWS))


def tenant_day_facts(interval_lines: DataFrame) -> DataFrame:
    """Each tenant and direction per UTC day, as `TenantDayFacts`."""
    day = F.date_format("day", "yyyy-MM-dd").alias("day")
    minute = F.date_trunc("minute", "start").alias("minute")
    minutes = interval_lines.groupBy(day, "tenant", "direction", minute).agg(*_sums(*_FLOWS, "throttled_ms"))
    peaks = ((F.max(f"passed_{unit}") / 60).alias(f"peak_{unit}_per_s") for unit in ("messages", "bytes"))
    throttled = (_sum(F.col("throttled_ms")) / 1e3).alias("throttled_s")
    return minutes.groupBy("day", "tenant", "direction").agg(*_sums(*_FLOWS), *peaks, throttled)


def _configured(unit: str) -> Column:
    """The limit without the publish rate that it is relative to."""
    published = F.coalesce(F.col(f"published_{unit}"), F.lit(0.0))
    return F.round(F.col(f"limit_{unit}") - published, 6)


def _sums(*names: str) -> list[Column]:
    return [_sum(F.col(name)).alias(name) for name in names]


def _sum(values: Column) -> Column:
    """Nothing to add up is 0, as is a field that is left out because it is 0."""
    return F.coalesce(F.sum(values), F.lit(0))
