"""The stream: closed log files in, clean rows and quarantined lines out, each file once.

Exactly once across a kill at any moment: each micro-batch overwrites its own `batch=<id>` folders, and a batch that
was not committed runs again under the same id. (Parquet's own sink is exactly-once for readers of its metadata only.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

from compliance.parse import good_rows, parse, quarantined
from compliance.schema import row_schema

BATCH_BYTES = 512 * 2**20
QUARANTINE_SCHEMA = "file string, line string, reason string, batch long"


@dataclass(frozen=True)
class Folders:
    """Where the job reads and what it keeps.

    Args:
        access_log: Closed `*.jsonl` files.
        work: Checkpoint, rows and quarantine; a later run with the same folder adds only what is new.
    """

    access_log: Path
    work: Path

    @property
    def rows(self) -> Path:
        """Clean rows: Parquet by `batch=<id>/day=<UTC day>`."""
        return self.work / "rows"

    @property
    def quarantine(self) -> Path:
        """Malformed lines: JSON by `batch=<id>`."""
        return self.work / "quarantine"

    @property
    def checkpoint(self) -> Path:
        """Spark's record of what has been read."""
        return self.work / "checkpoint"


def ingest(spark: SparkSession, folders: Folders, on_progress: Callable[[int], None]) -> None:
    """Reads every closed file that no earlier run has read.

    Args:
        spark: The session.
        folders: From where to where.
        on_progress: Called now and then with the number of lines read so far.
    """
    text = (
        spark.readStream.format("text")
        .option("pathGlobFilter", "*.jsonl")
        .option("lineSep", "\n")
        .option("maxBytesPerTrigger", BATCH_BYTES)
        # By default files a week older than the newest are passed over in silence.
        .option("maxFileAge", "36500d")
        .load(str(folders.access_log))
    )
    lines = text.select("value", F.col("_metadata.file_name").alias("file"))
    query = (
        lines.writeStream.foreachBatch(lambda batch, number: _write(folders, batch, number))
        .option("checkpointLocation", str(folders.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    while not query.awaitTermination(1):
        on_progress(sum(progress.numInputRows for progress in query.recentProgress))


def _write(folders: Folders, lines: DataFrame, number: int) -> None:
    # Parsed here and not in the stream's plan: the optimizer takes minutes for the parser above a file scan.
    batch = parse(lines).persist()
    try:
        rows = good_rows(batch).write.mode("overwrite").partitionBy("day")
        rows.parquet(str(folders.rows / f"batch={number}"))
        if not batch.where(~F.col("is_good")).isEmpty():
            malformed = quarantined(batch).coalesce(1).write.mode("overwrite")
            malformed.json(str(folders.quarantine / f"batch={number}"))
    finally:
        batch.unpersist()


def read_rows(spark: SparkSession, folders: Folders) -> DataFrame:
    """Every clean row of this and all earlier runs, duplicates included."""
    schema = StructType(
        [
            *row_schema().fields,
            StructField("file", StringType()),
            StructField("batch", LongType()),
            StructField("day", DateType()),
        ]
    )
    if not folders.rows.exists():
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(str(folders.rows))


def read_quarantine(spark: SparkSession, folders: Folders) -> DataFrame:
    """Every malformed line of this and all earlier runs."""
    if not folders.quarantine.exists():
        return spark.createDataFrame([], QUARANTINE_SCHEMA)
    return spark.read.schema(QUARANTINE_SCHEMA).json(str(folders.quarantine))
