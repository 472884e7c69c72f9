"""Rates over time, for the charts: each line's counts spread evenly over the steps that it touches."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.clock import seconds

_FLOWS = ("offered_messages", "offered_bytes", "passed_messages", "passed_bytes")


def rate_facts(interval_lines: DataFrame, topics: DataFrame) -> DataFrame:
    """Rates per second of the named topics per step, as `RateFacts`.

    Args:
        interval_lines: All of them.
        topics: Columns `topic`, `direction`, `step_s` (length of a step, seconds); few enough for one machine.
    """
    wanted = interval_lines.join(F.broadcast(topics), on=["topic", "direction"], how="inner")
    step_s = F.col("step_s")
    from_s, to_s = seconds(F.col("start")), seconds(F.col("end"))
    first = F.floor(from_s / step_s)
    # The end is exclusive; a clock that stepped back must not make the sequence run backwards.
    last = F.greatest(first, F.ceil(to_s / step_s) - 1)
    spread = wanted.select(
        "*", from_s.alias("from_s"), to_s.alias("to_s"), F.explode(F.sequence(first, last)).alias("step")
    )
    step_start = F.col("step") * step_s
    overlap = F.least(F.col("to_s"), step_start + step_s) - F.greatest(F.col("from_s"), step_start)
    share = F.coalesce(F.try_divide(overlap, F.col("to_s") - F.col("from_s")), F.lit(1.0))
    shares = spread.withColumn("share", F.when(F.col("to_s") > F.col("from_s"), share).otherwise(1.0))
    return shares.groupBy("topic", "direction", "step_s", "step").agg(
        *((F.sum(F.col(name) * F.col("share")) / step_s).alias(name) for name in _FLOWS),
        F.max("limit_messages").alias("limit_messages"),
        F.max("limit_bytes").alias("limit_bytes"),
    )
