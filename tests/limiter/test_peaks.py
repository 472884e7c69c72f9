"""A sustained rate with a burst, and a peak that bounds how fast the burst may be used up."""

from dataclasses import replace
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.harness import jain
from limiter.limiter import Limiter, Stream
from limiter.scheduler import LEAST_SLEEP_NS
from limiter.token_bucket import Limit, Rate, rate
from tests.examples import examples
from tests.limiter.fitting import fits
from tests.limiter.ledger import within
from tests.limiter.world import World, limiter

SECOND = 1_000_000_000
SUSTAINED, PEAK = rate(100, burst=500), rate(300, burst=1)


def of(limit: Limit, name: str = "n") -> Limiter:
    return Limiter(limiter(1, name=name).scope, limit, "test", 0)


def greedy(limit: Limit, entry: tuple[int, int] = (1, 1)) -> tuple[World, Limiter, Stream]:
    world, peaked = World(), of(limit)
    return world, peaked, world.greedy(peaked, entries=repeat(entry))


def per_second(world: World, seconds: int) -> list[int]:
    counts = [0] * seconds
    for passed in world.log:
        if passed.at < seconds * SECOND:
            counts[passed.at // SECOND] += passed.messages
    return counts


def test_it_goes_at_the_peak_while_the_burst_lasts_and_then_at_the_sustained_rate() -> None:
    """A burst of 500 lasts 500 / (300 - 100) = 2.5 seconds at the peak."""
    world, _, _ = greedy(Limit(SUSTAINED, peak_messages=PEAK))
    world.run(10)
    counts = per_second(world, 10)
    assert counts[:2] == pytest.approx([300, 300], abs=2)
    assert counts[2] == pytest.approx(200, abs=2)
    assert counts[3:] == pytest.approx([100] * 7, abs=1)


def test_the_same_for_bytes() -> None:
    world, _, stream = greedy(Limit(size=rate(1000, burst=5000), peak_size=rate(3000, burst=1)), (1, 10))
    world.run(2.5)
    assert world.bytes_of(stream) == pytest.approx(7500, abs=20)
    world.run(5)
    assert world.bytes_of(stream) == pytest.approx(12_500, abs=20)


def test_a_pause_earns_the_burst_again_but_no_more_than_the_peak_at_once() -> None:
    world, limit = World(), of(Limit(SUSTAINED, peak_messages=PEAK))
    stream = world.stream(limit)
    for _ in range(2):
        start, before = world.clock.now, world.messages_of(stream)
        for _ in range(900):
            world.offer(stream, 1, 1)
        world.run(2.5)
        assert world.messages_of(stream) - before == pytest.approx(750, abs=2)
        world.run(3)
        assert not stream.held
        world.run_until(start + 30 * SECOND)


def test_without_a_peak_the_whole_burst_goes_at_once() -> None:
    world, _, stream = greedy(Limit(SUSTAINED))
    assert world.messages_of(stream) == 500


def test_who_is_over_both_waits_for_the_later() -> None:
    limit = of(Limit(rate(10, burst=10), peak_messages=rate(100, burst=5)))
    limit.charge(7, 1, 0)
    assert limit.wait_ns(0) == 3 * SECOND // 100
    limit.charge(10, 1, SECOND // 10)
    assert limit.wait_ns(SECOND // 10) == 7 * SECOND // 10


def test_a_peak_that_comes_holds_at_once_and_the_debt_of_the_sustained_rate_stays() -> None:
    limit = of(Limit(SUSTAINED))
    limit.charge(600, 1, 0)
    limit.retune(Limit(SUSTAINED, peak_messages=PEAK), "peak", 0)
    assert limit.wait_ns(0) == 101 * SECOND // 100
    limit.charge(600, 1, 2 * SECOND)
    assert limit.wait_ns(2 * SECOND) == 501 * SECOND // 100


def test_a_peak_that_goes_takes_its_debt_along_and_leaves_the_sustained_rates() -> None:
    limit = of(Limit(SUSTAINED, peak_messages=rate(200, burst=1)))
    limit.charge(401, 1, 0)
    assert limit.wait_ns(0) == 401 * SECOND // 200
    limit.retune(Limit(SUSTAINED), "no peak", 0)
    assert limit.is_open(0)
    assert not fits(limit, 100, 1, 0)
    assert fits(limit, 99, 1, 0)


def test_a_raised_peak_frees_who_waited_for_the_old_one() -> None:
    world, limit, stream = greedy(Limit(SUSTAINED, peak_messages=rate(1, burst=1)))
    world.run(3)
    assert world.messages_of(stream) == 4
    limit.retune(Limit(SUSTAINED, peak_messages=PEAK), "raised", world.clock.now)
    world.scheduler.serve(limit, world.clock.now)
    world.run(1)
    assert world.messages_of(stream) == pytest.approx(304, abs=2)


def test_peaks_that_come_and_go_give_no_more_than_the_sustained_rate() -> None:
    """Each new peak has its own burst; what passes in all is bounded by the sustained bucket, which stays the same."""
    world, limit, stream = greedy(Limit(SUSTAINED, peak_messages=PEAK))
    for turn in range(100):
        peak = (None, PEAK, rate(150), rate(1000, burst=1))[turn % 4]
        limit.retune(Limit(SUSTAINED, peak_messages=peak), "turn", world.clock.now)
        world.scheduler.serve(limit, world.clock.now)
        world.run(0.1)
    within(SUSTAINED, [(passed.at, passed.messages) for passed in world.log])
    assert world.messages_of(stream) == pytest.approx(500 + 100 * 10, abs=2), "and no less, once the burst is used up"


def test_a_peak_does_not_change_who_gets_what() -> None:
    world, limit = World(), of(Limit(rate(1000, burst=5000), peak_messages=rate(2000)))
    streams = [world.greedy(limit, entries=repeat((batch, batch))) for batch in (1, 7, 50, 333)]
    world.run(60)
    assert jain([world.messages_of(stream) for stream in streams]) >= 0.99
    assert limit.usage.messages >= 0.99 * 1000 * 60


RATES = st.builds(rate, st.sampled_from([60, 1000]), st.just(SECOND), st.none() | st.sampled_from([200, 3000]))
SIZES = st.builds(rate, st.sampled_from([6000, 10**5]), st.just(SECOND), st.none() | st.sampled_from([9000, 10**5]))


@settings(max_examples=examples(60), deadline=None)
@given(
    limit=st.builds(Limit, RATES, st.none() | SIZES, st.none() | RATES, st.none() | SIZES),
    entry=st.tuples(st.sampled_from([1, 3, 40]), st.sampled_from([1, 30, 4000])),
)
def test_with_demand_each_moment_sees_no_less_than_the_tightest_rate_gives(limit: Limit, entry) -> None:
    """And no more: with all buckets full at first, what passes is the lowest of the lines burst + rate · time."""
    world, _, stream = greedy(limit, entry)
    messages, size = entry
    kinds = ((limit.messages, messages), (limit.peak_messages, messages), (limit.size, size), (limit.peak_size, size))
    lines = [(value, worth) for value, worth in kinds if value is not None]
    for value, worth in lines:
        within(value, [(passed.at, worth) for passed in world.log])
    for _ in range(30):
        world.run(0.1)
        due = min(entries_due(value, worth, world.clock.now) for value, worth in lines)
        assert stream.usage.passed_entries >= due
    for value, worth in lines:
        within(value, [(passed.at, worth) for passed in world.log])


def entries_due(value: Rate, worth: int, now: int) -> float:
    """Entries worth so many tokens that the rate gives until now, without what a sleep may keep back."""
    asleep = min(now, 2 * LEAST_SLEEP_NS)
    return (value.burst + value.tokens * (now - asleep) / value.period_ns - 1) / worth


@pytest.mark.parametrize("peak", [None, rate(400), rate(200), rate(1000, burst=10)])
@pytest.mark.parametrize("batch", [1, 6, 20, 199])
def test_over_many_periods_nothing_of_the_limit_is_left_unused(peak: Rate | None, batch: int) -> None:
    """P2, the other way round: at least 0.99 of it in every ten seconds while there is demand."""
    world, _, _ = greedy(replace(Limit(rate(200)), peak_messages=peak), (batch, batch))
    world.run(50)
    sums = [sum(p.messages for p in world.log if start <= p.at / SECOND < start + 10) for start in range(0, 50, 5)][:-1]
    assert min(sums) + batch >= 0.99 * 2000
