"""Rows as a table of Delta or Iceberg, besides the job's own: written by Spark's own formats, at their price.

A table says itself which files it has (column `name`), and takes new ones in one commit. So a run that ends before or
after a commit leaves each line in it once.

    delta     OUT/delta/rows, partitioned by day
    iceberg   CATALOG.NAMESPACE.rows, partitioned by day
"""

from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compliance import storage
from compliance.schema import BOOT
from compliance.stream.folder import Ledger
from compliance.stream.options import Job, JobError, no_connector
from compliance.stream.tables import ROWS

NAME = "name"
_KEY = [*BOOT, "seq"]


class Lake(Protocol):
    """A table of rows."""

    def read(self) -> DataFrame | None:
        """Read the table; None if there is none."""

    def append(self, rows: DataFrame) -> None:
        """Add rows in one commit."""


class DeltaLake:
    """A Delta table in a folder."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._spark = spark
        self._place = f"{out}/delta/rows"
        # Fails at once, and not after the first batch, if there is no connector.
        spark.range(0).write.format("delta").mode("append").save(f"{out}/_work/delta")

    def read(self) -> DataFrame | None:
        """Read the table."""
        is_there = bool(storage.files(f"{self._place}/_delta_log"))
        return self._spark.read.format("delta").load(self._place) if is_there else None

    def append(self, rows: DataFrame) -> None:
        """Add rows."""
        rows.write.format("delta").mode("append").option("mergeSchema", "true").partitionBy("day").save(self._place)


class IcebergLake:
    """An Iceberg table of a catalog that the user has configured."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark = spark
        self._name = f"{catalog}.rows"
        name = f"spark.sql.catalog.{catalog.partition('.')[0]}"
        if not spark.conf.get(name, ""):
            raise JobError(
                f"--catalog {catalog}: Spark knows no such catalog: add "
                f"--spark {name}=org.apache.iceberg.spark.SparkCatalog and what that needs (type, warehouse or uri)"
            )
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}")

    def read(self) -> DataFrame | None:
        """Read the table."""
        return self._spark.table(self._name) if self._spark.catalog.tableExists(self._name) else None

    def append(self, rows: DataFrame) -> None:
        """Add rows."""
        if self.read() is None:
            rows.limit(0).writeTo(self._name).using("iceberg").partitionedBy(F.col("day")).create()
        # Iceberg wants the rows of a day together.
        rows.sortWithinPartitions("day").writeTo(self._name).append()


def lake_of(spark: SparkSession, job: Job) -> Lake | None:
    """Return the job's table besides its own; None for jobs without one.

    Raises:
        JobError: If the connector is not on Spark's class path.
    """
    if job.sink.kind == "parquet":
        return None
    try:
        return DeltaLake(spark, job.out) if job.sink.kind == "delta" else IcebergLake(spark, job.sink.catalog)
    except (PySparkException, Py4JJavaError) as error:
        raise JobError(no_connector("--sink", job.sink.kind, error)) from error


def publish(spark: SparkSession, job: Job, ledger: Ledger, lake: Lake) -> None:
    """Add the files that the table does not have. Files must be published before they are compacted."""
    there = lake.read()
    have = set() if there is None else {row[NAME] for row in there.select(NAME).distinct().collect()}
    new = sorted(
        name for name, log_file in ledger.files.items() if name not in have and not ledger.is_covered(log_file)
    )
    if not new:
        return
    name = F.regexp_replace("_metadata.file_name", r"\.parquet$", "")
    rows = spark.read.schema(ROWS).parquet(job.places.table("rows")).withColumn(NAME, name).where(F.col(NAME).isin(new))
    if ledger.doubled() & set(new):
        rows = rows.dropDuplicates(_KEY)
        rows = rows if there is None else rows.join(there.select(*_KEY), on=_KEY, how="left_anti")
    lake.append(rows)
