from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.stream.windows import by_day, parquet, table_of

SCHEMA = pa.schema({"name": pa.string(), "counts": pa.list_(pa.int64()), "at": pa.timestamp("us", tz="UTC")})
TABLE = pa.table([["a", None], [[1, 2], None], [5, None]], schema=SCHEMA)


def test_what_is_written_is_read_and_several_files_are_one_table():
    assert table_of([parquet(TABLE), parquet(TABLE)], SCHEMA) == pa.concat_tables([TABLE, TABLE])


def test_no_file_is_an_empty_table():
    assert table_of([], SCHEMA) == SCHEMA.empty_table() == table_of([parquet(SCHEMA.empty_table())], SCHEMA)


@pytest.mark.parametrize("many", [0, 1, 5000])
def test_rows_of_many_days_go_each_to_their_own(many):
    days = pa.chunked_array([pa.array(range(many), pa.int32()).cast(pa.date32())])
    rows = pa.table({"x": list(range(many))})
    assert [
        (day.toordinal() - date(1970, 1, 1).toordinal(), of_day["x"].to_pylist()) for day, of_day in by_day(rows, days)
    ] == [(number, [number]) for number in range(many)]


@given(days=st.lists(st.integers(-2, 2), max_size=20), cut=st.integers(0, 20))
def test_each_row_is_with_its_day_in_its_order(days, cut):
    parts = [pa.array(part, pa.int32()).cast(pa.date32()) for part in (days[:cut], days[cut:])]
    found = {
        day.toordinal() - date(1970, 1, 1).toordinal(): of_day["x"].to_pylist()
        for day, of_day in by_day(pa.table({"x": pa.array(range(len(days)), pa.int64())}), pa.chunked_array(parts))
    }
    assert found == {day: [at for at, one in enumerate(days) if one == day] for day in set(days)}
