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
    one = limiter(per_s, name=name)
    return Limiter(one.scope, replace(one.limit, mode="observe"), "test", 0)


def watched(world: World, *observed: Limiter, enforced: tuple[Limiter, ...] = ()) -> tuple[Stream, ShadowStream]:
    stream = world.stream(*enforced)
    beside = stream.observed = world.observer.watch(stream)
    beside.rewire(observed, world.clock.now)
    return stream, beside


def test_everything_passes_at_once_and_what_would_be_held_is_counted() -> None:
    world, one = World(), observing(10)
    stream, beside = watched(world, one)
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
    assert one.usage.throttled.read(world.clock.now) == SECOND // 2
    assert not stream.holds


def test_a_chunk_over_an_observed_limit_passes_entry_by_entry() -> None:
    world, enforced, one = World(), limiter(1000), observing(10)
    stream, beside = watched(world, one, enforced=(enforced,))
    assert not world.scheduler.admit(stream, 50, 50, 0)
    assert fits(enforced, 100, 1, 0)
    assert fits(one, 1, 1, 0)
    assert world.offer(stream, 50, 50)
    assert not fits(enforced, 51, 1, 0)
    assert beside.usage.passed_messages == 50


def test_a_chunk_within_it_is_counted_for_both_and_can_be_withdrawn() -> None:
    world, enforced, one = World(), limiter(1000), observing(100)
    stream, beside = watched(world, one, enforced=(enforced,))
    assert world.scheduler.admit(stream, 9, 90, 0)
    world.scheduler.withdraw(stream, 9, 90)
    assert fits(one, 10, 1, 0)
    assert world.scheduler.admit(stream, 9, 90, 0)
    world.scheduler.count_admitted(stream, 3, 9, 90, 5, 40)
    assert not fits(one, 2, 1, 0)
    assert (one.usage.entries, one.usage.messages, one.usage.size) == (3, 9, 90)
    assert (one.usage.largest_messages, one.usage.largest_size) == (5, 40)
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
    world, one = World(most_size=100, room=5), observing(10)
    first, beside_first = watched(world, one)
    second, beside_second = watched(world, one)
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
    assert one.usage.messages == 6


@pytest.mark.parametrize("end", ["leave", "rewire"])
def test_room_is_given_back_when_a_stream_ends_or_its_limits_go(end: str) -> None:
    world, one = World(room=5), observing(1)
    stream, beside = watched(world, one)
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
    assert not one.waiters
    assert one.streams == set()


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 10, 60, 200]), st.integers(0, SECOND // 4))),
    room=st.integers(0, 6),
)
def test_entries_are_dropped_only_at_the_bounds_of_a_shadow(steps, room) -> None:
    world, one = World(most_size=100, room=room), observing(10)
    pairs = [watched(world, one) for _ in range(4)]
    for whose, size, span in steps:
        stream, beside = pairs[whose]
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
    world, one = World(), observing(10)
    stream, _ = watched(world, one)
    world.offer(stream, 1, 1)
    world.offer(stream, 1, 1)
    for _ in range(2):
        assert emptied(world.journal) == ([stream], [one])
    world.run(1)
    assert emptied(world.journal) == ([stream], [one])
    assert emptied(world.journal) == ([], [])


def test_the_journal_notes_entries_that_new_limits_pass_at_once() -> None:
    world, one, other = World(), observing(10), observing(10, "other")
    stream, beside = watched(world, one)
    world.offer(stream, 1, 1)
    world.offer(stream, 1, 1)
    beside.rewire((other,), world.clock.now)
    assert other.usage.messages == 1
    assert emptied(world.journal) == ([stream], [one, other])


def test_observed_limits_would_be_shared_equally_too() -> None:
    """With all batch sizes, and no stream is slowed."""
    world, one = World(), observing(1000)
    pairs = [watched(world, one) for _ in range(3)]
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
    one = Limiter(limiter(1).scope, Limit(peak_messages=rate(1), mode="observe"), "test", 0)
    stream, beside = watched(world)
    assert not one.limit
    assert all(world.offer(stream, each, each) for each in repeat(10, 5))
    assert beside.usage.passed_messages == 50
