"""Who got what of a limit that several share, against max-min fairness.

Max-min: nobody gets more than wanted, and what is left over goes to those who want more, in equal parts.

Compared in steps of ten seconds in which somebody waited for at least half of the time; in each the shares are those of
what really passed, in the limit's own unit.
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.figures.levels import LEVELS
from compliance.figures.rates import LIMIT_KEY, spread
from compliance.figures.scopes import of_limiters
from compliance.schema import OBSERVED

STEP_S = 10
CONTENDED = 0.5
_FLOWS = ("passed", "held", "dropped", "rejected")


def fairness_facts(
    limit_lines: DataFrame, interval_lines: DataFrame, wanted: DataFrame, levels: Collection[str] = LEVELS
) -> DataFrame:
    """Each member of some limiters, as `FairnessFacts`.

    Args:
        limit_lines: All of them.
        interval_lines: All of them.
        wanted: Columns `proxy_id`, `direction`, `level`, `name`, `unit` (`messages` or `bytes`).
        levels: That they are of.
    """
    contended = _contended(limit_lines, wanted)
    lines = of_limiters(interval_lines, wanted, levels).withColumn("step_s", F.lit(STEP_S))
    counts = {
        what: F.when(F.col("unit") == "bytes", F.col(f"{what}_bytes")).otherwise(F.col(f"{what}_messages"))
        for what in _FLOWS
    }
    keys = [*LIMIT_KEY, "step"]
    # What is held at the end of a step had arrived by then: it was wanted in this step as in the next.
    counted = lines.withColumns({what: F.coalesce(count, F.lit(0)).cast("double") for what, count in counts.items()})
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


def _contended(limit_lines: DataFrame, wanted: DataFrame) -> DataFrame:
    lines = limit_lines.where(F.col("mode") != OBSERVED).join(F.broadcast(wanted), on=list(LIMIT_KEY), how="left_semi")
    waits = spread(lines.withColumn("step_s", F.lit(STEP_S)), ("throttled_ms",)).groupBy(*LIMIT_KEY, "step")
    return waits.agg((F.sum("throttled_ms") / 1e3).alias("waited_s")).where(F.col("waited_s") >= CONTENDED * STEP_S)


def with_fair_share(members: DataFrame, keys: list[str]) -> DataFrame:
    """Adds `fair`, the max-min share of the sum of `got` within each group of `keys`, by `wanted` (water filling)."""
    by_want = Window.partitionBy(*keys).orderBy("wanted", "member")
    smaller = by_want.rowsBetween(Window.unboundedPreceding, -1)
    group = Window.partitionBy(*keys)
    left = F.sum("got").over(group) - F.coalesce(F.sum("wanted").over(smaller), F.lit(0.0))
    share: Column = left / (F.count("*").over(group) - F.row_number().over(by_want) + 1)
    level = members.withColumn("share", F.greatest(share, F.lit(0.0)))
    # Who wants no more than an equal part of what is left gets it; the first who wants more sets the rest's level.
    water = F.max(F.when(F.col("wanted") > F.col("share"), F.col("share"))).over(group)
    return level.withColumn("fair", F.least(F.col("wanted"), F.coalesce(water, F.col("wanted")))).drop("share")


def _summed(steps: DataFrame) -> DataFrame:
    return steps.groupBy(*LIMIT_KEY, "unit", "member").agg(
        (F.count_distinct("step") * float(STEP_S)).alias("contended_s"),
        F.sum("got").alias("got"),
        F.sum("wanted").alias("wanted"),
        F.sum("fair").alias("fair"),
    )
