import pytest

from loadgen.bench_limits.peers import GROUP_LIMIT
from loadgen.bench_limits.rows.dispatch.group import COUNT, FIGURES, TOPICS, row, samples


def test_a_limit_that_is_kept_is_a_mean_of_one():
    found = samples([number / GROUP_LIMIT for number in range(11 * GROUP_LIMIT)], 10)
    assert found == {key: [pytest.approx(1.0)] for key in ("first", "mean", "settled")}
    assert all(figure.is_met(found[figure.key]) for figure in FIGURES)


def test_a_backlog_drained_at_once_is_no_rate_of_more_than_a_second():
    found = samples([number / 10_000 for number in range(TOPICS * COUNT)], 10)
    assert found["mean"] == found["first"] == [TOPICS * COUNT / GROUP_LIMIT]
    assert found["settled"] == []


def test_the_silence_behind_a_drained_backlog_makes_the_mean_no_better():
    times = [2 * number / (TOPICS * COUNT - 1) for number in range(TOPICS * COUNT)]
    found = samples(times, 10)
    assert found["mean"] == [pytest.approx(TOPICS * COUNT / 2 / GROUP_LIMIT)]
    assert found["settled"] == [pytest.approx(TOPICS * COUNT / 2 / GROUP_LIMIT)]


def test_what_is_withheld_behind_the_first_second_misses_a_goal():
    burst = [number / GROUP_LIMIT for number in range(GROUP_LIMIT)]
    found = samples([*burst, *(1 + number / (0.98 * GROUP_LIMIT) for number in range(10 * GROUP_LIMIT))], 10)
    assert found["settled"] == [pytest.approx(0.98, abs=0.002)]
    assert [figure.key for figure in FIGURES if not figure.is_met(found[figure.key])] == ["settled"]


def test_silence_is_no_crash():
    assert samples([], 10) == {"first": [0.0], "mean": [0.0], "settled": [0.0]}


def test_every_figure_has_its_samples():
    assert set(samples([1.0], 3)) == {figure.key for figure in FIGURES}
    assert row(quick=True).figures is FIGURES
