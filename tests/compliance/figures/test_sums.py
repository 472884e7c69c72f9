import pyarrow as pa
import pyarrow.compute as pc
import pytest

from compliance.excerpt import only
from compliance.figures.sums import Grouping, Latest, decoded, encoded, values_of
from compliance.schema import BEGIN_OF_1970, TIME

COLUMNS = {
    "text": pa.array(["a", "", None, "a"]),
    "text without any": pa.nulls(4, pa.string()),
    "number": pa.array([2**62 + 1, 0, -1, 7]),
    "number or none": pa.array([2**62 + 1, None, -1, 7]),
    "fraction": pa.array([0.1, 0.0, -1.5, 1e300]),
    "fraction or none": pa.array([0.1, None, -1.5, 1e300]),
    "flag": pa.array([True, False, None, True]),
    "time": pa.array([BEGIN_OF_1970, None, BEGIN_OF_1970, None], TIME),
    "nothing": pa.array([], pa.string()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_values_are_those_of_the_column_in_all_its_pieces(name):
    column = pa.chunked_array([COLUMNS[name].slice(0, 1), COLUMNS[name].slice(1)])
    assert list(map(repr, values_of(column))) == list(map(repr, column.to_pylist()))


@pytest.mark.parametrize(
    "wanted", [[True] * 4, [False] * 4, [True, None, False, True], [None] * 4, [True, None, True, True]]
)
def test_rows_without_a_true_value_are_left_out(wanted):
    rows = pa.table({"number": [1, 2, 3, 4]})
    kept = [number for number, is_wanted in enumerate(wanted, 1) if is_wanted]
    for column in (pa.array(wanted, pa.bool_()), pa.chunked_array([wanted[:1], wanted[1:]], pa.bool_())):
        assert only(rows, column)["number"].to_pylist() == kept
    assert only(rows.slice(0, 0), pa.array([], pa.bool_())).num_rows == 0


OF_NAMES = Grouping(("name",), sums=("passed",), most=("end",), latest=(Latest(("end",), ("source",)),))


def sums_of(*names):
    ends = range(len(names))
    return OF_NAMES.of(
        pa.table({"name": names, "passed": ends, "end": ends, "source": [f"file {end}" for end in ends]})
    )


def test_sums_of_parts_are_summed_up_again():
    parts = pa.concat_tables([sums_of("a", "b"), sums_of("b", "c", "b")])
    assert OF_NAMES.again(parts).sort_by("name").to_pylist() == OF_NAMES.of(parts).sort_by("name").to_pylist()
    assert len(OF_NAMES.again(parts)) == 3


def test_sums_of_other_names_are_not_sorted_again(monkeypatch):
    parts = pa.concat_tables([sums_of("a", "b"), sums_of("c")])
    expected = OF_NAMES.of(parts).sort_by("name").to_pylist()
    monkeypatch.setattr(pc, "sort_indices", None)
    assert OF_NAMES.again(parts).to_pylist() == expected


def test_a_packed_table_comes_back_as_it_was():
    table = pa.table({"name": ["persistent://acme/orders/new"] * 1000, "passed": range(1000)})
    assert decoded(encoded(table)).equals(table)
    assert len(encoded(table)) < table.nbytes / 4
