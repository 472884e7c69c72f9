"""Event-time windows that can be added up: sums, maxima and the last value, of lengths that divide each other.

A line counts in the windows in which it starts. Windows of one second are made from rows, all longer ones from these;
a window that is still open is kept as it is and merged with what comes later.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WIDTHS_S = (1, 10, 60, 300, 3600)


@dataclass(frozen=True, slots=True)
class WindowTable:
    """One table of windows.

    Args:
        name: Of the table.
        kind: Of the lines that it is made from.
        key: What there is one row for, in each window.
        sums: Fields that are added up; absent is nothing.
        largest: Fields of which the largest is kept.
        last: Fields of which the line that ends last says the value.
    """

    name: str
    kind: str
    key: tuple[str, ...]
    sums: tuple[str, ...]
    largest: tuple[str, ...]
    last: tuple[str, ...]

    @property
    def window(self) -> tuple[str, ...]:
        """What makes a window's row one of a kind."""
        return ("width_s", "window_s", *self.key)


TABLES = (
    WindowTable(
        name="topic_windows",
        kind="interval",
        key=("tenant", "namespace", "topic", "direction"),
        sums=(
            *("offered_messages", "offered_bytes", "passed_messages", "passed_bytes"),
            *("dropped_messages", "dropped_bytes", "rejected_messages", "rejected_bytes", "throttled_ms"),
        ),
        largest=("delay_max_ms",),
        last=("limit_level", "limit_messages", "limit_bytes"),
    ),
    WindowTable(
        name="limiter_windows",
        kind="limit",
        key=("proxy_id", "direction", "level", "name", "tenant", "namespace"),
        sums=("passed_messages", "passed_bytes", "rejected_messages", "rejected_bytes", "throttled_ms"),
        largest=("largest_entry_messages", "largest_entry_bytes"),
        last=("source", "mode", "limit_messages", "limit_bytes", "burst_messages", "burst_bytes"),
    ),
)


def windows_of(rows: DataFrame, table: WindowTable) -> DataFrame:
    """Windows of all widths, of these rows alone."""
    of_kind = rows.where(F.col("kind") == table.kind)
    last = F.struct("end", *table.last).alias("last")
    second = F.floor(F.unix_micros("start") / 1_000_000).alias("second")
    values = [F.coalesce(F.col(name), F.lit(0)).alias(name) for name in table.sums]
    narrow = of_kind.select(second, F.lit(1).cast("long").alias("lines"), *table.key, *values, *table.largest, last)
    seconds = narrow.groupBy("second", *table.key).agg(*_merging(table))
    widths = F.explode(F.array(*(F.lit(width) for width in WIDTHS_S))).alias("width_s")
    spread = seconds.select("*", widths)
    window_s = F.col("second") - F.pmod(F.col("second"), F.col("width_s"))
    return merged(spread.withColumn("window_s", window_s).drop("second"), table)


def merged(windows: DataFrame, table: WindowTable) -> DataFrame:
    """Rows of the same window become one."""
    return windows.groupBy(*table.window).agg(*_merging(table))


def is_closed(watermark_s: int) -> Column:
    """Whether a window has ended by then: what comes for it now is late."""
    return F.col("window_s") + F.col("width_s") <= watermark_s


def published(windows: DataFrame, table: WindowTable, *, is_final: bool) -> DataFrame:
    """As readers get it.

    Args:
        windows: Rows as `merged` gives them.
        table: Which table.
        is_final: Whether the windows are closed; others may still grow.
    """
    start = F.timestamp_seconds("window_s")
    return windows.select(
        "width_s",
        start.alias("start"),
        F.timestamp_seconds(F.col("window_s") + F.col("width_s")).alias("end"),
        *table.key,
        "lines",
        *table.sums,
        *table.largest,
        *(F.col(f"last.{name}").alias(name) for name in table.last),
        F.lit(is_final).alias("is_final"),
        F.to_date(start).alias("day"),
    )


def _merging(table: WindowTable) -> Iterable[Column]:
    yield F.sum("lines").alias("lines")
    yield from (F.sum(name).alias(name) for name in table.sums)
    yield from (F.max(name).alias(name) for name in table.largest)
    yield F.max("last").alias("last")
