"""Lines of text in, rows out; each line that is not exactly one record gets the reason why.

Parsed by the record's own types, in Spark's Python workers: Spark's JSON source drops text behind a complete object,
changes its mind about what is malformed with the columns selected, and loses the raw line; and `from_json` with the
rules beside it takes five times as long.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, StructField, StructType

from compliance.columns import Columns
from compliance.fault import LONGEST_QUARANTINED, fault
from compliance.schema import row_schema

_QUARANTINE = (StructField("text", StringType()), StructField("reason", StringType()))


def rows_or_null(lines: DataFrame) -> DataFrame:
    """A row for every line, in no order.

    Args:
        lines: Column `value`, with any that tell its place (`file` …).

    Returns:
        Of good lines the fields, as `row_schema`, and the UTC day of `start`; of others nulls. And the place.
    """
    place = _place(lines)
    schema = StructType([*row_schema().fields, *place, StructField("day", DateType())])
    return _as_bytes(lines).mapInArrow(_rows, schema)


def quarantined(lines: DataFrame) -> DataFrame:
    """Of the malformed ones among the same lines: their places, the beginning of their text, why they are malformed."""
    return _as_bytes(lines).mapInArrow(_faults, StructType([*_place(lines), *_QUARANTINE]))


def _place(lines: DataFrame) -> list[StructField]:
    return [field for field in lines.schema.fields if field.name != "value"]


def _as_bytes(lines: DataFrame) -> DataFrame:
    """What is no text must reach the workers all the same."""
    names = [field.name for field in _place(lines)]
    return lines.select(F.col("value").cast("binary").alias("value"), *names)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    columns = Columns()
    for batch in batches:
        found, malformed = columns.decoded(_lines(batch))
        for places, rows in columns.batches(found):
            yield _placed(rows, batch, places)
        if malformed:
            yield _placed(columns.nothing(len(malformed)), batch, malformed)


def _placed(rows: pa.RecordBatch, batch: pa.RecordBatch, places: list[int]) -> pa.RecordBatch:
    place = batch.take(pa.array(places)).drop_columns("value")
    day = rows["start"].cast(pa.date32())
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *place.columns, day], names=[*rows.schema.names, *place.schema.names, "day"]
    )


def _faults(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    columns = Columns()
    for batch in batches:
        lines = _lines(batch)
        _, malformed = columns.decoded(lines)
        place = batch.take(pa.array(malformed, pa.int64())).drop_columns("value")
        # A character takes four bytes at most.
        texts = [lines[one][: 4 * LONGEST_QUARANTINED].decode(errors="replace") for one in malformed]
        told = [[text[:LONGEST_QUARANTINED] for text in texts], [fault(lines[one]) for one in malformed]]
        yield pa.RecordBatch.from_arrays(
            [*place.columns, *(pa.array(column, pa.string()) for column in told)],
            names=[*place.schema.names, "text", "reason"],
        )


def _lines(batch: pa.RecordBatch) -> list[bytes]:
    lines: list[bytes] = batch["value"].to_pylist()
    return lines
