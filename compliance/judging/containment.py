"""Containment: did more pass than the limit allows, over any run of lines in which one value was in force?

For the lines i..j of one limiter with rate r and burst b, the allowance is b + r·(time from the start of i to the
end of j) + one entry. The largest excess over all i ≤ j ending at j is a running sum minus its running minimum
(Kadane's idea), so one pass finds the worst of all windows, whatever boundaries they have. The entry that may overdraw
the bucket is the last one passed, so the slack is the largest entry of line j.

A peak rate is a limit of its own with a bucket of its own, judged in the same way.

A limit that is relative to the publish rate changes every few seconds. Its windows span the changes: b is that of line
i, and r·time is summed line by line. Where it falls a debt stays in messages, so nothing more is allowed; where what is
configured of it changes a debt may not, so that ends a run. Between lines such a limit may have been anything, so a gap
ends one, too.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.clock import rfc3339, seconds
from compliance.judging.clock_steps import EPOCH
from compliance.judging.rounding import excess_tolerance
from compliance.schema import LIMITER, OBSERVED

UNITS = ("messages", "bytes")
PEAK = "peak_"
RATES = (*UNITS, *(f"{PEAK}{unit}" for unit in UNITS))
"""What is judged: the sustained rate in each unit, and the peak rate that holds while the burst lasts."""
CONTIGUOUS_S = 0.001
# What is configured is the difference of two numbers of the line; so much of the limit is rounding.
_SAME_PART = 1e-9
# The wall clock went back between two lines: no window spans that moment.
CLOCK_STEP_S = -0.1
# Of sums of a day's bytes; far below one message or byte.
_ROUNDING = 1e-6
PLACE = ("file", "seq", "line")
"""The columns of a `LinePlace`."""


def _by_seq() -> WindowSpec:
    return Window.partitionBy(*LIMITER).orderBy("seq")


def _so_far() -> WindowSpec:
    return Window.partitionBy(*LIMITER, "run").orderBy("seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)


def value_runs(limit_lines: DataFrame, unit: str) -> DataFrame:
    """Lines with a limit in that unit, numbered by the run of lines in which the same value was in force.

    A limit that is only observed is none: nobody was held to it. One that is relative is one value, whatever was
    published.

    Adds `run`, `rate`, `burst`, `passed`, `largest`, `duration_s`, `idle_s`, the time since the line before.

    Args:
        limit_lines: All of them.
        unit: One of RATES.
    """
    rate, burst, configured = _value(unit)
    unit = unit.removeprefix(PEAK)
    idle_s = seconds(F.col("start")) - seconds(F.lag("end").over(_by_seq()))
    is_same = rate.eqNullSafe(F.lag(rate).over(_by_seq())) & burst.eqNullSafe(F.lag(burst).over(_by_seq()))
    was_configured = F.lag(configured).over(_by_seq())
    is_same_part = F.abs(configured - was_configured) <= _SAME_PART * F.greatest(rate, F.lag(rate).over(_by_seq()))
    goes_on = F.when(configured.isNotNull(), is_same_part & (idle_s <= CONTIGUOUS_S)).otherwise(
        is_same & was_configured.isNull()
    )
    begins = F.when(goes_on & (idle_s >= CLOCK_STEP_S), 0).otherwise(1)
    marked = limit_lines.withColumns({"idle_s": F.greatest(idle_s, F.lit(0.0)), "begins": begins})
    numbered = marked.withColumn("run", F.sum("begins").over(_by_seq()))
    kept = [EPOCH] if EPOCH in limit_lines.columns else []
    return numbered.where(rate.isNotNull()).select(
        *LIMITER,
        *kept,
        "tenant",
        *PLACE,
        "start",
        "end",
        "run",
        rate.alias("rate"),
        burst.alias("burst"),
        F.col(f"passed_{unit}").alias("passed"),
        F.col(f"largest_entry_{unit}").alias("largest"),
        (F.col("duration_ms") / 1e3).alias("duration_s"),
        F.when(F.col("begins") == 1, 0.0).otherwise(F.col("idle_s")).alias("idle_s"),
    )


def _value(unit: str) -> tuple[Column, Column, Column]:
    """Rate and burst that somebody is held to, and what is configured of the rate, if it is relative.

    What the log does not say the capacity of is no limit here: lines of older proxies tell no peak's.
    """
    if unit.startswith(PEAK):
        burst = F.col(unit.replace(PEAK, f"{PEAK}burst_"))
        values = F.when(burst.isNotNull(), F.col(unit)), burst, F.lit(None).cast("double")
    else:
        rate = F.col(f"limit_{unit}")
        values = rate, F.col(f"burst_{unit}"), rate - F.col(f"published_{unit}")
    rate, burst, configured = (F.when(F.col("mode") != OBSERVED, value) for value in values)
    return rate, burst, configured


def account(limit_lines: DataFrame, unit: str) -> DataFrame:
    """Adds to `value_runs` the worst window that ends with each line: `begin`, `window_passed`, `allowed`, `excess`."""
    runs = value_runs(limit_lines, unit)
    earned = F.col("rate") * F.col("duration_s")
    sums = runs.withColumns(
        {
            "passed_sum": F.sum("passed").over(_so_far()),
            "earned_sum": F.sum(earned + F.col("rate") * F.col("idle_s")).over(_so_far()),
        }
    )
    passed_before, earned_before = F.col("passed_sum") - F.col("passed"), F.col("earned_sum") - earned
    before = F.struct(
        passed_before.alias("passed"), earned_before.alias("earned"), "burst", "start", F.struct(*PLACE).alias("line")
    )
    surplus_before = passed_before - earned_before + F.col("burst")
    # Of equal windows the shortest is the best evidence.
    shortest = F.struct(F.round(surplus_before, 6), -F.col("seq"))
    begun = sums.withColumn("begin", F.min_by(before, shortest).over(_so_far()))
    window_passed = (F.col("passed_sum") - F.col("begin.passed")).cast("double")
    allowed = F.col("begin.burst") + F.col("earned_sum") - F.col("begin.earned") + F.col("largest")
    ended = begun.withColumns({"window_passed": window_passed, "allowed": allowed})
    return ended.withColumn("excess", F.col("window_passed") - F.col("allowed"))


def units_in_force(limit_lines: DataFrame) -> tuple[str, ...]:
    """Those of RATES in which any line has a limit that was not only observed."""
    counts = (F.count(_value(unit)[0]) for unit in RATES)
    (found,) = limit_lines.agg(*counts).collect()
    return tuple(unit for unit, lines in zip(RATES, found, strict=True) if lines)


def judged_lines(limit_lines: DataFrame, units: Sequence[str] = UNITS) -> DataFrame:
    """Each line once for each unit in which it has a limit, as `over_lines`, with `unit`.

    Args:
        limit_lines: All of them.
        units: Those of `units_in_force`; others have no lines, which costs as much to find out.
    """
    each = (over_lines(limit_lines, unit).withColumn("unit", F.lit(unit)) for unit in units or UNITS[:1])
    return reduce(DataFrame.unionByName, each)


def over_lines(limit_lines: DataFrame, unit: str) -> DataFrame:
    """Each judged line with `is_over`: at its end more has passed than is allowed, and never yet so much more.

    "Never yet" begins anew whenever the account is in order again: what is over once is not held against the lines
    behind it, which only pass on at the rate.
    """
    tolerance = excess_tolerance(F.col("rate"))
    is_out = F.col("excess") > tolerance
    calm = F.sum(F.when(is_out, 0).otherwise(1)).over(_so_far())
    lines = account(limit_lines, unit).withColumns({"is_out": is_out, "calm": calm})
    earlier = Window.partitionBy(*LIMITER, "run", "calm").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    # The entry that may overdraw the bucket is in a line in which something passed; the next one only says so again.
    has_passed = F.col("passed") > 0
    before = F.max(F.when(has_passed, F.col("excess"))).over(earlier)
    is_record = F.col("excess") > F.coalesce(before, tolerance) + _ROUNDING
    return lines.withColumn("is_over", F.col("is_out") & is_record & has_passed)


def worst_of(windows: DataFrame, basis: str) -> DataFrame:
    """The worst per limiter and unit, as `ContainmentFacts`.

    Args:
        windows: Columns `unit`, `begin.start`, `begin.line`, `end`, `last_line`, `window_passed`, `allowed`, `rate`.
        basis: Whose lines they are of.
    """
    excess: Column = F.col("window_passed") - F.col("allowed")
    window = F.struct(
        rfc3339(F.col("begin.start")).alias("start"),
        rfc3339(F.col("end")).alias("end"),
        F.col("window_passed").alias("passed"),
        "allowed",
        F.col("rate").alias("limit"),
        excess.alias("excess"),
        F.col("begin.line").alias("first_line"),
        F.col("last_line"),
    )
    earliest = F.struct(F.round(excess, 6), -F.unix_micros("end"))
    worst = windows.groupBy(*LIMITER, "unit").agg(F.max_by(window, earliest).alias("worst"))
    unit, is_peak = F.regexp_replace("unit", f"^{PEAK}", ""), F.col("unit").startswith(PEAK)
    return worst.select(*LIMITER, unit.alias("unit"), is_peak.alias("is_peak"), F.lit(basis).alias("basis"), "worst.*")


def containment_facts(judged: DataFrame) -> DataFrame:
    """Each limiter's window with the largest excess in each unit, by its own lines, as `ContainmentFacts`."""
    # A line in which nothing passed ends no worst window, and its largest entry is none.
    ended = judged.where(F.col("passed") > 0)
    return worst_of(ended.withColumn("last_line", F.struct(*PLACE)), "limiter")
