"""Containment seen from the other side: the lines of the streams that a limiter should have charged.

A limiter's own account would not show what passed it by. So in each run of limit lines without an idle gap and with
one value in force, what counts against limits in the streams' lines that lie wholly inside may not sum up to more than
the same allowance. (Between runs nothing is compared: a limit that was removed and one that nobody used look alike
there.) A stream says itself what of its own does not count; it knows that by rule, not from who charged it.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.clock import seconds
from compliance.judging.clock_steps import EPOCH
from compliance.judging.containment import CONTIGUOUS_S, PLACE, UNITS, worst_of
from compliance.schema import BOOT, LIMITER

LEVELS = ("topic", "namespace")
"""The levels of which a stream's line itself says that they are charged for it."""
# Times of before and after a clock was put back are not compared: they overlap.
_SCOPE = (*BOOT, EPOCH, "direction", "level", "name")


def _by_seq() -> WindowSpec:
    return Window.partitionBy(*LIMITER).orderBy("seq")


def _by_start() -> WindowSpec:
    # A run begins before the streams' lines that start at the same moment.
    return Window.partitionBy(*_SCOPE).orderBy(F.unix_micros("start"), F.col("run_end").isNull())


def crosscheck_facts(judged: DataFrame, interval_lines: DataFrame, units: Sequence[str] = UNITS) -> DataFrame:
    """The worst run of each limiter and unit on the basis of its streams' lines, as `ContainmentFacts`.

    Args:
        judged: As `containment.judged_lines`, of lines with their epoch.
        interval_lines: All of them, with their epoch.
        units: Those that any line is judged in.
    """
    # Of what passes a limiter by, the sustained rate tells as much as the peak.
    sustained = [unit for unit in units if unit in UNITS] or UNITS[:1]
    checks = (_crosscheck(judged, interval_lines, unit) for unit in sustained)
    return worst_of(reduce(DataFrame.unionByName, checks), "streams")


def contiguous_runs(lines: DataFrame) -> DataFrame:
    """Runs of judged lines of one unit without idle gaps: `start`, `run_end`, `rate`, `allowed`."""
    is_other = F.lag(F.struct("run", EPOCH)).over(_by_seq()) != F.struct("run", EPOCH)
    is_new = F.coalesce(is_other, F.lit(True)) | (F.col("idle_s") > CONTIGUOUS_S)
    parts = lines.withColumn("part", F.sum(F.when(is_new, 1).otherwise(0)).over(_by_seq()))
    earned = F.sum(F.col("rate") * F.col("duration_s"))
    allowed = F.max("burst") + earned + F.max("largest")
    return parts.groupBy(*LIMITER, EPOCH, "part").agg(
        F.min("start").alias("start"),
        F.max("end").alias("run_end"),
        F.max("rate").alias("rate"),
        allowed.alias("allowed"),
        F.min_by(F.struct(*PLACE), "seq").alias("first_line"),
        F.max_by(F.struct(*PLACE), "seq").alias("last_line"),
    )


def stream_lines(interval_lines: DataFrame, unit: str) -> DataFrame:
    """Each stream's line once for its topic and once for its namespace as a whole, with what counts against limits."""
    namespace = F.concat_ws("/", "tenant", "namespace")
    scopes = F.array(
        F.struct(F.lit("topic").alias("level"), F.col("topic").alias("name")),
        F.struct(F.lit("namespace").alias("level"), namespace.alias("name")),
    )
    counted = F.coalesce(f"charged_{unit}", f"passed_{unit}").cast("double").alias("passed")
    return interval_lines.select(*BOOT, EPOCH, "direction", "start", "end", counted, F.inline(scopes))


def _crosscheck(judged: DataFrame, interval_lines: DataFrame, unit: str) -> DataFrame:
    lines = judged.where((F.col("unit") == unit) & F.col("level").isin(*LEVELS))
    runs = contiguous_runs(lines).drop("part").withColumn("run_start", F.col("start"))
    both = runs.unionByName(stream_lines(interval_lines, unit), allowMissingColumns=True)
    in_force = F.struct("run_start", "run_end", "rate", "allowed", "first_line", "last_line")
    latest = F.last(F.when(F.col("run_end").isNotNull(), in_force), ignorenulls=True).over(_by_start())
    placed = both.withColumn("in_force", latest).where(F.col("passed").isNotNull())
    inside = placed.where(seconds(F.col("end")) <= seconds(F.col("in_force.run_end")))
    windows = inside.groupBy(*LIMITER, "in_force").agg(F.sum("passed").alias("window_passed"))
    begin = F.struct(F.col("in_force.run_start").alias("start"), F.col("in_force.first_line").alias("line"))
    return windows.select(
        *LIMITER,
        F.lit(unit).alias("unit"),
        begin.alias("begin"),
        F.col("in_force.last_line").alias("last_line"),
        F.col("in_force.run_end").alias("end"),
        "window_passed",
        F.col("in_force.allowed").alias("allowed"),
        F.col("in_force.rate").alias("rate"),
    )
