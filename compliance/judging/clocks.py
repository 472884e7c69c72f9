"""The time axis of each run: its monotonic clock, placed by the wall clock of the run's first line.

Order, gaps and lengths come from the axis. So a step of the wall clock changes none of them: it only shows as a change
of `end` less `mono_us` from one moment of the log to the next one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from compliance.schema import BOOT, rfc3339
from compliance.session import local_frame

STEP_S = 0.1
"""Seconds of the smallest step of a clock: clocks are slewed by less, and both clocks alike."""
_PLACE = ("file", "seq", "line")


class RunClock(NamedTuple):
    """The axis of a run, microseconds.

    Args:
        ahead_us: The lead of the wall clock over the monotonic one at the run's first moment.
        first_us: The end of its first line, on the axis.
        last_us: The end of its last line, on the axis.
    """

    ahead_us: int
    first_us: int
    last_us: int


Clocks = Mapping[tuple[str, str], RunClock]


def moments_of(lines: DataFrame) -> DataFrame:
    """Return the moments at which lines of a run end: `mono_us`, `ahead_us` (the wall clock's lead), and one line.

    Args:
        lines: With the columns of all kinds; lines of streams, limiters and heartbeats at the least.
    """
    ahead = (F.unix_micros("end") - F.col("mono_us")).alias("ahead_us")
    one = F.min(F.struct("seq", ahead, "end", "file", "line")).alias("one")
    return lines.groupBy(*BOOT, "mono_us").agg(one).select(*BOOT, "mono_us", "one.*")


def clocks_of(moments: DataFrame) -> Clocks:
    """Return the axis of each run."""
    of_run = moments.groupBy(*BOOT).agg(F.min_by("ahead_us", "mono_us"), F.min("mono_us"), F.max("mono_us"))
    return {
        (proxy_id, boot_id): RunClock(ahead, ahead + first, ahead + last)
        for proxy_id, boot_id, ahead, first, last in of_run.collect()
    }


def step_facts(moments: DataFrame) -> DataFrame:
    """Find the steps of wall clocks, as `ClockStepFacts`."""
    in_order = Window.partitionBy(*BOOT).orderBy("mono_us")
    before = {f"{name}_before": F.lag(name).over(in_order) for name in ("ahead_us", "end")}
    stepped = moments.withColumns(before).withColumn("size_s", (F.col("ahead_us") - F.col("ahead_us_before")) / 1e6)
    return stepped.where(F.abs("size_s") > STEP_S).select(
        *BOOT,
        "size_s",
        rfc3339(F.col("end_before")).alias("first"),
        rfc3339(F.col("end")).alias("last"),
        F.struct(*_PLACE).alias("line"),
    )


def with_axis(lines: DataFrame, clocks: Clocks) -> DataFrame:
    """Add `start_us` and `end_us`: begin and end of each line on its run's axis."""
    rows = [(*run, clock.ahead_us) for run, clock in clocks.items()]
    columns = {**dict.fromkeys(BOOT, "string"), "run_ahead_us": "long"}
    ahead = F.broadcast(local_frame(lines.sparkSession, rows, columns))
    end = F.col("mono_us") + F.coalesce("run_ahead_us", F.lit(0))
    start = end - F.round(F.col("duration_ms") * 1e3).cast("long")
    joined = lines.join(ahead, on=list(BOOT), how="left")
    return joined.withColumns({"start_us": start, "end_us": end}).drop("run_ahead_us")
