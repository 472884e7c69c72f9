import msgspec
import pytest

from accesslog.record import Kinds
from compliance.schema import arrow_schema
from compliance.stream.windows import TABLES, WIDTHS_S


@pytest.mark.parametrize("table", TABLES)
def test_a_table_s_fields_are_those_of_its_kind_each_named_once(table):
    own = {field.encode_name for field in msgspec.structs.fields(Kinds.BY_NAME[table.kind])}
    assert set(table.fields) <= own
    assert len(set(table.fields)) == len(table.fields)


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_those_of_lines(table):
    assert set(table.schema.names) == {"width_s", "window_s", "lines", "as_of", *table.fields} - {"start", "end"}
    of_lines = arrow_schema()
    assert [name for name in table.fields[2:] if table.schema.field(name).type != of_lines.field(name).type] == []


def test_all_widths_divide_the_longest():
    assert [width for width in WIDTHS_S if WIDTHS_S[-1] % width] == []
