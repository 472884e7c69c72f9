import pytest

from loadgen.bench_limits.rows.dispatch.sizes import FIGURES, LARGE, LIMIT, SMALL, row, samples


def test_large_messages_count_by_their_bytes():
    arrivals = [(number * LARGE / LIMIT, LARGE) for number in range(200)]
    found = samples(arrivals, 10)
    assert found["first"] == found["worst"] == found["mean"] == [pytest.approx(1.0)]
    assert all(figure.is_met(found[figure.key]) for figure in FIGURES)


def test_large_ones_read_as_if_they_were_small_are_seen():
    found = samples([(0.0, SMALL)] * 1000 + [(0.5, LARGE)] * 100 + [(6.0, LARGE)] * 20, 10)
    assert found["first"] == found["worst"] == [pytest.approx(5.1)]
    assert found["excess"] == [pytest.approx(5000 - 100 - 50)]
    assert not all(figure.is_met(found[figure.key]) for figure in FIGURES)


def test_the_worst_second_need_not_be_the_first():
    found = samples([(0.0, SMALL), (3.5, LARGE), (3.6, LARGE)], 10)
    assert found["first"] == [pytest.approx(SMALL / LIMIT)]
    assert found["worst"] == [pytest.approx(2 * LARGE / LIMIT)]


def test_every_figure_has_its_samples():
    assert set(samples([(1.0, SMALL)], 3)) == {figure.key for figure in FIGURES}
    assert row(quick=True).figures is FIGURES
