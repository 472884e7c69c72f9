"""What would help: the demand at limits, and what limits would have done that are only observed."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.figures.rates import of_limiters, spread
from compliance.figures.scopes import LEVEL_WORDS
from compliance.figures.traffic import TIMEOUT_S
from compliance.schema import seconds

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
