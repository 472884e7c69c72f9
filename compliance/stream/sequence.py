"""Which lines of each run have been seen, as ranges of sequence numbers: what is twice, and what is missing.

A run without gaps is one range, however long it is; so duplicates are found for ever, without keeping every number.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from compliance.schema import BOOT, LINE_KEY

_RANGES = "proxy_id string, boot_id string, from_seq long, to_seq long"


def ranges(rows: DataFrame) -> DataFrame:
    """The ranges of the rows' own numbers: `proxy_id, boot_id, from_seq, to_seq`."""

    def of_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [batch for batch in batches if batch.num_rows]
        if numbers:
            yield from _ranges(pa.Table.from_batches(numbers))

    own = rows.select(*BOOT, "seq").mapInArrow(of_numbers, _RANGES)
    return merged(own)


def _ranges(numbers: pa.Table) -> Iterator[pa.RecordBatch]:
    runs = numbers.group_by(list(BOOT), use_threads=False).aggregate([("seq", "list")])
    for *boot, of_run in zip(*(runs[name] for name in (*BOOT, "seq_list")), strict=True):
        seqs = np.unique(of_run.values.to_numpy())
        # Where a number does not follow the one before a range begins, and the one before has ended there.
        begins = np.flatnonzero(np.diff(seqs) > 1) + 1
        bounds = seqs[np.concatenate([[0], begins])], seqs[np.concatenate([begins - 1, [len(seqs) - 1]])]
        names = [pa.repeat(one, len(begins) + 1) for one in boot]
        yield pa.RecordBatch.from_arrays([*names, *map(pa.array, bounds)], names=[*BOOT, "from_seq", "to_seq"])


def merged(seen: DataFrame) -> DataFrame:
    """Ranges that overlap or touch become one."""
    ordered = Window.partitionBy(*BOOT).orderBy("from_seq", "to_seq")
    highest = F.max("to_seq").over(ordered.rowsBetween(Window.unboundedPreceding, -1))
    begins = (highest.isNull() | (F.col("from_seq") > highest + 1)).cast("long")
    begun = seen.withColumn("begins", begins)
    numbered = begun.withColumn("range", F.sum("begins").over(ordered))
    joined = numbered.groupBy(*BOOT, "range").agg(F.min("from_seq").alias("from_seq"), F.max("to_seq").alias("to_seq"))
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
