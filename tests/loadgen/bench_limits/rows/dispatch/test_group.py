import pytest

from loadgen.bench_limits.peers import GROUP_LIMIT
from loadgen.bench_limits.rows.dispatch.group import COUNT, FIGURES, TOPICS, row, samples


def test_a_limit_that_is_kept_is_a_mean_of_one():
    found = samples([number / GROUP_LIMIT for number in range(11 * GROUP_LIMIT)], 10)
    assert found == {"first": [pytest.approx(1.0)], "mean": [pytest.approx(1.0)]}
    assert all(figure.is_met(found[figure.key]) for figure in FIGURES)


def test_a_backlog_drained_at_once_is_no_rate_of_more_than_a_second():
    found = samples([number / 10_000 for number in range(TOPICS * COUNT)], 10)
    assert found["mean"] == found["first"] == [TOPICS * COUNT / GROUP_LIMIT]


def test_the_silence_behind_a_drained_backlog_makes_the_mean_no_better():
    times = [2 * number / (TOPICS * COUNT - 1) for number in range(TOPICS * COUNT)]
    assert samples(times, 10)["mean"] == [pytest.approx(TOPICS * COUNT / 2 / GROUP_LIMIT)]


def test_silence_is_no_crash():
    assert samples([], 10) == {"first": [0.0], "mean": [0.0]}


def test_every_figure_has_its_samples():
    assert set(samples([1.0], 3)) == {figure.key for figure in FIGURES}
    assert row(quick=True).figures is FIGURES
