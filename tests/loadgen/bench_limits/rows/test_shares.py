import pytest

from loadgen.bench_limits.rows.shares import FIGURES, samples


def test_shares_are_of_what_arrived_in_the_seconds_looked_at():
    found = samples([0.0] * 90 + [10.0] * 500, [0.1] * 10 + [11.0] * 7, 10)
    assert found["batching"] == [90.0]
    assert found["single"] == [10.0]
    assert found["jain"] == [pytest.approx(0.61, abs=0.01)]
    assert set(found) == {figure.key for figure in FIGURES}


def test_equal_shares_are_fair_and_silence_is_no_crash():
    assert samples([5.0, 6.0], [5.5, 6.5], 10)["jain"] == [1.0]
    assert samples([], [], 10)["jain"] == [0.0]
