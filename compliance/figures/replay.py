"""What a proposed limit would have done: the arrivals that the log tells of, replayed through a bucket and a queue.

A queue behind a bucket that starts full with burst b and earns r a second holds, at the end of line j,
max(0, max over i ≤ j of (arrived(i…j) - r·time(i…j) - b)) - the sum over windows that containment uses, so again one
pass finds it. Arrivals count as spread evenly over their line; that an entry is indivisible is left out.

What cannot be known: clients that were held back sent less than they wanted, so where somebody waited the result for a
looser limit is a lower bound. What clients would have done under another limit is in no log.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from compliance.clock import rfc3339, seconds
from compliance.figures.proposals import DEFAULT_BURST_S, Proposal
from compliance.figures.rates import LIMIT_KEY
from compliance.figures.scopes import scoped
from compliance.local_frame import local_frame

KEY = ("proposal", *LIMIT_KEY)
_UNITS = ("messages", "bytes")
_COLUMNS = {"proposal": "int", "level": "string", "direction": "string", "pattern": "string"} | {
    f"{what}_{unit}": "double" for unit in _UNITS for what in ("limit", "burst")
}


def replay_facts(interval_lines: DataFrame, proposals: list[Proposal]) -> DataFrame:
    """Each proposed limit and each name that it fits, as `ReplayFacts`."""
    lines = scoped(interval_lines, {proposal.level for proposal in proposals})
    return _summed(queued(_arrivals(lines, _table(interval_lines, proposals))))


def _table(lines: DataFrame, proposals: list[Proposal]) -> DataFrame:
    rows = [
        (
            place,
            one.level,
            one.direction,
            like(one.name),
            *_bucket(one.messages, one.burst_messages),
            *_bucket(one.bytes, one.burst_bytes),
        )
        for place, one in enumerate(proposals)
    ]
    return local_frame(lines.sparkSession, rows, _COLUMNS)


def like(name: str) -> str:
    """A name with stars as a pattern of SQL's LIKE."""
    return name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")


def _bucket(rate: float | None, burst: float | None) -> tuple[float | None, float | None]:
    return (rate, None) if rate is None else (float(rate), float(burst or max(1.0, rate * DEFAULT_BURST_S)))


def _arrivals(scoped_lines: DataFrame, table: DataFrame) -> DataFrame:
    """One row for each name and end of a line: what arrived by then, and how long the lines are."""
    own_limits = (F.col(f"limit_{unit}").alias(f"own_{unit}") for unit in _UNITS)
    flows = (*(f"offered_{unit}" for unit in _UNITS), "throttled_ms", "start", "end")
    lines = scoped_lines.select(*LIMIT_KEY, *flows, *own_limits)
    fitting = lines.join(F.broadcast(table), on=["level", "direction"], how="inner").where(F.expr("name LIKE pattern"))
    limits = [f"{what}_{unit}" for unit in _UNITS for what in ("limit", "burst")]
    own = [F.min(f"own_{unit}").alias(f"limit_now_{unit}") for unit in _UNITS]
    return fitting.groupBy(*KEY, *limits, "end").agg(
        F.min("start").alias("start"),
        *(F.sum(f"offered_{unit}").alias(f"offered_{unit}") for unit in _UNITS),
        F.max("throttled_ms").alias("throttled_ms"),
        *own,
    )


def queued(arrivals: DataFrame) -> DataFrame:
    """Adds, for each unit, what waits at the end of each line (`backlog_…`), and how long its last message waits."""
    by_end = Window.partitionBy(*KEY).orderBy("end")
    so_far = by_end.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.coalesce(F.lag("end").over(by_end), F.col("start"))
    # Lines that overlap the one before count from its end; time between lines earns like any other.
    timed = arrivals.withColumns(
        {
            "line_s": F.greatest(F.lit(0.0), seconds(F.col("end")) - seconds(F.greatest("start", before))),
            "idle_s": F.greatest(F.lit(0.0), seconds(F.col("start")) - seconds(before)),
        }
    )
    for unit in _UNITS:
        timed = _with_backlog(timed, unit, so_far)
    waits = (F.try_divide(F.col(f"backlog_{unit}"), F.col(f"limit_{unit}")) for unit in _UNITS)
    return timed.withColumn("wait_s", F.coalesce(F.greatest(*waits), F.lit(0.0)))


def _with_backlog(lines: DataFrame, unit: str, so_far: WindowSpec) -> DataFrame:
    rate, offered = F.col(f"limit_{unit}"), F.col(f"offered_{unit}")
    surplus = F.sum(offered - rate * (F.col("line_s") + F.col("idle_s"))).over(so_far)
    summed = lines.withColumn("surplus", surplus)
    before_line = F.col("surplus") - offered + rate * F.col("line_s")
    over = F.col("surplus") - F.min(before_line).over(so_far) - F.col(f"burst_{unit}")
    return summed.withColumn(f"backlog_{unit}", F.greatest(over, F.lit(0.0))).drop("surplus")


def _summed(lines: DataFrame) -> DataFrame:
    waits = F.col("wait_s") > 0
    waited_ms = F.percentile("wait_s", F.array(*map(F.lit, (0.5, 0.95, 0.99))), F.col("offered_messages"))
    sums = lines.groupBy(*KEY).agg(
        *(F.sum(f"offered_{unit}").alias(f"offered_{unit}") for unit in _UNITS),
        F.coalesce(F.sum(F.when(waits, F.col("offered_messages"))), F.lit(0)).alias("held_messages"),
        F.coalesce(F.max("backlog_messages"), F.lit(0.0)).alias("backlog_messages"),
        waited_ms.alias("waits"),
        (F.max("wait_s") * 1e3).alias("delay_max_ms"),
        F.coalesce(F.sum(F.when(waits, F.col("line_s"))), F.lit(0.0)).alias("queued_s"),
        (F.max_by("wait_s", "end") * 1e3).alias("left_ms"),
        rfc3339(F.min(F.when(waits, F.col("start")))).alias("first_at"),
        (F.sum("throttled_ms") / 1e3).alias("censored_s"),
        *(F.min(f"limit_now_{unit}").alias(f"limit_now_{unit}") for unit in _UNITS),
    )
    return sums.select("*", *(_delay(place, name) for place, name in enumerate(("p50", "p95", "p99")))).drop("waits")


def _delay(place: int, name: str) -> Column:
    return (F.coalesce(F.get("waits", F.lit(place)), F.lit(0.0)) * 1e3).alias(f"delay_{name}_ms")
