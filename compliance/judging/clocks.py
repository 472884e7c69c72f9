"""Steps of the wall clock, and a time axis without them.

Heartbeats follow each other, and their `duration_ms` is of the monotonic clock. So where a heartbeat ends later (or
earlier) than the end of the one before plus its duration, the wall clock was stepped by the difference between the two
heartbeats. The lines between them show the place (`steps.py`). Lines may also show steps that cancel, and that
heartbeats do not show.
"""

from collections import defaultdict
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.judging.steps import STEP_US, ClockStep, RunAxis, TimedLines, run_axis
from compliance.schema import BOOT, rfc3339, seconds
from compliance.session import local_frame

STEP_S = STEP_US / 1e6
_MOST_STEPS = 10_000
_MOST_HIDDEN = 1_000
"""Pairs of heartbeats without a step, with lines between them that show one: an honest clock steps rarely."""
_MOST_TIMES = 200_000
"""Times of lines between the heartbeats of steps; beyond this number, steps are placed without lines."""
_SPANS = {"proxy_id": "string", "boot_id": "string", "from_seq": "long", "to_seq": "long"}
_AXIS = {"proxy_id": "string", "boot_id": "string", "steps": "array<struct<from_seq:long,us:long>>"}
Axes = Mapping[tuple[str, str], RunAxis]
"""The axis of each run whose clock was stepped."""


def step_facts(heartbeats: DataFrame, holes: DataFrame) -> DataFrame:
    """Find each step that heartbeats show, as `ClockStepFacts` and the further columns of `beat_pairs`.

    Args:
        heartbeats: All heartbeats.
        holes: As `stream.seen.gap_table`.
    """
    return beat_pairs(heartbeats, holes).where(F.abs("size_s") > STEP_S)


def beat_pairs(heartbeats: DataFrame, holes: DataFrame) -> DataFrame:
    """Find by how much the clock was set ahead between each heartbeat and the one before it, most often 0.

    Columns are those of `ClockStepFacts`, of `steps.ClockStep`, and `is_whole`: no line in between is missing.

    Args:
        heartbeats: All heartbeats.
        holes: As `stream.seen.gap_table`.
    """
    beats = heartbeats.select(*BOOT, "seq", "start", "end", "file", "line", (F.col("duration_ms") / 1e3).alias("s"))
    lost = holes.select(*BOOT, F.col("after_seq").alias("seq"), "missing")
    # A hole has the number of the line before it, and comes after that line.
    in_order = Window.partitionBy(*BOOT).orderBy("seq", F.col("missing").isNotNull())
    so_far = F.coalesce(F.sum("missing").over(in_order), F.lit(0))
    numbered = beats.unionByName(lost, allowMissingColumns=True).withColumn("lost", so_far)
    by_seq = Window.partitionBy(*BOOT).orderBy("seq")
    before = {name: F.lag(name).over(by_seq) for name in ("seq", "end", "lost")}
    paired = numbered.where(F.col("missing").isNull()).select(
        "*", *(value.alias(f"{name}_before") for name, value in before.items())
    )
    within = seconds(F.col("end")) - seconds(F.col("start")) - F.col("s")
    between = F.coalesce(seconds(F.col("start")) - seconds(F.col("end_before")), F.lit(0.0))
    # Where heartbeats are missing, unlogged time has passed; but time never runs back.
    unlogged = F.when(F.col("lost") == F.coalesce("lost_before", "lost"), between).otherwise(
        F.least(between, F.lit(0.0))
    )
    is_whole = F.col("lost") == F.coalesce("lost_before", F.lit(0))
    pairs = paired.withColumns({"size_s": within + unlogged, "is_whole": is_whole})
    since = F.coalesce("end_before", "start")
    return pairs.select(
        *BOOT,
        (F.coalesce("seq_before", F.lit(-1)) + 1).alias("from_seq"),
        F.col("seq").alias("to_seq"),
        "size_s",
        "is_whole",
        F.unix_micros(since).alias("since_us"),
        F.unix_micros("end").alias("until_us"),
        rfc3339(F.least(since, F.col("end"))).alias("first"),
        rfc3339(F.greatest(since, F.col("end"))).alias("last"),
        F.struct("file", "seq", "line").alias("line"),
    )


def axes_of(pairs: DataFrame, lines: DataFrame) -> Axes:
    """Find the axes of the runs whose clock was stepped, almost always none.

    Args:
        pairs: As `beat_pairs`.
        lines: All lines of streams and limiters.
    """
    size = F.round(F.col("size_s") * 1e6).cast("long").alias("us")
    candidates = pairs.select(*BOOT, "from_seq", "to_seq", size, "since_us", "until_us", "is_whole")
    shown = candidates.where(F.abs("us") > STEP_US).orderBy(*BOOT, "from_seq").limit(_MOST_STEPS).collect()
    hidden = _between_stepped_lines(candidates, lines).orderBy(*BOOT, "from_seq").limit(_MOST_HIDDEN).collect()
    steps: defaultdict[tuple[str, str], list[ClockStep]] = defaultdict(list)
    for row in (*shown, *hidden):
        steps[row.proxy_id, row.boot_id].append(ClockStep(*row[2:7]))
    if not steps:
        return {}
    spans = [(*run, step.from_seq, step.to_seq) for run, of_run in steps.items() for step in of_run]
    near = lines.join(F.broadcast(local_frame(lines.sparkSession, spans, _SPANS)), on=list(BOOT))
    near = near.where((F.col("seq") >= F.col("from_seq")) & (F.col("seq") < F.col("to_seq")))
    # Steady lines come late: their numbers do not place them between the heartbeats.
    near = near.where(~F.coalesce("steady", F.lit(False)))
    of_line = {"start": F.unix_micros("start"), "end": F.unix_micros("end"), "duration_us": _duration_us()}
    times = near.groupBy(*BOOT, *(value.alias(name) for name, value in of_line.items()))
    numbered = times.agg(F.min("seq").alias("seq")).select(*BOOT, "seq", "start", "end", "duration_us")
    timed: defaultdict[tuple[str, str], list[TimedLines]] = defaultdict(list)
    for row in numbered.orderBy(*BOOT, "seq").limit(_MOST_TIMES).collect():
        timed[row.proxy_id, row.boot_id].append(TimedLines(*row[2:]))
    return {run: run_axis(of_run, timed[run]) for run, of_run in steps.items()}


def _between_stepped_lines(pairs: DataFrame, lines: DataFrame) -> DataFrame:
    """Select the pairs of heartbeats that show no step, and between which a line does."""
    off_us = F.unix_micros("end") - F.unix_micros("start") - _duration_us()
    stepped = lines.where(F.abs(off_us) > STEP_US).select(*BOOT, F.col("seq").alias("to_seq"))
    both = pairs.unionByName(stepped.withColumn("is_stepped", F.lit(True)), allowMissingColumns=True)
    before = Window.partitionBy(*BOOT).orderBy("to_seq")
    # No two lines of a run share a number: a line between two heartbeats has a number above the first one's.
    counted = both.withColumn("so_far", F.count("is_stepped").over(before))
    so_far_before = F.coalesce(F.lag("so_far").over(before), F.lit(0))
    beats = counted.where("is_stepped is null").withColumn("more", F.col("so_far") - so_far_before)
    is_untold = F.col("is_whole") & (F.abs("us") <= STEP_US)
    return beats.where(is_untold & (F.col("more") > 0)).select(*pairs.columns)


def _duration_us() -> Column:
    return F.round(F.col("duration_ms") * 1e3).cast("long")


def with_axis(lines: DataFrame, axes: Axes) -> DataFrame:
    """Adds `start_us` and `end_us`: microseconds on an axis that goes on through steps of the wall clock."""
    start, end = F.unix_micros("start"), F.unix_micros("end")
    if not axes:
        return lines.withColumns({"start_us": start, "end_us": end})
    rows = [(*run, [{"from_seq": seq, "us": us} for seq, us in axis.ahead]) for run, axis in axes.items()]
    joined = lines.join(F.broadcast(local_frame(lines.sparkSession, rows, _AXIS)), on=list(BOOT), how="left")
    steps, none = F.col("steps"), F.lit(0).cast("long")
    passed = F.filter(steps, lambda step: step["from_seq"] <= F.col("seq"))
    ahead = F.coalesce(F.aggregate(passed, none, lambda _, step: step["us"]), none)
    duration = _duration_us()
    was_ahead = ahead - (end - start - duration)

    def nearer(best: Column, step: Column) -> Column:
        return F.when(F.abs(step["us"] - was_ahead) < F.abs(best - was_ahead), step["us"]).otherwise(best)

    # A line with a step of the clock begins by the clock before the step.
    at_begin = F.coalesce(F.aggregate(steps, none, nearer), none)
    is_known = F.abs(at_begin - was_ahead) <= STEP_US
    begin = F.when(is_known, start - at_begin).otherwise(end - ahead - duration)
    is_stepped = F.abs(end - start - duration) > STEP_US
    starts = F.when(is_stepped, begin).otherwise(start - ahead)
    return joined.withColumns({"start_us": starts, "end_us": end - ahead}).drop("steps")
