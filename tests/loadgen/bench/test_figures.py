import math

import pytest

from loadgen.bench.figures import Figure, Goal, Sample, is_guarded, number, values_of

RATE = Figure("rate", "frames/s", digits=1)
ROUNDS = {"a": [{"rate": 8.0}, {"rate": 9.0}, {"rate": 40.0}], "b": [{"rate": 10.0}, {"rate": 10.0}, {"rate": 80.0}]}


def test_a_figure_shows_median_and_spread():
    assert RATE.shown([{"rate": 3.0}, {"rate": 1.0}, {"rate": 1000.0}]) == "3.0 (1.0 to 1,000.0)"
    assert RATE.shown([{"rate": 3.0}, None, {"rate": 3.0}]) == "3.0"


def test_what_was_not_measured_is_a_dash():
    assert RATE.shown([]) == RATE.shown([None]) == "-"
    assert RATE.compared(Goal("≥", 1), {"a": [None]}, "a") is None
    assert RATE.verdict(Goal("≥", 1, "b"), {"a": [{"rate": 1.0}]}, "a") == ""


def test_a_ratio_is_the_median_of_the_ratios_within_rounds():
    assert RATE.compared(Goal("≥", 1, "b"), ROUNDS, "a") == pytest.approx(0.8)


def test_a_round_in_which_one_of_them_failed_does_not_count():
    rounds = {"a": [{"rate": 8.0}, None, {"rate": 6.0}], "b": [None, {"rate": 10.0}, {"rate": 12.0}]}
    assert RATE.compared(Goal("≥", 1, "b"), rounds, "a") == pytest.approx(0.5)


def test_without_a_peer_the_figure_itself_counts():
    assert RATE.compared(Goal("≤", 1), ROUNDS, "a") == 9.0


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("≥", 0.8, "b"), "0.80 (0.50 to 0.90) x b ✓ (≥ 0.80)"),
        (Goal("≥", 0.81, "b"), "0.80 (0.50 to 0.90) x b **missed** (≥ 0.81)"),
        (Goal("≤", None, "b"), "0.80 (0.50 to 0.90) x b"),
        (Goal("≤", 9), "✓ (≤ 9.0)"),
        (Goal("≤", 8.9), "**missed** (≤ 8.9)"),
    ],
)
def test_a_verdict_says_the_ratio_the_goal_and_whether_it_is_met(goal, verdict):
    assert RATE.verdict(goal, ROUNDS, "a") == verdict


def test_who_fails_in_a_round_has_met_no_goal():
    rounds: dict[str, list[Sample | None]] = {
        "a": [{"rate": 8.0}, None, {"rate": 8.0}],
        "b": [{"rate": 10.0}, {"rate": 10.0}, {"rate": 10.0}],
    }
    goal = Goal("≥", 0.5, "b")
    assert RATE.verdict(goal, rounds, "a") == "0.80 x b **missed** (≥ 0.50; failed in 1 of 3 rounds)"
    assert not RATE.is_met(goal, rounds, "a")
    assert RATE.is_met(Goal("≤", None, "b"), rounds, "a"), "what has no bound cannot be missed"


def test_the_guard_is_a_bound_of_its_own():
    assert is_guarded(Goal("≥", 0.9, "b", guard=0.6), 0.6)
    assert not is_guarded(Goal("≥", 0.9, "b", guard=0.6), 0.59)
    assert is_guarded(Goal("≥", 0.9, "b"), 0.1)


def test_numbers_are_rounded_for_people():
    assert [number(-0.04, 1), number(1234.5678, 2), number(math.inf, 0)] == ["0.0", "1,234.57", "never"]


def test_values_are_those_that_were_measured():
    assert values_of("rate", [{"rate": 1.0}, None, {"cpu": 2.0}]) == [1.0]
