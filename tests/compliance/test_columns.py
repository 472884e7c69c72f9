from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, LongType, StringType, TimestampType

from accesslog.record import Kinds
from compliance.line_reader import StrictReader
from compliance.schema import arrow_schema, row_schema
from tests.accesslog.test_record import example
from tests.compliance.planted import PlantedLog

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
    columns = StrictReader()
    records, malformed = columns.decoded(lines)
    rows: dict[int, Any] = {}
    for _, places, batch in columns.batches(records):
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


def test_what_msgspec_writes_is_read_back_unchanged():
    log = PlantedLog()
    log.interval(2, delay_hist=(0, 3, 1), delay_sum_ms=4.5)
    log.interval(5, offered=9, client_address='[::1]:5 "quoted" \\ \u2028 \U0001f600')
    log.limit(5, limit_bytes=1e6, burst_bytes=1e5, peak_messages=500.0, mode="reject", rejected_messages=3)
    log.change(after='{"messages": "5/s", "name": "\u2028"}')
    log.beat(last=True)
    rows, malformed = rows_of(log.encoded())
    assert malformed == []
    for place, line in enumerate(log.lines):
        written = msgspec.json.decode(msgspec.json.encode(line))
        times = {
            name: datetime.fromisoformat(written[name]) for name in ("start", "end", "held_since") if written.get(name)
        }
        assert {name: value for name, value in rows[place].items() if value is not None} == {
            name: value for name, value in (written | times).items() if value is not None
        }
        assert Kinds.BY_NAME[rows[place]["kind"]] is type(line)


BEYOND = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
"""In UTC there are no such years."""
TIMES = [
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2026-11-21T11:29:00Z",
    "2026-11-21T11:29:00.000001Z",
    "2026-11-21T13:29:00+02:00",
    "1969-12-31T23:59:59.5Z",
]


@pytest.mark.parametrize("time", TIMES)
def test_times_are_read_to_the_microsecond_in_utc(time):
    written = msgspec.json.decode(msgspec.json.encode(example("heartbeat"))) | {"start": time}
    rows, _ = rows_of([msgspec.json.encode(written)])
    assert rows[0]["start"] == datetime.fromisoformat(time)


@pytest.mark.parametrize("time", ["2026-13-01T00:00:00Z", "2026-11-21T11:29:00", "yesterday", "", 5, None, *BEYOND])
def test_a_time_that_is_none_makes_its_line_malformed(time):
    good = msgspec.json.decode(msgspec.json.encode(example("heartbeat")))
    lines = [msgspec.json.encode(line) for line in (good, good | {"end": time}, good | {"start": time}, good)]
    rows, malformed = rows_of(lines)
    assert (sorted(rows), malformed) == ([0, 3], [1, 2])
