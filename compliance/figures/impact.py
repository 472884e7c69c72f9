"""The impact of limits on clients: messages that waited or were refused, by limit and client, and how much they asked.

The access log attributes the waits of a line to one limit, its `reason`. Sums by tenant are of all lines.
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from accesslog.record import BUCKETS, upper_bound_ms
from compliance.figures.rates import LEVEL_WORDS, of_limiters, spread
from compliance.schema import OBSERVED, rfc3339, seconds

TIMEOUT_S = 30
"""Clients' default send timeout."""
LATE_BUCKET = next(
    bucket for bucket in range(BUCKETS) if (upper_bound_ms(bucket) or TIMEOUT_S * 1e3) >= TIMEOUT_S * 1e3
)
"""The bucket of 28.7 to 32.8 s. Messages count as late from here on, in lines with a wait of `TIMEOUT_S`."""
_CLIENT = ("level", "name", "topic", "client")
_COUNTS = ("offered_messages", "passed_messages", "dropped_messages", "rejected_messages")


def impact_facts(interval_lines: DataFrame) -> DataFrame:
    """Sum up by direction; by tenant, too; by limit, too; by client, too. As `ImpactFacts`.

    A row has null in the columns that it is not grouped by. Limits and clients without a wait or refusal have no row.
    """
    client = F.when(F.col("direction") == "publish", F.col("producer_name")).otherwise(F.col("subscription"))
    is_late = F.col("delay_max_ms") >= TIMEOUT_S * 1e3
    held = [F.coalesce(F.get("delay_hist", F.lit(bucket)), F.lit(0)) for bucket in range(BUCKETS)]
    late = F.when(is_late, sum(held[LATE_BUCKET + 1 :], held[LATE_BUCKET])).otherwise(0)
    is_hurt = (F.col("throttled_ms") > 0) | (F.col("delay_max_ms") > 0) | (F.col("rejected_messages") > 0)
    counts = {name: F.coalesce(name, F.lit(0)) for name in (*_COUNTS, "would_throttle_ms", "would_delay_max_ms")}
    lines = interval_lines.withColumns(counts).withColumns(
        {"level": F.col("reason"), "name": F.col("reason_name"), "client": client, "late": late, "is_hurt": is_hurt}
    )
    sets = [["direction"], ["direction", "tenant"], ["direction", "tenant", *_CLIENT[:2]]]
    sets.append([*sets[-1], *_CLIENT[2:]])
    keys = [F.col(name) for name in sets[-1]]
    worst = F.struct((F.col("late") + F.col("rejected_messages")).alias("hurt"), "delay_max_ms")
    grouped = lines.groupingSets([[F.col(name) for name in names] for names in sets], *keys).agg(
        *(F.sum(name).alias(name) for name in _COUNTS),
        F.sum("late").alias("late_messages"),
        F.array(*(F.sum(messages) for messages in held)).alias("hist"),
        F.max("delay_max_ms").alias("delay_max_ms"),
        (F.sum("throttled_ms") / 1e3).alias("throttled_s"),
        rfc3339(F.min(F.when(is_hurt, F.col("start")))).alias("first"),
        rfc3339(F.max(F.when(is_hurt, F.col("end")))).alias("last"),
        rfc3339(F.max_by("start", F.when(is_hurt, worst))).alias("worst_at"),
        (F.sum("would_throttle_ms") / 1e3).alias("would_throttle_s"),
        F.max("would_delay_max_ms").alias("would_delay_max_ms"),
    )
    return grouped.where(F.col("level").isNull() | (F.col("first").isNotNull() & (F.col("level") != "")))


DEMAND_STEP_S = TIMEOUT_S
"""A limit that gives all that came in each of these steps has no backlog at the end of one: no message waits longer."""


def demand_facts(interval_lines: DataFrame, limiters: DataFrame, levels: Collection[str] = LEVEL_WORDS) -> DataFrame:
    """Return what clients offered to some limits in the fullest step, as `DemandFacts`.

    Args:
        interval_lines: All lines of streams.
        limiters: Columns `proxy_id`, `direction`, `level`, `name`, `owner`: the proxy, or empty for a shared limit.
        levels: Those of the limiters.
    """
    key = ("owner", "direction", "level", "name")
    lines = of_limiters(interval_lines, limiters, levels).withColumn("step_s", F.lit(DEMAND_STEP_S))
    offered = [f"offered_{unit}" for unit in ("messages", "bytes")]
    steps = spread(lines, tuple(offered)).groupBy(*key, "step").agg(*(F.sum(name).alias(name) for name in offered))
    span_s = (seconds(F.max("end")) - seconds(F.min("start"))).alias("span_s")
    spans = lines.groupBy(*key).agg(span_s)
    # A log shorter than a step has its rate over the log.
    length_s = F.greatest(F.lit(1.0), F.least(F.lit(float(DEMAND_STEP_S)), F.max("span_s")))
    rates: list[Column] = [
        (F.max(f"offered_{unit}") / length_s).alias(f"{unit}_per_s") for unit in ("messages", "bytes")
    ]
    return steps.join(spans, on=list(key)).groupBy(*key).agg(*rates).withColumnRenamed("owner", "proxy_id")


def observed_facts(limit_lines: DataFrame) -> DataFrame:
    """Sum up the limits that are only observed, as `ObservedFacts`: with enforcing, streams would have waited."""
    key = ("direction", "level", "name", "tenant")
    last = F.struct("limit_messages", "limit_bytes")
    lines = (
        limit_lines.where(F.col("mode") == OBSERVED)
        .groupBy(*key)
        .agg(
            F.max_by(last, "end").alias("last"),
            (F.sum("throttled_ms") / 1e3).alias("would_throttle_s"),
            (F.sum("duration_ms") / 1e3).alias("observed_s"),
            rfc3339(F.min(F.when(F.col("throttled_ms") > 0, F.col("start")))).alias("first"),
        )
    )
    return lines.select(*key, "last.*", "would_throttle_s", "observed_s", "first")
