from collections import Counter
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.limiter import MOST_GATHERING_NS, Entry, Limiter, cost_of
from limiter.token_bucket import Limit, Rate, rate
from tests.limiter.fitting import fits
from tests.limiter.world import World, limiter

SECOND = 1_000_000_000
RATES = st.none() | st.builds(Rate, st.integers(1, 10**12), st.integers(1, 60 * SECOND), st.integers(1, 10**12))
LIMITS = st.builds(Limit, RATES, RATES)


def entry(messages: int, size: int) -> Entry:
    return Entry(b"", messages, size, size, 0)


def of(limit: Limit) -> Limiter:
    template = limiter(1)
    return Limiter(template.scope, limit, "test", 0)


def test_a_chunk_fits_if_messages_and_bytes_do() -> None:
    limit = limiter(100, 1000)
    assert fits(limit, 10, 100, 0)
    assert not fits(limit, 11, 1, 0)
    assert not fits(limit, 1, 101, 0)


@pytest.mark.parametrize("refusing", range(4))
def test_where_one_bucket_refuses_nothing_is_taken_from_any(refusing: int) -> None:
    wanted, rates = (7, 7, 70, 70), [rate(1000, burst=10), rate(1000, burst=10), rate(10_000, burst=100), rate(10_000)]
    rates[refusing] = rate(1000, burst=wanted[refusing] - 1)
    limit = of(Limit(rates[0], rates[2], rates[1], rates[3]))
    before = limit.balances(0)
    assert None not in before
    assert not limit.pay(7, 70, 0)
    assert limit.balances(0) == before


def test_a_limiter_is_open_with_one_token_of_each_unit() -> None:
    limit = limiter(10, 100)
    limit.charge(1, 5000, 0)
    assert not limit.is_open(0)
    wait = limit.wait_ns(0)
    assert wait == (5000 - 10 + 1) * SECOND // 100
    assert not limit.is_open(wait - 1)
    assert limit.is_open(wait)


def test_no_limit_of_one_kind_never_refuses_that_kind() -> None:
    limit = limiter(size=100)
    assert fits(limit, 10**9, 1, 0)
    limit.charge(10**9, 1, 0)
    assert limit.is_open(0)


@given(limit=LIMITS, charges=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**9)), max_size=10))
def test_a_refund_undoes_a_charge(limit: Limit, charges: list[tuple[int, int]]) -> None:
    charged = of(limit)
    for messages, size in charges:
        charged.charge(messages, size, 0)
    for messages, size in charges:
        charged.refund(messages, size)
    assert charged.is_idle(0)


@given(limit=LIMITS, messages=st.integers(1, 1000), size=st.integers(1, 10**6), now=st.integers(0, SECOND))
def test_asking_what_an_entry_would_cost_costs_nothing(limit: Limit, messages: int, size: int, now: int) -> None:
    asked, charged = of(limit), of(limit)
    wait = asked.wait_after_ns(entry(messages, size), now)
    assert asked.is_idle(now)
    charged.charge(messages, size, now)
    assert charged.wait_ns(now) == wait


@pytest.mark.parametrize(
    ("messages", "size", "cost"),
    [(1, 1, 10_000_000), (10, 1, 100_000_000), (1, 5_000, 500_000_000), (0, 0, 1)],
)
def test_the_cost_is_the_time_of_the_scarcer_kind(messages: int, size: int, cost: int) -> None:
    limit = limiter(100, 10_000).limit
    assert cost_of(entry(messages, size), limit.messages, limit.size) == cost


def test_new_rates_start_full_and_old_ones_keep_their_debt() -> None:
    limit = limiter(100)
    limit.charge(110, 10, 0)
    limit.retune(Limit(rate(100), rate(1000)), "new", 0)
    assert limit.wait_ns(0) == 101 * SECOND // 100
    assert limit.source == "new"
    limit.retune(Limit(None, rate(1000)), "new", 0)
    assert limit.is_open(0)


def test_a_changed_value_gives_no_burst_and_forgives_no_debt() -> None:
    limit = limiter(100, 1000)
    limit.charge(10, 300, 0)
    limit.retune(Limit(rate(200), rate(3000)), "raised", 0)
    assert limit.wait_ns(0) == 201 * SECOND // 3000
    limit.retune(Limit(rate(200)), "messages only", 0)
    assert limit.wait_ns(0) == SECOND // 200


def test_a_retuned_limiter_has_no_alarm_of_its_old_value() -> None:
    """Nobody waited when it was raised: who came next waited for the old, late alarm."""
    world, limit = World(), limiter(1)
    first, second = world.stream(limit), world.stream(limit)
    world.offer(first, 1000, 1)
    world.offer(first, 1, 1)
    world.scheduler.leave(first, 0)
    limit.retune(Limit(rate(1000)), "raised", 0)
    world.offer(second, 1, 1)
    world.run(1.01)
    assert world.messages_of(second) == 1


@pytest.mark.parametrize("factor", [1000, 1_000_000])
def test_places_are_counted_anew_when_the_value_changes(factor: int) -> None:
    """A place of the slow limit's nanoseconds would mean waiting for ever after those who came after."""
    world, limit = World(), limiter(1)
    old = world.greedy(limit, entries=repeat((10, 10)))
    world.run(5)
    limit.retune(Limit(rate(factor)), "raised", world.clock.now)
    world.scheduler.serve(limit, world.clock.now)
    new = world.greedy(limit, entries=repeat((factor // 1000, 10)))
    world.run(0.4)
    assert world.messages_of(old) >= 0.18 * factor
    assert world.messages_of(new) >= 0.18 * factor


def test_a_new_value_resets_tags_of_streams_waiting_elsewhere() -> None:
    world, total, own = World(), limiter(1, name="total"), limiter(1, name="own")
    own.charge(100, 1, 0)
    stream = world.stream(total, own)
    world.offer(stream, 50, 50)
    assert stream.waits_on is own
    total.retune(Limit(rate(1000), rate(1000)), "of bytes as well", 0)
    assert stream.tag_at(total).time == 50_000_000
    assert stream.tag_at(own).time == 50 * SECOND


def test_tags_go_on_at_another_rate_of_one_kind() -> None:
    """To set those of 20,000 waiting streams would hold the event loop."""
    world, limit = World(), limiter(1)
    streams = [world.stream(limit) for _ in range(100)]
    for number, stream in enumerate(streams, 1):
        world.offer(stream, number, 1)
    before = [stream.tag_at(limit).time for stream in streams[1:]]
    limit.retune(Limit(rate(1000)), "raised", world.clock.now)
    assert [stream.tag_at(limit).time for stream in streams[1:]] == before


def test_streams_are_in_order_by_the_tags_of_a_new_value() -> None:
    world, limit = World(), limiter(1)
    limit.charge(100, 1, 0)
    for number in range(50):
        world.offer(world.stream(limit), 1 + number * 7 % 50, 1 + number * 11 % 50)
    limit.retune(Limit(None, rate(1)), "of bytes", 0)
    turns = []
    while limit.waiters:
        first = limit.waiters.first()
        turns.append(first.held[0].size)
        limit.waiters.remove(first.tag_at(limit))
    assert turns == sorted(turns)
    assert len(turns) == 50


def test_a_limiter_is_forgotten_only_if_full_and_unused() -> None:
    world, limit = World(), limiter(10, 100)
    assert limit.is_idle(0)
    stream = world.stream(limit)
    assert not limit.is_idle(0)
    world.offer(stream, 1, 1)
    world.scheduler.leave(stream, 0)
    assert not limit.is_idle(0)
    assert not limit.is_idle(SECOND // 10 - 1)
    assert limit.is_idle(SECOND // 10)


@pytest.mark.parametrize(
    ("per_second", "burst", "waiting", "gathered"),
    [
        (1000, None, 3, 3),  # 1 ms each: all of them
        (100_000, None, 600, 500),  # 5 ms of them
        (1000, None, 600, 5),
        (300, None, 600, 1),
        (19, None, 600, 1),
        (100_000, 400, 600, 100),  # a quarter of what the bucket has room for
        (100, 1, 600, 1),
    ],
)
def test_of_many_who_wait_several_go_at_one_time(
    per_second: int, burst: int | None, waiting: int, gathered: int
) -> None:
    world, limit = World(), limiter(per_second, burst=burst)
    for _ in range(waiting):
        world.greedy(limit, entries=repeat((1, 1)))
    assert limit.gathering_ns(0) == (gathered - 1) * SECOND // per_second <= MOST_GATHERING_NS
    seconds = 0.1 if per_second > 10_000 else 1
    world.run(seconds)
    alarms = Counter(passed.at for passed in world.log if passed.at > seconds * SECOND / 2)
    least = -(-per_second // 1000)  # of a limiter's wake-ups there are at most 1000 a second
    assert set(alarms.values()) == {max(gathered, least)}


def test_no_entries_are_gathered_if_streams_wait_elsewhere() -> None:
    world, busy, slow = World(), limiter(1000, name="busy"), limiter(1, name="slow")
    assert busy.gathering_ns(0) == 0
    busy.charge(100, 1, 0)
    slow.charge(1, 1, 0)
    for _ in range(5):
        world.offer(world.stream(busy), 2, 2)
    assert busy.gathering_ns(0) > 0
    world.offer(world.stream(busy, slow), 1, 1)  # smaller, so it is the first at both
    assert busy.claimant is not None
    assert busy.gathering_ns(0) == slow.gathering_ns(0) == 0
    world.scheduler.leave(busy.claimant, 0)
    assert busy.claimant is None
    assert busy.gathering_ns(SECOND // 2) == 0
    assert busy.gathering_ns(SECOND) > 0


@pytest.mark.parametrize(("late_ms", "recovered_ms"), [(19, 0), (60, 40), (120, 0)])
def test_late_time_is_recovered_while_a_bucket_has_room(late_ms: int, recovered_ms: int) -> None:
    """Of 100/s with a burst of ten; the bucket is full 90 ms after it has its first token."""
    limit, ms = limiter(100, burst=10), SECOND // 1000
    limit.charge(10, 1, 0)
    limit.is_waited_on(0)
    limit.is_attended((10 + late_ms) * ms)
    usage = limit.usage
    assert (usage.idle_ns, usage.recovered_ns) == (max(0, late_ms - 20) * ms, recovered_ms * ms)


def test_late_time_is_lost_only_if_each_bucket_is_full() -> None:
    limit = Limiter(limiter(1).scope, Limit(rate(100, burst=10), rate(100, burst=200)), "test", 0)
    limit.charge(10, 150, 0)
    limit.is_waited_on(0)
    limit.is_attended(SECOND)
    assert limit.usage.recovered_ns == limit.usage.idle_ns > 0


def test_lateness_before_an_entry_of_another_stream_is_not_idle() -> None:
    """A stream whose turn depends on another limit passes while one waits here, late, on a full bucket."""
    limit = limiter(100, burst=10)
    limit.charge(10, 1, 0)
    limit.is_waited_on(0)
    limit.charge(1, 1, SECOND // 2)
    assert (limit.usage.idle_ns, limit.usage.recovered_ns) == (SECOND // 2 - 30 * SECOND // 1000, 0)
