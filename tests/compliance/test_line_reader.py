"""Lines in columns and line by line: what the columns take, the strict reader reads the same."""

import json

import msgspec
import pyarrow as pa
import pyarrow.json as pj
import pytest
from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st

from accesslog.record import Kinds
from compliance.line_reader import LineReader, checked_columns
from compliance.schema import LONGEST_QUARANTINED
from tests.accesslog.test_record import example
from tests.compliance.planted import PlantedLog, planted
from tests.compliance.test_fault import BAD, FIELDS, HEARTBEAT, JSON, changed

NUMBERS = pa.array(range(1, 100), pa.int64())
GOOD = [msgspec.json.encode(example(kind)) for kind in Kinds.BY_NAME]


def strictly(lines):
    """The lines by the strict reader alone."""
    return LineReader("a.jsonl")._strictly(lines, NUMBERS.slice(0, len(lines)))


def in_columns(lines):
    return checked_columns(b"".join(line + b"\n" for line in lines))


def assert_same(lines):
    """Either the columns refuse the lines, or both readers find the same rows; says whether they were taken."""
    if in_columns(lines) is None:
        return False
    block, expected = LineReader("a.jsonl").read(b"".join(line + b"\n" for line in lines), 1), strictly(lines)
    assert block.rows.equals(expected.rows)
    assert not expected.malformed
    return True


def test_lines_of_every_kind_are_read_in_columns():
    assert assert_same(GOOD)
    assert assert_same([*planted("p", 20).encoded(), *planted("q", 3).encoded()])


def test_names_of_any_text_are_read_in_columns():
    log = PlantedLog(topic='größe } {\n "quoted" \u2028 \\')
    log.tick(3)
    assert assert_same(log.encoded())


def test_a_name_that_looks_like_a_key_is_read_line_by_line():
    log = PlantedLog(topic='a":null,"limit_messages":null')
    log.tick(3)
    assert not assert_same(log.encoded())
    assert strictly(log.encoded()).rows["topic"][0].as_py() == log.topic


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_what_the_rules_refuse_no_column_takes(line):
    text = line if isinstance(line, bytes) else line.encode()
    for lines in ([text], [GOOD[0], text], [text, GOOD[0]], [GOOD[0], text, GOOD[1]]):
        assert not assert_same(lines)


def test_a_line_end_more_or_less_hides_no_line():
    two = HEARTBEAT.encode() * 2
    for lines in ([two, b""], [b"", two], [HEARTBEAT.encode() + b"null", b""], [b"{}"], [HEARTBEAT.encode(), b"\r"]):
        assert in_columns(lines) is None


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_each_lost_field_is_read_as_lost(kind):
    whole = json.loads(msgspec.json.encode(example(kind)))
    for name in whole:
        for left in ({key: value for key, value in whole.items() if key != name}, whole | {name: None}):
            assert_same([json.dumps(left, separators=(",", ":")).encode(), *GOOD])


def test_a_lost_limit_is_not_made_up_for_by_a_null_elsewhere():
    """A null of another field, in this line or another, leaves the number of nulls as it was."""
    limit = json.loads(msgspec.json.encode(example("limit")))
    lost = {name: value for name, value in (limit | {"rejected_bytes": None}).items() if name != "limit_bytes"}
    beat = changed(HEARTBEAT, limit_bytes=None)
    for lines in ([json.dumps(lost)], [json.dumps(lost), beat]):
        assert not assert_same([line.replace(": ", ":").replace(", ", ",").encode() for line in lines])


@settings(deadline=None)
@given(field=st.sampled_from(FIELDS), value=JSON, other=st.sampled_from(FIELDS))
@with_example(field=("interval", "delay_hist"), value=[0] * 67, other=("interval", "v"))
@with_example(field=("heartbeat", "seq"), value=2**63 - 1, other=("interval", "v"))
@with_example(field=("interval", "passed_bytes"), value=2**48, other=("interval", "v"))
@with_example(field=("interval", "start"), value="2026-11-21T11:29:00", other=("interval", "v"))
@with_example(field=("interval", "start"), value="2026-11-21T13:29:00+02:00", other=("interval", "v"))
def test_columns_and_lines_say_the_same_whatever_is_in_a_field(field, value, other):
    (kind, name), (_, further) = field, other
    line = json.loads(msgspec.json.encode(example(kind)))
    for changed_line in (line | {name: value}, line | {name: value, further: None}):
        assert_same([json.dumps(changed_line, separators=(",", ":"), ensure_ascii=False).encode(), *GOOD])


@settings(deadline=None)
@given(data=st.data())
def test_columns_and_lines_say_the_same_whatever_was_cut(data):
    text = bytearray(b"\n".join(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    assert_same(bytes(text).split(b"\n"))


@pytest.mark.slow
@settings(deadline=None)
@given(order=st.permutations(GOOD), torn=st.integers(0, len(GOOD)))
def test_blocks_of_a_file_read_alike_whatever_came_before(order, torn):
    reader = LineReader("a.jsonl")
    lines = [*order[:torn], b"torn", *order[torn:]]
    blocks = [reader.read(line + b"\n", number) for number, line in enumerate(lines, 1)]
    expected = LineReader("a.jsonl")._strictly(lines, NUMBERS.slice(0, len(lines)))
    assert pa.concat_tables(block.rows for block in blocks).equals(expected.rows)
    assert pa.concat_tables(block.malformed for block in blocks).equals(expected.malformed)


def test_second_block_is_searched_for_fields_of_the_first(monkeypatch):
    asked = []
    read_json = pj.read_json

    def counted(data, *, parse_options, **more):
        asked.append(len(parse_options.explicit_schema))
        return read_json(data, parse_options=parse_options, **more)

    monkeypatch.setattr(pj, "read_json", counted)
    reader, block = LineReader("a.jsonl"), b"".join(line + b"\n" for line in planted("p", 3).encoded())
    first = reader.read(block, 1).rows
    asked.clear()
    assert reader.read(block, 1).rows.equals(first)
    assert len(asked) == 1
    assert asked[0] < len(first.schema) / 2


def test_malformed_lines_have_place_and_reason_and_cost_no_other():
    reader = LineReader("a.jsonl")
    block = reader.read(b"\n".join([GOOD[0], b"torn", b"", GOOD[1]]) + b"\n", 11)
    assert block.rows["line"].to_pylist() == [11, 14]
    assert block.malformed.to_pylist() == [
        {"file": "a.jsonl", "line": 12, "text": "torn", "reason": "not exactly one complete JSON object"},
        {"file": "a.jsonl", "line": 13, "text": "", "reason": "empty line"},
    ]


def test_of_a_malformed_line_the_beginning_is_kept_as_text():
    longest = "\U0001f600" * (LONGEST_QUARANTINED + 1)
    lines = [b"\xff{}", longest.encode(), b"x" * (LONGEST_QUARANTINED + 1)]
    kept = strictly(lines).malformed["text"].to_pylist()
    assert kept == ["\ufffd{}", longest[:-1], "x" * LONGEST_QUARANTINED]


def test_lines_of_topics_keep_their_numbers_or_have_none():
    lines = [GOOD[0], b"two\nlines", GOOD[1]]
    for numbers in ([41, 42, 43], [None] * 3):
        block = LineReader("t/0").read_each(lines, pa.array(numbers, pa.int64()))
        assert block.rows["line"].to_pylist() == [numbers[0], numbers[2]]
        assert block.malformed["line"].to_pylist() == [numbers[1]]
    assert LineReader("t/0").read_each([], pa.array([], pa.int64())).rows.num_rows == 0
