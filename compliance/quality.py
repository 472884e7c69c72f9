"""How much of the log is there: duplicates, gaps, coverage. It bounds all else that the report can say.

A heartbeat *covers* its span if every line since the heartbeat before it is there.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.clock import rfc3339, seconds
from compliance.schema import BOOT, LINE_KEY

CLOCK_STEP_S = 0.1


def _by_seq() -> WindowSpec:
    return Window.partitionBy(*BOOT).orderBy("seq")


def distinct_lines(rows: DataFrame) -> DataFrame:
    """Each line once: the proxy numbers them, so the number says which are copies."""
    return rows.dropDuplicates(list(LINE_KEY))


def duplicates(rows: DataFrame) -> DataFrame:
    """Copies per run: how many lines there are too many."""
    copies = F.count("*") - F.count_distinct("seq")
    return rows.groupBy(*BOOT).agg(copies.alias("duplicates"))


def gaps(lines: DataFrame) -> DataFrame:
    """Where sequence numbers are missing, as `GapFacts`."""
    before = F.coalesce(F.lag("seq").over(_by_seq()), F.lit(-1))
    gapped = lines.withColumn("after_seq", before).withColumn("missing", F.col("seq") - F.col("after_seq") - 1)
    return gapped.where(F.col("missing") > 0).select(
        *BOOT, "after_seq", "missing", rfc3339(F.col("start")).alias("until")
    )


def run_lines(lines: DataFrame) -> DataFrame:
    """Per run: how many lines, how many missing, from when to when."""
    wall_s = seconds(F.col("end")) - seconds(F.col("start"))
    steps = F.abs(wall_s - F.col("duration_ms") / 1e3) > CLOCK_STEP_S
    return lines.groupBy(*BOOT).agg(
        F.count("*").alias("lines"),
        (F.max("seq") + 1 - F.count("*")).alias("missing"),
        F.min("start").alias("first"),
        F.max("end").alias("last"),
        F.count_if(steps).alias("clock_steps"),
    )


def heartbeat_cover(lines: DataFrame) -> DataFrame:
    """Per run, from its heartbeats: seconds that they span, seconds covered, seconds in holes between them."""
    # seq - row number grows exactly where lines are missing.
    numbered = lines.withColumn("lost", F.col("seq") + 1 - F.row_number().over(_by_seq()))
    beats = numbered.where(F.col("kind") == "heartbeat").select(
        *BOOT, "seq", "start", "end", "last", "dropped_lines", (F.col("duration_ms") / 1e3).alias("s"), "lost"
    )
    lost_before = F.coalesce(F.lag("lost").over(_by_seq()), F.lit(0))
    dropped_before = F.coalesce(F.lag("dropped_lines").over(_by_seq()), F.lit(0))
    is_whole = (F.col("lost") == lost_before) & (F.col("dropped_lines") == dropped_before)
    hole_s = seconds(F.col("start")) - F.lag(seconds(F.col("end"))).over(_by_seq())
    spanned = beats.withColumn("is_whole", is_whole).withColumn("hole_s", hole_s)
    # Heartbeats are taken one after the other: a hole of less than half a beat is the clock's.
    is_hole = F.col("hole_s") > F.col("s") / 2
    return spanned.groupBy(*BOOT).agg(
        F.sum("s").alias("beats_s"),
        F.coalesce(F.sum(F.when(F.col("is_whole"), F.col("s"))), F.lit(0.0)).alias("covered_s"),
        F.coalesce(F.sum(F.when(is_hole, F.col("hole_s"))), F.lit(0.0)).alias("holes_s"),
        F.max("s").alias("beat_s"),
        F.min("start").alias("first_beat"),
        F.max("end").alias("complete_up_to"),
        F.max("dropped_lines").alias("dropped_lines"),
        F.max("last").alias("ended"),
    )


def run_facts(rows: DataFrame, lines: DataFrame) -> DataFrame:
    """Each run of each proxy as `RunFacts`."""
    joined = (
        run_lines(lines)
        .join(duplicates(rows), on=list(BOOT), how="left")
        .join(heartbeat_cover(lines), on=list(BOOT), how="left")
    )
    head_s = seconds(F.col("first_beat")) - seconds(F.col("first"))
    tail_s = seconds(F.col("last")) - seconds(F.col("complete_up_to"))
    # What happened since the last beat is not silence yet; the same holds before the first.
    edges_s = sum((F.when(edge > F.col("beat_s"), edge).otherwise(0.0) for edge in (head_s, tail_s)), F.lit(0.0))
    share = F.col("covered_s") / F.nullif(F.col("beats_s") + F.col("holes_s") + edges_s, F.lit(0.0))
    return joined.select(
        *BOOT,
        "lines",
        "duplicates",
        "missing",
        rfc3339(F.col("first")).alias("first"),
        rfc3339(F.col("last")).alias("last"),
        rfc3339(F.col("complete_up_to")).alias("complete_up_to"),
        F.coalesce(share, F.lit(0.0)).alias("coverage"),
        F.coalesce("dropped_lines", F.lit(0)).alias("dropped_lines"),
        F.coalesce("ended", F.lit(False)).alias("ended"),
        "clock_steps",
    )
