"""The job's verdicts: each settled day is judged once, for reports, and for readers of the tables.

    verdicts/day=D/KEY.parquet   a row for each limit of each proxy: `LimiterVerdict`, by that day's lines
    _work/judged/D.…             what reports load instead of judging: `kept_days`
    _work/judged.json            the days that were judged, with their contents; written last

The key is of the day's results, and of what is known of the runs that have lines on it. So a day has another one when
its lines change, or the balances before them, or when a later line says that lines of it are lost.
"""

import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.inspect import (
    BoolType,
    DateTimeType,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)
from pyspark.sql import SparkSession

from compliance import storage
from compliance.excerpt import Excerpt
from compliance.judging.verdict import LimiterVerdict
from compliance.kept_days import MADE_BY, KeptDays, key_of
from compliance.logs import Logs, settings_of_sums
from compliance.report.collect import verdicts_of
from compliance.report.page import flat
from compliance.session import with_settings
from compliance.stream.folder import Ledger, days_in
from compliance.stream.log_file import JobPlaces
from compliance.tables import LogTables, days_of, read_tables

VERDICTS = "verdicts"
_AT_ONCE = 7
"""Days whose results are in the driver's memory together."""


def judge_settled_days(
    spark: SparkSession, places: JobPlaces, ledger: Ledger, on_step: Callable[[str], None]
) -> Collection[str]:
    """Judge settled days that have changed since they were judged; return the days whose rows the judging still needs.

    These are the days to come, and the day before each: ten seconds may begin on it.

    Args:
        spark: The session.
        places: The job's.
        ledger: What has been read.
        on_step: Called with the name of the next step.
    """
    days = days_of(ledger, datetime.now(UTC))
    contents = {day: info.content for day, info in days.items() if info.is_settled}
    account = msgspec.json.encode([MADE_BY, contents])
    place = f"{places.work}/judged.json"
    kept = KeptDays(places.judged)
    is_judged = storage.holds(place, account) and contents.keys() <= {*days_in(places, VERDICTS)} & kept.days
    if contents and not is_judged:
        on_step("judging days")
        tables = read_tables(spark, places.out)
        # A new session would start Python workers of its own beside the job's idle ones.
        with with_settings(spark, settings_of_sums(tables.lines)):
            _judge(tables, places, kept, on_step)
        storage.write(place, account)
    there = kept.days
    unjudged = {day for day, info in days.items() if not info.is_over or (info.is_settled and day not in there)}
    return unjudged | {before for before, day in pairwise(days) if day in unjudged}


def _judge(tables: LogTables, places: JobPlaces, kept: KeptDays, on_step: Callable[[str], None]) -> None:
    logs = Logs.of_whole(tables, kept, has_traffic=lambda _: False)
    by_day = logs.by_day
    assert by_day is not None
    settled = [day for day, info in tables.days.items() if info.is_settled]
    for first in range(0, len(settled), _AT_ONCE):
        parts = {day: logs.within(Excerpt.of_days(day, day)) for day in settled[first : first + _AT_ONCE]}
        there = kept.days
        new = {
            day: place
            for day, part in parts.items()
            if not (storage.exists(place := _place(places, day, by_day.keys[day], part)) and day in there)
        }
        if new:
            on_step(f"judging {' to '.join(dict.fromkeys((min(new), max(new))))}")
        for day, results in by_day.of(new).items():
            verdicts = verdicts_of(parts[day], results)
            storage.remove_folder(places.of_day(VERDICTS, day))
            storage.write(new[day], _as_parquet(verdicts))


def _place(places: JobPlaces, day: str, results_key: str, part: Logs) -> str:
    known = [part.tables.runs.drop_columns("dropped_lines"), part.tables.gaps, part.sums["losses"]]
    key = key_of(results_key, [sorted(map(repr, table.to_pylist())) for table in known])
    return places.part(VERDICTS, day, key[:16])


def _as_parquet(verdicts: Sequence[LimiterVerdict]) -> bytes:
    """Return verdicts as a Parquet file, with the columns of the report's `limits.csv`, and the doubts as texts."""
    rows = [flat(verdict) | {"doubts": [doubt.said for doubt in verdict.doubts]} for verdict in verdicts]
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), parquet)
    return parquet.getvalue()


_TYPES: Mapping[type[Type], pa.DataType] = {
    StrType: pa.string(),
    LiteralType: pa.string(),
    IntType: pa.int64(),
    FloatType: pa.float64(),
    BoolType: pa.bool_(),
    DateTimeType: pa.timestamp("us", tz="UTC"),
}


def _columns(kind: Type, name: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield the columns of a value, as `flat` names them."""
    if isinstance(kind, UnionType):
        [kind] = (member for member in kind.types if not isinstance(member, NoneType))
    if isinstance(kind, StructType):
        for field in kind.fields:
            if field.name != "doubts":
                yield from _columns(field.type, f"{name}_{field.name}" if name else field.name)
    else:
        yield name, _TYPES[type(kind)]


SCHEMA = pa.schema([*_columns(type_info(LimiterVerdict)), ("doubts", pa.list_(pa.string()))])
"""The columns of the table."""
