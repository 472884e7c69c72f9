"""The yardstick itself: what it calls above the line is above it, and nothing else."""

from tests.real.arrivals import Line


def test_arrivals_that_are_late_are_not_above_since_the_begin() -> None:
    line = Line(10, burst=1)
    assert line.excess_since(5.0, [(7.0, 22)]) == 0
    assert line.excess_since(5.0, [(5.0, 2), (5.5, 7), (7.0, 1)]) == 2


def test_a_rate_that_changes_counts_from_then_on() -> None:
    assert Line(10, burst=1).excess_since(5.0, [(7.0, 32)], (6.0, 20)) == 0
    assert Line(10, burst=1).excess_since(5.0, [(7.0, 13)], (6.0, 0)) == 1
