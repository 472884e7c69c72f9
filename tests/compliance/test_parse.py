import json
from datetime import UTC, datetime

import msgspec
import pytest

from accesslog.record import Kinds
from compliance.fault import LONGEST_QUARANTINED
from compliance.parse import quarantined, rows_or_null
from compliance.schema import row_schema
from tests.compliance.planted import PlantedLog
from tests.compliance.test_fault import HEARTBEAT, changed

pytestmark = pytest.mark.spark


def frame(spark, *lines):
    """Lines as a source gives them, text by name, whatever bytes it is of."""
    raw = [(bytearray(line if isinstance(line, bytes) else line.encode()), "f", n) for n, line in enumerate(lines)]
    made = spark.createDataFrame(raw, "value binary, file string, line long")
    return made.selectExpr("CAST(value AS STRING) AS value", "file", "line")


def test_times_without_a_fraction_and_with_an_offset_are_read(spark):
    line = changed(HEARTBEAT, start="2026-11-22T01:29:00+02:00", end="2026-11-21T23:29:01Z")
    rows = rows_or_null(frame(spark, line))
    (row,) = rows.selectExpr("unix_micros(start) AS start", "string(day) AS day").collect()
    assert (row.start / 1e6, row.day) == (datetime(2026, 11, 21, 23, 29, tzinfo=UTC).timestamp(), "2026-11-21")


def test_malformed_lines_are_rows_of_nothing_and_quarantined_with_their_places(spark):
    longest = "\U0001f600" * (LONGEST_QUARANTINED + 1)
    lines = frame(spark, b"\xff{}", HEARTBEAT, longest, changed(HEARTBEAT, seq=-1))
    rows = [(row.line, row.file, row.kind, row.day is None) for row in rows_or_null(lines).orderBy("line").collect()]
    assert rows == [(0, "f", None, True), (1, "f", "heartbeat", False), (2, "f", None, True), (3, "f", None, True)]
    kept = [(row.line, row.file, row.text, row.reason) for row in quarantined(lines).orderBy("line").collect()]
    assert kept == [
        (0, "f", "\ufffd{}", "not UTF-8 text"),
        (2, "f", longest[:-1], "not exactly one complete JSON object"),
        (3, "f", changed(HEARTBEAT, seq=-1), "impossible value: seq"),
    ]


def test_nothing_in_nothing_out(spark):
    lines = frame(spark, HEARTBEAT)
    assert rows_or_null(lines.limit(0)).collect() == []
    assert quarantined(lines).collect() == []


def test_what_msgspec_writes_is_read_back_unchanged(spark):
    log = PlantedLog()
    log.interval(2, delay_hist=(0, 3, 1), delay_sum_ms=4.5)
    log.interval(5, offered=9, client_address='[::1]:5 "quoted" \\ \u2028 \U0001f600')
    log.limit(5, limit_bytes=1e6, burst_bytes=1e5, peak_messages=500.0, mode="reject", rejected_messages=3)
    log.change(after='{"messages": "5/s", "name": "\u2028"}')
    log.beat(last=True)
    rows = rows_or_null(frame(spark, *log.encoded())).orderBy("seq").collect()
    times = {"start", "end", "held_since"}
    for line, row in zip(log.lines, rows, strict=True):
        written = json.loads(msgspec.json.encode(line))
        assert list(written.get("delay_hist", ())) == (row.delay_hist or [])
        names = [name for name in line.__struct_fields__ if name not in times]
        assert {name: row[name] for name in names} == {name: written.get(name) for name in names}
        others = set(row_schema().names) - set(line.__struct_fields__) - {"kind"}
        assert {name: row[name] for name in others} == dict.fromkeys(others)
        assert Kinds.BY_NAME[row.kind] is type(line)
