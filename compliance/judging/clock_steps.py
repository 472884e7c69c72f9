"""Where the wall clock went back: from there on times overlap with those before, so the two must not be compared."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from compliance.clock import seconds
from compliance.local_frame import local_frame
from compliance.schema import BOOT

EPOCH = "epoch"
BACK_S = -0.1
_MOST_STEPS = 10_000
_STEPS = {"proxy_id": "string", "boot_id": "string", "steps": "array<long>"}
Steps = list[tuple[str, str, list[int]]]
"""Proxy, run, and the numbers of the lines from which on it is another time: almost always none."""


def steps_back(lines: DataFrame, heartbeats: DataFrame) -> Steps:
    """The runs in which the clock was put back.

    Within a line the wall clock then made less way than the monotonic one; between lines a heartbeat begins before the
    one before it ended, and the lines since that one are of the new time.

    Args:
        lines: Of all kinds.
        heartbeats: The same again, or those alone.
    """
    wall_s = seconds(F.col("end")) - seconds(F.col("start"))
    within = lines.where(wall_s - F.col("duration_ms") / 1e3 < BACK_S).select(*BOOT, F.col("seq").alias("step"))
    by_seq = Window.partitionBy(*BOOT).orderBy("seq")
    beats = heartbeats.where(F.col("kind") == "heartbeat").select(
        *BOOT,
        (seconds(F.col("start")) - seconds(F.lag("end").over(by_seq))).alias("gone_s"),
        (F.lag("seq").over(by_seq) + 1).alias("step"),
    )
    steps = within.unionByName(beats.where(F.col("gone_s") < BACK_S).select(*BOOT, "step"))
    runs = steps.groupBy(*BOOT).agg(F.slice(F.sort_array(F.collect_set("step")), 1, _MOST_STEPS).alias("steps"))
    return [tuple(run) for run in runs.collect()]


def with_epoch(lines: DataFrame, steps: Steps) -> DataFrame:
    """Adds `epoch`, which grows wherever the clock went back. Lines within which it did are alone in theirs."""
    if not steps:
        return lines.withColumn(EPOCH, F.lit(0))
    runs = local_frame(lines.sparkSession, steps, _STEPS)
    joined = lines.join(F.broadcast(runs), on=list(BOOT), how="left")
    passed = F.size(F.filter("steps", lambda step: step <= F.col("seq")))
    return joined.withColumn(EPOCH, F.when(F.col("steps").isNull(), 0).otherwise(passed)).drop("steps")
