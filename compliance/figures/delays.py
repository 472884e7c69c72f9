"""Throttling pain: how long somebody waited, how often, and how long messages were held.

Percentiles are never averaged: the histograms of all lines are added place by place, and percentiles read from the sum.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from compliance.clock import rfc3339, seconds
from compliance.figures.rates import LIMIT_KEY
from compliance.schema import LIMITER, OBSERVED

_STILL_ONE_S = 0.001


def episode_facts(limit_lines: DataFrame) -> DataFrame:
    """Each limiter on which somebody waited, as `EpisodeFacts`; lines that follow one another are one episode."""
    lines = limit_lines.where(F.col("mode") != OBSERVED)
    by_seq = Window.partitionBy(*LIMITER).orderBy("seq")
    waits = F.col("throttled_ms") > 0
    is_next = F.lag(waits).over(by_seq) & (seconds(F.col("start")) - seconds(F.lag("end").over(by_seq)) <= _STILL_ONE_S)
    begins = F.when(waits & ~F.coalesce(is_next, F.lit(False)), 1).otherwise(0)
    numbered = lines.withColumns({"waits": waits, "begins": begins}).withColumn("episode", F.sum("begins").over(by_seq))
    waited_s = (F.sum("throttled_ms") / 1e3).alias("waited_s")
    episodes = numbered.where("waits").groupBy(*LIMITER, "episode").agg(waited_s, F.min("start").alias("start"))
    waited = episodes.groupBy(*LIMIT_KEY).agg(
        F.sum("waited_s").alias("throttled_s"),
        F.count("*").alias("episodes"),
        F.max("waited_s").alias("longest_s"),
        # Of several that are as long, the first; sums of fractions differ with the order in which they are added.
        rfc3339(F.max_by("start", F.struct(F.round("waited_s", 9), -F.unix_micros("start")))).alias("longest_start"),
    )
    span_s = seconds(F.max("end")) - seconds(F.min("start"))
    runs = lines.groupBy(*LIMITER, "tenant", "namespace").agg(span_s.alias("span_s"))
    spans = runs.groupBy(*LIMIT_KEY).agg(
        F.first("tenant").alias("tenant"), F.first("namespace").alias("namespace"), F.sum("span_s").alias("span_s")
    )
    return waited.join(spans, on=list(LIMIT_KEY), how="inner")


def delay_facts(interval_lines: DataFrame, *, by_topic: bool) -> DataFrame:
    """As `DelayFacts`: of each topic and direction, or of all topics by direction and reason."""
    whose = ("tenant", "namespace", "topic") if by_topic else ("reason",)
    keys = (*whose, "direction")
    sums = interval_lines.groupBy(*keys).agg(
        F.sum("passed_messages").alias("passed_messages"),
        F.coalesce(F.sum("delay_sum_ms"), F.lit(0.0)).alias("delay_sum_ms"),
        F.max("delay_max_ms").alias("delay_max_ms"),
    )
    buckets = interval_lines.select(*keys, F.posexplode("delay_hist").alias("bucket", "held")).groupBy(*keys, "bucket")
    counted = buckets.agg(F.sum("held").alias("held")).where(F.col("held") > 0)
    merged = counted.groupBy(*keys).agg(
        F.sum("held").alias("held_messages"),
        F.map_from_entries(F.collect_list(F.struct("bucket", "held"))).alias("by_bucket"),
        F.max("bucket").alias("highest"),
    )
    places = F.sequence(F.lit(0), F.col("highest"))
    hist = F.transform(places, lambda place: F.coalesce(F.try_element_at("by_bucket", place), F.lit(0)))
    joined = sums.join(merged, on=list(keys), how="left").select(
        *keys,
        "passed_messages",
        "delay_sum_ms",
        "delay_max_ms",
        F.coalesce("held_messages", F.lit(0)).alias("held_messages"),
        F.coalesce(hist, F.array().cast("array<long>")).alias("hist"),
    )
    absent = {name: F.lit("") for name in ("tenant", "namespace", "topic", "reason") if name not in keys}
    return joined.withColumns(absent)


def pause_facts(throttle_lines: DataFrame) -> DataFrame:
    """Pauses of reading by side and cause, as `PauseFacts`."""
    paused_s = F.col("duration_ms") / 1e3
    return throttle_lines.groupBy("side", "cause").agg(
        F.count("*").alias("pauses"),
        F.count_distinct("proxy_id", "boot_id", "connection_id").alias("connections"),
        F.sum(paused_s).alias("total_s"),
        F.max(paused_s).alias("longest_s"),
    )


def refusal_facts(reject_lines: DataFrame) -> DataFrame:
    """Lookups, producers and consumers that were refused, by reason, as `RefusalFacts`."""
    return reject_lines.groupBy("reason").agg(
        F.sum("rejected").alias("rejected"),
        F.count_distinct("proxy_id", "boot_id", "connection_id").alias("connections"),
        rfc3339(F.min("start")).alias("first"),
        rfc3339(F.max("end")).alias("last"),
        F.substring(F.max_by("detail", F.struct("end", "detail")), 1, 300).alias("example"),
    )
