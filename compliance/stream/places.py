"""The number of each line in its file, though Spark cuts files into blocks and reads these side by side.

Rows of one block are numbered one after the other by the task that reads it. How many lines the blocks before have is
counted first, which costs a reading of the text without parsing it.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def numbered(lines: DataFrame) -> DataFrame:
    """Columns `value`, `file`, `block` in (or `line`, which is kept); out: `value`, `file`, `line`, counted from 1."""
    if "line" in lines.columns:
        return lines
    rows = lines.withColumn("row", F.monotonically_increasing_id())
    before = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    blocks = rows.groupBy("file", "block").agg(F.min("row").alias("first_row"), F.count("*").alias("lines"))
    offsets = blocks.withColumn("above", F.coalesce(F.sum("lines").over(before), F.lit(0))).drop("lines")
    placed = rows.join(F.broadcast(offsets), on=["file", "block"], how="inner")
    return placed.select("value", "file", (F.col("row") - F.col("first_row") + F.col("above") + 1).alias("line"))
