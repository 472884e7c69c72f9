from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, LongType, StringType, TimestampType

from accesslog.record import Kinds
from compliance.columns import Columns, arrow_schema
from compliance.schema import row_schema
from tests.accesslog.test_record import example

ARROW_OF = {
    StringType(): pa.string(),
    LongType(): pa.int64(),
    DoubleType(): pa.float64(),
    BooleanType(): pa.bool_(),
    TimestampType(): pa.timestamp("us", tz="UTC"),
    ArrayType(LongType()): pa.list_(pa.int64()),
}


def rows_of(lines):
    """What came out for each place, and the places that are no records."""
    columns = Columns()
    found, malformed = columns.decoded(lines)
    rows: dict[int, Any] = {}
    for places, batch in columns.batches(found):
        assert batch.schema == columns.schema
        rows.update(zip(places, batch.to_pylist(), strict=True))
    return rows, malformed


def test_columns_are_those_of_spark_s_rows():
    assert arrow_schema() == pa.schema({field.name: ARROW_OF[field.dataType] for field in row_schema().fields})


def test_each_kind_fills_its_own_columns_and_keeps_its_place():
    lines = [msgspec.json.encode(example(kind)) for kind in Kinds.BY_NAME] * 2
    rows, malformed = rows_of(lines)
    assert (sorted(rows), malformed) == (list(range(len(lines))), [])
    for place, kind in enumerate([*Kinds.BY_NAME, *Kinds.BY_NAME]):
        own = set(Kinds.BY_NAME[kind].__struct_fields__)
        assert rows[place]["kind"] == kind
        assert {name for name, value in rows[place].items() if value is not None} <= own | {"kind"}
        assert rows[place]["seq"] == example(kind).seq


def test_what_is_left_out_or_null_is_null():
    line = example("interval")
    written = msgspec.json.decode(msgspec.json.encode(line))
    for name in ("rejected_messages", "delay_hist"):
        written.pop(name, None)
    rows, _ = rows_of([msgspec.json.encode(written), msgspec.json.encode(written | {"rejected_messages": None})])
    assert [(row["rejected_messages"], row["delay_hist"]) for row in rows.values()] == [(None, None)] * 2


def test_malformed_lines_cost_no_other_line_anything():
    good = msgspec.json.encode(example("heartbeat"))
    rows, malformed = rows_of([b"\xff", good, b"", good[:-1], good, good[:-1] + b',"new":"\xff"}'])
    assert (sorted(rows), malformed) == ([1, 4], [0, 2, 3, 5])


def test_rows_of_nulls_have_the_same_columns():
    columns = Columns()
    nothing = columns.nothing(2)
    assert (nothing.schema, nothing.num_rows) == (columns.schema, 2)
    assert {value for row in nothing.to_pylist() for value in row.values()} == {None}
