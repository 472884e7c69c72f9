"""Where tables go. Each batch's part of a table is replaced as a whole, so a batch that runs again changes nothing.

parquet   OUT/TABLE/step=N/day=D/*.parquet; a part is a folder
delta     OUT/TABLE, partitioned by day; a part is `step = N`, replaced in one commit
iceberg   CATALOG.NAMESPACE.TABLE, partitioned by day; the same
"""

from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from compliance.stream.options import Job, JobError
from compliance.stream.sources import no_connector
from compliance.stream.state import Storage


class Tables(Protocol):
    """The tables of one job. All have a column `day`; `step` says which batch wrote a row."""

    def adopt(self, table: str, step: int, folder: str, schema: StructType) -> None:
        """Makes a folder of Parquet by day the part `step` of a table, whatever that was before; the folder is gone.

        Args:
            table: Which table.
            step: Which part.
            folder: Where its files are; may be missing, if there are none.
            schema: Of its rows, with the day.
        """

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """These columns of a whole table, null where it lacks one; None if nothing was ever written to it."""


def tables_of(spark: SparkSession, job: Job) -> Tables:
    """The tables of a job.

    Raises:
        JobError: If the connector is not on Spark's class path.
    """
    if job.sink.kind == "parquet":
        return ParquetTables(spark, job.out)
    try:
        return DeltaTables(spark, job.out) if job.sink.kind == "delta" else IcebergTables(spark, job.sink.catalog)
    except (PySparkException, Py4JJavaError) as error:
        raise JobError(no_connector("--sink", job.sink.kind, error)) from error


class ParquetTables:
    """Folders of Parquet files."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._spark = spark
        self._out = out
        self._storage = Storage(spark)

    def adopt(self, table: str, step: int, folder: str, schema: StructType) -> None:  # noqa: ARG002 - files know theirs
        """See `Tables`; nothing is copied."""
        part = f"{self._out}/{table}/step={step}"
        if self._storage.exists(folder):
            self._storage.move(folder, part)
        else:
            self._storage.remove(part)

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """See `Tables`."""
        folder = f"{self._out}/{table}"
        # Told and not found out: batches of older versions lack the newer columns.
        return self._spark.read.schema(schema).parquet(folder) if self._storage.exists(folder) else None


class DeltaTables:
    """Delta tables in folders."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._spark = spark
        self._out = out
        # Fails at once, and not in the first batch, if there is no connector.
        spark.range(0).write.format("delta").mode("append").save(f"{out}/_work/delta")

    def adopt(self, table: str, step: int, folder: str, schema: StructType) -> None:
        """See `Tables`."""
        part = _staged(self._spark, folder, step, schema).write.format("delta").partitionBy("day")
        if not self._is_there(table):
            part.mode("append").save(self._place(table))
        else:
            newer = part.mode("overwrite").option("replaceWhere", f"step = {step}")
            newer.option("mergeSchema", "true").save(self._place(table))
        Storage(self._spark).remove(folder)

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """See `Tables`."""
        return (
            _chosen(self._spark.read.format("delta").load(self._place(table)), schema)
            if self._is_there(table)
            else None
        )

    def _is_there(self, table: str) -> bool:
        return Storage(self._spark).exists(f"{self._place(table)}/_delta_log")

    def _place(self, table: str) -> str:
        return f"{self._out}/{table}"


class IcebergTables:
    """Iceberg tables of a catalog that the user has configured."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark = spark
        self._catalog = catalog
        name = f"spark.sql.catalog.{catalog.partition('.')[0]}"
        if not spark.conf.get(name, ""):
            raise JobError(
                f"--catalog {catalog}: Spark knows no such catalog: add "
                f"--spark {name}=org.apache.iceberg.spark.SparkCatalog and what that needs (type, warehouse or uri)"
            )
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}")

    def adopt(self, table: str, step: int, folder: str, schema: StructType) -> None:
        """See `Tables`."""
        part = _staged(self._spark, folder, step, schema)
        if not self._is_there(table):
            part.limit(0).writeTo(self._name(table)).using("iceberg").partitionedBy(F.col("day")).create()
        self._widen(table, part.schema)
        # Iceberg wants the rows of a day together.
        part.sortWithinPartitions("day").writeTo(self._name(table)).overwrite(F.col("step") == step)
        Storage(self._spark).remove(folder)

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """See `Tables`."""
        return _chosen(self._spark.table(self._name(table)), schema) if self._is_there(table) else None

    def _widen(self, table: str, schema: StructType) -> None:
        """An older version of the job, whose rows lack the newer columns, may have made the table."""
        name = self._name(table)
        there = self._spark.table(name).columns
        added = [f"{field.name} {field.dataType.simpleString()}" for field in schema if field.name not in there]
        if added:
            self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(added)})")

    def _is_there(self, table: str) -> bool:
        return self._spark.catalog.tableExists(self._name(table))

    def _name(self, table: str) -> str:
        return f"{self._catalog}.{table}"


def _chosen(table: DataFrame, schema: StructType) -> DataFrame:
    """These columns of a table, null where it lacks one."""
    there = set(table.columns)
    return table.select(
        *(
            F.col(field.name) if field.name in there else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema
        )
    )


def _staged(spark: SparkSession, folder: str, step: int, schema: StructType) -> DataFrame:
    """The rows in a folder, if it is there, as a part of a table."""
    files = (
        spark.read.schema(schema).parquet(folder)
        if Storage(spark).exists(folder)
        else spark.createDataFrame([], schema)
    )
    return files.withColumn("step", F.lit(step).cast("long"))
