import math

import pytest

from loadgen.bench_limits.figures import Figure, Goal

FACTOR = Figure("factor", "first second", " x", 2, Goal("≤", 1.1))


@pytest.mark.parametrize(
    ("samples", "shown"),
    [
        ([1.994], "1.99 x"),
        ([2.0, 1.94, 1.99], "1.99 x (1.94 to 2.00)"),
        ([1.001, 1.002], "1.00 x"),
        ([-0.001], "0.00 x"),
        ([1234.5], "1,234.50 x"),
        ([], "-"),
    ],
)
def test_a_figure_shows_its_median_and_the_spread_that_can_be_seen(samples, shown):
    assert FACTOR.shown(samples) == shown


def test_what_never_came_is_said_in_a_word():
    assert Figure("freed", "", " ms").shown([math.inf, math.inf]) == "never ms"


def test_a_goal_is_judged_as_it_is_printed():
    assert FACTOR.is_met([1.104])
    assert not FACTOR.is_met([1.106])
    assert not FACTOR.is_met([math.inf])


def test_the_median_is_judged_and_not_the_worst():
    assert FACTOR.is_met([1.0, 1.0, 9.0])


def test_a_goal_can_be_a_least_value():
    fair = Figure("jain", "", digits=3, goal=Goal("≥", 0.99))
    assert fair.is_met([0.99])
    assert not fair.is_met([0.989])
    assert fair.goal_shown() == "≥ 0.990"


def test_without_a_goal_nothing_is_missed_and_without_samples_every_goal_is():
    assert Figure("p50", "").is_met([])
    assert Figure("p50", "").goal_shown() == ""
    assert not FACTOR.is_met([])
