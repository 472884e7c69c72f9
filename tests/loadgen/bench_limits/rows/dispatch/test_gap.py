import math

import pytest

from loadgen.bench_limits.rows.dispatch.gap import FIGURES, row, samples


def test_one_every_ten_milliseconds_is_even():
    found = samples([number / 100 for number in range(300)], [], 3)
    assert found == {key: [pytest.approx(10)] for key in ("gap", "p99", "p50")}


def test_a_lump_a_second_is_not_though_most_of_its_messages_are_close():
    found = samples([float(second) for second in range(3) for _ in range(100)], [], 3)
    assert found == {"gap": [1000.0], "p99": [0.0], "p50": [0.0]}


def test_a_single_silence_is_the_gap():
    times = [number / 100 for number in range(300) if not 100 <= number < 120]
    found = samples(times, [], 3)
    assert found["gap"] == [pytest.approx(210)]
    assert found["p50"] == [pytest.approx(10)]


def test_nothing_at_all_is_the_longest_gap():
    assert samples([], [], 3)["gap"] == [math.inf]


def test_every_figure_has_its_samples():
    assert {*samples([1.0], [], 3), "pause"} == {figure.key for figure in FIGURES}
    assert row(quick=True).figures is FIGURES
