"""The tables of lines, as Spark reads them: each line of the files that have been read, once."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from compliance import storage
from compliance.line_reader import MALFORMED
from compliance.log_lines import LinesFile
from compliance.schema import BOOT, placed_schema
from compliance.session import local_frame
from compliance.stream.folder import Ledger
from compliance.stream.log_file import MINUTES_OF_FILES, JobPlaces
from compliance.stream.minutes import MINUTES

DAY = StructField("day", DateType())
ROWS = placed_schema(DAY)
_MALFORMED = StructType([*from_arrow_schema(MALFORMED).fields, DAY])
_MINUTES = StructType([*from_arrow_schema(MINUTES).fields, DAY])
PASSED_OVER = "passed-over.json"
"""The file that names the log's files that are not read, for readers of the tables."""


@dataclass(frozen=True)
class SplitRows:
    """The rows of some days.

    Args:
        rows: Each line once.
        copies: Further lines with the number of one in `rows`.
        doubled: Those of `rows` that are in files with numbers in common; None: there is no such file.
    """

    rows: DataFrame
    copies: DataFrame
    doubled: DataFrame | None = None

    @staticmethod
    def of(spark: SparkSession, places: JobPlaces, ledger: Ledger, only: Column | None = None) -> "SplitRows":
        """Read rows; lines are compared only where the ledger says that files have numbers in common.

        Args:
            spark: The session.
            places: The job's.
            ledger: What has been read.
            only: The condition for rows to read.
        """
        rows = _table(spark, places, ledger, "rows", ROWS, only)
        earlier = _table(spark, places, ledger, "copies", ROWS, only)
        doubled = ledger.doubled()
        if not doubled:
            return SplitRows(rows, earlier)
        is_doubled = F.expr(_is_among(doubled))
        by_line = Window.partitionBy(*BOOT, "seq").orderBy("file", "line")
        ranked = rows.where(is_doubled).withColumn("copy", F.row_number().over(by_line))
        first, others = (ranked.where(which).drop("copy") for which in (F.col("copy") == 1, F.col("copy") > 1))
        return SplitRows(rows.where(~is_doubled).unionByName(first), earlier.unionByName(others), first)


def files_without_copies(places: JobPlaces, ledger: Ledger) -> list[LinesFile]:
    """List the Parquet files of rows that have no line of another one, and none twice."""
    doubled = ledger.doubled()
    files = []
    for day in sorted(ledger.totals):
        rows = {name: facts.rows for name, facts in ledger.live(day).items()}
        if day in ledger.days:
            manifest = ledger.days[day]
            compacted = manifest.files.get("rows", [])
            rows |= {name: manifest.facts.rows // len(compacted) + 1 for name in compacted}
        files += [
            LinesFile(places.part("rows", day, name), day, number)
            for name, number in rows.items()
            if number and name not in doubled
        ]
    return files


def malformed_of(spark: SparkSession, places: JobPlaces, ledger: Ledger, only: Column | None = None) -> DataFrame:
    """Read malformed lines; `only` is the condition for those to read."""
    return _table(spark, places, ledger, "malformed", _MALFORMED, only)


def minutes_of_files(spark: SparkSession, places: JobPlaces, ledger: Ledger, only: Column) -> DataFrame:
    """Read the usage of files whose day is not compacted; `only` is the condition for rows to read."""
    return _table(spark, places, ledger, MINUTES_OF_FILES, _MINUTES, only)


def _table(
    spark: SparkSession, places: JobPlaces, ledger: Ledger, table: str, schema: StructType, only: Column | None
) -> DataFrame:
    if not storage.folders(places.table(table)):
        return local_frame(spark, [], {field.name: field.dataType.simpleString() for field in schema})
    # A task whose batch was given up may write yet, so of what is in the folder only what the ledger names is read.
    rows = spark.read.schema(schema).parquet(places.table(table)).where(_known(ledger, table))
    return rows if only is None else rows.where(only)


def _known(ledger: Ledger, table: str) -> str:
    """The condition for rows of a table's Parquet files."""
    of_days = [
        f"(day = DATE'{day}' AND {_is_among([*manifest.files.get(table, ()), *ledger.live(day)])})"
        for day, manifest in ledger.days.items()
    ]
    if not of_days:
        return _is_among(ledger.files)
    days = ", ".join(f"DATE'{day}'" for day in ledger.days)
    return f"{' OR '.join(of_days)} OR (day NOT IN ({days}) AND {_is_among(ledger.files)})"


def _is_among(names: Iterable[str]) -> str:
    # One text: ten thousand values by `isin` are ten thousand calls to Java.
    listed = ", ".join(f"'{name}.parquet'" for name in names)
    return f"_metadata.file_name IN ({listed})" if listed else "false"
