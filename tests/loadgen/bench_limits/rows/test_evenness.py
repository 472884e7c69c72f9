import pytest

from loadgen.bench_limits.rows.evenness import EVENNESS, LIMIT, evenness


def test_what_comes_evenly_is_the_limit_in_each_second() -> None:
    times = [number / LIMIT for number in range(4 * LIMIT)]

    found = evenness(times, 4)

    assert set(found) == {figure.key for figure in EVENNESS}
    assert (found["first"], found["worst"], found["pair"], found["mean"]) == ([1], [0], [0], [1])
    assert found["excess"][0] < 0


def test_a_lump_at_the_begin_is_above_the_line() -> None:
    found = evenness([0.0] * LIMIT + [1 + number / LIMIT for number in range(3 * LIMIT)], 4)

    assert found["first"] == [1]
    assert found["excess"] == [pytest.approx(LIMIT * 0.9)]
