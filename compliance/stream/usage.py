"""Usage by minute, hour and day: for each tenant, namespace, topic and direction, by Spark over the rows.

A line counts in the window in which it begins. Windows of a day are made again when a file with lines of it comes:
minutes of the hours that it touches, hours from minutes, and days from hours. So there is no state between runs, and no
line is late. Minutes are added up from those that the tasks have made of each file. From rows they are made in hours in
which files have copies of each other's lines, or that were compacted.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from accesslog.record import BUCKETS
from compliance import storage
from compliance.stream.folder import Ledger
from compliance.stream.log_file import MINUTES_OF_FILES, JobPlaces
from compliance.stream.minutes import KEY, LIMITS, SUMS
from compliance.stream.tables import SplitRows, minutes_of_files

MINUTE, HOUR, DAY = "usage_minute", "usage_hour", "usage_day"
TABLES: Mapping[str, str] = {MINUTE: "1 minute", HOUR: "1 hour", DAY: "1 day"}
"""The tables, with the width of their windows."""
_PARTITIONS = {MINUTE: ("day", "hour"), HOUR: ("day",), DAY: ("day",)}


def of_rows(rows: DataFrame) -> DataFrame:
    """Sum rows up by minute.

    Args:
        rows: Each line once.
    """
    lines = rows.where(F.col("kind") == "interval").withColumns({"lines": F.lit(1), "as_of": F.col("end")})
    return _by_window(lines, MINUTE)


def of_windows(windows: DataFrame, table: str) -> DataFrame:
    """Sum windows up to those of another table, which are wider."""
    return _by_window(windows.drop("end"), table)


def _by_window(parts: DataFrame, table: str) -> DataFrame:
    # Sums of numbers alone, histograms too: what has text in it cannot be added up by hash.
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("lines", *SUMS)]
    last = [F.max_by(name, "as_of").alias(name) for name in LIMITS]
    grouped = parts.groupBy(F.window("start", TABLES[table]).alias("window"), *KEY).agg(
        *sums, F.max("delay_max_ms").alias("delay_max_ms"), F.expr(_COUNTS), *last, F.max("as_of").alias("as_of")
    )
    start = F.col("window.start")
    return grouped.select(
        start.alias("start"),
        F.col("window.end").alias("end"),
        *KEY,
        "lines",
        *SUMS,
        "delay_max_ms",
        F.expr(_WITHOUT_ZEROS_AT_END),
        "as_of",
        *LIMITS,
        F.to_date(start).alias("day"),
        *([F.hour(start).alias("hour")] if table == MINUTE else []),
    )


# Texts of SQL: as columns of Python these would be a thousand calls to Java.
_COUNTS = f"array({', '.join(f'sum(get(delay_hist, {bucket}))' for bucket in range(BUCKETS))}) AS counts"
_LENGTH = "array_max(transform(counts, (count, place) -> if(count > 0, place + 1, 0)))"
_WITHOUT_ZEROS_AT_END = f"slice(counts, 1, {_LENGTH}) AS delay_hist"


def refresh(spark: SparkSession, places: JobPlaces, ledger: Ledger) -> None:
    """Make the windows again in which new lines begin."""
    new = {day: names_and_hours for day in ledger.totals if (names_and_hours := _new_hours(places, ledger, day))[1]}
    if not new:
        return
    for windows in minutes_of(spark, places, ledger, {day: hours for day, (_, hours) in new.items()}):
        _write(windows, places, MINUTE)
    days = F.col("day").isin(*(F.lit(day).cast("date") for day in new))
    for finer, table in ((MINUTE, HOUR), (HOUR, DAY)):
        # A table without a file, as of a proxy that no client has used yet, has no schema of its own.
        made = spark.read.schema(windows.schema).parquet(places.table(finer)).where(days)
        windows = of_windows(made, table)
        _write(windows, places, table)
    for day, (names, _) in new.items():
        storage.write(_account(places, day), msgspec.json.encode(sorted(names)))


def minutes_of(
    spark: SparkSession, places: JobPlaces, ledger: Ledger, hours: Mapping[str, set[int]]
) -> Iterator[DataFrame]:
    """Yield the minutes of some hours of days; each hour is in one of the frames.

    Args:
        spark: The session.
        places: The job's.
        ledger: What has been read.
        hours: The hours by day.
    """
    doubled = ledger.doubled()
    by_rows = {day: own & _hours_by_rows(places, ledger, day, doubled) for day, own in hours.items()}
    by_files = {day: own - by_rows[day] for day, own in hours.items()}
    if any(by_files.values()):
        yield of_windows(minutes_of_files(spark, places, ledger, _is_within(by_files)), MINUTE)
    if any(by_rows.values()):
        yield of_rows(SplitRows.of(spark, places, ledger, _is_within(by_rows)).rows)


def _hours_by_rows(places: JobPlaces, ledger: Ledger, day: str, doubled: set[str]) -> set[int]:
    """Return the hours in which the minutes of files are not all there, or have copies in them."""
    there = {name for name, _ in storage.files(places.of_day(MINUTES_OF_FILES, day))}
    compacted = ledger.days[day].facts.hours if day in ledger.days else []
    lacking = (
        facts.hours for name, facts in ledger.live(day).items() if name in doubled or f"{name}.parquet" not in there
    )
    return set(compacted).union(*lacking)


def _is_within(hours: Mapping[str, set[int]]) -> Column:
    return reduce(or_, (_is_in(day, own) for day, own in hours.items() if own))


def _new_hours(places: JobPlaces, ledger: Ledger, day: str) -> tuple[set[str], set[int]]:
    """Return the files that a day's usage is made of once it is refreshed, and the hours that are to be."""
    manifest = ledger.days.get(day)
    if manifest and not manifest.is_kept:
        return set(), set()
    live = ledger.live(day)
    names = {*live, *(manifest.names if manifest else ())}
    done = _done(places, day)
    hours = {hour for name in live.keys() - done for hour in live[name].hours}
    if manifest and set(manifest.names) - done:
        hours |= set(manifest.facts.hours)
    return names, hours


def _done(places: JobPlaces, day: str) -> set[str]:
    place = _account(places, day)
    try:
        return set(msgspec.json.decode(storage.read(place), type=list[str])) if storage.exists(place) else set()
    except msgspec.DecodeError:
        return set()


def _account(places: JobPlaces, day: str) -> str:
    return f"{places.work}/usage/{day}.json"


def _is_in(day: str, hours: Iterable[int]) -> Column:
    # Rows of a file are in the order of time, so whole groups of them are passed over.
    begins = sorted(hours)
    within = (F.col("start") >= F.timestamp_seconds(F.lit(begins[0] * 3600))) & (
        F.col("start") < F.timestamp_seconds(F.lit(begins[-1] * 3600 + 3600))
    )
    each = F.floor(F.unix_seconds("start") / 3600).isin(*begins)
    return (F.col("day") == F.lit(day).cast("date")) & within & each


def _write(windows: DataFrame, places: JobPlaces, table: str) -> None:
    partitions = _PARTITIONS[table]
    (
        windows.repartition(*partitions)
        .sortWithinPartitions(*partitions, *KEY, "start")
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*partitions)
        .parquet(places.table(table))
    )
