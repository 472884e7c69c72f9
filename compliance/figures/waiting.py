"""Waits: which streams waited, on which limit, how long, beside which others, and how fairly limits were shared."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.figures.rates import LIMIT_KEY, of_limiters, spread
from compliance.figures.scopes import LEVEL_WORDS
from compliance.schema import OBSERVED

CONTENDED_STEP_S = 10
CONTENDED = 0.5
_FLOWS = ("passed", "held", "dropped", "rejected")


def fairness_facts(
    limit_lines: DataFrame, interval_lines: DataFrame, limiters: DataFrame, levels: Collection[str] = LEVEL_WORDS
) -> DataFrame:
    """Shares of each member of some limiters, as `FairnessFacts`.

    Args:
        limit_lines: All lines of limiters.
        interval_lines: All lines of streams.
        limiters: Columns `proxy_id`, `direction`, `level`, `name`, `unit` (`messages` or `bytes`).
        levels: That they are of.
    """
    contended = _contended(limit_lines, limiters)
    lines = of_limiters(interval_lines, limiters, levels).withColumn("step_s", F.lit(CONTENDED_STEP_S))
    counts = {
        flow: F.when(F.col("unit") == "bytes", F.col(f"{flow}_bytes")).otherwise(F.col(f"{flow}_messages"))
        for flow in _FLOWS
    }
    keys = [*LIMIT_KEY, "step"]
    # Messages held at the end of a step had arrived by then: they were wanted in this step and in the next.
    counted = lines.withColumns({flow: F.coalesce(count, F.lit(0)).cast("double") for flow, count in counts.items()})
    stream = (*LIMIT_KEY, "unit", "member", "step", "boot_id", "connection_id", "stream_id", "topic")
    shared = spread(counted.withColumn("held_now", F.col("held")), ("passed", "dropped", "rejected"))
    streams = shared.groupBy(*stream).agg(
        *(F.sum(name).alias(name) for name in ("passed", "dropped", "rejected")),
        F.max_by("held_now", "seq").alias("held"),
    )
    wants = F.sum("passed") + F.sum("dropped") + F.sum("rejected") + F.sum("held")
    members = streams.groupBy(*LIMIT_KEY, "unit", "member", "step").agg(
        F.sum("passed").alias("got"), wants.alias("wanted")
    )
    steps = members.join(contended, on=keys, how="inner")
    return _summed(with_fair_share(steps, keys))


def _contended(limit_lines: DataFrame, limiters: DataFrame) -> DataFrame:
    lines = limit_lines.where(F.col("mode") != OBSERVED).join(
        F.broadcast(limiters), on=list(LIMIT_KEY), how="left_semi"
    )
    waits = spread(lines.withColumn("step_s", F.lit(CONTENDED_STEP_S)), ("throttled_ms",)).groupBy(*LIMIT_KEY, "step")
    return waits.agg((F.sum("throttled_ms") / 1e3).alias("waited_s")).where(
        F.col("waited_s") >= CONTENDED * CONTENDED_STEP_S
    )


def with_fair_share(members: DataFrame, keys: list[str]) -> DataFrame:
    """Adds `fair`, the max-min share of the sum of `got` within each group of `keys`, by `wanted` (water filling)."""
    by_want = Window.partitionBy(*keys).orderBy("wanted", "member")
    smaller = by_want.rowsBetween(Window.unboundedPreceding, -1)
    group = Window.partitionBy(*keys)
    left = F.sum("got").over(group) - F.coalesce(F.sum("wanted").over(smaller), F.lit(0.0))
    share: Column = left / (F.count("*").over(group) - F.row_number().over(by_want) + 1)
    level = members.withColumn("share", F.greatest(share, F.lit(0.0)))
    # A member that wants at most an equal part of the rest gets it; the first that wants more sets the others' level.
    water = F.max(F.when(F.col("wanted") > F.col("share"), F.col("share"))).over(group)
    return level.withColumn("fair", F.least(F.col("wanted"), F.coalesce(water, F.col("wanted")))).drop("share")


def _summed(steps: DataFrame) -> DataFrame:
    return steps.groupBy(*LIMIT_KEY, "unit", "member").agg(
        (F.count_distinct("step") * float(CONTENDED_STEP_S)).alias("contended_s"),
        F.sum("got").alias("got"),
        F.sum("wanted").alias("wanted"),
        F.sum("fair").alias("fair"),
    )
