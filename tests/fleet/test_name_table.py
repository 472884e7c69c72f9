"""A name table beside a dict, and the reuse of freed numbers."""

from sys import getsizeof

from hypothesis import given
from hypothesis import strategies as st

from fleet.name_table import NO_NUMBER, NameTable

NAMES = st.integers(0, 200).map(str)


@given(st.lists(st.tuples(st.booleans(), NAMES), max_size=600))
def test_a_name_table_numbers_names_as_a_dict_does(steps: list[tuple[bool, str]]) -> None:
    table, numbers = NameTable(), dict[str, int]()
    for adds, name in steps:
        if adds and name not in numbers:
            numbers[name] = table.add(name)
        elif not adds and name in numbers:
            table.remove(numbers.pop(name))
        assert table.number(name) == numbers.get(name, NO_NUMBER)
    assert dict(table) == {number: name for name, number in numbers.items()}
    assert all(table[number] == name and table.number(name) == number for name, number in numbers.items())
    assert table.size == sum(map(getsizeof, numbers))


def test_numbers_are_dense_and_freed_ones_are_reused() -> None:
    table = NameTable()
    assert [table.add(str(name)) for name in range(1000)] == list(range(1000))
    table.remove(7)
    assert table[7] == ""
    assert (table.add("new"), table.add("newer")) == (7, 1000)


def test_added_and_removed_names_take_no_more_memory() -> None:
    table = NameTable()
    for name in range(10_000):
        table.remove(table.add(str(name)))
    assert (table.size, list(table), table.add("one")) == (0, [], 0)
    assert len(table._slots) == 64
