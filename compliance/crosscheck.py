"""Containment seen from the other side: the lines of the streams that a limiter should have charged.

A limiter's own account would not show what passed it by. So in each run of limit lines without an idle gap and with
one value in force, what counts against limits in the streams' lines that lie wholly inside may not sum up to more than
the same allowance. (Between runs nothing is compared: a limit that was removed and one that nobody used look alike
there.) A stream says itself what of its own does not count; it knows that by rule, not from who charged it.
"""

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.clock import seconds
from compliance.containment import CONTIGUOUS_S, UNITS, value_runs, worst_of
from compliance.schema import BOOT, LIMITER

_SCOPE = (*BOOT, "direction", "level", "name")


def _by_seq() -> WindowSpec:
    return Window.partitionBy(*LIMITER).orderBy("seq")


def _by_start() -> WindowSpec:
    # A run begins before the streams' lines that start at the same moment.
    return Window.partitionBy(*_SCOPE).orderBy(F.unix_micros("start"), F.col("run_end").isNull())


def crosscheck_facts(limit_lines: DataFrame, interval_lines: DataFrame) -> DataFrame:
    """The worst run of each limiter and unit on the basis of its streams' lines, as `ContainmentFacts`."""
    checks = (_crosscheck(limit_lines, interval_lines, unit) for unit in UNITS)
    return reduce(DataFrame.unionByName, checks)


def contiguous_runs(limit_lines: DataFrame, unit: str) -> DataFrame:
    """Runs of limit lines without idle gaps: `start`, `run_end`, `rate`, `allowed`."""
    lines = value_runs(limit_lines, unit)
    is_new = (F.col("run") != F.lag("run", 1, -1).over(_by_seq())) | (F.col("idle_s") > CONTIGUOUS_S)
    parts = lines.withColumn("part", F.sum(F.when(is_new, 1).otherwise(0)).over(_by_seq()))
    earned = F.sum(F.col("rate") * F.col("duration_s"))
    allowed = F.max("burst") + earned + F.max("largest")
    return parts.groupBy(*LIMITER, "part").agg(
        F.min("start").alias("start"),
        F.max("end").alias("run_end"),
        F.max("rate").alias("rate"),
        allowed.alias("allowed"),
    )


def stream_lines(interval_lines: DataFrame, unit: str) -> DataFrame:
    """Each stream's line once for its topic and once for its namespace as a whole, with what counts against limits."""
    namespace = F.concat_ws("/", "tenant", "namespace")
    scopes = F.array(
        F.struct(F.lit("topic").alias("level"), F.col("topic").alias("name")),
        F.struct(F.lit("namespace").alias("level"), namespace.alias("name")),
    )
    counted = F.coalesce(f"charged_{unit}", f"passed_{unit}").cast("double").alias("passed")
    return interval_lines.select(*BOOT, "direction", "start", "end", counted, F.inline(scopes))


def _crosscheck(limit_lines: DataFrame, interval_lines: DataFrame, unit: str) -> DataFrame:
    runs = contiguous_runs(limit_lines, unit).drop("part").withColumn("run_start", F.col("start"))
    both = runs.unionByName(stream_lines(interval_lines, unit), allowMissingColumns=True)
    in_force = F.struct("run_start", "run_end", "rate", "allowed")
    latest = F.last(F.when(F.col("run_end").isNotNull(), in_force), ignorenulls=True).over(_by_start())
    placed = both.withColumn("in_force", latest).where(F.col("passed").isNotNull())
    inside = placed.where(seconds(F.col("end")) <= seconds(F.col("in_force.run_end")))
    windows = inside.groupBy(*LIMITER, "in_force").agg(F.sum("passed").alias("window_passed"))
    begin = F.struct(F.col("in_force.run_start").alias("start")).alias("begin")
    shaped = windows.select(
        *LIMITER,
        begin,
        F.col("in_force.run_end").alias("end"),
        "window_passed",
        F.col("in_force.allowed").alias("allowed"),
        F.col("in_force.rate").alias("rate"),
    )
    return worst_of(shaped, unit, "streams")
