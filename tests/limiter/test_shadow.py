"""Mode `observe`: all entries pass, those over the limit are counted. `test_rehearsal.py` proves the numbers."""

from dataclasses import replace
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.limiter import Limiter, Stream
from limiter.shadow import ShadowStream
from limiter.token_bucket import Limit, rate
from tests.limiter.emptied import emptied
from tests.limiter.fitting import fits
from tests.limiter.world import World, limiter

SECOND = 1_000_000_000


def observing(per_s: int, name: str = "n") -> Limiter:
    enforced = limiter(per_s, name=name)
    return Limiter(enforced.scope, replace(enforced.limit, mode="observe"), "test", 0)


def watched(world: World, *observed: Limiter, enforced: tuple[Limiter, ...] = ()) -> tuple[Stream, ShadowStream]:
    stream = world.stream(*enforced)
    beside = stream.observed = world.observer.watch(stream)
    beside.rewire(observed, world.clock.now)
    return stream, beside


def test_everything_passes_at_once_and_what_would_be_held_is_counted() -> None:
    world, observed = World(), observing(10)
    stream, beside = watched(world, observed)
    assert all(world.offer(stream, 1, 100) for _ in range(6))
    assert stream.usage.held_messages == 0
    assert (beside.usage.offered_messages, beside.usage.passed_messages, beside.usage.held_messages) == (6, 1, 5)
    assert stream.holds
    assert beside.is_holding
    world.run(0.3)
    assert (beside.usage.passed_messages, beside.usage.held_messages) == (4, 2)
    world.run(10)
    assert beside.usage.throttled.read(world.clock.now) == SECOND // 2
    assert beside.usage.delay_max_ns == SECOND // 2
    assert observed.usage.throttled.read(world.clock.now) == SECOND // 2
    assert not stream.holds


def test_a_chunk_over_an_observed_limit_passes_entry_by_entry() -> None:
    world, enforced, observed = World(), limiter(1000), observing(10)
    stream, beside = watched(world, observed, enforced=(enforced,))
    assert not world.scheduler.admit(stream, 50, 50, 0)
    assert fits(enforced, 100, 1, 0)
    assert fits(observed, 1, 1, 0)
    assert world.offer(stream, 50, 50)
    assert not fits(enforced, 51, 1, 0)
    assert beside.usage.passed_messages == 50


def test_a_chunk_within_it_is_counted_for_both_and_can_be_withdrawn() -> None:
    world, enforced, observed = World(), limiter(1000), observing(100)
    stream, beside = watched(world, observed, enforced=(enforced,))
    assert world.scheduler.admit(stream, 9, 90, 0)
    world.scheduler.withdraw(stream, 9, 90)
    assert fits(observed, 10, 1, 0)
    assert world.scheduler.admit(stream, 9, 90, 0)
    world.scheduler.count_admitted(stream, 3, 9, 90, 5, 40)
    assert not fits(observed, 2, 1, 0)
    assert (observed.usage.entries, observed.usage.messages, observed.usage.size) == (3, 9, 90)
    assert (observed.usage.largest_messages, observed.usage.largest_size) == (5, 40)
    assert beside.usage.offered_entries == beside.usage.passed_entries == stream.usage.passed_entries == 3


def test_a_held_entry_reaches_observed_limits_when_it_passes() -> None:
    world, narrow, narrower = World(), limiter(10), observing(5)
    stream, beside = watched(world, narrower, enforced=(narrow,))
    for _ in range(11):
        world.offer(stream, 1, 1)
    assert beside.usage.offered_messages == 1
    world.run(1)
    assert (stream.usage.passed_messages, beside.usage.offered_messages, beside.usage.passed_messages) == (11, 11, 6)


def test_simulated_holding_is_bounded_in_entries_and_in_bytes() -> None:
    world, observed = World(most_size=100, room=5), observing(10)
    first, beside_first = watched(world, observed)
    second, beside_second = watched(world, observed)
    for _ in range(4):
        assert world.offer(first, 1, 40)
    assert world.offer(first, 1, 40), "three of 40 bytes are more than 100: reading would stop before a fourth"
    assert (beside_first.usage.held_messages, beside_first.usage.dropped_messages) == (3, 1)
    for _ in range(4):
        assert world.offer(second, 1, 1)
    assert world.observer.room == 0
    assert (beside_second.usage.held_messages, beside_second.usage.dropped_messages) == (2, 2)
    world.run(10)
    assert world.observer.room == 5
    assert observed.usage.messages == 6


@pytest.mark.parametrize("end", ["leave", "rewire"])
def test_room_is_given_back_when_a_stream_ends_or_its_limits_go(end: str) -> None:
    world, observed = World(room=5), observing(1)
    stream, beside = watched(world, observed)
    for _ in range(9):
        world.offer(stream, 1, 1)
    assert world.observer.room == 0
    if end == "leave":
        beside.leave(0)
        assert beside.usage.dropped_messages == 3 + 5
    else:
        beside.rewire((), 0)
        assert beside.usage.dropped_messages == 3
    assert world.observer.room == 5
    assert not observed.waiters
    assert observed.streams == set()


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 10, 60, 200]), st.integers(0, SECOND // 4))),
    room=st.integers(0, 6),
)
def test_entries_are_dropped_only_at_the_bounds_of_a_shadow(steps, room) -> None:
    world, observed = World(most_size=100, room=room), observing(10)
    pairs = [watched(world, observed) for _ in range(4)]
    for index, size, span in steps:
        stream, beside = pairs[index]
        room_before, held, dropped = world.observer.room, beside.usage.held_size, beside.usage.dropped_messages
        assert world.offer(stream, 1, size)
        no_room = room_before == 0 or held >= 100
        assert beside.usage.dropped_messages == dropped or no_room
        assert world.observer.room == room - sum(len(each._stream.held) for _, each in pairs) >= 0
        assert all(each.usage.held_size < 100 + 200 for _, each in pairs), "over by one entry at most"
        world.run(span / SECOND)
    for _, beside in pairs:
        beside.leave(world.clock.now)
    assert world.observer.room == room


def test_the_journal_notes_a_stream_while_its_shadow_holds() -> None:
    world, observed = World(), observing(10)
    stream, _ = watched(world, observed)
    world.offer(stream, 1, 1)
    world.offer(stream, 1, 1)
    for _ in range(2):
        assert emptied(world.journal) == ([stream], [observed])
    world.run(1)
    assert emptied(world.journal) == ([stream], [observed])
    assert emptied(world.journal) == ([], [])


def test_the_journal_notes_entries_that_new_limits_pass_at_once() -> None:
    world, observed, other = World(), observing(10), observing(10, "other")
    stream, beside = watched(world, observed)
    world.offer(stream, 1, 1)
    world.offer(stream, 1, 1)
    beside.rewire((other,), world.clock.now)
    assert other.usage.messages == 1
    assert emptied(world.journal) == ([stream], [observed, other])


def test_observed_limits_would_be_shared_equally_too() -> None:
    """With all batch sizes, and no stream is slowed."""
    world, observed = World(), observing(1000)
    pairs = [watched(world, observed) for _ in range(3)]
    for _ in range(300):
        for (stream, _), batch in zip(pairs, (1, 20, 100), strict=True):
            for _ in range(100 // batch):
                assert world.offer(stream, batch, 1)
        world.run(0.1)
    shares = [beside.usage.passed_messages for _, beside in pairs]
    assert max(shares) - min(shares) <= 200
    assert sum(shares) == pytest.approx(30_000, rel=0.01)


def test_a_limit_without_any_rate_observes_nothing() -> None:
    world = World()
    observed = Limiter(limiter(1).scope, Limit(peak_messages=rate(1), mode="observe"), "test", 0)
    stream, beside = watched(world)
    assert not observed.limit
    assert all(world.offer(stream, each, each) for each in repeat(10, 5))
    assert beside.usage.passed_messages == 50
