"""Rates over time: each line's counts spread evenly over the steps that it touches."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.clock import rfc3339, seconds
from compliance.figures.levels import LEVELS
from compliance.figures.scopes import of_limiters
from compliance.judging.clocks import STEP_S

LIMIT_KEY = ("proxy_id", "direction", "level", "name")
_LIMITS = ("limit_messages", "limit_bytes", "burst_messages", "burst_bytes")
_FLOWS = ("messages", "bytes")
MOST_STEPS_A_LINE = 3600
"""One line in more steps than that counts in its first and last one."""
RESOLUTIONS_S = (1, 10, 60, 300, 3600)
"""Lengths of the steps over which the highest averages are told."""


def spread(lines: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """Each line once for every step that it touches, with its share of each count.

    Args:
        lines: With `start`, `end` and `step_s`, the length of a step in seconds; adds `step`, counted from 1970.
        names: Columns to share out.
    """
    step_s = F.col("step_s")
    to_s = seconds(F.col("end"))
    from_s = to_s - _length_s(lines)
    first = F.floor(from_s / step_s)
    # The end is exclusive; a clock that stepped back must not make the sequence run backwards.
    last = F.greatest(first, F.ceil(to_s / step_s) - 1)
    # A line of an hour must not become thousands of rows.
    steps = F.when(last - first <= MOST_STEPS_A_LINE, F.sequence(first, last)).otherwise(F.array(first, last))
    touched = lines.select("*", F.explode(F.array_distinct(steps)).alias("step"))
    begin = F.col("step") * step_s
    overlap = F.greatest(F.lit(0.0), F.least(to_s, begin + step_s) - F.greatest(from_s, begin))
    whole = to_s - from_s
    share = F.when(whole > 0, F.coalesce(F.try_divide(overlap, whole), F.lit(1.0))).otherwise(1.0)
    return touched.withColumn("share", share).withColumns({name: F.col(name) * F.col("share") for name in names})


def _length_s(lines: DataFrame) -> Column:
    """How long each line is: by its own clock, where the wall clock was stepped within it."""
    by_wall = seconds(F.col("end")) - seconds(F.col("start"))
    if "duration_ms" not in lines.columns:
        return by_wall
    told = F.col("duration_ms") / 1e3
    return F.when(F.abs(by_wall - told) > STEP_S, told).otherwise(by_wall)


def limiter_rates(
    limit_lines: DataFrame, interval_lines: DataFrame, wanted: DataFrame, levels: Collection[str] = LEVELS
) -> DataFrame:
    """Rates per second of some limiters per step, as `RateFacts`.

    Args:
        limit_lines: All of them.
        interval_lines: All of them: what was offered is in the lines of streams.
        wanted: Columns `proxy_id`, `direction`, `level`, `name`, `step_s`, `from_s`, `to_s` (seconds since 1970).
        levels: That they are of.
    """
    mine = _between(limit_lines.join(F.broadcast(wanted), on=list(LIMIT_KEY), how="inner"))
    passed = _per_step(mine, ("passed",), *(F.max(name).alias(name) for name in _LIMITS))
    theirs = _between(of_limiters(interval_lines, wanted, levels))
    is_own = F.col("limit_level") == F.col("level")
    said = {f"limit_{unit}": F.when(is_own, F.col(f"limit_{unit}")) for unit in _FLOWS}
    offered = _per_step(
        theirs, ("offered", "passed"), *(F.max(value).alias(f"said_{name}") for name, value in said.items())
    )
    keys = [*LIMIT_KEY, "step_s", "step"]
    by_streams = offered.withColumnsRenamed({f"passed_{unit}": f"by_streams_{unit}" for unit in _FLOWS})
    joined = passed.join(by_streams, on=keys, how="full")
    # Where the limit has no lines, what its streams say of it.
    known = (F.coalesce(f"passed_{unit}", f"by_streams_{unit}").alias(f"passed_{unit}") for unit in _FLOWS)
    limits = (F.coalesce(f"limit_{unit}", f"said_limit_{unit}").alias(f"limit_{unit}") for unit in _FLOWS)
    return joined.select(*keys, "offered_messages", "offered_bytes", *known, *limits, *_LIMITS[2:])


def topic_rates(interval_lines: DataFrame, wanted: DataFrame) -> DataFrame:
    """The same of topics under no limit: `wanted` has an empty `proxy_id`, level `topic` and the topic as its name."""
    topics = wanted.drop("proxy_id", "level")
    lines = _between(
        interval_lines.withColumn("name", F.col("topic")).join(F.broadcast(topics), on=["direction", "name"])
    )
    named = lines.withColumns({"proxy_id": F.lit(""), "level": F.lit("topic")})
    return _per_step(named, ("passed", "offered")).withColumns({name: F.lit(None).cast("double") for name in _LIMITS})


def _between(lines: DataFrame) -> DataFrame:
    return lines.where((seconds(F.col("end")) > F.col("from_s")) & (seconds(F.col("start")) < F.col("to_s")))


def _per_step(lines: DataFrame, flows: tuple[str, ...], *more: Column) -> DataFrame:
    names = tuple(f"{flow}_{unit}" for flow in flows for unit in _FLOWS)
    sums = ((F.sum(name) / F.col("step_s")).alias(name) for name in names)
    return spread(lines, names).groupBy(*LIMIT_KEY, "step_s", "step").agg(*sums, *more)


def peak_facts(limit_lines: DataFrame, wanted: DataFrame) -> DataFrame:
    """The highest average of some limiters over each resolution, as `PeakFacts`.

    Args:
        limit_lines: All of them.
        wanted: Columns `proxy_id`, `direction`, `level`, `name`.
    """
    resolutions = F.explode(F.array(*map(F.lit, RESOLUTIONS_S))).alias("step_s")
    lines = limit_lines.join(F.broadcast(wanted), on=list(LIMIT_KEY), how="inner").select("*", resolutions)
    units = F.array(*(_unit(unit) for unit in _FLOWS))
    each = lines.withColumn("of", F.explode(units)).where(F.col("of.limit").isNotNull())
    flat = each.select(*LIMIT_KEY, "start", "end", "step_s", "of.*")
    step = spread(flat, ("passed",)).groupBy(*LIMIT_KEY, "unit", "step_s", "step")
    slack = (F.max("burst") + F.max("largest")) / F.col("step_s")
    rates = step.agg(
        (F.sum("passed") / F.col("step_s")).alias("highest"),
        F.max("limit").alias("limit"),
        (F.max("limit") + slack).alias("allowed"),
    )
    at = rfc3339(F.timestamp_seconds(F.col("step") * F.col("step_s"))).alias("at")
    top = F.struct("highest", at, "limit", "allowed")
    # Of equal steps the earliest.
    fullest = F.max_by(top, F.struct(F.round("highest", 6), -F.col("step"))).alias("top")
    return rates.groupBy(*LIMIT_KEY, "unit", "step_s").agg(fullest).select(*LIMIT_KEY, "unit", "step_s", "top.*")


def _unit(unit: str) -> Column:
    return F.struct(
        F.lit(unit).alias("unit"),
        F.col(f"passed_{unit}").cast("double").alias("passed"),
        F.when(F.col("mode") != "observe", F.col(f"limit_{unit}")).alias("limit"),
        F.col(f"burst_{unit}").alias("burst"),
        F.col(f"largest_entry_{unit}").alias("largest"),
    )
