import math

import pytest

from loadgen.bench_limits.rows.raised import FIGURES, _lanes, _next, samples


def test_each_raise_is_timed_to_the_arrival_of_its_own_message():
    found = samples([3.0, 3.3], [[3.025], [20.3]])
    assert found == {"freed": [pytest.approx(25), pytest.approx(17_000)]}
    assert set(found) == {figure.key for figure in FIGURES}


def test_a_message_that_never_came_is_not_overlooked():
    assert samples([3.0], [[]]) == {"freed": [math.inf]}


def test_one_message_waits_behind_each_batch():
    lanes = [lane for number in range(2) for lane in _lanes(number, f"t{number}", 20)]
    assert [(lane.index, lane.topic, lane.most) for lane in lanes] == [
        (0, "t0", 20),
        (1, "t0", 1),
        (2, "t1", 20),
        (3, "t1", 1),
    ]
    assert _next(1) == 3
