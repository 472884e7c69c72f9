"""Entitlement: while somebody waited on a limiter, did it pass what it owed?

Everything is counted in seconds of the limit: a line served max(messages / message rate, bytes / byte rate) seconds,
whichever bucket binds, and owes the seconds in which somebody waited. So windows may span a change of the limit.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.clock import rfc3339, seconds
from compliance.judging.clock_steps import BACK_S, EPOCH
from compliance.judging.containment import PLACE, UNITS
from compliance.judging.rounding import CLOCK_RESOLUTION_S, OWED_SHARE, OWED_WINDOW_S
from compliance.schema import LIMITER, OBSERVED

AMOUNTS = tuple(f"{what}_{unit}" for what in ("passed", "owed") for unit in UNITS)
"""What passed and what was owed in a window, in each unit."""


def _window() -> WindowSpec:
    return (
        Window.partitionBy(*LIMITER, EPOCH)
        .orderBy(F.unix_micros("end"))
        .rangeBetween(1 - OWED_WINDOW_S * 1_000_000, Window.currentRow)
    )


def served_lines(limit_lines: DataFrame) -> DataFrame:
    """Lines in which somebody waited on a limit that was not only observed.

    Adds `line_s`, the seconds waited, `line_served_s`, those served, what passed and what was owed in each unit that
    has a limit, and `slack_s`. The slack is the largest entry of
    the limiter's whole run (of lines, waited or not): it may have been passed just before the window and be paid back
    in it. It is never under one message.
    """
    by_seq = Window.partitionBy(*LIMITER).orderBy("seq")
    went_back = seconds(F.col("end")) - seconds(F.lag("end").over(by_seq)) < BACK_S
    numbered = limit_lines.withColumn("went_back", F.when(went_back, 1).otherwise(0))
    timed = numbered.withColumn(EPOCH, F.sum("went_back").over(by_seq))
    in_force = timed.where(F.col("mode") != OBSERVED)
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
            *LIMITER,
            EPOCH,
            "tenant",
            F.struct(*PLACE).alias("place"),
            "seq",
            "start",
            "end",
            "slack_s",
            waited.alias("line_s"),
            F.coalesce(served, waited).alias("line_served_s"),
            *(f"passed_{unit}" for unit in UNITS),
            *((F.col(f"limit_{unit}") * waited).alias(f"owed_{unit}") for unit in UNITS),
        )
    )


def _in_seconds(messages: Column, size: Column) -> Column:
    return F.greatest(F.try_divide(messages, F.col("limit_messages")), F.try_divide(size, F.col("limit_bytes")))


def _deficit(waited: Column, served: Column, slack: Column) -> Column:
    return OWED_SHARE * waited - served - slack


def owed_lines(limit_lines: DataFrame) -> DataFrame:
    """Each line in which somebody waited with the ten seconds that end with it, and whether they passed too little.

    Adds `waited_s`, `served_s`, `deficit_s`, `is_short` and the `AMOUNTS` of those ten seconds.
    """
    windows = served_lines(limit_lines).select(
        *LIMITER,
        "tenant",
        "line_s",
        "line_served_s",
        F.min("start").over(_window()).alias("start"),
        "end",
        F.min_by("place", "seq").over(_window()).alias("first_line"),
        F.col("place").alias("last_line"),
        "slack_s",
        F.sum("line_s").over(_window()).alias("waited_s"),
        F.sum("line_served_s").over(_window()).alias("served_s"),
        *(F.sum(name).over(_window()).alias(name) for name in AMOUNTS),
    )
    deficit = _deficit(F.col("waited_s"), F.col("served_s"), F.col("slack_s"))
    return windows.withColumn("deficit_s", deficit).withColumn("is_short", F.col("deficit_s") > CLOCK_RESOLUTION_S)


def entitlement_facts(owed: DataFrame) -> DataFrame:
    """Each limiter's worst window and its whole, as `EntitlementFacts`.

    Args:
        owed: As `owed_lines`.
    """
    times = (rfc3339(F.col(name)).alias(name) for name in ("start", "end"))
    window = F.struct(*times, "waited_s", "served_s", "deficit_s", *AMOUNTS, "first_line", "last_line")
    waited, served = F.sum("line_s"), F.sum("line_served_s")
    facts = owed.groupBy(*LIMITER).agg(
        F.max_by(window, "deficit_s").alias("worst"),
        waited.alias("whole_waited_s"),
        served.alias("whole_served_s"),
        _deficit(waited, served, F.max("slack_s")).alias("whole_deficit_s"),
    )
    return facts.select("*", "worst.*").drop("worst")
