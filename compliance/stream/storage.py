"""Storage of a job: its tables and its state between batches, in folders of this machine or of Spark's file systems.

Each batch replaces its part of a table as a whole. So a batch that runs again changes nothing.

parquet   OUT/TABLE/step=N/day=D/*.parquet; a part is a folder
delta     OUT/TABLE, partitioned by day; a part is `step = N`, replaced in one commit
iceberg   CATALOG.NAMESPACE.TABLE, partitioned by day; the same
"""

from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from compliance.stream.options import Job, JobError, no_connector
from compliance.stream.windows import parquet, table_of


class Storage:
    """Hadoop's file systems, as far as the job needs them. Paths are texts, with or without a scheme.

    Args:
        spark: The session, for its configuration of file systems.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm  # noqa: SLF001 - the only way to Hadoop's file systems from Python
        self._settings = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same

    def exists(self, path: str) -> bool:
        """Return whether a file or folder of that name exists."""
        return bool(self._system(path).exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        if not self.exists(folder):
            return []
        return sorted(str(file.getPath().getName()) for file in self._system(folder).listStatus(self._path(folder)))

    def remove(self, path: str) -> None:
        """Removes a file, or a folder and all in it; it need not be there."""
        self._system(path).delete(self._path(path), True)

    def move(self, source: str, target: str) -> None:
        """Renames a file or folder over another."""
        self.remove(target)
        system = self._system(target)
        system.mkdirs(self._path(target).getParent())
        if not system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be renamed to {target}")

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        if local := self._here(path):
            return local.read_bytes()
        stream = self._system(path).open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, content: bytes) -> None:
        """Writes a file; a reader sees the old one or the new one whole, where renaming is atomic."""
        half = f"{path.rpartition('/')[0]}/_{path.rpartition('/')[2]}.half"
        self.put(half, content)
        self.move(half, path)

    def put(self, path: str, content: bytes) -> None:
        """Writes a file that no process reads yet."""
        if local := self._here(path):
            _put_here(local, content)
            return
        stream = self._system(path).create(self._path(path), True)
        try:
            stream.write(content)
        finally:
            stream.close()

    def _here(self, path: str) -> Path | None:
        """Return the place of a file on this machine, if it is here: reading through Java takes ten times as long."""
        place = self._path(path)
        system = place.getFileSystem(self._settings)
        return Path(place.toUri().getPath()) if system.getScheme() == "file" else None

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._settings)


def _put_here(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_bytes(content)
    except OSError as error:
        # Of a full disk Python does not say which file it was.
        raise OSError(error.errno, error.strerror, str(path)) from error


VERSION = 1
"""The version of the state. Raise it whenever an earlier version of the job could not go on from it."""
KEPT = 3
"""Steps that are kept: that of the last batch may be written a second time, and needs the one before."""


class TableTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of everything so far. `rows` are distinct, so they are as many as numbers seen."""

    lines: int = 0
    rows: int = 0
    malformed: int = 0
    duplicates: int = 0
    missing: int = 0
    losses: int = 0
    """The number of reports of proxies that lines are lost, or may be."""
    lost: int = 0
    """Lines that they say to have lost, where they know how many."""
    late: dict[str, int] = {}
    """Lines that came after their window had been closed, by the width of the window in seconds."""
    watermark_s: int = 0
    """Windows that end by then (seconds since 1970) are closed."""
    newer: dict[str, int] = {}
    """Fields that this version does not know, with their number."""


class _Version(msgspec.Struct, frozen=True):
    version: int = 0
    """States had none once."""


class _Kept(_Version, frozen=True):
    totals: TableTotals = TableTotals()


class State:
    """The states of a job.

    Args:
        spark: The session.
        work: The job's work folder.
    """

    def __init__(self, spark: SparkSession, work: str) -> None:
        self._work = work
        self._folder = f"{work}/state"
        self._storage = Storage(spark)

    def before(self, step: int) -> int | None:
        """Return the newest whole step before `step`; None if there is none."""
        whole = [earlier for earlier in self._steps() if earlier < step and self._storage.exists(self._totals(earlier))]
        return max(whole, default=None)

    def newest(self) -> int | None:
        """Return the newest whole step of all."""
        return self.before(2**63 - 1)

    def check(self) -> None:
        """Check that this version of the job can go on from the state.

        Raises:
            JobError: If it cannot: another version wrote the state, or parts are missing.
        """
        newest = self.newest()
        _ = self.totals(newest)
        if newest is None and self._storage.names(f"{self._work}/checkpoint/commits"):
            raise self._refusal(f"batches were read, but {self._folder} says of none what was in it")

    def totals(self, step: int | None) -> TableTotals:
        """Return the totals of a step; zeros for none.

        Raises:
            JobError: If another version of the job wrote them.
        """
        if step is None:
            return TableTotals()
        content = self._storage.read(self._totals(step))
        version = msgspec.json.decode(content, type=_Version).version
        if version != VERSION:
            raise self._refusal(f"{self._folder} is of version {version}, and this job knows version {VERSION}")
        return msgspec.json.decode(content, type=_Kept).totals

    def read(self, step: int | None, name: str, schema: pa.Schema) -> pa.Table:
        """Return a table of a step; an empty one before the first."""
        return schema.empty_table() if step is None else table_of([self._storage.read(self.place(step, name))], schema)

    def write(self, step: int, name: str, table: pa.Table) -> None:
        """Keeps a table."""
        self._storage.put(self.place(step, name), parquet(table))

    def place(self, step: int, name: str) -> str:
        """Return the place of a step's table."""
        return f"{self._folder}/step={step}/{name}.parquet"

    def begin(self, step: int) -> None:
        """Begin a step: remove the totals that an earlier attempt left, so that they are no state any more."""
        self._storage.remove(self._totals(step))

    def end(self, step: int, totals: TableTotals) -> None:
        """Mark the step as whole, and remove old steps."""
        self._storage.write(self._totals(step), msgspec.json.encode(_Kept(VERSION, totals)))
        for old in self._steps()[:-KEPT]:
            self._storage.remove(f"{self._folder}/step={old}")

    def _refusal(self, why: str) -> JobError:
        out = self._work.rpartition("/")[0]
        return JobError(
            f"{out}: another version of the job was at work in it, or some of it is gone ({why}): "
            "give another --out, or delete this folder and have the log read again from its beginning"
        )

    def _steps(self) -> list[int]:
        names = self._storage.names(self._folder)
        return sorted(int(name.removeprefix("step=")) for name in names if name.startswith("step="))

    def _totals(self, step: int) -> str:
        return f"{self._folder}/step={step}/totals.json"


class Tables(Protocol):
    """The tables of one job. All have a column `day`; `step` says which batch wrote a row."""

    def adopt(self, table: str, step: int, folder: str, schema: StructType) -> None:
        """Move a folder of Parquet files by day into a table as its part `step`, in place of any earlier one.

        The folder is gone afterwards.

        Args:
            table: The table's name.
            step: The part's number.
            folder: The folder of the files; missing, if there are none.
            schema: The schema of the rows, with the day.
        """

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """Read columns of a whole table, null where it lacks one; None if nothing was ever written to it."""


def tables_of(spark: SparkSession, job: Job) -> Tables:
    """Return the tables of a job.

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
        """Move the folder, as `Tables.adopt` says; nothing is copied."""
        part = f"{self._out}/{table}/step={step}"
        if self._storage.exists(folder):
            self._storage.move(folder, part)
        else:
            self._storage.remove(part)

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """Read a table, as `Tables.read` says."""
        folder = f"{self._out}/{table}"
        return self._spark.read.schema(schema).parquet(folder) if self._storage.exists(folder) else None


class DeltaTables:
    """Delta tables in folders."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._spark = spark
        self._out = out
        # Fails at once, and not in the first batch, if there is no connector.
        spark.range(0).write.format("delta").mode("append").save(f"{out}/_work/delta")

    def adopt(self, table: str, step: int, folder: str, schema: StructType) -> None:
        """Write the folder into the table, as `Tables.adopt` says."""
        part = _staged(self._spark, folder, step, schema).write.format("delta").partitionBy("day")
        if not self._is_there(table):
            part.mode("append").save(self._place(table))
        else:
            part.mode("overwrite").option("replaceWhere", f"step = {step}").save(self._place(table))
        Storage(self._spark).remove(folder)

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """Read a table, as `Tables.read` says."""
        return (
            self._spark.read.format("delta").load(self._place(table)).select(schema.names)
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
        """Write the folder into the table, as `Tables.adopt` says."""
        part = _staged(self._spark, folder, step, schema)
        if not self._is_there(table):
            part.limit(0).writeTo(self._name(table)).using("iceberg").partitionedBy(F.col("day")).create()
        # Iceberg wants the rows of a day together.
        part.sortWithinPartitions("day").writeTo(self._name(table)).overwrite(F.col("step") == step)
        Storage(self._spark).remove(folder)

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """Read a table, as `Tables.read` says."""
        return self._spark.table(self._name(table)).select(schema.names) if self._is_there(table) else None

    def _is_there(self, table: str) -> bool:
        return self._spark.catalog.tableExists(self._name(table))

    def _name(self, table: str) -> str:
        return f"{self._catalog}.{table}"


def _staged(spark: SparkSession, folder: str, step: int, schema: StructType) -> DataFrame:
    """The rows in a folder, if it is there, as a part of a table."""
    files = (
        spark.read.schema(schema).parquet(folder)
        if Storage(spark).exists(folder)
        else spark.createDataFrame([], schema)
    )
    return files.withColumn("step", F.lit(step).cast("long"))
