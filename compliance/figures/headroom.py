"""How near each limiter comes to its limit: time at 80 % and more, its daily peak, and where that is going."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from compliance.clock import rfc3339, seconds
from compliance.figures.rates import LIMIT_KEY
from compliance.schema import OBSERVED

NEAR = 0.8
STEP_S = 10
_DAY_STEPS = 86400 // STEP_S


def headroom_facts(limit_lines: DataFrame) -> DataFrame:
    """Each limiter with a limit in force, as `HeadroomFacts`. A line counts in the ten seconds in which it starts."""
    steps = step_use(limit_lines)
    peak = F.max_by(F.struct("used", "step"), F.struct(F.round("used", 9), -F.col("step"))).alias("peak")
    sums = steps.groupBy(*LIMIT_KEY).agg(
        F.count("*").alias("steps"),
        F.count_if(F.col("used") >= NEAR).alias("near_steps"),
        F.percentile_approx("used", 0.5, 1000).alias("typical"),
        peak,
    )
    day = F.floor(F.col("step") / _DAY_STEPS).cast("double").alias("day")
    daily = steps.groupBy(*LIMIT_KEY, day).agg(F.max("used").alias("used"))
    x, y = F.col("day"), F.col("used")
    slope, intercept = F.regr_slope(y, x), F.regr_intercept(y, x)
    trend = daily.groupBy(*LIMIT_KEY).agg(
        F.count("*").alias("days"),
        slope.alias("slope"),
        _slope_error(x, y).alias("slope_error"),
        (intercept + slope * F.max(x)).alias("now"),
    )
    at = rfc3339(F.timestamp_seconds(F.col("peak.step") * STEP_S)).alias("peak_at")
    top = [F.col("peak.used").alias("peak"), at]
    names = ("steps", "near_steps", "typical", "days", "slope", "slope_error", "now")
    return sums.join(trend, on=list(LIMIT_KEY), how="inner").select(*LIMIT_KEY, *names, *top)


def step_use(limit_lines: DataFrame) -> DataFrame:
    """The share of its limit that each limiter used in each ten seconds with a line: `used`."""
    lines = limit_lines.where(F.col("mode") != OBSERVED)
    served = (F.try_divide(F.col(f"passed_{unit}"), F.col(f"limit_{unit}")) for unit in ("messages", "bytes"))
    step = F.floor(seconds(F.col("start")) / STEP_S).alias("step")
    used = lines.select(*LIMIT_KEY, step, F.greatest(*served).alias("served_s")).where(F.col("served_s").isNotNull())
    return used.groupBy(*LIMIT_KEY, "step").agg((F.sum("served_s") / STEP_S).alias("used"))


def _slope_error(x: Column, y: Column) -> Column:
    """The standard error of a least-squares slope; null for less than three points."""
    residual = F.regr_syy(y, x) - F.try_divide(F.pow(F.regr_sxy(y, x), 2), F.regr_sxx(y, x))
    variance = F.try_divide(F.greatest(residual, F.lit(0.0)), F.count(y) - 2)
    return F.when(F.count(y) > 2, F.sqrt(F.try_divide(variance, F.regr_sxx(y, x))))
