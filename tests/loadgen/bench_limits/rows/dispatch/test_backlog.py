import math

import pytest

from loadgen.bench_limits.rows.dispatch.backlog import FIGURES, row, samples
from loadgen.bench_limits.rows.evenness import LIMIT


def lumps(seconds: int) -> list[float]:
    return [float(second) for second in range(seconds) for _ in range(LIMIT)]


def evenly(seconds: int) -> list[float]:
    return [number / LIMIT for number in range(seconds * LIMIT)]


def test_what_flows_evenly_meets_every_goal():
    found = samples(evenly(6), [], 6)
    assert all(figure.is_met(found[figure.key]) for figure in FIGURES if figure.key != "pause")
    assert found["first"] == found["mean"] == [1.0]
    assert found["gap"] == [pytest.approx(2.0)]
    assert found["excess"] == [pytest.approx(-49)]


def test_lumps_keep_the_rate_and_leave_a_second_between_them():
    found = samples(lumps(6), [], 6)
    assert found["mean"] == [1.0]
    assert found["worst"] == [pytest.approx(0.0)]
    assert found["gap"] == [pytest.approx(1000)]
    assert found["excess"] == [pytest.approx(LIMIT - 50)]


def test_twice_the_limit_in_the_first_second_is_seen():
    found = samples(sorted([0.5] * LIMIT + evenly(6)), [], 6)
    assert found["first"] == [2.0]
    assert found["mean"] == [1.0]


def test_a_standstill_of_the_consumer_is_no_gap():
    times = [at for at in evenly(6) if not 3 <= at < 3.1]
    assert samples(times, [], 6)["gap"] == [pytest.approx(102)]
    assert samples(times, [(3.0, 3.095)], 6)["gap"] == [pytest.approx(7)]


def test_silence_is_no_crash_and_no_success():
    found = samples([], [], 6)
    assert found["mean"] == [0.0]
    assert found["gap"] == [math.inf]


def test_every_figure_has_its_samples():
    assert {*samples([1.0], [], 5), "pause"} == {figure.key for figure in FIGURES}
    assert row(quick=True).rounds < row(quick=False).rounds
