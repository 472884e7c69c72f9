"""The models give the numbers that their sources give, and Sluice's side of the page is Sluice."""

from random import Random

import pytest

from loadgen.quota_sharing.page import filled, proportional, steps_to_even, stolen
from loadgen.quota_sharing.schemes import MS, SCHEMES, SECOND, ProposalText, PulsarFormula, SharedLoad
from loadgen.quota_sharing.trials import ideal, jain


@pytest.mark.parametrize(
    ("quota", "mine", "total", "share"),
    [
        (100, 20, 40, 50),  # ResourceQuotaCalculatorImplTest: above 20 where the sum is below the quota,
        (100, 20, 100, 20),  # the same where it is the quota,
        (100, 20, 150, 13),  # and less where it is above
        (100, 0, 0, 100),  # nothing is known: all of it
        (3, 0.5, 3, 1),  # never less than 1,
        (100, 10, 90, 11),  # and whole numbers
    ],
)
def test_pulsars_formula(quota: int, mine: float, total: float, share: float) -> None:
    assert PulsarFormula.share(quota, mine, total) == share


def test_the_examples_of_the_text() -> None:
    idle = [100.0] * 3  # nobody is held back
    assert stolen(100, [10, 50, 30], idle) == pytest.approx([11.11, 55.56, 33.33], abs=0.005)
    assert stolen(100, [80, 20], [80, 20]) == [80, 50]
    steps = steps_to_even(100, [80, 20])
    assert steps[-1] == pytest.approx([50, 50], abs=0.5)
    assert len(steps) == 8
    assert max(map(sum, steps)) == 130
    assert ProposalText.share(100, 1, {0: 80, 1: 20}, limit=40) == 20, "who is not held back steals nothing"


def test_what_the_others_give_for_the_same_examples() -> None:
    assert proportional(100, [10, 50, 30]) == [11, 55, 33]
    assert proportional(100, [80, 20]) == [80, 20]
    assert proportional(100, [70, 30]) == [70, 30]
    assert filled(100, [10.1, 50.5, 30.3]) == pytest.approx([13.13, 53.53, 33.33], abs=0.005)
    assert filled(100, [None, None]) == [50, 50]
    assert filled(100, [None, 20.2]) == [79.8, 20.2]


def _reports_of(offered: list[float], loss: float = 0.0) -> list[float]:
    """What the other one of two brokers has heard of the first, cycle by cycle, by Pulsar's rules."""
    scheme = PulsarFormula(2, Random(1), loss)
    load = SharedLoad([offered[0], 0.0], 10_000, [1, 1])
    heard: list[float] = []
    step = 2 * SECOND
    for cycle, rate in enumerate(offered):
        load.offered = [rate, 0.0]
        for now in range(cycle * 60 * SECOND, (cycle + 1) * 60 * SECOND, step):
            load.flow(scheme.step(now, load), step)
        heard.append(round(scheme._heard[1].get(0, 0.0)))
    return heard


def test_pulsar_tells_changes_above_5_percent_and_the_fifth_round() -> None:
    same = [100.0, 100.0, 104.0, 104.0, 104.0, 104.0, 104.0, 104.0]
    told = _reports_of(same)
    assert told[2:4] == [100, 100]
    assert told[-1] == 104
    assert 110 <= _reports_of([100.0, 100.0, 120.0, 120.0])[-1] <= 120


def test_pulsar_tells_a_fall_to_zero_only_after_rounds_of_silence() -> None:
    told = _reports_of([100.0, 100.0, *[0.0] * 8])
    assert min(told[2:6]) > 0
    assert told[-1] == 0


def test_nobody_hears_what_is_lost() -> None:
    assert set(_reports_of([100.0] * 4, loss=1.0)) == {0}


@pytest.mark.parametrize("name", SCHEMES)
def test_the_same_seed_gives_the_same_rates(name: str) -> None:
    def rates() -> list[list[float]]:
        scheme = SCHEMES[name](3, Random(7), 0.3)
        load = SharedLoad([500.0, 100.0, 400.0], 600, [1, 2, 1])
        step = scheme.cycle_ns // 10
        return [load.flow(scheme.step(now, load), step) for now in range(0, 30 * scheme.cycle_ns, step)]

    first = rates()
    assert first == rates()
    assert sum(first[-1]) > 300


def test_what_is_fair_and_how_fair_it_is() -> None:
    assert ideal([10, None, 1000, 1000], 100) == [10, 0, 45, 45]
    assert ideal([10, 20], 100) == [10, 20]
    assert jain([1, 1, 1]) == 1
    assert jain([1, 0, 0, 0]) == 0.25


def test_a_fluid_passes_the_lesser_and_counts_who_is_held_back() -> None:
    load = SharedLoad([100.0, None, 10.0], 100, [1, 1, 1])
    assert load.flow([40.0, 40.0, 40.0], 500 * MS) == [40.0, 0.0, 10.0]
    assert load.passed == [20.0, 0.0, 5.0]
    assert load.throttled_ns == [500 * MS, 0, 0]
