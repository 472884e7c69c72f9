"""Windows of a batch in Spark: of its lines, and of those that were still open before.

Lines are added up where they are read, windows of one key where they meet: a window may have lines in several files.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, StringType, StructField, StructType, TimestampType

from compliance.stream.adding import merged, windows_of
from compliance.stream.window_table import WindowTable

LATE, CLOSED, OPEN = "late", "closed", "open"
"""A window was closed before the batch, is closed by it, or is still open."""


def added_up(rows: DataFrame, earlier: DataFrame | None, table: WindowTable) -> DataFrame:
    """Windows of all widths, as `WindowTable.spark_schema`, each once.

    Args:
        rows: Of the log.
        earlier: Windows that these rows are added to, in the same form.
        table: Which table.
    """

    # Spark asks for these two by what they are annotated with.
    def of_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lines = [batch for batch in batches if batch.num_rows]
        if lines:
            yield from windows_of(pa.Table.from_batches(lines), table).to_batches()

    def together(windows: pa.Table) -> pa.Table:
        return merged(windows, table)

    schema = table.spark_schema
    lines = rows.where(F.col("kind") == table.kind).select(*table.fields)
    own = lines.mapInArrow(of_lines, schema)
    both = own if earlier is None else own.unionByName(earlier.select(*schema.names))
    tasks = rows.sparkSession.conf.get("spark.sql.shuffle.partitions", "")
    return both.groupBy(_part(table, int(tasks or 1))).applyInArrow(together, schema)


def published(windows: DataFrame, table: WindowTable, watermarks_s: tuple[int, int]) -> DataFrame:
    """As readers get them, with `state`.

    Args:
        windows: As `added_up` gives them.
        table: Which table.
        watermarks_s: Before the batch and behind it: windows that end by then are closed.
    """
    start, end = F.col("window_s"), F.col("window_s") + F.col("width_s")
    state = F.when(end <= watermarks_s[0], LATE).when(end <= watermarks_s[1], CLOSED).otherwise(OPEN)
    return windows.select(
        "width_s",
        F.timestamp_seconds(start).alias("start"),
        F.timestamp_seconds(end).alias("end"),
        *_told(table),
        (end <= watermarks_s[1]).alias("is_final"),
        state.alias("state"),
        F.to_date(F.timestamp_seconds(start)).alias("day"),
    )


def unpublished(windows: DataFrame) -> DataFrame:
    """Back to the form in which windows are added up."""
    return windows.withColumn("window_s", F.unix_seconds("start"))


def published_schema(table: WindowTable) -> StructType:
    """Of `published`."""
    own = {field.name: field for field in table.spark_schema.fields}
    span = [StructField(name, TimestampType()) for name in ("start", "end")]
    behind = {"is_final": BooleanType(), "state": StringType(), "day": DateType()}
    ours = [StructField(name, kind) for name, kind in behind.items()]
    return StructType([own["width_s"], *span, *(own[name] for name in _told(table)), *ours])


def _told(table: WindowTable) -> tuple[str, ...]:
    """What of windows is published as it is, in order."""
    return (*table.key, "lines", *table.sums, *table.largest, *table.histograms, "as_of", *table.last)


def _part(table: WindowTable, parts: int) -> Column:
    """Windows of one key meet in one of so many parts."""
    return F.pmod(F.xxhash64(*table.key), F.lit(parts))
