"""How fast error budgets are spent: two windows at once, so that neither a blip nor an old story rings a bell.

The burn rate over a window is (bad time / judged time) / (1 - objective): 1 spends the budget exactly. A pair rings
where both its windows are at or above its threshold.

Source: Google's SRE workbook, chapter 5, "Multiwindow, Multi-Burn-Rate Alerts".
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.clock import rfc3339

STEP_S = 60


class Pair(NamedTuple):
    """Two windows and the burn rate at which they ring."""

    threshold: float
    long_s: int
    short_s: int


PAIRS = (Pair(14.4, 3600, 300), Pair(6.0, 6 * 3600, 1800), Pair(1.0, 3 * 86400, 6 * 3600))
"""Page, page, ticket: 2 % of a month's budget in an hour, 5 % in six hours, 10 % in three days."""
_NAMED = {f"pair_{number}": pair for number, pair in enumerate(PAIRS)}


def burn_facts(kept: DataFrame, objective: float) -> DataFrame:
    """Each tenant, promise and pair, as `BurnFacts`.

    Args:
        kept: Sums of each limiter's minutes, as of `judging.judge`; limits that span tenants have an empty tenant.
        objective: Share of time that is to be kept, below 1.
    """
    minutes = _minutes(kept)
    budget = 1 - objective
    burns = {name: F.least(_burn(pair.long_s, budget), _burn(pair.short_s, budget)) for name, pair in _NAMED.items()}
    burning = minutes.withColumns({name: F.coalesce(burn, F.lit(0.0)) for name, burn in burns.items()})
    sums = (F.sum(name).alias(name) for name in ("judged_s", "bad_s"))
    rows = burning.groupBy("tenant", "promise").agg(*sums, *(_worst(name).alias(name) for name in _NAMED))
    due = rows.where(F.col("judged_s") > 0)
    pairs = F.array(*(_row(name, pair) for name, pair in _NAMED.items()))
    return due.select("tenant", "promise", "judged_s", "bad_s", F.inline(pairs))


def _minutes(kept: DataFrame) -> DataFrame:
    promises = F.array(_promise("containment", "judged_s", "over_s"), _promise("entitlement", "waited_s", "short_s"))
    each = kept.select("tenant", "minute", F.inline(promises))
    return each.groupBy("tenant", "promise", "minute").agg(
        *(F.coalesce(F.sum(name), F.lit(0.0)).alias(name) for name in ("judged_s", "bad_s"))
    )


def _promise(name: str, judged: str, bad: str) -> Column:
    return F.struct(F.lit(name).alias("promise"), F.col(judged).alias("judged_s"), F.col(bad).alias("bad_s"))


def _worst(name: str) -> Column:
    """The highest burn rate of a pair, its end, and the rate at the end of the log."""
    end = rfc3339(F.timestamp_seconds((F.col("minute") + 1) * STEP_S))
    return F.struct(
        F.max(name).alias("worst"),
        F.max_by(end, F.struct(F.round(name, 9), -F.col("minute"))).alias("worst_at"),
        F.max_by(name, "minute").alias("last"),
    )


def _row(name: str, pair: Pair) -> Column:
    constants = {"long_s": pair.long_s, "short_s": pair.short_s, "threshold": pair.threshold}
    found = (F.col(f"{name}.{field}").alias(field) for field in ("worst", "worst_at", "last"))
    return F.struct(*(F.lit(value).alias(field) for field, value in constants.items()), *found)


def _burn(window_s: int, budget: float) -> Column:
    back = 1 - window_s // STEP_S
    over = Window.partitionBy("tenant", "promise").orderBy("minute").rangeBetween(back, Window.currentRow)
    return F.try_divide(F.sum("bad_s").over(over), F.sum("judged_s").over(over)) / F.lit(budget)
