import pytest

from loadgen.bench_limits.rows.dispatch.batches import BATCH, FIGURES, row, samples


def in_batches(*at: float) -> list[float]:
    return [each for each in at for _ in range(BATCH)]


def test_a_batch_every_half_second_meets_every_goal():
    found = samples(in_batches(0, *(0.4 + 0.5 * number for number in range(20))), 10)
    assert all(figure.is_met(found[figure.key]) for figure in FIGURES)
    assert found["first"] == [1.5]
    assert found["mean"] == [pytest.approx(1.05)]


def test_a_receiver_queue_at_once_is_ten_times_the_limit_and_a_long_silence():
    found = samples([0.0] * 1000 + [9.5] * 1000, 10)
    assert found["first"] == [10.0]
    assert found["silence"] == [pytest.approx(9.5)]
    assert found["excess"] == [pytest.approx(2000 - 950 - 10 - BATCH)]
    assert {key for key in found if not next(f for f in FIGURES if f.key == key).is_met(found[key])} == {
        "first",
        "excess",
        "silence",
    }


def test_every_figure_has_its_samples():
    assert set(samples([1.0], 3)) == {figure.key for figure in FIGURES}
    assert row(quick=True).figures is FIGURES
