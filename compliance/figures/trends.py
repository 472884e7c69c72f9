"""Trends of limits, headroom and error budgets."""

from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.figures.facts import ChangeFacts
from compliance.figures.rates import LIMIT_KEY, spread, whole_limit
from compliance.figures.sums import listed
from compliance.schema import LIMITER, OBSERVED, rfc3339

_SHOWN = 500


CHANGES = listed(
    "change", "start", "mono_us", "duration_ms", "what", "setting", "name", "before", "after", "who", "address"
)


def set_facts(changes: pa.Table) -> list[ChangeFacts]:
    """List settings made, and files reloaded.

    Args:
        changes: As `CHANGES`.
    """
    return [
        ChangeFacts(
            at=row["start"],
            kind="reload" if row["what"] == "file" else "set",
            proxy_id=row["proxy_id"],
            what=" of ".join(filter(None, (row["what"], row["setting"]))),
            name=row["name"],
            before=(row["before"] or "")[:_SHOWN],
            after=(row["after"] or "")[:_SHOWN],
            who=" from ".join(filter(None, (row["who"], row["address"]))),
        )
        for row in changes.to_pylist()
    ]


def value_facts(limit_lines: DataFrame) -> DataFrame:
    """List values of limits that changed, as `ChangeFacts`: the line before has another one.

    Limits that follow the publish rate always change.
    """
    by_seq = Window.partitionBy(*LIMITER).orderBy("seq")
    value = F.when(F.coalesce("published_messages", "published_bytes").isNull(), _limit())
    lines = limit_lines.withColumn("value", value).withColumn("was", F.lag("value").over(by_seq))
    changed = lines.where(F.col("value").isNotNull() & F.col("was").isNotNull() & (F.col("value") != F.col("was")))
    return changed.select(
        rfc3339(F.col("start")).alias("at"),
        F.lit("limit").alias("kind"),
        "proxy_id",
        F.concat_ws(" ", "direction", "level").alias("what"),
        "name",
        F.col("was").alias("before"),
        F.col("value").alias("after"),
        F.lit("").alias("who"),
    )


def _limit() -> Column:
    def one(unit: str) -> Column:
        # A share that a fleet's coordinator grants is no other limit.
        limit = whole_limit(unit)
        # 1000.5 is "1,000.5".
        number = F.regexp_replace(F.format_number(limit, 3), r"\.?0+$", "")
        return F.concat(number, F.lit(f" {unit}/s"))

    mode = F.when(F.col("mode") != "enforce", F.concat(F.lit("mode "), F.col("mode")))
    text = F.concat_ws(", ", one("messages"), one("bytes"), mode)
    return F.when(text == "", "no limit").otherwise(text)


NEAR = 0.8
USE_STEP_S = 10
_SLIVER = 0.01
"""The part of a short line that counts as nothing."""
_SLIVER_MS = 100.0
_UNITS = ("messages", "bytes")
_DAY_STEPS = 86400 // USE_STEP_S


def headroom_facts(limit_lines: DataFrame) -> DataFrame:
    """Headroom of each limit in force, as `HeadroomFacts`; a limit that a fleet shares is one, that of all members.

    Args:
        limit_lines: All lines of limiters; where fleets share limits, as `fleets.in_fleets`.
    """
    key = (*LIMIT_KEY, "fleet")
    steps = step_use(limit_lines)
    peak = F.max_by(F.struct("used", "step"), F.struct(F.round("used", 9), -F.col("step"))).alias("peak")
    sums = steps.groupBy(*key).agg(
        F.max("members").cast("int").alias("members"),
        F.count("*").alias("steps"),
        F.count_if(F.col("used") >= NEAR).alias("near_steps"),
        F.percentile_approx("used", 0.5, 1000).alias("typical"),
        peak,
    )
    day = F.floor(F.col("step") / _DAY_STEPS).cast("double").alias("day")
    daily = steps.groupBy(*key, day).agg(F.max("used").alias("used"))
    x, y = F.col("day"), F.col("used")
    slope, intercept = F.regr_slope(y, x), F.regr_intercept(y, x)
    trend = daily.groupBy(*key).agg(
        F.count("*").alias("days"),
        slope.alias("slope"),
        _slope_error(x, y).alias("slope_error"),
        (intercept + slope * F.max(x)).alias("now"),
    )
    at = rfc3339(F.timestamp_seconds(F.col("peak.step") * USE_STEP_S)).alias("peak_at")
    top = [F.col("peak.used").alias("peak"), at]
    names = ("members", "steps", "near_steps", "typical", "days", "slope", "slope_error", "now")
    return sums.join(trend, on=list(key), how="inner").select(*key, *names, *top)


def step_use(limit_lines: DataFrame) -> DataFrame:
    """Return the share of each limit that was used in each ten seconds with a line: `used`.

    An amount counts as a share of the limit's amount in ten seconds, or of the largest entry if that is larger: one
    entry fills a limit of less than an entry in ten seconds. Of a limit that a fleet shares, all members together
    use the whole, and may each pass an entry. Of messages and bytes the fuller ones count.

    Args:
        limit_lines: As in `headroom_facts`.
    """
    has_fleets = "fleet" in limit_lines.columns
    in_force = limit_lines.where((F.col("mode") != OBSERVED) & F.coalesce(*map(whole_limit, _UNITS)).isNotNull())
    lines = in_force.withColumn("step_s", F.lit(USE_STEP_S))
    touched = spread(lines, tuple(f"passed_{unit}" for unit in _UNITS))
    # A line ends a little after the step.
    counted = touched.where((F.col("share") >= _SLIVER) | (F.col("share") * F.col("duration_ms") >= _SLIVER_MS))
    amounts = [
        amount
        for unit in _UNITS
        for amount in (
            F.sum(F.try_divide(F.col(f"passed_{unit}"), whole_limit(unit))).alias(f"served_s_{unit}"),
            F.sum(f"passed_{unit}").alias(f"passed_{unit}"),
            F.max(f"largest_entry_{unit}").alias(f"entries_{unit}"),
        )
    ]
    if not has_fleets:
        steps = counted.groupBy(*LIMIT_KEY, "step").agg(*amounts)
        return steps.select(*LIMIT_KEY, F.lit("").alias("fleet"), F.lit(0).alias("members"), "step", _used())
    of_each = counted.groupBy(*LIMIT_KEY, "fleet", "step").agg(*amounts)
    is_shared = F.col("fleet").isNotNull()
    owner = F.when(is_shared, "").otherwise(F.col("proxy_id")).alias("proxy_id")
    names = [f"{amount_}_{unit}" for amount_ in ("served_s", "passed", "entries") for unit in _UNITS]
    together = of_each.groupBy(owner, *LIMIT_KEY[1:], F.coalesce("fleet", F.lit("")).alias("fleet"), "step").agg(
        F.count_if(is_shared).alias("members"), *(F.sum(name).alias(name) for name in names)
    )
    return together.select(*LIMIT_KEY, "fleet", "members", "step", _used())


def _used() -> Column:
    def one(unit: str) -> Column:
        of_limit = F.col(f"served_s_{unit}") / USE_STEP_S
        of_entries = F.try_divide(F.col(f"passed_{unit}"), F.col(f"entries_{unit}"))
        # Without a limit of that unit the sum is null, and so is the lesser of both.
        return F.when(of_limit.isNotNull(), F.least(of_limit, of_entries))

    return F.greatest(*map(one, _UNITS)).alias("used")


def _slope_error(x: Column, y: Column) -> Column:
    """The standard error of a least-squares slope; null for less than three points."""
    residual = F.regr_syy(y, x) - F.try_divide(F.pow(F.regr_sxy(y, x), 2), F.regr_sxx(y, x))
    variance = F.try_divide(F.greatest(residual, F.lit(0.0)), F.count(y) - 2)
    return F.when(F.count(y) > 2, F.sqrt(F.try_divide(variance, F.regr_sxx(y, x))))


MINUTE_S = 60


class Pair(NamedTuple):
    """Two windows and the burn rate at which they ring."""

    threshold: float
    long_s: int
    short_s: int


PAIRS = (Pair(14.4, 3600, 300), Pair(6.0, 6 * 3600, 1800), Pair(1.0, 3 * 86400, 6 * 3600))
"""Page, page, ticket: 2 % of a month's budget in an hour, 5 % in six hours, 10 % in three days."""
_NAMED = {f"pair_{number}": pair for number, pair in enumerate(PAIRS)}


def burn_facts(kept: DataFrame, objective: float) -> DataFrame:
    """Burn rates of each tenant, promise and pair of windows, as `BurnFacts`.

    Args:
        kept: Sums of each limiter's minutes, as of `judging.judge`; limits that span tenants have an empty tenant.
        objective: Share of time in which promises should be kept, below 1.
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
    end = rfc3339(F.timestamp_seconds((F.col("minute") + 1) * MINUTE_S))
    return F.struct(
        F.max(name).alias("worst"),
        F.max_by(end, F.struct(F.round(name, 9), -F.col("minute"))).alias("worst_at"),
        F.max_by(name, "minute").alias("last"),
    )


def _row(name: str, pair: Pair) -> Column:
    constants = {"long_s": pair.long_s, "short_s": pair.short_s, "threshold": pair.threshold}
    values = (F.col(f"{name}.{field}").alias(field) for field in ("worst", "worst_at", "last"))
    return F.struct(*(F.lit(value).alias(field) for field, value in constants.items()), *values)


def _burn(window_s: int, budget: float) -> Column:
    back = 1 - window_s // MINUTE_S
    over = Window.partitionBy("tenant", "promise").orderBy("minute").rangeBetween(back, Window.currentRow)
    return F.try_divide(F.sum("bad_s").over(over), F.sum("judged_s").over(over)) / F.lit(budget)
