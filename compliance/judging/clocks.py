"""Steps of the wall clock, and a time axis without them.

Heartbeats follow each other, and their `duration_ms` is of the monotonic clock. So where a heartbeat ends later (or
earlier) than the one before it and its duration say, the wall clock was stepped by the difference, at some moment since
the one before. A line between the two is of the old time if its end fits between them only so, else of the new one.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.schema import BOOT, rfc3339, seconds
from compliance.session import local_frame

STEP_S = 0.1
"""By less, clocks are slewed."""
_MOST_STEPS = 10_000
_FIT_US = 50_000
"""Microseconds by which a line may end outside the two heartbeats that it is between."""
_STEPS = {
    "proxy_id": "string",
    "boot_id": "string",
    "steps": "array<struct<from_seq:long,to_seq:long,us:long,since_us:long,until_us:long>>",
}
Steps = list[tuple[str, str, list[dict[str, int]]]]
"""Proxy, run, and each step, almost always none: the first and last line that may be of either time, by how many
microseconds the wall clock is ahead behind it, and when the two heartbeats end, each in its own time."""


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


def steps_of(found: DataFrame) -> Steps:
    """The runs whose clock was stepped.

    Args:
        found: As `step_facts`.
    """
    size = F.round(F.col("size_s") * 1e6).cast("long").alias("us")
    one = F.struct("from_seq", "to_seq", size, "since_us", "until_us")
    runs = found.groupBy(*BOOT).agg(F.slice(F.sort_array(F.collect_list(one)), 1, _MOST_STEPS).alias("steps"))
    return [(row.proxy_id, row.boot_id, [step.asDict() for step in row.steps]) for row in runs.collect()]


def with_axis(lines: DataFrame, steps: Steps) -> DataFrame:
    """Adds `start_us` and `end_us`: microseconds on an axis that goes on through steps of the wall clock."""
    start, end = F.unix_micros("start"), F.unix_micros("end")
    if not steps:
        return lines.withColumns({"start_us": start, "end_us": end})
    runs = local_frame(lines.sparkSession, steps, _STEPS)
    joined = lines.join(F.broadcast(runs), on=list(BOOT), how="left")
    ahead = F.coalesce(_ahead(F.col("steps"), F.col("seq"), end), F.lit(0).cast("long"))
    duration = F.round(F.col("duration_ms") * 1e3).cast("long")
    is_stepped = F.abs(end - start - duration) > STEP_S * 1e6
    begin = F.when(is_stepped, end - ahead - duration).otherwise(start - ahead)
    return joined.withColumns({"start_us": begin, "end_us": end - ahead}).drop("steps")


def _ahead(steps: Column, seq: Column, end: Column) -> Column:
    passed = F.filter(steps, lambda step: (step["from_seq"] <= seq) & ~_is_of_old_time(step, seq, end))
    return F.aggregate(passed, F.lit(0).cast("long"), lambda total, step: total + step["us"])


def _is_of_old_time(step: Column, seq: Column, end: Column) -> Column:
    begin, until = step["since_us"] - _FIT_US, step["until_us"] + _FIT_US
    fits_old = end.between(begin, until - step["us"])
    fits_new = end.between(begin + step["us"], until)
    return (seq < step["to_seq"]) & fits_old & ~fits_new
