"""What is read from each load of publishing: a figure that is wrong would be seen here."""

import math

import pytest

from bench.harness import BenchError
from bench.limits.publish_rows import (
    ALONE,
    BATCH,
    BESIDE,
    RAISED,
    SHARES,
    SUSTAINED,
    _next,
    _raised_lanes,
    neighbour,
    patience,
    raised_samples,
    shares,
    sustained,
)
from bench.limits.trial import NOTICED, LaneResult, Times


def evenly(per_s: float, begin: float, end: float) -> list[float]:
    return [begin + number / per_s for number in range(round((end - begin) * per_s))]


def test_five_that_keep_the_limit_from_the_first_message_on():
    sample = sustained([evenly(100, producer / 500, 12 + producer / 500) for producer in range(5)], 12)
    assert sample["first"] == 1.0
    assert sample["worst"] == sample["pair"] == pytest.approx(0.0)
    assert sample["mean"] == 1.0
    assert sample["excess"] == pytest.approx(-49)
    assert sample["jain"] == 1.0


def test_a_first_second_of_twice_the_limit_is_in_every_figure():
    steady = [evenly(100, 0, 12) for _ in range(4)]
    sample = sustained([*steady, sorted([0.5] * 500 + evenly(100, 0, 12))], 12)
    assert sample["first"] == 2.0
    assert sample["mean"] == 1.0
    assert sample["excess"] == pytest.approx(455, abs=1)
    assert sample["jain"] < 0.99


def test_a_silent_second_is_the_worst_one():
    gap = [at for at in evenly(500, 0, 12) if not 4 <= at < 5]
    assert sustained([gap], 12)["worst"] == 100.0
    assert sustained([gap], 12)["pair"] == 50.0


def test_silence_is_no_crash_of_sustained():
    assert sustained([[], []], 12)["mean"] == 0.0


def test_every_figure_of_sustained_has_its_samples():
    assert {*sustained([[1.0]], 5), "pause"} == {figure.key for figure in SUSTAINED}


TIMES = Times(alone=1, held=2, beside=3, end=4)


def results(alone: list[float], beside: LaneResult) -> dict[int, LaneResult]:
    return {ALONE: LaneResult(ALONE, alone, 0, {}), BESIDE: beside}


def test_neighbours_latencies_and_rates_are_compared():
    beside = LaneResult(BESIDE, [0.003] * 99 + [0.1], 0, {})
    arrivals = [2.9, *[3 + number / 100 for number in range(100)], 4.0]
    sample = neighbour(TIMES, results([0.002] * 100, beside), arrivals)
    assert sample["ratio"] == pytest.approx(1.5)
    assert sample["p50_alone"] == 2.0
    assert sample["p50_beside"] == sample["p99_beside"] == 3.0
    assert sample["rate"] == 50.0
    assert set(sample) == {figure.key for figure in NOTICED}


def test_a_message_without_receipt_is_slower_than_all_others():
    sample = neighbour(TIMES, results([0.002], LaneResult(BESIDE, [0.003], 2, {"Timeout": 1})), [])
    assert sample["p50_beside"] == sample["ratio"] == math.inf
    assert sample["rate"] == 0.0


def test_shares_are_of_what_arrived_in_the_seconds_looked_at():
    sample = shares([0.0] * 90 + [10.0] * 500, [0.1] * 10 + [11.0] * 7, 10)
    assert sample["batching"] == 90.0
    assert sample["single"] == 10.0
    assert sample["jain"] == pytest.approx(0.61, abs=0.01)
    assert set(sample) == {figure.key for figure in SHARES}


def test_equal_shares_are_fair_and_silence_is_no_crash():
    assert shares([5.0, 6.0], [5.5, 6.5], 10)["jain"] == 1.0
    assert shares([], [], 10)["jain"] == 0.0


def test_each_raise_is_timed_to_the_arrival_of_its_own_message():
    samples = raised_samples([3.0, 3.3], [[3.025], [20.3]])
    assert samples == [{"freed": pytest.approx(25)}, {"freed": pytest.approx(17_000)}]
    assert {key for sample in samples for key in sample} == {figure.key for figure in RAISED}


def test_a_message_that_never_came_is_not_overlooked():
    assert raised_samples([3.0], [[]]) == [{"freed": math.inf}]


def test_one_message_waits_behind_each_batch():
    lanes = [lane for number in range(2) for lane in _raised_lanes(number, f"t{number}", 20)]
    assert [(lane.index, lane.topic, lane.most) for lane in lanes] == [
        (0, "t0", 20),
        (1, "t0", 1),
        (2, "t1", 20),
        (3, "t1", 1),
    ]
    assert _next(1) == 3


DEBT = [0.1] * BATCH


def test_a_second_connection_means_that_the_first_was_lost():
    sample = patience({"/127.0.0.1:5 10:00", "/127.0.0.1:6 10:01"}, {0: DEBT, 1: [58.5]}, 100)
    assert sample == {"lost": 1, "slipped": 1}


def test_what_passes_when_the_client_leaves_did_not_slip_through():
    assert patience({"/127.0.0.1:5 10:00"}, {0: DEBT, 1: [100.2]}, 100) == {"lost": 0, "slipped": 0}


def test_a_part_of_the_batch_that_passes_later_slipped_through_too():
    assert patience({"/127.0.0.1:5 10:00"}, {0: [*DEBT[1:], 60.0], 1: []}, 100)["slipped"] == 1


@pytest.mark.parametrize(("connections", "debt"), [(set(), DEBT), ({"/127.0.0.1:5 10:00"}, DEBT[:100])])
def test_without_a_debt_there_is_nothing_to_be_patient_with(connections, debt):
    with pytest.raises(BenchError, match="too few for 100 s of debt"):
        patience(connections, {0: debt, 1: []}, 100)
