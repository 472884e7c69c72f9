"""The yardstick itself: what it calls above the line is above it, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.real.arrivals import Arrival, Line, rate_over

arrival_lists = st.lists(st.tuples(st.floats(0, 10), st.integers(1, 20)), min_size=1, max_size=30).map(sorted)


@given(arrival_lists, st.floats(0.1, 100), st.floats(0, 50))
def test_one_pass_finds_the_worst_of_all_intervals(arrivals: list[Arrival], rate: float, burst: float) -> None:
    line = Line(rate, burst, entry=2)
    every_interval = [
        sum(messages for _, messages in arrivals[begin : end + 1]) - rate * (arrivals[end][0] - arrivals[begin][0])
        for begin in range(len(arrivals))
        for end in range(begin, len(arrivals))
    ]
    assert line.worst_excess(arrivals, slack_s=0) == pytest.approx(max(every_interval) - burst - 2)


def test_the_slack_is_worth_its_time_in_messages() -> None:
    at_once = [(0.0, 1)] * 31
    assert Line(200, burst=20).worst_excess(at_once) == 0
    assert Line(200, burst=20).worst_excess([*at_once, (0.0, 1)]) == 1


def test_a_rate_counts_its_window_only() -> None:
    arrivals = [(0.0, 5), (1.0, 10), (2.9, 10), (3.0, 7)]
    assert rate_over(arrivals, 1.0, 2.0) == 10


def test_arrivals_that_are_late_are_not_above_since_the_begin() -> None:
    line = Line(10, burst=1)
    assert line.excess_since(5.0, [(7.0, 22)]) == 0
    assert line.excess_since(5.0, [(5.0, 2), (5.5, 7), (7.0, 1)]) == 2


def test_a_rate_that_changes_counts_from_then_on() -> None:
    assert Line(10, burst=1).excess_since(5.0, [(7.0, 32)], (6.0, 20)) == 0
    assert Line(10, burst=1).excess_since(5.0, [(7.0, 13)], (6.0, 0)) == 1
