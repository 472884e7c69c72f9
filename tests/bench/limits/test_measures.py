"""Pure functions of times."""

import math

import pytest

from bench.harness import jain, percentile
from bench.limits.trial import (
    EVEN,
    EVENNESS,
    FREE_RATE,
    NOTICED,
    Times,
    count_between,
    evenness,
    longest_gap,
    noticed,
    pair_means,
    per_second,
    spaces,
    worst_deviation,
)


@pytest.mark.parametrize(
    ("shares", "index"),
    [([5, 5, 5], 1.0), ([0.1, 0.1], 1.0), ([9, 0, 0], 1 / 3), ([92, 8], 0.586), ([0, 0], 0.0), ([], 0.0)],
)
def test_jain_is_1_for_equal_shares_and_1_nth_when_one_has_all(shares, index):
    assert jain(shares) == pytest.approx(index, abs=0.001)


def test_a_percentile_is_one_of_the_values():
    values = [4.0, 1.0, 3.0, 2.0]
    assert [percentile(values, part) for part in (0, 0.25, 0.5, 0.51, 0.99, 1)] == [1, 1, 2, 3, 4, 4]


def test_what_never_came_is_later_than_all_that_did():
    assert percentile([1.0, math.inf, 2.0], 0.5) == 2.0
    assert percentile([1.0, math.inf, math.inf], 0.5) == math.inf
    assert percentile([], 0.5) == math.inf


def test_seconds_begin_with_the_first_arrival():
    assert per_second([10.5, 10.6, 11.49, 11.5, 13.0, 13.6], 3) == [3, 1, 1]
    assert per_second([], 2) == [0, 0]


def test_a_span_has_its_begin_and_not_its_end():
    assert count_between([1.0, 2.0, 3.0], 1.0, 3.0) == 2


def test_the_worst_second_may_be_a_poor_or_a_rich_one():
    assert worst_deviation([500, 480, 505], 500) == pytest.approx(0.04)
    assert worst_deviation([500, 490, 530], 500) == pytest.approx(0.06)


def test_two_seconds_that_make_up_for_each_other_are_no_deviation():
    assert pair_means([450, 550, 500]) == [500, 525]


def test_the_longest_gap_may_be_the_last_one():
    assert longest_gap([10.0, 10.1, 10.4, 10.5], 0.6) == pytest.approx(0.3)
    assert longest_gap([10.0, 10.1, 10.4, 10.5], 2) == pytest.approx(1.5)
    assert longest_gap([10.0, 10.1, 10.9], 0.5) == pytest.approx(0.4)
    assert longest_gap([], 1) == math.inf


def test_what_nobody_could_see_is_no_gap():
    times = [0.0, 1.0, 2.0, 2.5]
    assert longest_gap(times, 2.5, [(0.2, 0.6), (0.9, 1.3)]) == pytest.approx(0.7)
    assert longest_gap(times, 2.5, [(0.0, 1.0)]) == pytest.approx(1.0)
    assert longest_gap(times, 2.5, [(-1.0, 0.0), (3.0, 9.0)]) == pytest.approx(1.0)
    assert longest_gap(times, 2.5, [(-1.0, 9.0)]) == pytest.approx(0.0)


def test_spaces_lie_between_the_arrivals_looked_at():
    assert spaces([1.0, 1.5, 1.75, 3.0], 2) == [0.5, 0.25]
    assert spaces([], 2) == []


def test_latencies_beside_are_told_by_those_alone() -> None:
    times = Times(alone=1, held=2, beside=3, end=5)

    sample = noticed(times, [4.0] * 10, [6.0] * 9 + [60.0], in_time=FREE_RATE)

    assert set(sample) == {figure.key for figure in NOTICED}
    assert (sample["ratio"], sample["p50_beside"], sample["p99_beside"], sample["rate"]) == (1.5, 6, 60, 50)


def test_what_comes_evenly_is_the_limit_in_each_second() -> None:
    times = [number / EVEN for number in range(4 * EVEN)]

    sample = evenness(times, 4)

    assert set(sample) == {figure.key for figure in EVENNESS}
    assert (sample["first"], sample["worst"], sample["pair"], sample["mean"]) == (1, 0, 0, 1)
    assert sample["excess"] < 0


def test_a_lump_at_the_begin_is_above_the_line() -> None:
    sample = evenness([0.0] * EVEN + [1 + number / EVEN for number in range(3 * EVEN)], 4)

    assert sample["first"] == 1
    assert sample["excess"] == pytest.approx(EVEN * 0.9)
