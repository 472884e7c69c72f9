"""Which runs of which proxies have been seen, and up to when their lines are there."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.schema import BOOT


def runs_of(rows: DataFrame) -> DataFrame:
    """Per run: its first and last moment, the end of its last heartbeat, whether it has ended, how much it dropped.

    Args:
        rows: Copies included: how many are `read` tells how many there were.
    """
    is_beat = F.col("kind") == "heartbeat"
    return rows.groupBy(*BOOT).agg(
        F.min("start").alias("first"),
        F.max("end").alias("last"),
        F.max(F.when(is_beat, F.col("end"))).alias("complete_up_to"),
        F.max(F.when(is_beat, F.col("last")).otherwise(F.lit(False))).alias("has_ended"),
        F.max(F.when(is_beat, F.col("dropped_lines")).otherwise(F.lit(0))).alias("dropped_lines"),
        F.count("*").alias("read"),
    )


def merged(runs: DataFrame) -> DataFrame:
    """What several batches say of a run becomes one row."""
    return runs.groupBy(*BOOT).agg(
        F.min("first").alias("first"),
        *(F.max(name).alias(name) for name in ("last", "complete_up_to", "has_ended", "dropped_lines")),
        F.sum("read").alias("read"),
    )


def complete_up_to(runs: DataFrame) -> DataFrame:
    """One row, `complete_up_to`: the earliest of the proxies' last heartbeats; null without any, or if one has none.

    A proxy that has come to an orderly end holds nobody back, as long as there is another.
    """
    latest = F.max_by(F.struct("complete_up_to", "has_ended"), "last").alias("latest")
    proxies = runs.groupBy("proxy_id").agg(latest).select("latest.*")
    going = ~F.col("has_ended")
    has_unknown = F.bool_or(going & F.col("complete_up_to").isNull())
    of_going = F.when(~has_unknown, F.min(F.when(going, F.col("complete_up_to"))))
    earliest = F.when(F.bool_or(going), of_going).otherwise(F.max("complete_up_to"))
    return proxies.agg(earliest.alias("complete_up_to"))
