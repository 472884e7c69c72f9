"""Streams whose limits overlap: X within A and B, others within A only, others within B only."""

from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.harness import jain
from limiter.limiter import Limiter, Stream, refusal_of
from limiter.scheduler import obstacle_of, refusing
from tests.limiter.standing import tag_of
from tests.limiter.world import World, limiter

SIZE = 100
SECONDS = 30


class Crossing:
    """`a`, `b` and `x` streams, all greedy, within limits of `rates` (A, B) messages a second."""

    def __init__(self, numbers: tuple[int, int, int], batches: tuple[int, int], rates: tuple[int, int]) -> None:
        self.world = World()
        self.a_limit, self.b_limit = limiter(rates[0], name="a"), limiter(rates[1], name="b")
        others, own = batches
        self.a = [self._greedy(others, self.a_limit) for _ in range(numbers[0])]
        self.b = [self._greedy(others, self.b_limit) for _ in range(numbers[1])]
        self.x = [self._greedy(own, self.a_limit, self.b_limit) for _ in range(numbers[2])]
        self.world.run(SECONDS)

    def _greedy(self, batch: int, *chain: Limiter) -> Stream:
        return self.world.greedy(*chain, entries=repeat((batch, batch * SIZE)))

    def per_second(self, streams: list[Stream]) -> list[float]:
        return [self.world.messages_of(stream) / SECONDS for stream in streams]

    def used(self, limit: Limiter) -> float:
        return limit.usage.messages / SECONDS


@pytest.mark.parametrize("batches", [(1, 1), (10, 10), (100, 100), (1, 100), (100, 1), (37, 10)])
@pytest.mark.parametrize("numbers", [(1, 1, 1), (2, 2, 1), (3, 1, 3)])
def test_a_stream_within_two_busy_limits_gets_its_max_min_share(
    batches: tuple[int, int], numbers: tuple[int, int, int]
) -> None:
    """It was sent from one queue to the other for ever, and got nothing."""
    cross = Crossing(numbers, batches, rates=(1000, 1000))
    a, b, x = numbers
    share = 1000 / (max(a, b) + x)
    assert cross.per_second(cross.x) == pytest.approx([share] * x, rel=0.03)
    least = cross.a if a >= b else cross.b
    assert jain(cross.per_second([*least, *cross.x])) > 0.99
    assert cross.used(cross.a_limit) >= 990
    assert cross.used(cross.b_limit) >= 990


def test_limits_of_unequal_rates_give_the_share_of_the_narrower() -> None:
    cross = Crossing((2, 2, 1), (100, 100), rates=(1000, 700))
    assert cross.per_second(cross.x) == pytest.approx([700 / 3], rel=0.03)
    assert cross.per_second(cross.a) == pytest.approx([(1000 - 700 / 3) / 2] * 2, rel=0.03)
    assert cross.used(cross.a_limit) >= 990
    assert cross.used(cross.b_limit) >= 693


@pytest.mark.parametrize(("batch", "rates"), [(300, (1000, 700)), (1000, (1000, 700)), (1000, (1000, 317))])
def test_entries_larger_than_the_burst_cost_little_of_the_limits(batch: int, rates: tuple[int, int]) -> None:
    """Both limits must be open at the same moment for such an entry, and beyond the burst nothing can be saved up."""
    cross = Crossing((2, 2, 2), (batch, batch), rates)
    entries = [stream.usage.passed_entries for stream in (*cross.b, *cross.x)]
    assert max(entries) - min(entries) <= 2, "however long it lasts"
    assert cross.used(cross.a_limit) >= 0.8 * rates[0]
    assert cross.used(cross.b_limit) >= 0.8 * rates[1]


BATCHES = st.sampled_from([5, 20, 50, 100, 150, 300, 1000])


@settings(max_examples=25, deadline=None)
@given(
    numbers=st.tuples(*[st.integers(1, 3)] * 3),
    batches=st.tuples(BATCHES, BATCHES, BATCHES),
    rates=st.tuples(st.sampled_from([200, 500, 1000]), st.sampled_from([200, 317, 700, 1000])),
    burst=st.sampled_from([None, 1, 30, 300]),
)
def test_a_crossing_costs_at_most_an_entry_less_the_burst(numbers, batches, rates, burst) -> None:
    """And nothing if no entry is larger than the burst: so the burst should be as large as the largest batch.

    Before an entry that crosses, a limit may stand open: its next entry would not leave room in time. What comes in
    meanwhile is less than that next entry, and a bucket keeps as much of it as the burst is. Nothing can mend it: to go
    on would let who crosses wait for ever; to charge it before it passes would let two entries over the limit pass at
    once, not one. Measured at the worst: 717 of 1000, for batches of a thousand within bursts of a hundred.
    """
    world, limits = World(), [limiter(value, name=name, burst=burst) for value, name in zip(rates, "ab", strict=True)]
    for limit, number, batch in zip(limits, numbers[:2], batches[:2], strict=True):
        for _ in range(number):
            world.greedy(limit, entries=repeat((batch, 1)))
    crossing = [world.greedy(*limits, entries=repeat((batches[2], 1))) for _ in range(numbers[2])]
    world.run(SECONDS)
    times = sum(stream.usage.passed_entries for stream in crossing)
    for limit, per_s, own in zip(limits, rates, batches[:2], strict=True):
        assert limit.limit.messages is not None
        room = limit.limit.messages.burst
        lost = room + per_s * SECONDS - limit.usage.messages
        assert lost <= times * max(0, own + 1 - room) + max(own, batches[2])


@pytest.mark.parametrize("batch", [1, 50, 300])
def test_three_limits_in_a_ring_leave_nobody_waiting_for_ever(batch: int) -> None:
    """X within A and B, Y within B and C, Z within C and A: each claims the limiter that the next one waits for."""
    world = World()
    ring = [limiter(1000, name=name) for name in "abc"]
    entries = repeat((batch, batch * SIZE))
    alone = [world.greedy(limit, entries=entries) for limit in ring]
    crossing = [world.greedy(ring[i], ring[(i + 1) % 3], entries=entries) for i in range(3)]
    world.run(SECONDS)
    shares = [world.messages_of(stream) / SECONDS for stream in [*alone, *crossing]]
    assert jain(shares) > 0.95
    assert all(limit.usage.messages >= 0.85 * 1000 * SECONDS for limit in ring)


def test_a_slow_limit_within_a_total_costs_the_total_nothing() -> None:
    """A topic of ten messages a second claims the busy total only when its turn is near."""
    world = World()
    total, slow = limiter(1000, name="total"), limiter(10, name="slow")
    greedy = world.greedy(total, entries=repeat((30, 30)))
    narrow = [world.greedy(total, slow, entries=repeat((20, 20))) for _ in range(2)]
    world.run(SECONDS)
    assert sum(map(world.messages_of, narrow)) == pytest.approx(10 * SECONDS, rel=0.06)
    assert total.usage.messages >= 0.99 * 1000 * SECONDS
    assert world.messages_of(greedy) >= 0.98 * 990 * SECONDS


def test_a_newcomer_is_refused_by_the_outermost_limit_that_is_closed_or_waited_on() -> None:
    world = World()
    outer, inner = limiter(10, name="outer"), limiter(10, name="inner")
    stream = world.stream(outer, inner)
    assert obstacle_of(stream, 0) is None
    inner.charge(1, 1, 0)
    assert obstacle_of(stream, 0) is inner
    outer.charge(1, 1, 0)
    assert obstacle_of(stream, 0) is outer


def test_a_stream_waits_for_its_turn_first_then_for_tokens() -> None:
    world = World()
    outer, inner = limiter(10, name="outer"), limiter(10, name="inner")
    outer.charge(1, 1, 0)
    inner.charge(5, 5, 0)
    stream, other = world.stream(outer, inner), world.stream(outer)
    world.offer(stream, 1, 1)
    assert stream.waits_on is inner, "it opens last"
    world.offer(other, 1, 1)
    assert refusing(other, 0) is outer
    outer.waiters.add(tag_of(world.stream(outer), outer, 1, 1))
    assert refusing(stream, 0) is outer


def test_a_head_that_must_wait_elsewhere_delays_no_stream() -> None:
    """Five at a time were kept from a limit open for seconds, by one of 300 that could not go itself."""
    world, limits = World(), [limiter(per_s, name=name, burst=30) for per_s, name in ((200, "a"), (317, "b"))]
    for _ in range(3):
        world.greedy(limits[1], entries=repeat((5, 1)))
        world.greedy(*limits, entries=repeat((300, 1)))
    world.greedy(limits[0], entries=repeat((150, 1)))
    world.run(40)
    assert limits[1].usage.messages >= 0.99 * 317 * 40


def test_the_earliest_claim_stands() -> None:
    world = World()
    busy, slow = limiter(10, name="busy"), limiter(1, name="slow")
    busy.charge(1, 1, 0)
    slow.charge(1, 1, 0)
    waiting = world.stream(busy)
    world.offer(waiting, 1, 1)
    early, late = world.stream(busy, slow), world.stream(busy, slow)
    for number, stream in enumerate((early, late), start=1):
        stream.tags = (tag_of(stream, busy, 1, number),)
    lines = world.scheduler._lines
    lines.claim(late, slow)
    assert busy.claimant is late
    lines.claim(early, slow)
    assert busy.claimant is early
    lines.claim(late, slow)
    assert busy.claimant is early


def test_others_pass_only_if_they_leave_room_for_a_claim() -> None:
    """The busy limit is open after 2 s, the slow one after 3 s: one message more fits in between, 30 do not."""
    world = World()
    busy, slow = limiter(10, name="busy", burst=1), limiter(1, name="slow", burst=1)
    busy.charge(20, 0, 0)
    slow.charge(3, 0, 0)
    first, x = world.stream(busy), world.stream(busy, slow)
    world.offer(first, 30, 30)
    world.offer(x, 20, 20)
    assert x.waits_on is slow
    assert busy.claimant is x
    assert world.scheduler._lines.next_turn(busy, 2_000_000_000) is None
    first.held[0].charged = 1
    assert world.scheduler._lines.next_turn(busy, 2_000_000_000) is first
    assert world.scheduler._lines.next_turn(busy, 3_000_000_000) is x


def test_a_claim_counts_only_while_its_stream_is_first() -> None:
    """The stream's tokens do not come next, so no other stream need leave room."""
    world = World()
    busy, slow = limiter(10, name="busy", burst=1), limiter(1, name="slow", burst=1)
    busy.charge(20, 0, 0)
    slow.charge(3, 0, 0)
    first, x, small = world.stream(busy), world.stream(busy, slow), world.stream(slow)
    world.offer(first, 30, 30)
    world.offer(x, 20, 20)
    world.offer(small, 1, 1)
    assert slow.waiters.first() is small
    assert world.scheduler._lines.next_turn(busy, 2_000_000_000) is first


def test_a_claim_ends_with_its_stream_and_wakes_waiting_ones() -> None:
    world = World()
    busy, slow = limiter(10, name="busy", burst=1), limiter(1, name="slow", burst=1)
    busy.charge(1, 0, 0)
    slow.charge(1000, 0, 0)
    first, x = world.stream(busy), world.stream(busy, slow)
    world.offer(first, 20_000, 1)
    world.offer(x, 20, 20)
    world.run(5)
    assert not world.log
    assert world.alarms.due[busy] == slow.wait_ns(world.clock.now) + world.clock.now, "no polling meanwhile"
    world.scheduler.leave(x, world.clock.now)
    assert busy.claimant is None
    world.run(0.001)
    assert [passed.stream for passed in world.log] == [first]


def test_an_alarm_for_the_end_of_a_claim_delays_no_newcomer() -> None:
    world, slow, fast = World(), limiter(1, burst=1, name="slow"), limiter(10, burst=1, name="fast")
    large, crossing = world.stream(fast), world.stream(slow, fast)
    slow.charge(10, 0, 0)
    fast.charge(1, 0, 0)
    world.offer(large, 1000, SIZE)
    world.offer(crossing, 1, SIZE)
    world.run(1)
    assert (fast.claimant, large.waits_on) == (crossing, fast)
    for stream in (large, crossing):
        world.scheduler.leave(stream, world.clock.now)
    newcomer = world.stream(fast)
    for _ in range(3):
        world.offer(newcomer, 1, SIZE)
    world.run(1)
    assert world.messages_of(newcomer) == 3


def test_a_refusal_names_the_limit_and_its_value() -> None:
    limit = limiter(10, 500, name="persistent://t/n/x")
    assert refusal_of(limit) == (
        "over the publish limit of topic persistent://t/n/x: 10 messages per 1 s and 500 bytes per 1 s"
    )
