import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.line import Line, max_excess

TIMES = st.lists(st.integers(0, 5_000).map(lambda ms: ms / 1000), max_size=60).map(sorted)
LINES = st.builds(Line, rate=st.floats(0.1, 1000), burst=st.floats(0, 100), entry=st.floats(0, 10))


def by_definition(times: list[float], line: Line) -> float:
    """Every interval that begins and ends at an arrival, counted one by one."""
    worst = -math.inf
    for first in times:
        for last in times:
            inside = sum(1 for at in times if first <= at <= last)
            if first <= last:
                worst = max(worst, inside - line.rate * (last - first))
    return worst - line.burst - line.entry


@given(times=TIMES, line=LINES)
def test_one_pass_finds_what_the_definition_says(times: list[float], line: Line) -> None:
    assert max_excess(times, line) == pytest.approx(by_definition(times, line), abs=1e-6)


@given(times=TIMES, line=LINES, shift=st.floats(0, 1e5))
def test_only_the_distances_in_time_matter(times: list[float], line: Line, shift: float) -> None:
    shifted = [at + shift for at in times]
    assert max_excess(shifted, line) == pytest.approx(max_excess(times, line), abs=1e-3)


def test_a_burst_and_one_entry_are_within_the_line() -> None:
    assert max_excess([1.0] * 51, Line(rate=500, burst=50)) == 0


def test_one_message_more_is_one_above_it() -> None:
    assert max_excess([1.0] * 52, Line(rate=500, burst=50)) == 1


def test_a_second_burst_after_a_steady_stream_is_found() -> None:
    """The bucket was empty at second 1: ten messages at once then are nine above the line."""
    steady = [n / 100 for n in range(101)]
    assert max_excess([*steady, *[1.0] * 10], Line(rate=100, burst=1)) == pytest.approx(9)


def test_nothing_arrived_is_never_above() -> None:
    assert max_excess([], Line(rate=1, burst=1)) == -math.inf
