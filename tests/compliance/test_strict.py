import msgspec
import pytest

from accesslog.record import Kinds
from compliance.strict import RECORDS, decoder, strict
from tests.accesslog.test_record import example


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_a_record_is_read_as_it_was_written(kind):
    written = example(kind)
    read = decoder().decode(msgspec.json.encode(written))
    assert type(read) is RECORDS[kind]
    assert msgspec.structs.asdict(read) == {name: getattr(written, name) for name in written.__struct_fields__}


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_no_number_of_any_kind_may_be_negative(kind):
    fields = {field.name: strict(field.type) for field in msgspec.structs.fields(Kinds.BY_NAME[kind])}
    numbers = [rule for rule in fields.values() if is_of(rule, 1)]
    assert numbers
    assert [rule for rule in numbers if is_of(rule, -1)] == []


def is_of(rule, value):
    try:
        msgspec.convert(value, rule)
    except msgspec.ValidationError:
        return False
    return True
