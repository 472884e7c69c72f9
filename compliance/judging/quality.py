"""Completeness of the log: duplicates, gaps, coverage. It bounds all else that the report can say.

A heartbeat *covers* its span if every line since the heartbeat before it is there. The last lines of a run that ends
without having said that it ends may be lost though no number is missing.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from accesslog.record import Kinds
from compliance.judging.facts import RunFacts, cut_off
from compliance.schema import BOOT, rfc3339

PLACE = ("file", "seq", "line")
"""The columns of a `LinePlace`."""


_NEWER_VERSION = rf"^({'|'.join(Kinds.BY_NAME)}) \(version \d+\)$"
"""The name of lines of a known kind and an unknown version; see `compliance.schema`."""


def _by_seq() -> WindowSpec:
    return Window.partitionBy(*BOOT).orderBy("seq")


def gap_facts(holes: DataFrame, lines: DataFrame) -> DataFrame:
    """Find where numbers are missing, as `GapFacts`.

    Args:
        holes: As `stream.seen.gap_table`.
        lines: Of all kinds, with their places.
    """
    behind = F.col("after_seq") + F.col("missing") + 1
    numbered = holes.withColumn("seq", behind)
    return lines.join(F.broadcast(numbered), on=[*BOOT, "seq"], how="inner").select(
        *BOOT, "after_seq", "missing", rfc3339(F.col("start")).alias("until"), F.struct(*PLACE).alias("behind")
    )


def malformed_of(quarantine: DataFrame, lines: DataFrame) -> DataFrame:
    """Per run: how many malformed lines may be its own.

    A line that still names its run is that run's; another may be of each run that has lines in its file.
    """
    named = {name: F.regexp_extract("text", rf'"{name}"\s*:\s*"([^"\\]*)"', 1) for name in BOOT}
    lines_of_text = quarantine.withColumns({f"own_{name}": text for name, text in named.items()})
    has_name = (F.col("own_proxy_id") != "") & (F.col("own_boot_id") != "")
    own = lines_of_text.where(has_name).select(*(F.col(f"own_{name}").alias(name) for name in BOOT))
    files = F.broadcast(lines_of_text.where(~has_name).select("file"))
    runs_of_files = lines.select("file", *BOOT).distinct().join(files, on="file", how="inner").select(*BOOT)
    return own.unionByName(runs_of_files).groupBy(*BOOT).agg(F.count("*").alias("malformed"))


def conflicts_of(rows: DataFrame, copies: DataFrame) -> DataFrame:
    """Per run: how many copies of lines are not the same as the line that was kept."""
    place = ("file", "line", "step", "day")
    fields = [name for name in copies.columns if name not in (*BOOT, "seq", *place)]
    contents = F.xxhash64(*(F.col(name).cast("string") for name in fields)).alias("content")
    keys = [*BOOT, "seq"]
    numbers = F.broadcast(copies.select(*keys).distinct())
    kept = rows.join(numbers, on=keys, how="left_semi").select(*keys, contents)
    both = copies.select(*keys, contents.alias("other")).join(kept, on=keys, how="inner")
    return both.where(F.col("content") != F.col("other")).groupBy(*BOOT).agg(F.count("*").alias("conflicts"))


def last_lines(lines: DataFrame) -> DataFrame:
    """Return, per run, whether streams or limits have lines after its last heartbeat.

    `begin_us` and `end_us` are the begin of its first line and the end of its last, by the monotonic clock.
    """
    is_counted, is_beat = F.col("kind").isin("interval", "limit"), F.col("kind") == "heartbeat"
    last = {name: F.max(F.when(which, F.col("seq"))) for name, which in (("line", is_counted), ("beat", is_beat))}
    return lines.groupBy(*BOOT).agg(
        F.coalesce(last["line"] > last["beat"], F.lit(False)).alias("has_lines_behind"),
        F.min(_start_us()).alias("begin_us"),
        F.max("mono_us").alias("end_us"),
    )


def _start_us() -> Column:
    return F.col("mono_us") - F.round(F.col("duration_ms") * 1e3).cast("long")


def unknown_lines(lines: DataFrame) -> DataFrame:
    """Return the lines of kinds or versions that this report does not know.

    Those of known kinds are `is_newer`: for the judging they are missing.
    """
    unknown = lines.where(~F.col("kind").isin(*Kinds.BY_NAME))
    return unknown.select(*BOOT, "seq", "kind", F.col("kind").rlike(_NEWER_VERSION).alias("is_newer"))


def newer_facts(unknown: DataFrame) -> DataFrame:
    """Count the lines that this version does not know, as `NewerFacts`."""
    return unknown.groupBy(F.col("kind").alias("what")).agg(F.count("*").alias("lines"))


def heartbeat_cover(heartbeats: DataFrame, holes: DataFrame) -> DataFrame:
    """Per run, from its heartbeats: seconds that they span, seconds covered, seconds in holes between them."""
    beats = heartbeats.select(*BOOT, "seq", "mono_us", "last", "dropped_lines", (F.col("duration_ms") / 1e3).alias("s"))
    lost = holes.select(*BOOT, F.col("after_seq").alias("seq"), "missing")
    # A hole has the number of the line before it, and comes after that line.
    in_order = Window.partitionBy(*BOOT).orderBy("seq", F.col("missing").isNotNull())
    so_far = F.coalesce(F.sum("missing").over(in_order), F.lit(0))
    both = beats.unionByName(lost, allowMissingColumns=True).withColumn("lost", so_far)
    numbered = both.where(F.col("missing").isNull())
    lost_before = F.coalesce(F.lag("lost").over(_by_seq()), F.lit(0))
    dropped_before = F.coalesce(F.lag("dropped_lines").over(_by_seq()), F.lit(0))
    is_whole = (F.col("lost") == lost_before) & (F.col("dropped_lines") == dropped_before)
    hole_s = (F.col("mono_us") - F.lag("mono_us").over(_by_seq())) / 1e6 - F.col("s")
    is_hole = hole_s > F.col("s") / 2
    spanned = numbered.withColumns({"is_whole": is_whole, "hole_s": hole_s, "is_hole": is_hole})
    return spanned.groupBy(*BOOT).agg(
        F.sum("s").alias("beats_s"),
        F.coalesce(F.sum(F.when(F.col("is_whole"), F.col("s"))), F.lit(0.0)).alias("covered_s"),
        F.coalesce(F.sum(F.when(F.col("is_hole"), F.col("hole_s"))), F.lit(0.0)).alias("holes_s"),
        F.max("s").alias("beat_s"),
        F.min(F.col("mono_us") - F.col("s") * 1e6).alias("first_beat_us"),
        F.max("mono_us").alias("last_beat_us"),
    )


def lossy_runs(loss_lines: DataFrame) -> DataFrame:
    """Return the runs whose proxy says, perhaps in a later run, that lines are lost or may be: `is_lossy`."""
    is_lossy = F.coalesce(F.col("lost_lines") > 0, F.lit(True))
    runs = loss_lines.where(is_lossy).select("proxy_id", F.col("of_boot").alias("boot_id")).distinct()
    return runs.withColumn("is_lossy", F.lit(True))


def run_facts(
    runs: DataFrame, holes: DataFrame, lines: DataFrame, others: DataFrame, more: Sequence[DataFrame] = ()
) -> DataFrame:
    """Describe each run of each proxy as `RunFacts`.

    Args:
        runs: As `stream.runs.table`.
        holes: As `stream.seen.gap_table`.
        lines: Of all kinds, each once.
        others: Lines of other kinds, at least heartbeats and losses.
        more: Per run `malformed`, `conflicts`, `clock_steps` and `newer` (lines), where there are any.
    """
    beats, losses = (others.where(F.col("kind") == kind) for kind in ("heartbeat", "loss"))
    parts = (last_lines(lines), heartbeat_cover(beats, holes), lossy_runs(losses), *more)
    joined = reduce(lambda left, right: left.join(right, on=list(BOOT), how="left"), parts, runs)
    head_s = (F.col("first_beat_us") - F.col("begin_us")) / 1e6
    tail_s = (F.col("end_us") - F.col("last_beat_us")) / 1e6
    counts = {
        name: F.coalesce(name, F.lit(0)) if name in joined.columns else F.lit(0)
        for name in ("malformed", "conflicts", "clock_steps", "newer")
    }
    # Time since the last beat, less than a beat, is not silence; nor is it before the first.
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
        *(count.cast("long").alias(name) for name, count in counts.items()),
        (~F.col("has_ended") & F.coalesce("has_lines_behind", F.lit(False))).alias("has_tail"),
    )


def marked(runs: list[RunFacts], horizon: datetime) -> list[RunFacts]:
    """Return the runs, with cut-off runs marked.

    Args:
        runs: All runs.
        horizon: The latest time that a correct clock may show.
    """
    cut = cut_off([run.end for run in runs], horizon)
    return [
        msgspec.structs.replace(run, is_cut_off=True) if (run.proxy_id, run.boot_id) in cut else run for run in runs
    ]
