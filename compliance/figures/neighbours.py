"""Noisy neighbours: who offered more than its limit, and who, on the same connection, waited without having done so."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.schema import BOOT

CONNECTION = (*BOOT, "connection_id")
MOST_OFFENDERS = 50
OVER = 1.0
FEW_OVER = 1.01
"""What is over by so little and hurts nobody is the burst with which a bucket begins."""


def neighbour_facts(interval_lines: DataFrame, throttle_lines: DataFrame) -> DataFrame:
    """The worst offenders, each with the victim on its connection that waited longest, as `NeighbourFacts`."""
    streams = stream_ratios(interval_lines)
    offenders = streams.where(F.col("ratio") > OVER).orderBy(F.desc("ratio"), "topic").limit(MOST_OFFENDERS)
    victims = streams.where((F.coalesce("ratio", F.lit(0.0)) <= OVER) & (F.col("throttled_s") > 0))
    suffered = F.struct("throttled_s", "topic", "delay_max_ms", "reason")
    on_connection = victims.groupBy(*CONNECTION).agg(F.max(suffered).alias("victim"), F.count("*").alias("victims"))
    paused = throttle_lines.groupBy(*CONNECTION).agg((F.sum("duration_ms") / 1e3).alias("paused_s"))
    joined = offenders.join(on_connection, on=list(CONNECTION), how="left").join(
        paused, on=list(CONNECTION), how="left"
    )
    is_felt = F.col("victims").isNotNull() | F.col("paused_s").isNotNull()
    return joined.where((F.col("ratio") > FEW_OVER) | is_felt).select(
        *CONNECTION,
        "client_address",
        F.col("topic").alias("offender"),
        F.col("stream_id").alias("offender_stream"),
        "direction",
        "ratio",
        F.col("throttled_s").alias("offender_throttled_s"),
        F.coalesce("paused_s", F.lit(0.0)).alias("paused_s"),
        F.col("victim.topic").alias("victim"),
        _or(F.col("victim.throttled_s"), 0.0).alias("victim_throttled_s"),
        _or(F.col("victim.delay_max_ms"), 0.0).alias("victim_delay_max_ms"),
        _or(F.col("victim.reason"), "").alias("victim_reason"),
        _or(F.col("victims"), 0).alias("victims"),
    )


def stream_ratios(interval_lines: DataFrame) -> DataFrame:
    """Each stream with `ratio`: offered over the lowest limit that it had, in the unit in which it is larger."""
    seconds = F.col("duration_ms") / 1e3
    due = {unit: F.col(f"limit_{unit}") * seconds for unit in ("messages", "bytes")}
    is_limited = {unit: F.col(f"limit_{unit}").isNotNull() for unit in due}
    sums = interval_lines.groupBy(*CONNECTION, "stream_id", "topic", "direction").agg(
        *(F.sum(amount).alias(f"due_{unit}") for unit, amount in due.items()),
        *(F.sum(F.when(is_limited[unit], F.col(f"offered_{unit}"))).alias(f"offered_{unit}") for unit in due),
        (F.sum("throttled_ms") / 1e3).alias("throttled_s"),
        F.max("delay_max_ms").alias("delay_max_ms"),
        F.coalesce(F.max_by("reason", F.when(F.col("reason") != "", F.col("seq"))), F.lit("")).alias("reason"),
        F.first("client_address").alias("client_address"),
    )
    ratios = (F.try_divide(F.col(f"offered_{unit}"), F.col(f"due_{unit}")) for unit in due)
    return sums.withColumn("ratio", F.greatest(*ratios))


def _or(value: Column, otherwise: object) -> Column:
    return F.coalesce(value, F.lit(otherwise))
