"""How much of the log is there: duplicates, gaps, coverage. It bounds all else that the report can say.

A heartbeat *covers* its span if every line since the heartbeat before it is there.
"""

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.clock import rfc3339, seconds
from compliance.judging.containment import PLACE
from compliance.schema import BOOT

CLOCK_STEP_S = 0.1


def _by_seq() -> WindowSpec:
    return Window.partitionBy(*BOOT).orderBy("seq")


def gap_facts(holes: DataFrame, lines: DataFrame) -> DataFrame:
    """Where numbers are missing, as `GapFacts`.

    Args:
        holes: As `stream.seen.gap_table`.
        lines: Of all kinds, with their places.
    """
    behind = F.col("after_seq") + F.col("missing") + 1
    numbered = holes.withColumn("seq", behind)
    return lines.join(F.broadcast(numbered), on=[*BOOT, "seq"], how="inner").select(
        *BOOT, "after_seq", "missing", rfc3339(F.col("start")).alias("until"), F.struct(*PLACE).alias("behind")
    )


def clock_steps(lines: DataFrame) -> DataFrame:
    """Per run: in how many lines the wall clock and the monotonic one differ."""
    wall_s = seconds(F.col("end")) - seconds(F.col("start"))
    steps = F.abs(wall_s - F.col("duration_ms") / 1e3) > CLOCK_STEP_S
    return lines.groupBy(*BOOT).agg(F.count_if(steps).alias("clock_steps"))


def heartbeat_cover(heartbeats: DataFrame, holes: DataFrame) -> DataFrame:
    """Per run, from its heartbeats: seconds that they span, seconds covered, seconds in holes between them."""
    beats = heartbeats.select(
        *BOOT, "seq", "start", "end", "last", "dropped_lines", (F.col("duration_ms") / 1e3).alias("s")
    )
    lost = holes.select(*BOOT, F.col("after_seq").alias("seq"), "missing")
    # A hole has the number of the line before it, and lies behind that line.
    in_order = Window.partitionBy(*BOOT).orderBy("seq", F.col("missing").isNotNull())
    so_far = F.coalesce(F.sum("missing").over(in_order), F.lit(0))
    both = beats.unionByName(lost, allowMissingColumns=True).withColumn("lost", so_far)
    numbered = both.where(F.col("missing").isNull())
    lost_before = F.coalesce(F.lag("lost").over(_by_seq()), F.lit(0))
    dropped_before = F.coalesce(F.lag("dropped_lines").over(_by_seq()), F.lit(0))
    is_whole = (F.col("lost") == lost_before) & (F.col("dropped_lines") == dropped_before)
    hole_s = seconds(F.col("start")) - F.lag(seconds(F.col("end"))).over(_by_seq())
    spanned = numbered.withColumn("is_whole", is_whole).withColumn("hole_s", hole_s)
    # Heartbeats are taken one after the other: a hole of less than half a beat is the clock's.
    is_hole = F.col("hole_s") > F.col("s") / 2
    return spanned.groupBy(*BOOT).agg(
        F.sum("s").alias("beats_s"),
        F.coalesce(F.sum(F.when(F.col("is_whole"), F.col("s"))), F.lit(0.0)).alias("covered_s"),
        F.coalesce(F.sum(F.when(is_hole, F.col("hole_s"))), F.lit(0.0)).alias("holes_s"),
        F.max("s").alias("beat_s"),
        F.min("start").alias("first_beat"),
    )


def lossy_runs(loss_lines: DataFrame) -> DataFrame:
    """The runs of which the proxy itself says, perhaps in a later run, that lines are lost or may be: `is_lossy`."""
    is_lossy = F.coalesce(F.col("lost_lines") > 0, F.lit(True))
    runs = loss_lines.where(is_lossy).select("proxy_id", F.col("of_boot").alias("boot_id")).distinct()
    return runs.withColumn("is_lossy", F.lit(True))


def run_facts(runs: DataFrame, holes: DataFrame, lines: DataFrame, others: DataFrame) -> DataFrame:
    """Each run of each proxy as `RunFacts`.

    Args:
        runs: As `stream.runs.table`.
        holes: As `stream.seen.gap_table`.
        lines: Of all kinds, each once.
        others: Of them at least the heartbeats and the losses.
    """
    beats, losses = (others.where(F.col("kind") == kind) for kind in ("heartbeat", "loss"))
    parts = (clock_steps(lines), heartbeat_cover(beats, holes), lossy_runs(losses))
    joined = reduce(lambda one, other: one.join(other, on=list(BOOT), how="left"), parts, runs)
    head_s = seconds(F.col("first_beat")) - seconds(F.col("first"))
    tail_s = seconds(F.col("last")) - seconds(F.col("complete_up_to"))
    # What happened since the last beat is not silence yet; the same holds before the first.
    edges_s = sum((F.when(edge > F.col("beat_s"), edge).otherwise(0.0) for edge in (head_s, tail_s)), F.lit(0.0))
    share = F.col("covered_s") / F.nullif(F.col("beats_s") + F.col("holes_s") + edges_s, F.lit(0.0))
    return joined.select(
        *BOOT,
        F.col("there").alias("lines"),
        (F.col("read") - F.col("there")).alias("duplicates"),
        "missing",
        rfc3339(F.col("first")).alias("first"),
        rfc3339(F.col("last")).alias("last"),
        rfc3339(F.col("complete_up_to")).alias("complete_up_to"),
        F.coalesce(share, F.lit(0.0)).alias("coverage"),
        "dropped_lines",
        F.coalesce("is_lossy", F.lit(False)).alias("is_lossy"),
        F.col("has_ended").alias("ended"),
        "clock_steps",
    )
