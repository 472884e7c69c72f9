"""Steps of the wall clock, and a time axis without them.

Heartbeats follow each other, and their `duration_ms` is of the monotonic clock. So where a heartbeat ends later (or
earlier) than the one before it and its duration say, the wall clock was stepped by the difference, at some moment since
the one before. The lines between the two tell where (`steps.py`).
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
_MOST_TIMES = 200_000
"""Times of lines between the heartbeats of steps; behind so many, steps are placed without them."""
_AXIS = {"proxy_id": "string", "boot_id": "string", "steps": "array<struct<from_seq:long,us:long>>"}
Axes = Mapping[tuple[str, str], RunAxis]
"""The axis of each run whose clock was stepped."""


def step_facts(heartbeats: DataFrame, holes: DataFrame) -> DataFrame:
    """Find each step, as `ClockStepFacts` except `from_seq`: the first line that may be of the new time.

    Args:
        heartbeats: All of them.
        holes: As `stream.seen.gap_table`.
    """
    beats = heartbeats.select(*BOOT, "seq", "start", "end", "file", "line", (F.col("duration_ms") / 1e3).alias("s"))
    lost = holes.select(*BOOT, F.col("after_seq").alias("seq"), "missing")
    # A hole has the number of the line before it, and lies behind that line.
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
    # Where heartbeats are missing, time has passed that nobody told of; but it never runs back.
    told = F.when(F.col("lost") == F.coalesce("lost_before", "lost"), between).otherwise(F.least(between, F.lit(0.0)))
    steps = paired.withColumn("size_s", within + told).where(F.abs("size_s") > STEP_S)
    since = F.coalesce("end_before", "start")
    return steps.select(
        *BOOT,
        (F.coalesce("seq_before", F.lit(-1)) + 1).alias("from_seq"),
        F.col("seq").alias("to_seq"),
        "size_s",
        F.unix_micros(since).alias("since_us"),
        F.unix_micros("end").alias("until_us"),
        rfc3339(F.least(since, F.col("end"))).alias("first"),
        rfc3339(F.greatest(since, F.col("end"))).alias("last"),
        F.struct("file", "seq", "line").alias("line"),
    )


def axes_of(found: DataFrame, lines: DataFrame) -> Axes:
    """Find the axes of the runs whose clock was stepped, almost always none.

    Args:
        found: As `step_facts`.
        lines: All lines of streams and limiters.
    """
    size = F.round(F.col("size_s") * 1e6).cast("long").alias("us")
    told = found.select(*BOOT, "from_seq", "to_seq", size, "since_us", "until_us").orderBy(*BOOT, "from_seq")
    steps: defaultdict[tuple[str, str], list[ClockStep]] = defaultdict(list)
    for row in told.limit(_MOST_STEPS).collect():
        steps[row.proxy_id, row.boot_id].append(ClockStep(*row[2:]))
    if not steps:
        return {}
    duration = F.round(F.col("duration_ms") * 1e3).cast("long").alias("duration_us")
    near = lines.join(F.broadcast(found.select(*BOOT, "from_seq", "to_seq")), on=list(BOOT))
    near = near.where((F.col("seq") >= F.col("from_seq")) & (F.col("seq") < F.col("to_seq")))
    times = near.groupBy(*BOOT, *(F.unix_micros(name).alias(name) for name in ("start", "end")), duration)
    numbered = times.agg(F.min("seq").alias("seq")).select(*BOOT, "seq", "start", "end", "duration_us")
    timed: defaultdict[tuple[str, str], list[TimedLines]] = defaultdict(list)
    for row in numbered.orderBy(*BOOT, "seq").limit(_MOST_TIMES).collect():
        timed[row.proxy_id, row.boot_id].append(TimedLines(*row[2:]))
    return {run: run_axis(of, timed[run]) for run, of in steps.items()}


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
    duration = F.round(F.col("duration_ms") * 1e3).cast("long")
    was_ahead = ahead - (end - start - duration)

    def nearer(known: Column, step: Column) -> Column:
        return F.when(F.abs(step["us"] - was_ahead) < F.abs(known - was_ahead), step["us"]).otherwise(known)

    # A line that the clock was stepped in begins by the clock of the time before.
    at_begin = F.coalesce(F.aggregate(steps, none, nearer), none)
    is_known = F.abs(at_begin - was_ahead) <= STEP_US
    begin = F.when(is_known, start - at_begin).otherwise(end - ahead - duration)
    is_stepped = F.abs(end - start - duration) > STEP_US
    starts = F.when(is_stepped, begin).otherwise(start - ahead)
    return joined.withColumns({"start_us": starts, "end_us": end - ahead}).drop("steps")
