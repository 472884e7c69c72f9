"""Which lines of each run have been seen, as ranges of sequence numbers: what is twice, and what is missing.

A run without gaps is one range, however long it is; so duplicates are found for ever, without keeping every number.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from compliance.schema import BOOT, LINE_KEY

# Numbers of one run are sorted by several tasks, so many at a time.
_CHUNK = 2**17


def ranges(rows: DataFrame) -> DataFrame:
    """The ranges of the rows' own numbers: `proxy_id, boot_id, from_seq, to_seq`."""
    numbers = rows.select(
        *BOOT,
        F.col("seq").alias("from_seq"),
        F.col("seq").alias("to_seq"),
        F.floor(F.col("seq") / _CHUNK).alias("chunk"),
    )
    return merged(_joined(numbers, (*BOOT, "chunk")))


def merged(seen: DataFrame) -> DataFrame:
    """Ranges that overlap or touch become one."""
    return _joined(seen, BOOT)


def _joined(seen: DataFrame, by: tuple[str, ...]) -> DataFrame:
    ordered = Window.partitionBy(*by).orderBy("from_seq", "to_seq")
    highest = F.max("to_seq").over(ordered.rowsBetween(Window.unboundedPreceding, -1))
    begins = (highest.isNull() | (F.col("from_seq") > highest + 1)).cast("long")
    begun = seen.withColumn("begins", begins)
    numbered = begun.withColumn("range", F.sum("begins").over(ordered))
    joined = numbered.groupBy(*by, "range").agg(F.min("from_seq").alias("from_seq"), F.max("to_seq").alias("to_seq"))
    return joined.select(*BOOT, "from_seq", "to_seq")


def per_run(seen: DataFrame) -> DataFrame:
    """Of each run: how many numbers are there, and how many are missing below the largest."""
    there = F.sum(F.col("to_seq") - F.col("from_seq") + 1)
    return seen.groupBy(*BOOT).agg(there.alias("there"), (F.max("to_seq") + 1 - there).alias("missing"))


def counted(seen: DataFrame) -> tuple[int, int]:
    """How many numbers the ranges hold, and how many are missing below the largest of each run."""
    sums = (F.coalesce(F.sum(name), F.lit(0)) for name in ("there", "missing"))
    return tuple(per_run(seen).agg(*sums).collect()[0])


def unseen(rows: DataFrame, seen: DataFrame) -> DataFrame:
    """Each row once, and none whose number was seen before."""
    # Few ranges: one for each run and gap.
    before = F.broadcast(seen.withColumnsRenamed({name: f"seen_{name}" for name in BOOT}))
    is_same = [F.col(name) == F.col(f"seen_{name}") for name in BOOT]
    is_seen = F.col("seq").between(F.col("from_seq"), F.col("to_seq"))
    return rows.join(before, on=[*is_same, is_seen], how="left_anti").dropDuplicates(list(LINE_KEY))


def gaps(seen: DataFrame) -> DataFrame:
    """Numbers that are missing below the largest, as `proxy_id, boot_id, after_seq, missing`."""
    ordered = Window.partitionBy(*BOOT).orderBy("from_seq")
    after = F.coalesce(F.lag("to_seq").over(ordered), F.lit(-1))
    holes = seen.select(*BOOT, after.alias("after_seq"), (F.col("from_seq") - after - 1).alias("missing"))
    return holes.where(F.col("missing") > 0)
