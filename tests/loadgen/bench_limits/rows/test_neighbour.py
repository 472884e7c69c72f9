import math

import pytest

from loadgen.bench_limits.orders import LaneResult
from loadgen.bench_limits.rows.beside import Times
from loadgen.bench_limits.rows.neighbour import ALONE, BESIDE, FIGURES, samples

TIMES = Times(alone=1, held=2, beside=3, end=4)


def results(alone: list[float], beside: LaneResult) -> dict[int, LaneResult]:
    return {ALONE: LaneResult(ALONE, alone, 0, {}), BESIDE: beside}


def test_latencies_are_compared_and_the_rate_is_what_arrived_in_time():
    beside = LaneResult(BESIDE, [0.003] * 99 + [0.1], 0, {})
    arrivals = [2.9, *[3 + number / 100 for number in range(100)], 4.0]
    found = samples(TIMES, results([0.002] * 100, beside), arrivals)
    assert found["ratio"] == [pytest.approx(1.5)]
    assert found["p50_alone"] == [2.0]
    assert found["p50_beside"] == found["p99_beside"] == [3.0]
    assert found["rate"] == [50.0]
    assert set(found) == {figure.key for figure in FIGURES}


def test_a_message_without_receipt_is_slower_than_all_others():
    found = samples(TIMES, results([0.002], LaneResult(BESIDE, [0.003], 2, {"Timeout": 1})), [])
    assert found["p50_beside"] == found["ratio"] == [math.inf]
    assert found["rate"] == [0.0]
