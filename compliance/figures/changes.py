"""What changed: limits, other configuration files, losses of the log, on one time axis."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.clock import rfc3339
from compliance.schema import LIMITER

_SHOWN = 500


def change_facts(change_lines: DataFrame, limit_lines: DataFrame) -> DataFrame:
    """What somebody set, files that were read anew, and values of limits that changed, as `ChangeFacts`."""
    return _set(change_lines).unionByName(_values(limit_lines))


def _set(change_lines: DataFrame) -> DataFrame:
    kind = F.when(F.col("what") == "file", "reload").otherwise("set").alias("kind")
    return change_lines.select(
        rfc3339(F.col("start")).alias("at"),
        kind,
        "proxy_id",
        F.concat_ws(" of ", "what", F.nullif(F.col("setting"), F.lit(""))).alias("what"),
        "name",
        _text(F.col("before")).alias("before"),
        _text(F.col("after")).alias("after"),
        F.concat_ws(" from ", "who", F.nullif(F.col("address"), F.lit(""))).alias("who"),
    )


def _values(limit_lines: DataFrame) -> DataFrame:
    """Lines whose limit is not that of the line before; limits that follow the publish rate always change."""
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
        # 1000.5 is "1,000.5".
        number = F.regexp_replace(F.format_number(f"limit_{unit}", 3), r"\.?0+$", "")
        return F.concat(number, F.lit(f" {unit}/s"))

    mode = F.when(F.col("mode") != "enforce", F.concat(F.lit("mode "), F.col("mode")))
    said = F.concat_ws(", ", one("messages"), one("bytes"), mode)
    return F.when(said == "", "no limit").otherwise(said)


def _text(value: Column) -> Column:
    return F.coalesce(F.substring(value, 1, _SHOWN), F.lit(""))


def loss_facts(loss_lines: DataFrame) -> DataFrame:
    """What proxies say of lines that are lost, as `LossFacts`."""
    times = (rfc3339(F.col(name)).alias(name) for name in ("lost_from", "lost_until"))
    return loss_lines.select("proxy_id", "of_boot", "cause", "detail", "lost_lines", *times)
