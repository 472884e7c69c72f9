"""Entitlement: while somebody waited on a limiter, did it pass what it owed?

Everything is counted in seconds of the limit: a line served max(messages / message rate, bytes / byte rate) seconds,
whichever bucket binds, and owes the seconds in which somebody waited. So windows may span a change of the limit.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.clock import rfc3339
from compliance.schema import LIMITER, OBSERVED

OWED_SHARE = 0.99
WINDOW_S = 10


def _window() -> WindowSpec:
    return (
        Window.partitionBy(*LIMITER)
        .orderBy(F.unix_micros("end"))
        .rangeBetween(1 - WINDOW_S * 1_000_000, Window.currentRow)
    )


def served_lines(limit_lines: DataFrame) -> DataFrame:
    """Lines in which somebody waited on a limit that was not only observed, with `waited_s`, `served_s` and `slack_s`.

    The slack is the largest entry of the limiter's whole run (of lines, waited or not): it may have been passed just
    before the window and be paid back in it. It is never under one message.
    """
    in_force = limit_lines.where(F.col("mode") != OBSERVED)
    limited = in_force.where(F.col("limit_messages").isNotNull() | F.col("limit_bytes").isNotNull())
    largest = F.greatest(F.col("largest_entry_messages"), F.lit(1))
    entry_s = _in_seconds(largest, F.col("largest_entry_bytes"))
    slack = F.max(entry_s).over(Window.partitionBy(*LIMITER))
    served = _in_seconds(F.col("passed_messages"), F.col("passed_bytes"))
    waited = F.col("throttled_ms") / 1e3
    return (
        limited.withColumn("slack_s", F.coalesce(slack, F.lit(0.0)))
        .where(F.col("throttled_ms") > 0)
        # A limit of nothing owes nothing.
        .select(
            *LIMITER, "start", "end", "slack_s", waited.alias("waited_s"), F.coalesce(served, waited).alias("served_s")
        )
    )


def _in_seconds(messages: Column, size: Column) -> Column:
    return F.greatest(F.try_divide(messages, F.col("limit_messages")), F.try_divide(size, F.col("limit_bytes")))


def _deficit() -> Column:
    return OWED_SHARE * F.col("waited_s") - F.col("served_s") - F.col("slack_s")


def entitlement_facts(limit_lines: DataFrame) -> DataFrame:
    """Each limiter's worst window and its whole, as `EntitlementFacts`."""
    lines = served_lines(limit_lines)
    windows = lines.select(
        *LIMITER,
        F.min("start").over(_window()).alias("start"),
        "end",
        "slack_s",
        F.sum("waited_s").over(_window()).alias("waited_s"),
        F.sum("served_s").over(_window()).alias("served_s"),
    )
    window = F.struct(
        rfc3339(F.col("start")).alias("start"),
        rfc3339(F.col("end")).alias("end"),
        "waited_s",
        "served_s",
        _deficit().alias("deficit_s"),
    )
    worst = windows.groupBy(*LIMITER).agg(F.max_by(window, _deficit()).alias("worst"))
    whole = lines.groupBy(*LIMITER).agg(
        F.sum("waited_s").alias("waited_s"), F.sum("served_s").alias("served_s"), F.max("slack_s").alias("slack_s")
    )
    totals = whole.select(
        *LIMITER,
        F.col("waited_s").alias("whole_waited_s"),
        F.col("served_s").alias("whole_served_s"),
        _deficit().alias("whole_deficit_s"),
    )
    return worst.select(*LIMITER, "worst.*").join(totals, on=list(LIMITER), how="inner")
