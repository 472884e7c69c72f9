import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.arrivals import Arrivals, Faults, histogram
from loadgen.load.payload import HEADER_BYTES, Stamp, make_payload

RUN = b"this run"


def message(producer: int, sequence: int, run: bytes = RUN) -> bytes:
    return make_payload(Stamp(run, producer, sequence), HEADER_BYTES + 8)


def arrived(*messages: bytes) -> Arrivals:
    arrivals = Arrivals(RUN, [0, 1])
    for at, one in enumerate(messages):
        arrivals.record(float(at), one)
    return arrivals


def test_two_producers_each_in_order_are_without_fault() -> None:
    arrivals = arrived(message(0, 0), message(1, 0), message(0, 1), message(1, 1))
    assert (arrivals.distinct, list(arrivals.times), arrivals.faults) == (4, [0, 1, 2, 3], Faults())


def test_a_repetition_is_an_arrival_and_a_duplicate() -> None:
    arrivals = arrived(message(0, 0), message(0, 0))
    assert (arrivals.distinct, len(arrivals.times), arrivals.faults) == (1, 2, Faults(duplicates=1))


def test_a_message_behind_a_later_one_is_out_of_order() -> None:
    assert arrived(message(0, 1), message(0, 0)).faults == Faults(out_of_order=1)


def test_a_late_message_that_comes_again_is_late_once_and_a_duplicate_once() -> None:
    arrivals = arrived(message(0, 2), message(0, 0), message(0, 0))
    assert arrivals.faults == Faults(out_of_order=1, duplicates=1)


@pytest.mark.parametrize(
    ("payload", "faults"),
    [
        (b"from somebody else", Faults(foreign=1)),
        (message(0, 0, run=b"last run"), Faults(foreign=1)),
        (message(7, 0), Faults(misplaced=1)),
        (message(0, 0)[:-1] + b"!", Faults(damaged=1)),
    ],
)
def test_what_is_not_this_topics_message_is_no_arrival(payload: bytes, faults: Faults) -> None:
    arrivals = arrived(payload)
    assert (len(arrivals.times), arrivals.distinct, arrivals.faults) == (0, 0, faults)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20))))
def test_distinct_and_duplicates_make_up_all_arrivals(messages: list[tuple[int, int]]) -> None:
    arrivals = arrived(*(message(*one) for one in messages))
    assert arrivals.distinct == len(set(messages))
    assert arrivals.distinct + arrivals.faults.duplicates == len(arrivals.times) == len(messages)


def test_the_histogram_counts_tenths_of_seconds_from_the_start() -> None:
    assert histogram([10.0, 10.05, 10.15, 10.35], 10.0) == [2, 1, 0, 1]


def test_what_arrives_before_the_start_is_in_the_first_bucket() -> None:
    assert histogram([9.0, 10.05], 10.0) == [2]


def test_no_arrival_gives_no_histogram() -> None:
    assert histogram([], 10.0) == []
