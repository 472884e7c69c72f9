"""What would help: the demand at limits, and what limits would have done that are only observed."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.figures.rates import LEVEL_WORDS, of_limiters, spread
from compliance.figures.traffic import TIMEOUT_S
from compliance.schema import OBSERVED, rfc3339, seconds

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
