"""Compaction of closed days: a few files of rows in the order in which they are asked for, without copies."""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compliance import storage
from compliance.schema import BOOT
from compliance.stream.folder import DayManifest, Ledger, finish, staged
from compliance.stream.ledger import is_past, total
from compliance.stream.log_file import JobPlaces
from compliance.stream.tables import SplitRows, malformed_of

FILE_BYTES = 256 * 2**20
"""The size of a file, about."""
_ORDER = ("kind", "tenant", "namespace")
ABANDONED = timedelta(days=2)
"""The age at which a day is closed though a run has not come past it: its proxy is gone."""


def closed_days(ledger: Ledger, now: datetime, least_files: int = 1) -> list[str]:
    """Return the days of which no more lines are to be expected, and that have files which are not compacted.

    Args:
        ledger: What has been read.
        now: By the clock of this machine.
        least_files: The least number of such files.
    """
    runs = total(ledger.totals.values()).by_run()
    abandoned = (now - ABANDONED).date().isoformat()
    return [
        day
        for day in sorted(ledger.totals)
        if len(ledger.live(day)) >= least_files
        and (day not in ledger.days or ledger.days[day].is_kept)
        and (day < abandoned or is_past(runs, day, now))
    ]


def compact(spark: SparkSession, places: JobPlaces, ledger: Ledger, day: str) -> None:
    """Rewrite one day; a run that ends before this is done leaves the day as it was, or the next run ends it."""
    is_of_day = F.col("day") == F.lit(day).cast("date")
    both = SplitRows.of(spark, places, ledger, is_of_day)
    parts = {
        "rows": _in_order(both.rows, _files(places, day)),
        "malformed": malformed_of(spark, places, ledger, is_of_day).coalesce(1),
        "copies": both.copies.coalesce(1),
    }
    facts, earlier = ledger.totals[day], ledger.days.get(day)
    files = {}
    storage.remove_folder(f"{places.work}/compact/day={day}")
    for table, frame in parts.items():
        if table == "rows" or (facts.malformed if table == "malformed" else ledger.doubled([day])):
            stage = staged(places, table, day)
            frame.drop("day").write.parquet(stage)
            files[table] = [name[:-8] for name, _ in storage.files(stage) if name.endswith(".parquet")]
        elif earlier and table in earlier.files:
            files[table] = earlier.files[table]
    names = sorted([*(earlier.names if earlier else ()), *ledger.live(day)])
    manifest = DayManifest(names=names, files=files, facts=facts)
    finish(places, day, manifest)
    ledger.cover(day, manifest)


def _files(places: JobPlaces, day: str) -> int:
    size = sum(file.size for file in storage.files(places.of_day("rows", day)))
    return max(1, round(size / FILE_BYTES))


def _in_order(rows: DataFrame, files: int) -> DataFrame:
    together = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *_ORDER)
    return together.sortWithinPartitions(*_ORDER, *BOOT, "seq")
