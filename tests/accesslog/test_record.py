from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest

import accesslog.record
from accesslog.record import SCHEMA_VERSION, AnyLine, HeartbeatLine, Kinds, ThrottleLine
from accesslog.reference import field_meanings

EXAMPLES: dict[Any, Any] = {int: 7, float: 1.5, str: 'a "name" \\ \u2028 😀', bool: True, tuple[int, ...]: (0, 7)}
ALWAYS = {
    field.name for field in msgspec.structs.fields(Kinds.BY_NAME["interval"]) if field.default is msgspec.NODEFAULT
}


def example(kind):
    """A line with a value in every field."""
    values: dict[str, Any] = {}
    time = datetime(2026, 11, 21, 11, 29, 0, 123456, tzinfo=UTC)
    of_type = EXAMPLES | {datetime: time, datetime | None: time, float | None: 1.5, int | None: 7}
    for field in msgspec.structs.fields(Kinds.BY_NAME[kind]):
        values[field.name] = of_type.get(field.type, "publish")
    return Kinds.BY_NAME[kind](**(values | {"v": SCHEMA_VERSION}))


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_a_line_survives_its_json(kind):
    encoded = msgspec.json.encode(example(kind))
    assert b"\n" not in encoded
    assert msgspec.json.decode(encoded, type=AnyLine) == example(kind)


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_every_line_says_kind_version_and_number(kind):
    written = msgspec.json.decode(msgspec.json.encode(example(kind)))
    assert (written["kind"], written["v"], written["seq"]) == (kind, SCHEMA_VERSION, 7)


def test_every_kind_is_listed_by_its_name():
    assert set(Kinds.BY_NAME.values()) == set(get_args(AnyLine))
    assert all(kind.__struct_config__.tag == name for name, kind in Kinds.BY_NAME.items())


def test_a_newer_proxys_new_fields_are_passed_over():
    line = msgspec.json.encode(example("throttle"))[:-1] + b',"new":{"a":[1]}}'
    assert isinstance(msgspec.json.decode(line, type=AnyLine), ThrottleLine)


def test_what_has_its_default_is_left_out_and_read_back():
    """So fields cost nothing where they say nothing."""
    always = {name: value for name, value in msgspec.structs.asdict(example("interval")).items() if name in ALWAYS}
    line = Kinds.BY_NAME["interval"](**always)
    written = msgspec.json.decode(msgspec.json.encode(line))
    assert set(written) == ALWAYS | {"kind"}
    assert msgspec.json.decode(msgspec.json.encode(line), type=AnyLine) == line


def test_a_null_where_a_value_belongs_is_refused():
    line = msgspec.json.encode(example("heartbeat")).replace(b'"seq":7', b'"seq":null')
    with pytest.raises(msgspec.ValidationError, match="seq"):
        msgspec.json.decode(line, type=HeartbeatLine)


def test_every_kind_has_its_line_in_the_module_and_a_docstring():
    for name, kind in Kinds.BY_NAME.items():
        assert f"\n    {name} " in accesslog.record.__doc__
        assert kind.__doc__


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_every_field_says_what_it_means_and_lengths_of_time_say_their_unit(kind):
    meanings = field_meanings(Kinds.BY_NAME[kind])
    assert [f.name for f in msgspec.structs.fields(Kinds.BY_NAME[kind])] == list(meanings)
    assert [name for name, text in meanings.items() if name.endswith("_ms") and "millisecond" not in text] == []
