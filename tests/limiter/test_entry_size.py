"""What an entry holds on the average of late."""

from hypothesis import given
from hypothesis import strategies as st

from limiter.permits import EntrySizeEwma

ENTRIES = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 10**6)), min_size=1, max_size=50)


def test_nothing_is_known_before_the_first_entry() -> None:
    mean = EntrySizeEwma()
    mean.add(0, 0, 0)
    assert (mean.messages, mean.size) == (0, 0)


def test_the_first_entries_are_all_that_is_known() -> None:
    mean = EntrySizeEwma()
    mean.add(2, 12, 500)
    assert (mean.messages, mean.size) == (6, 250)


def test_halves_are_rounded_up_as_the_broker_does() -> None:
    mean = EntrySizeEwma()
    mean.add(2, 5, 9)
    assert (mean.messages, mean.size) == (3, 5)


def test_each_entry_weighs_a_tenth() -> None:
    mean = EntrySizeEwma()
    mean.add(1, 10, 1000)
    mean.add(1, 30, 2000)
    assert (mean.messages, mean.size) == (12, 1100)


def test_after_twenty_entries_of_another_size_little_is_left_of_the_old_one() -> None:
    mean = EntrySizeEwma()
    mean.add(1000, 1000, 10**5)
    mean.add(20, 20 * 50, 20 * 5000)
    assert 40 <= mean.messages <= 50


@given(ENTRIES)
def test_it_lies_between_the_least_and_the_most(entries: list[tuple[int, int]]) -> None:
    mean = EntrySizeEwma()
    for messages, size in entries:
        mean.add(1, messages, size)
    assert min(each[0] for each in entries) <= mean.messages <= max(each[0] for each in entries)
    assert min(each[1] for each in entries) <= mean.size <= max(each[1] for each in entries)


@given(st.integers(1, 10**9), st.integers(0, 100), st.integers(0, 10**6))
def test_any_number_of_entries_at_once_is_fine(entries: int, each: int, size: int) -> None:
    mean = EntrySizeEwma()
    mean.add(entries, entries * each, entries * size)
    mean.add(entries, entries * each, entries * size)
    assert (mean.messages, mean.size) == (max(1, each), max(1, size))
