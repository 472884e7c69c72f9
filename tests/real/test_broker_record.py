"""The harness of the fleets' scenes itself: what it takes for kept, and what it does not."""

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.real.broker_record import PERIOD_S, TICK_S, Entry, Held, Lateness, Probes, Step, Waits, seconds_until

RATE = 1000.0
BEGAN = 1_800_000_000.0


def entry(at: float, producer: str = "a/1") -> Entry:
    return Entry(BEGAN + at, 0, producer, 1, b"")


def probe(due: float, taken: float) -> Entry:
    return Entry(BEGAN + taken, 0, "probe", 1, repr(BEGAN + due).encode())


def naive(held: Held, entries: Sequence[Entry]) -> float:
    """By all intervals of times that tell milliseconds."""
    (step,), times = held.steps, [arrival.at for arrival in sorted(entries)]
    spans = [(first, last) for first in range(len(times)) for last in range(first, len(times))]
    over = max(last - first + 1 - step.rate * (times[last] - times[first] + TICK_S) for first, last in spans)
    return over - step.burst - held.members


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=60))
def test_without_lateness_it_is_the_worst_of_all_intervals(milliseconds: list[int]) -> None:
    entries, held = [entry(at / 1000) for at in milliseconds], Held.always(20, 4)
    assert held.worst_excess(entries) == pytest.approx(naive(held, entries), abs=0.03)


def passing(seconds: float, rate: float, producer: str) -> list[Entry]:
    return [entry(index / rate, producer) for index in range(int(seconds * rate))]


def test_members_that_each_pass_the_whole_are_far_above() -> None:
    entries = list(itertools.chain.from_iterable(passing(1, RATE, name) for name in "abcd"))
    assert Held.always(RATE, 4).worst_excess(entries) > 2 * RATE
    assert Held.always(4 * RATE, 4).worst_excess(entries) <= 0


def test_a_share_that_is_given_twice_for_a_cycle_is_above_when_bursts_are_used() -> None:
    held = Held.always(RATE, 4)
    burst = [entry(0.0) for _ in range(104)]
    kept = [*burst, *passing(2, RATE, "b/1")]
    assert held.worst_excess(kept) <= 0
    twice = [entry(1 + index / 250, "c/1") for index in range(62)]
    assert held.worst_excess([*kept, *twice]) > 55


def test_entries_that_are_late_are_not_above_since_the_begin() -> None:
    held, late = Held.always(RATE, 4), [entry(2.0)] * int(2 * RATE)
    assert held.excess_since(BEGAN, late) <= 0 < held.worst_excess(late)
    assert held.excess_since(BEGAN, [*late, *late]) > RATE


def test_what_stood_still_may_have_passed_before_and_no_more_than_that() -> None:
    """Half a second's worth comes at once; a probe that was due when it began comes with it."""
    entries = [*passing(1, RATE, "a/1"), *(entry(1.5) for _ in range(500))]
    burst = [entry(1.5) for _ in range(104)]
    late = Lateness({0: Probes([probe(1 + index / 100, 1.5) for index in range(50)])}, {})
    held = Held.always(RATE, 4)
    assert held.worst_excess(entries, Lateness({0: Probes([])}, {})) > 300
    assert held.worst_excess([*entries, *burst], late) <= 0
    assert held.worst_excess([*entries, *burst, *burst], late) > 80


def test_a_member_that_waited_for_a_processor_was_late_and_the_others_were_not() -> None:
    waits = Waits(0)
    waits._at = [BEGAN + index / 100 for index in range(200)]
    waits._waited = [0.0 if index < 150 else 0.4 for index in range(200)]
    late = Lateness({0: Probes([])}, {"a": [waits]})
    assert late.of(entry(0.5)) == PERIOD_S
    assert late.of(entry(1.5, "b/1")) == PERIOD_S
    assert late.of(entry(1.495)) == pytest.approx(PERIOD_S + 0.4)
    assert late.lost_s(BEGAN, BEGAN + 2) == pytest.approx(0.3)


def test_limits_change_when_their_steps_say() -> None:
    held = Held([Step(0.0, RATE), Step(BEGAN + 1, RATE / 10), Step(BEGAN + 2, RATE * 5)], 4)
    slow = [entry(1 + index / 100) for index in range(100)]
    fast = [entry(2 + index / 5000) for index in range(5000)]
    assert held.worst_excess([*passing(1, RATE, "a/1"), *slow, *fast]) <= 0
    assert held.worst_excess([*passing(1.5, RATE, "a/1"), *slow, *fast]) > 350


def test_a_rate_is_reached_when_a_window_holds_it() -> None:
    entries = [*passing(1, RATE / 2, "a/1"), *(entry(1 + index / RATE) for index in range(1000))]
    assert seconds_until(entries, BEGAN, RATE) == pytest.approx(1, abs=0.01)
    assert math.isinf(seconds_until(entries, BEGAN, 2 * RATE))
