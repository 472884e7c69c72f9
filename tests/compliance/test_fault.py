import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from accesslog.record import Kinds
from compliance.line_reader import StrictReader
from compliance.schema import defaulted_fields, fault, nullable_fields, required_fields
from tests.accesslog.test_record import example
from tests.compliance.planted import PlantedLog


def planted_line(kind):
    log = PlantedLog()
    plant = {"interval": lambda: log.interval(5), "limit": lambda: log.limit(5), "change": log.change}
    plant.get(kind, log.beat)()
    return msgspec.json.encode(log.lines[0]).decode()


HEARTBEAT, LIMIT, INTERVAL = planted_line("heartbeat"), planted_line("limit"), planted_line("interval")


def changed(line, **fields):
    return json.dumps(json.loads(line) | fields)


def without(line, name):
    return json.dumps({field: value for field, value in json.loads(line).items() if field != name})


def judged(lines):
    """The fault of each line, in order; None for what decodes."""
    texts = [line if isinstance(line, bytes) else line.encode() for line in lines]
    _, malformed = StrictReader().decoded(texts)
    return [fault(text) if place in malformed else None for place, text in enumerate(texts)]


BAD = {
    HEARTBEAT + "trailing": "not exactly one complete JSON object",
    HEARTBEAT + HEARTBEAT: "not exactly one complete JSON object",
    HEARTBEAT + "," + HEARTBEAT: "not exactly one complete JSON object",
    HEARTBEAT + "]": "not exactly one complete JSON object",
    HEARTBEAT[:-9]: "not exactly one complete JSON object",
    f"[{HEARTBEAT}]": "not exactly one complete JSON object",
    HEARTBEAT + '],"lines":[' + HEARTBEAT: "not exactly one complete JSON object",
    HEARTBEAT[:-1] + ',"new":' + "[" * 9999 + "]" * 9999 + "}": "not exactly one complete JSON object",
    HEARTBEAT[:-1] + ',"new":"\\ud800"}': "not exactly one complete JSON object",
    HEARTBEAT[:-1].encode() + b',"new":"\xff"}': "not UTF-8 text",
    b"\xc3": "not UTF-8 text",
    "5": "not exactly one complete JSON object",
    "\0\0": "not exactly one complete JSON object",
    "": "empty line",
    "  ": "empty line",
    "null": "not exactly one complete JSON object",
    "{}": "missing: kind",
    changed(HEARTBEAT, seq="x"): "wrong type: seq",
    changed(HEARTBEAT, seq=1.5): "wrong type: seq",
    changed(HEARTBEAT, seq=2**70): "wrong type: seq",
    changed(HEARTBEAT, duration_ms="NaN"): "wrong type: duration_ms",
    changed(LIMIT, limit_messages="many"): "wrong type: limit_messages",
    changed(HEARTBEAT, v=2): None,
    changed(HEARTBEAT, kind="new"): None,
    changed(HEARTBEAT, v=2, seq=None): "newer schema version: 2",
    changed(HEARTBEAT, kind="new", seq="x"): "unknown kind: new",
    changed(HEARTBEAT, kind=5): "unknown kind: 5",
    changed(HEARTBEAT, proxy_id=5): "wrong type: proxy_id",
    changed(HEARTBEAT, last="yes"): "wrong type: last",
    changed(HEARTBEAT, seq="x", start="2026", dropped_lines=[]): "wrong type: seq, dropped_lines",
    changed(HEARTBEAT, seq=-1): "impossible value: seq",
    changed(HEARTBEAT, start="2026"): "impossible value: start",
    changed(HEARTBEAT, start=5): "impossible value: start",
    changed(HEARTBEAT, start="2026-11-21T11:29:00"): "impossible value: start",
    changed(HEARTBEAT, start="2026-13-41T11:29:00Z"): "impossible value: start",
    changed(LIMIT, direction="sideways"): "impossible value: direction",
    changed(LIMIT, burst_messages=None): "impossible value: burst_messages",
    changed(LIMIT, limit_messages=0): "impossible value: limit_messages",
    changed(LIMIT, limit_bytes=0.0, burst_bytes=0): "impossible value: limit_bytes, burst_bytes",
    changed(LIMIT, peak_messages=0): "impossible value: peak_messages",
    changed(INTERVAL, limit_messages=0): "impossible value: limit_messages",
    changed(HEARTBEAT, proxy_id=None): "missing: proxy_id",
    changed(INTERVAL, delay_hist=[1, -1]): "impossible value: delay_hist",
    changed(INTERVAL, delay_hist=[None]): "impossible value: delay_hist",
    changed(INTERVAL, delay_hist=5): "wrong type: delay_hist",
}


def test_each_malformed_line_gets_its_reason():
    assert dict(zip(BAD, judged(list(BAD)), strict=True)) == BAD


def test_every_field_of_every_kind_must_be_there():
    cases = [
        (kind, name)
        for kind in ("interval", "limit", "change", "heartbeat")
        for name in required_fields(kind) + nullable_fields(kind)
    ]
    reasons = judged([without(planted_line(kind), name) for kind, name in cases])
    assert reasons == [f"missing: {name}" for _, name in cases]


def test_fields_with_a_default_may_be_missing_and_must_make_sense_where_they_are_not():
    lines = [
        *(without(planted_line("interval"), name) for name in defaulted_fields("interval")),
        changed(planted_line("interval"), held_since="2026-11-21T11:29:00.5Z", rejected_messages=2),
        changed(planted_line("interval"), held_since=None, reason_messages=None),
        changed(planted_line("interval"), held_since="yesterday"),
        changed(planted_line("interval"), rejected_messages=-1),
    ]
    assert judged(lines)[-4:] == [
        None,
        None,
        "impossible value: held_since",
        "impossible value: rejected_messages",
    ]
    assert judged(lines)[:-4] == [None] * len(defaulted_fields("interval"))


def test_what_a_stepped_clock_and_a_short_span_may_write_is_good():
    lines = [
        changed(LIMIT, start="2026-11-21T11:29:00Z", end="2026-11-20T11:29:00Z"),
        changed(LIMIT, duration_ms=0),
        changed(LIMIT, published_messages=0, throttled_ms=2000.0),
    ]
    assert judged(lines) == [None] * 3


def test_new_fields_spaces_and_a_carriage_return_do_no_harm():
    lines = [changed(HEARTBEAT, new=[1, 2], more={"a": 1}), json.dumps(json.loads(HEARTBEAT)), HEARTBEAT + "\r"]
    assert judged(lines) == [None] * 3


def test_a_line_of_every_kind_is_good_whatever_is_in_it():
    lines = [msgspec.json.encode(example(kind)).decode() for kind in Kinds.BY_NAME]
    assert judged(lines) == [None] * len(lines)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
FIELDS = [(kind, name) for kind in Kinds.BY_NAME for name in Kinds.BY_NAME[kind].__struct_fields__]


@settings(deadline=None)
@given(field=st.sampled_from(FIELDS), value=JSON)
def test_whatever_is_written_for_a_field_is_read_or_the_field_is_named(field, value):
    kind, name = field
    line = json.dumps(json.loads(msgspec.json.encode(example(kind))) | {name: value})
    (reason,) = judged([line])
    assert reason is None or name in reason or (name == "v" and reason.startswith("newer schema version"))


@settings(deadline=None)
@given(data=st.data())
def test_a_line_that_was_cut_or_changed_is_read_or_has_a_fault(data):
    line = bytearray(HEARTBEAT.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line) - 1))
        line[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    judged([bytes(line)])


def test_too_large_amounts_and_impossible_times_are_refused():
    most, number = 2**48 - 1, 2**63 - 1
    lines = [changed(INTERVAL, passed_bytes=value, connection_id=number, seq=number) for value in (most, most + 1)]
    lines += [changed(HEARTBEAT, start=time) for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")]
    assert judged(lines) == [None, "impossible value: passed_bytes", *["impossible value: start"] * 2]
