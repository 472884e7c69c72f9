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
_COUNTS = ("offered_messages", "passed_messages", "dropped_messages", "rejected_messages")
_SETS = (("direction",), ("tenant",), ("level", "name"), ("topic", "client"))
"""Each row of impacts is grouped by the first of these names, the first two, three, or all."""
_KEYS = tuple(name for names in _SETS for name in names)
_SUMS = (*_COUNTS, "late_messages", "throttled_ms", "would_throttle_ms")
_LONGEST = ("delay_max_ms", "would_delay_max_ms")


def impact_facts(interval_lines: DataFrame) -> DataFrame:
    """Sum up by direction; by tenant, too; by limit, too; by client, too. As `ImpactFacts`.

    A row has null in the columns that it is not grouped by. Limits and clients without a wait or refusal have no row.
    Lines are summed up by client first: that leaves few rows for the other groups.
    """
    client = F.when(F.col("direction") == "publish", F.col("producer_name")).otherwise(F.col("subscription"))
    named = {"level": F.col("reason"), "name": F.col("reason_name"), "client": client}
    lines = interval_lines.withColumns(named)
    parts = _by_client(lines).unionByName(_held_by_client(lines), allowMissingColumns=True)
    sets = [[F.col(name) for names in _SETS[: number + 1] for name in names] for number in range(len(_SETS))]
    hist = (F.sum(F.when(F.col("bucket") == bucket, F.col("held"))) for bucket in range(BUCKETS))
    worst = F.max("worst").alias("worst")
    grouped = parts.groupingSets(sets, *map(F.col, _KEYS)).agg(
        *(F.sum(name).alias(name) for name in _SUMS),
        *(F.max(name).alias(name) for name in _LONGEST),
        F.array(*(F.coalesce(held, F.lit(0)) for held in hist)).alias("hist"),
        *(rfc3339(least(name)).alias(name) for name, least in (("first", F.min), ("last", F.max))),
        worst,
    )
    hurt = grouped.where(F.col("level").isNull() | (F.col("first").isNotNull() & (F.col("level") != "")))
    times = [(F.col(f"{name}_ms") / 1e3).alias(f"{name}_s") for name in ("throttled", "would_throttle")]
    counts = (*_COUNTS, "late_messages", *_LONGEST, "hist", "first", "last")
    return hurt.select(*_KEYS, *counts, *times, rfc3339(F.col("worst.start")).alias("worst_at"))


def _by_client(lines: DataFrame) -> DataFrame:
    is_hurt = (F.col("throttled_ms") > 0) | (F.col("delay_max_ms") > 0) | (F.col("rejected_messages") > 0)
    held = F.slice("delay_hist", LATE_BUCKET + 1, BUCKETS)
    late = F.aggregate(held, F.lit(0).cast("long"), lambda total, messages: total + messages)
    is_late = F.col("delay_max_ms") >= TIMEOUT_S * 1e3
    counted = lines.withColumns(
        {"late_messages": F.when(is_late, late).otherwise(0), "is_hurt": F.coalesce(is_hurt, F.lit(False))}
    )
    failed = (F.col("late_messages") + F.coalesce("rejected_messages", F.lit(0))).alias("failed")
    worst = F.struct(failed, "delay_max_ms", "start")
    return counted.groupBy(*_KEYS).agg(
        *(F.sum(F.coalesce(name, F.lit(0))).alias(name) for name in _SUMS),
        *(F.coalesce(F.max(name), F.lit(0.0)).alias(name) for name in _LONGEST),
        F.min(F.when(F.col("is_hurt"), F.col("start"))).alias("first"),
        F.max(F.when(F.col("is_hurt"), F.col("end"))).alias("last"),
        F.max(F.when(F.col("is_hurt"), worst)).alias("worst"),
    )


def _held_by_client(lines: DataFrame) -> DataFrame:
    """Held messages by bucket; lines without a wait have none."""
    buckets = lines.select(*_KEYS, F.posexplode("delay_hist").alias("bucket", "held")).where(F.col("held") > 0)
    return buckets.groupBy(*_KEYS, "bucket").agg(F.sum("held").alias("held"))


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
