from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from accesslog.record import Kinds
from compliance import schema as strict_module
from compliance.schema import RECORDS, Micros, decoder, strict
from tests.accesslog.test_record import example

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_a_record_is_read_as_it_was_written(kind):
    written = example(kind)
    read = decoder().decode(msgspec.json.encode(written))
    assert type(read) is RECORDS[kind]
    times = {name: BEGIN + timedelta(microseconds=at) for name, at in fields_of(read).items() if isinstance(at, Micros)}
    assert set(times) >= {"start", "end"}
    assert fields_of(read) | times == fields_of(written)


def fields_of(line):
    return {name: getattr(line, name) for name in line.__struct_fields__}


def test_times_are_remembered_but_not_without_end(monkeypatch):
    monkeypatch.setattr(strict_module, "_MOST_TIMES", 2)
    reader = decoder()
    line = msgspec.json.decode(msgspec.json.encode(example("heartbeat")))
    for second in (5, 6, 7, 5, 8, 5):
        read = reader.decode(msgspec.json.encode(line | {"start": f"1970-01-01T00:00:0{second}Z"}))
        assert fields_of(read)["start"] == second * 1_000_000


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_no_number_of_any_kind_may_be_negative(kind):
    fields = {field.name: strict(field.type) for field in msgspec.structs.fields(Kinds.BY_NAME[kind])}
    numbers = [rule for rule in fields.values() if is_of(rule, 1)]
    assert numbers
    assert [rule for rule in numbers if is_of(rule, -1)] == []


@pytest.mark.parametrize("name", ["tokens_messages", "tokens_bytes", "tokens_peak_messages", "tokens_peak_bytes"])
def test_a_bucket_in_debt_holds_less_than_nothing(name):
    line = msgspec.json.decode(msgspec.json.encode(example("limit"))) | {name: -1234.5}
    assert fields_of(decoder().decode(msgspec.json.encode(line)))[name] == -1234.5
    with pytest.raises(msgspec.ValidationError):
        decoder().decode(msgspec.json.encode(line | {f"overflow_{name.removeprefix('tokens_')}": -1.0}))


def is_of(rule, value):
    try:
        msgspec.convert(value, rule)
    except msgspec.ValidationError:
        return False
    return True
