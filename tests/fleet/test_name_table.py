"""A name table against a dict, and what it does with numbers that are free again."""

from sys import getsizeof

from hypothesis import given
from hypothesis import strategies as st

from fleet.name_table import NO_NUMBER, NameTable

NAMES = st.integers(0, 200).map(str)


@given(st.lists(st.tuples(st.booleans(), NAMES), max_size=600))
def test_it_numbers_as_a_dict_does(steps: list[tuple[bool, str]]) -> None:
    table, known = NameTable(), dict[str, int]()
    for adds, name in steps:
        if adds and name not in known:
            known[name] = table.add(name)
        elif not adds and name in known:
            table.remove(known.pop(name))
        assert table.number(name) == known.get(name, NO_NUMBER)
    assert dict(table) == {number: name for name, number in known.items()}
    assert all(table[number] == name and table.number(name) == number for name, number in known.items())
    assert table.size == sum(map(getsizeof, known))


def test_numbers_are_dense_and_a_freed_one_is_given_again() -> None:
    table = NameTable()
    assert [table.add(str(name)) for name in range(1000)] == list(range(1000))
    table.remove(7)
    assert table[7] == ""
    assert (table.add("new"), table.add("newer")) == (7, 1000)


def test_names_that_come_and_go_for_ever_take_no_more_room() -> None:
    table = NameTable()
    for name in range(10_000):
        table.remove(table.add(str(name)))
    assert (table.size, list(table), table.add("one")) == (0, [], 0)
    assert len(table._slots) == 64
