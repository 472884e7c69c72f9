import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from accesslog.record import Kinds
from compliance.parse import fault, parse, quarantined, rows_or_null
from compliance.schema import defaulted_fields, nullable_fields, required_fields, row_schema
from tests.accesslog.test_record import example
from tests.compliance.planted import PlantedLog

pytestmark = pytest.mark.spark


def planted_line(kind):
    log = PlantedLog()
    plant = {"interval": lambda: log.interval(5), "limit": lambda: log.limit(5), "change": log.change}
    plant.get(kind, log.beat)()
    return msgspec.json.encode(log.lines[0]).decode()


HEARTBEAT, LIMIT, INTERVAL = planted_line("heartbeat"), planted_line("limit"), planted_line("interval")
OLD_LINES = Path(__file__).parents[1] / "accesslog/lines_of_0_1_0.jsonl"


def changed(line, **fields):
    return json.dumps(json.loads(line) | fields)


def without(line, name):
    return json.dumps({field: value for field, value in json.loads(line).items() if field != name})


def parsed(lines):
    """As the job does it: without the cache Spark would copy the whole parser into each column's plan."""
    return parse(lines).persist()


def judged(spark, lines):
    """The fault of each line, in order; None for good ones. The quick rule and the wordy one must agree."""
    numbered = spark.createDataFrame([(line, f"{i:06}") for i, line in enumerate(lines)], "value string, file string")
    rows = parsed(numbered).select("file", "is_good", fault().alias("fault")).collect()
    assert [row.is_good for row in rows] == [row.fault is None for row in rows]
    return [row.fault for row in sorted(rows, key=lambda row: row.file)]


BAD = {
    HEARTBEAT + "trailing": "not exactly one complete JSON object",
    HEARTBEAT + HEARTBEAT: "not exactly one complete JSON object",
    HEARTBEAT + "," + HEARTBEAT: "not exactly one complete JSON object",
    HEARTBEAT + "]": "not exactly one complete JSON object",
    HEARTBEAT[:-9]: "not exactly one complete JSON object",
    f"[{HEARTBEAT}]": "not exactly one complete JSON object",
    "5": "not exactly one complete JSON object",
    "\0\0": "not exactly one complete JSON object",
    "": "empty line",
    "  ": "empty line",
    "null": "missing: kind",
    "{}": "missing: kind",
    changed(HEARTBEAT, seq="x"): "a field has the wrong type",
    changed(HEARTBEAT, seq=1.5): "a field has the wrong type",
    changed(HEARTBEAT, seq=2**70): "a field has the wrong type",
    changed(HEARTBEAT, duration_ms="NaN"): "a field has the wrong type",
    changed(LIMIT, limit_messages="many"): "a field has the wrong type",
    changed(HEARTBEAT, v=2): "newer schema version: 2",
    changed(HEARTBEAT, kind="new"): "unknown kind: new",
    changed(HEARTBEAT, seq=-1): "impossible value: seq",
    changed(HEARTBEAT, start="2026"): "impossible value: start",
    changed(HEARTBEAT, start=5): "impossible value: start",
    changed(HEARTBEAT, start="2026-11-21T11:29:00"): "impossible value: start",
    changed(HEARTBEAT, start="2026-13-41T11:29:00Z"): "impossible value: start",
    changed(LIMIT, direction="sideways"): "impossible value: direction",
    changed(LIMIT, burst_messages=None): "impossible value: burst_messages",
    changed(HEARTBEAT, proxy_id=None): "missing: proxy_id",
    changed(INTERVAL, delay_hist=[1, -1]): "impossible value: delay_hist",
    changed(INTERVAL, delay_hist=[None]): "impossible value: delay_hist",
    changed(INTERVAL, delay_hist=5): "a field has the wrong type",
}


def test_each_malformed_line_gets_its_reason(spark):
    assert dict(zip(BAD, judged(spark, list(BAD)), strict=True)) == BAD


def test_every_field_of_every_kind_must_be_there(spark):
    cases = [
        (kind, name)
        for kind in ("interval", "limit", "change", "heartbeat")
        for name in required_fields(kind) + nullable_fields(kind)
    ]
    reasons = judged(spark, [without(planted_line(kind), name) for kind, name in cases])
    assert reasons == [f"missing: {name}" for _, name in cases]


def test_fields_with_a_default_may_be_missing_and_must_make_sense_where_they_are_not(spark):
    lines = [
        *(without(planted_line("interval"), name) for name in defaulted_fields("interval")),
        changed(planted_line("interval"), held_since="2026-11-21T11:29:00.5Z", rejected_messages=2),
        changed(planted_line("interval"), held_since=None, reason_messages=None),
        changed(planted_line("interval"), held_since="yesterday"),
        changed(planted_line("interval"), rejected_messages=-1),
    ]
    assert judged(spark, lines)[-4:] == [
        None,
        None,
        "impossible value: held_since",
        "impossible value: rejected_messages",
    ]
    assert judged(spark, lines)[:-4] == [None] * len(defaulted_fields("interval"))


def test_new_fields_spaces_and_a_carriage_return_do_no_harm(spark):
    lines = [changed(HEARTBEAT, new=[1, 2], more={"a": 1}), json.dumps(json.loads(HEARTBEAT)), HEARTBEAT + "\r"]
    assert judged(spark, lines) == [None] * 3


def test_a_line_of_every_kind_is_good_whatever_is_in_it(spark):
    lines = [msgspec.json.encode(example(kind)).decode() for kind in Kinds.BY_NAME]
    assert judged(spark, lines) == [None] * len(lines)


def test_lines_of_older_proxies_are_good(spark):
    assert judged(spark, OLD_LINES.read_text(encoding="utf-8").splitlines()) == [None] * 9


def test_times_without_a_fraction_and_with_an_offset_are_read(spark):
    line = changed(HEARTBEAT, start="2026-11-22T01:29:00+02:00", end="2026-11-21T23:29:01Z")
    lines = spark.createDataFrame([(line, "f")], "value string, file string")
    rows = rows_or_null(parsed(lines), ("file",))
    (row,) = rows.selectExpr("unix_micros(start) AS start", "string(day) AS day").collect()
    assert (row.start / 1e6, row.day) == (datetime(2026, 11, 21, 23, 29, tzinfo=UTC).timestamp(), "2026-11-21")


def test_bytes_that_are_no_text_are_quarantined_with_what_can_be_read(spark):
    lines = spark.createDataFrame([(bytearray(b"\xff{}"), "f")], "value binary, file string")
    text = lines.selectExpr("CAST(value AS STRING) AS value", "file")
    (row,) = quarantined(parsed(text).where("NOT is_good"), ("file",)).collect()
    assert (row.reason, row.text, row.file) == ("not UTF-8 text", "\ufffd{}", "f")


def test_what_msgspec_writes_is_read_back_unchanged(spark):
    log = PlantedLog()
    log.interval(2, delay_hist=(0, 3, 1), delay_sum_ms=4.5)
    log.interval(5, offered=9, client_address='[::1]:5 "quoted" \\ \u2028 \U0001f600')
    log.limit(5, limit_bytes=1e6, burst_bytes=1e5, peak_messages=500.0, mode="reject", rejected_messages=3)
    log.change(after='{"messages": "5/s", "name": "\u2028"}')
    log.beat(last=True)
    lines = spark.createDataFrame([(line.decode(), "f") for line in log.encoded()], "value string, file string")
    rows = rows_or_null(parsed(lines), ("file",)).orderBy("seq").collect()
    times = {"start", "end", "held_since"}
    for line, row in zip(log.lines, rows, strict=True):
        written = json.loads(msgspec.json.encode(line))
        assert list(written.get("delay_hist", ())) == (row.delay_hist or [])
        names = [name for name in line.__struct_fields__ if name not in times]
        assert {name: row[name] for name in names} == {name: written.get(name) for name in names}
        others = set(row_schema().names) - set(line.__struct_fields__) - {"kind"}
        assert {name: row[name] for name in others} == dict.fromkeys(others)
        assert Kinds.BY_NAME[row.kind] is type(line)
