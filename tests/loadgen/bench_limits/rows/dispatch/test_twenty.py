import pytest

from loadgen.bench_limits.rows.dispatch.twenty import FIGURES, row, samples


def test_shares_are_counted_once_all_are_there_and_the_mean_behind_the_first_second():
    early = [10.0, *[11 + number / 10 for number in range(50)]]
    late = [11.05 + number / 10 for number in range(50)]
    found = samples([early, late], 10.5, 6)
    assert found["jain"] == [pytest.approx(1.0)]
    assert found["least"] == found["most"] == [pytest.approx(100)]
    assert found["mean"] == [pytest.approx(100 / 5 / 50)]


def test_a_burst_does_not_make_up_for_what_is_missing_later():
    times = [10.0] * 100 + [11 + number / 48 for number in range(10 * 48)]
    found = samples([times], 10.0, 11)
    assert found["mean"] == [pytest.approx(48 / 50)]
    assert [figure.key for figure in FIGURES if not figure.is_met(found[figure.key])] == ["mean"]


def test_one_that_gets_everything_is_seen():
    found = samples([[10.0, 10.5, 11.0], []], 9.0, 2)
    assert found["jain"] == [0.5]
    assert (found["least"], found["most"]) == ([0.0], [200.0])


def test_a_last_consumer_that_came_after_the_end_leaves_no_share_and_no_crash():
    assert samples([[10.0], []], 13.0, 2)["jain"] == [0.0]
    assert samples([[], []], 13.0, 2)["mean"] == [0.0]


def test_every_figure_has_its_samples():
    assert set(samples([[1.0]], 0.0, 3)) == {figure.key for figure in FIGURES}
    assert row(quick=True).figures is FIGURES
