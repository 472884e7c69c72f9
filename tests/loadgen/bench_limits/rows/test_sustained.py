import pytest

from loadgen.bench_limits.rows.sustained import FIGURES, row, samples


def evenly(per_s: float, begin: float, end: float) -> list[float]:
    return [begin + number / per_s for number in range(round((end - begin) * per_s))]


def test_five_that_keep_the_limit_from_the_first_message_on():
    found = samples([evenly(100, producer / 500, 12 + producer / 500) for producer in range(5)], 12)
    assert found["first"] == [1.0]
    assert found["worst"] == found["pair"] == [pytest.approx(0.0)]
    assert found["mean"] == [1.0]
    assert found["excess"] == [pytest.approx(-49)]
    assert found["jain"] == [1.0]


def test_a_first_second_of_twice_the_limit_is_seen_in_every_figure_that_it_touches():
    steady = [evenly(100, 0, 12) for _ in range(4)]
    found = samples([*steady, sorted([0.5] * 500 + evenly(100, 0, 12))], 12)
    assert found["first"] == [2.0]
    assert found["mean"] == [1.0]
    assert found["excess"] == [pytest.approx(455, abs=1)]
    assert found["jain"][0] < 0.99


def test_a_silent_second_is_the_worst_one():
    gap = [at for at in evenly(500, 0, 12) if not 4 <= at < 5]
    assert samples([gap], 12)["worst"] == [100.0]
    assert samples([gap], 12)["pair"] == [50.0]


def test_silence_is_no_crash():
    assert samples([[], []], 12)["mean"] == [0.0]


def test_every_figure_has_its_samples():
    assert {*samples([[1.0]], 5), "pause"} == {figure.key for figure in FIGURES}
    assert row(quick=True).rounds < row(quick=False).rounds
