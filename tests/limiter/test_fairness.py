"""P4: streams of one limit get equal shares, whatever their entries, and whichever streams open and close."""

from collections.abc import Iterator
from itertools import cycle, repeat
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.harness import jain
from limiter.levels import Setting
from limiter.limiter import Entry, Limiter, Stream
from limiter.token_bucket import Limit, rate
from tests.limiter.world import Governed, World, limiter

BATCHES = (1, 2, 7, 10, 50, 100, 333, 1000)


def random_entries(seed: int, most: int) -> Iterator[tuple[int, int]]:
    random = Random(seed)
    while True:
        yield random.randint(1, most), random.randint(1, 10 * most)


def closed_loop(world: World, *chain: Limiter, entries: Iterator[tuple[int, int]]) -> Stream:
    """A stream that offers its next entry only when the last has passed: its queue runs empty each time."""
    stream = world.stream(*chain)

    def release(stream: Stream, entry: Entry) -> None:
        world.note(stream, entry.messages, entry.size)
        world.hold(stream, *next(entries))

    stream.release = release
    world.hold(stream, *next(entries))
    return stream


@pytest.mark.parametrize("per_s", [1000, 20_000])
def test_unequal_batches_get_equal_messages(per_s: int) -> None:
    world, total = World(), limiter(per_s)
    streams = [world.greedy(total, entries=repeat((batch, 100 * batch))) for batch in BATCHES]
    world.run(200_000 / per_s)
    assert jain([world.messages_of(stream) for stream in streams]) >= 0.99
    assert total.usage.messages >= 0.99 * 200_000


def test_unequal_sizes_get_equal_bytes() -> None:
    world, total = World(), limiter(size=1_000_000)
    sizes = (1_000, 2_000, 2_000, 30_000, 500_000, 1_000_000)
    streams = [world.greedy(total, entries=repeat((1, size))) for size in sizes]
    world.run(120)
    assert jain([world.bytes_of(stream) for stream in streams]) >= 0.99
    assert total.usage.size >= 0.99 * 120_000_000


def test_where_messages_and_bytes_are_limited_each_gets_equal_time_of_the_scarcer() -> None:
    """One needs the messages, one the bytes: each has half of its own kind's limit, or more."""
    world, total = World(), limiter(1000, 1_000_000)
    small = world.greedy(total, entries=repeat((1, 10)))
    large = world.greedy(total, entries=repeat((1, 100_000)))
    world.run(60)
    assert world.messages_of(small) >= 0.49 * 1000 * 60
    assert world.bytes_of(large) >= 0.49 * 1_000_000 * 60


@pytest.mark.parametrize("seed", range(3))
def test_random_entries_of_unequal_spread_get_equal_messages(seed: int) -> None:
    world, total = World(), limiter(5000)
    streams = [world.greedy(total, entries=random_entries(seed * 10 + most, most)) for most in (1, 10, 100, 1000)]
    world.run(40)
    assert jain([world.messages_of(stream) for stream in streams]) >= 0.99


def test_one_huge_entry_does_not_lengthen_the_turns_of_others() -> None:
    """Fifty seconds' worth in one entry: with turns as long as that, the others waited for minutes."""
    world, total = World(), limiter(100)
    streams = [world.greedy(total, entries=repeat((1, 1))) for _ in range(4)]
    huge = world.stream(total)
    world.offer(huge, 5000, 1)
    world.run(20)
    counts = [world.messages_of(stream) for stream in streams]
    assert max(counts) - min(counts) <= 12, "their turns are a message long; the first had the burst"
    world.run(300)
    assert world.messages_of(huge) == 5000


def test_a_small_load_passes_whole_and_others_share_the_rest() -> None:
    """Max-min fairness: 50 of 1000 a second are offered by one; three greedy ones share 950."""
    world, total = World(), limiter(1000)
    greedy = [world.greedy(total, entries=repeat((batch, 1))) for batch in (1, 30, 200)]
    modest = world.stream(total)
    for _ in range(60 * 10):
        world.offer(modest, 5, 1)
        world.run(0.1)
    assert world.messages_of(modest) >= 0.99 * 50 * 60
    assert modest.usage.delay_max_ns < 1_000_000_000
    assert jain([world.messages_of(stream) for stream in greedy]) >= 0.99
    assert sum(map(world.messages_of, greedy)) >= 0.98 * 950 * 60


@pytest.mark.parametrize("other", [1, 20, 300])
@pytest.mark.parametrize("own", [1, 20])
def test_a_stream_that_runs_empty_after_each_entry_loses_and_gains_nothing(own: int, other: int) -> None:
    """With turns as long as the largest entry it had a hundredth of its share."""
    world, total = World(), limiter(1000)
    greedy = [world.greedy(total, entries=repeat((other, 1))) for _ in range(2)]
    returning = [closed_loop(world, total, entries=repeat((own, 1))) for _ in range(2)]
    world.run(60)
    assert jain([world.messages_of(stream) for stream in [*greedy, *returning]]) >= 0.99


def test_coming_and_going_does_not_jump_the_queue() -> None:
    """One stream closes and opens again after each entry; steady ones of the same batch size still get their share."""
    world, total = World(), limiter(1000)
    steady = [world.greedy(total, entries=repeat((10, 1))) for _ in range(3)]
    jumping = 0
    for _ in range(3000):
        stream = world.stream(total)
        world.hold(stream, 10, 1)
        world.run(0.01)
        world.scheduler.leave(stream, world.clock.now)
        jumping += world.messages_of(stream) if world.log[-1].stream is stream else 0
    shares = [world.messages_of(stream) for stream in steady]
    assert jain([float(share) for share in shares]) >= 0.99
    assert min(shares) >= 0.24 * 1000 * 30
    assert jumping <= 0.26 * 1000 * 30


def test_topics_share_a_total_stream_by_stream_and_none_goes_over_its_own() -> None:
    """A narrow topic gets its own limit, the wide ones the rest of the total in equal parts."""
    world, total = World(), limiter(1000, name="total")
    narrow, wide = limiter(100, name="narrow"), limiter(800, name="wide")
    first = [world.greedy(total, narrow, entries=repeat((batch, 1))) for batch in (1, 5)]
    second = [world.greedy(total, wide, entries=repeat((batch, 1))) for batch in (1, 10, 100)]
    world.run(100)
    assert narrow.usage.messages >= 0.98 * 100 * 100
    assert wide.usage.messages <= 800 * 100 + 80 + 100
    assert total.usage.messages >= 0.98 * 900 * 100
    assert jain([world.messages_of(stream) for stream in first]) >= 0.99
    assert jain([world.messages_of(stream) for stream in second]) >= 0.99


def test_a_topic_that_was_slow_has_saved_up_no_turns_at_the_total() -> None:
    """Half a minute at ten a second, then its own limit is raised: it gets its share of the total, not all of it."""
    world, total, own = World(), limiter(1000, name="total"), limiter(10, name="own")
    slow = world.greedy(total, own, entries=repeat((1, 1)))
    fast = world.greedy(total, entries=repeat((1, 1)))
    world.run(30)
    own.retune(Limit(rate(5000)), "raised", world.clock.now)
    world.scheduler.serve(own, world.clock.now)
    before = world.messages_of(slow), world.messages_of(fast)
    world.run(1)
    gained = world.messages_of(slow) - before[0], world.messages_of(fast) - before[1]
    assert jain([float(gain) for gain in gained]) >= 0.99


def test_streams_of_all_batch_sizes_at_a_total_share_it_equally() -> None:
    world, total = World(), limiter(2000, name="total")
    own = [limiter(1500, name=f"topic {number}") for number in range(4)]
    streams = [
        world.greedy(total, topic, entries=repeat((b, 1))) for topic, b in zip(cycle(own), BATCHES, strict=False)
    ]
    world.run(100)
    assert jain([world.messages_of(stream) for stream in streams]) >= 0.99
    assert total.usage.messages >= 0.98 * 2000 * 100


@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(st.sampled_from([2, 3, 7, 10, 50, 100, 333]), min_size=2, max_size=6),
    arrivals=st.lists(st.integers(0, 2_000_000_000), min_size=6, max_size=6),
    limit=st.sampled_from(
        [Limit(rate(1000)), Limit(rate(1000, burst=3000), peak_messages=rate(1500)), Limit(rate(999, burst=1))]
    ),
)
def test_shares_are_equal_for_any_order_of_arrival_and_batches(batches, arrivals, limit) -> None:
    world, total = World(), Limiter(limiter(1).scope, limit, "test", 0)
    streams = []
    for at, batch in sorted(zip(arrivals, batches, strict=False)):
        world.run_until(at)
        streams.append(world.greedy(total, entries=repeat((batch, batch))))
    start = max(arrivals)
    world.run_until(start)
    before = [world.messages_of(stream) for stream in streams]
    world.run(40)
    shares = [float(world.messages_of(stream) - at_first) for stream, at_first in zip(streams, before, strict=True)]
    assert jain(shares) >= 0.99
    assert sum(shares) + max(batches) >= 0.99 * 999 * 40


def test_streams_alike_at_every_level_share_equally_whatever_their_batches() -> None:
    """Each of six topics has a limit, a namespace has three topics, and the proxy's total is scarce."""
    world = Governed()
    world.put((Setting.PROXY, ""), Limit(rate(1200), rate(10**6), rate(2400)))
    world.put((Setting.TENANT, "t"), Limit(rate(1500)))
    world.put((Setting.NAMESPACE, "t/n"), Limit(rate(1400)))
    world.put((Setting.TOPIC_OF_NAMESPACE, "t/n"), Limit(rate(600), peak_messages=rate(900)))
    streams = [world.open(f"topic-{number}") for number in range(6)]
    for stream, batch in zip(streams, (2, 5, 10, 20, 60, 120), strict=True):
        world.keep_busy(stream, repeat((batch, batch)))
    world.run(100)
    assert jain([world.messages_of(stream) for stream in streams]) >= 0.99
    assert sum(map(world.messages_of, streams)) >= 0.99 * 1200 * 100
