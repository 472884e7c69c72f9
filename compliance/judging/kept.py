"""For how long each limit was kept and for how long not, line by line: the basis of percentages and burn rates."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.schema import LIMITER

_SECONDS = ("judged_s", "over_s", "waited_s", "short_s")


def kept_lines(judged: DataFrame, owed: DataFrame) -> DataFrame:
    """Each line with a limit in force, once for each of the two promises.

    Of the one, `judged_s` and `over_s`: its seconds, and those of them that were not kept. Of the other, `waited_s` and
    `short_s`: the seconds in which somebody waited, and those of them that were short of what was owed.

    Args:
        judged: As `containment.judged_lines`; a line that is over in one unit is over.
        owed: As `entitlement.owed_lines`.
    """
    over = F.when(F.col("is_over"), F.col("duration_s")).otherwise(0.0)
    contained = judged.groupBy(*LIMITER, "seq").agg(
        F.max("tenant").alias("tenant"),
        F.max("end").alias("end"),
        F.max("duration_s").alias("judged_s"),
        F.max(over).alias("over_s"),
    )
    short = F.when(F.col("is_short"), F.col("line_s")).otherwise(0.0).alias("short_s")
    waited = owed.select(*LIMITER, "tenant", "end", F.col("line_s").alias("waited_s"), short)
    return contained.drop("seq").unionByName(waited, allowMissingColumns=True)


def kept_facts(kept: DataFrame) -> DataFrame:
    """Each limiter of each run, as `KeptFacts`."""
    sums = (F.coalesce(F.sum(name), F.lit(0.0)).alias(name) for name in _SECONDS)
    return kept.groupBy(*LIMITER).agg(F.count("judged_s").alias("lines"), *sums)
