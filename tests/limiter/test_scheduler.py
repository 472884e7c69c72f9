from itertools import pairwise, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.limiter import Entry, Limiter, Stream
from limiter.scheduler import LEAST_SLEEP_NS, MOST_TURNS, TURN_SIZE, Scheduler
from limiter.token_bucket import Limit, Rate, rate
from tests.limiter.fitting import fits
from tests.limiter.ledger import Charge, Ledger, named, within
from tests.limiter.world import World, limiter

SECOND = 1_000_000_000


def test_what_fits_passes_at_once_and_the_rest_when_tokens_come() -> None:
    world, limit = World(), limiter(10, burst=2)
    stream = world.stream(limit)
    assert [world.offer(stream, 1, 1) for _ in range(4)] == [True, True, False, False]
    world.run(0.15)
    assert world.messages_of(stream) == 3
    world.run(0.05)
    assert [passed.at for passed in world.log] == [0, 0, SECOND // 10, SECOND // 5]


def test_the_last_entry_may_leave_a_debt_that_the_next_ones_pay() -> None:
    """Ten a second and thirty in a batch: two seconds of silence after it, and the tenth of a token."""
    world, limit = World(), limiter(10)
    stream = world.stream(limit)
    assert world.offer(stream, 30, 30)
    assert not world.offer(stream, 1, 1)
    world.run(10)
    assert world.log[-1].at == 3 * SECOND


def test_a_chunk_is_charged_whole_or_not_at_all() -> None:
    world = World()
    outer, inner = limiter(100, name="outer"), limiter(50, name="inner")
    stream = world.stream(outer, inner)
    assert not world.scheduler.admit(stream, 6, 6, 0)
    assert outer.is_idle(0) is False, "it is in use"
    assert fits(outer, 10, 1, 0)
    assert world.scheduler.admit(stream, 5, 5, 0)
    assert not fits(outer, 6, 1, 0)
    world.scheduler.withdraw(stream, 5, 5)
    assert fits(outer, 10, 1, 0)
    assert fits(inner, 5, 1, 0)


def test_nobody_overtakes_in_the_moment_between_tokens_and_alarm() -> None:
    world, limit = World(), limiter(1000)
    first, newcomer = world.stream(limit), world.stream(limit)
    world.offer(first, 100, 1)
    world.offer(first, 1, 1)
    world.clock.now = 2 * SECOND
    assert limit.is_open(world.clock.now)
    assert not world.scheduler.admit(newcomer, 1, 1, world.clock.now)
    assert not world.offer(newcomer, 1, 1)
    world.run(0)
    assert [passed.stream for passed in world.log] == [first, first, newcomer]


def test_a_stream_without_limits_waits_for_nothing() -> None:
    world = World()
    stream = world.stream()
    assert world.offer(stream, 10**9, 10**9)
    assert not world.alarms.due


def test_commands_follow_held_entries_and_cost_nothing() -> None:
    world, limit, released = World(), limiter(10), list[int]()
    stream = world.stream(limit, release=lambda _stream, entry: released.append(entry.messages))
    world.offer(stream, 1, 1)
    for messages in (5, 0, 0, 3, 0):
        world.scheduler.hold(stream, Entry(b"", messages, messages, 1, 0), 0)
    world.run(0.1)
    assert released == [5, 0, 0]
    world.run(0.5)
    assert released == [5, 0, 0, 3, 0]
    assert stream.usage.passed_entries == 3


def test_frames_that_claim_no_messages_still_pay_for_their_bytes() -> None:
    """They went after a held entry as if they were commands, free of charge and uncounted."""
    world, limit = World(), limiter(size=1000)
    stream = world.stream(limit)
    for _ in range(5):
        world.offer(stream, 0, 1000)
    world.run(2.95)
    assert world.bytes_of(stream) == 4000
    assert stream.usage.held_size == 1000


def test_a_stream_waits_no_longer_than_until_its_held_entries_are_dropped() -> None:
    world, limit = World(), limiter(10)
    stream = world.stream(limit)
    for _ in range(2):
        world.offer(stream, 1, 7)
    world.run(0.05)
    world.scheduler.drop_held(stream, world.clock.now)
    world.run(1)
    assert stream.usage.throttled.read(world.clock.now) == SECOND // 20


def test_dropped_entries_are_returned_and_not_charged() -> None:
    world, limit = World(), limiter(10)
    stream = world.stream(limit)
    for _ in range(4):
        world.offer(stream, 1, 7)
    held = list(stream.held)
    assert world.scheduler.drop_held(stream, 0) == held
    usage = stream.usage
    assert (usage.dropped_messages, usage.dropped_size, usage.held_messages, usage.held_size) == (3, 21, 0, 0)
    world.run(1)
    assert world.messages_of(stream) == 1
    assert fits(limit, 1, 1, world.clock.now)


def test_what_never_was_held_can_be_counted_as_dropped_too() -> None:
    world = World()
    stream = world.stream(limiter(1))
    world.scheduler.count_dropped(stream, 2, 20)
    assert (stream.usage.dropped_messages, stream.usage.dropped_size) == (2, 20)
    assert stream in world.journal.streams


def test_the_delay_told_is_the_longest() -> None:
    world, limit = World(), limiter(10)
    stream = world.stream(limit)
    for _ in range(4):
        world.offer(stream, 1, 1)
    world.run(5)
    assert stream.usage.delay_max_ns == 3 * SECOND // 10
    assert stream.last_reason == "topic"


def test_a_limiter_knows_the_largest_entry_that_passed() -> None:
    world, limit = World(), limiter(1000)
    stream = world.stream(limit)
    for messages, size in ((3, 10), (7, 2), (1, 1)):
        world.offer(stream, messages, size)
    world.run(1)
    assert (limit.usage.largest_messages, limit.usage.largest_size) == (7, 10)
    assert (limit.usage.entries, limit.usage.messages, limit.usage.size) == (3, 11, 13)


def test_alarms_of_a_busy_limiter_are_at_least_a_millisecond_apart() -> None:
    world, limit, asked_for = World(), limiter(500_000), list[int]()
    wake_at = world.alarms.wake_at

    def watched(limiter: Limiter, at: int) -> None:
        asked_for.append(at)
        wake_at(limiter, at)

    world.scheduler = Scheduler(watched, world.journal)
    world.greedy(limit, entries=repeat((1, 1)))
    world.run(0.02)
    assert 15 <= len(asked_for) <= 22
    assert all(later - earlier >= LEAST_SLEEP_NS for earlier, later in pairwise(asked_for))


@pytest.mark.parametrize(("size", "portion"), [(1, MOST_TURNS), (4 * TURN_SIZE, MOST_TURNS // 5)])
def test_a_late_alarm_releases_entries_in_portions(size: int, portion: int) -> None:
    """Of large entries fewer: each of them is more work for whoever sends it on."""
    world, limit = World(), limiter(10**5)
    stream = world.stream(limit)
    for _ in range(10_000 + 3 * portion):
        world.offer(stream, 1, size)
    assert len(stream.held) == 3 * portion
    world.clock.advance(1)
    for number in (1, 2, 3):
        assert limit.usage.entries == 10_000 + (number - 1) * portion
        world.scheduler.serve(limit, world.clock.now)
        assert limit.usage.entries == 10_000 + number * portion
        assert limit.wakes_at == (world.clock.now if number < 3 else None)


def test_entries_that_arrive_during_a_release_go_last() -> None:
    """Bytes given back make room for reading on, and that offers more before `release` returns."""
    world, limit, came = World(), limiter(10), list[int]()
    stream = world.stream(limit)

    def release(stream: Stream, entry: Entry) -> None:
        came.append(entry.messages)
        if entry.messages < 5:
            world.hold(stream, entry.messages + 1, 1)

    stream.release = release
    world.offer(stream, 1, 1)
    world.offer(stream, 1, 1)
    world.run(10)
    assert came == [1, 2, 3, 4, 5]
    assert stream.waits_on is None


def test_a_long_row_of_such_entries_needs_no_recursion() -> None:
    world, slow, fast = World(), limiter(1, name="slow"), limiter(50_000, name="fast")
    stream = world.greedy(slow, entries=repeat((1, 1)))
    world.scheduler.rewire(stream, (fast,), 0)
    assert world.messages_of(stream) == 5_001


@pytest.mark.parametrize("end", ["leave", "drop_held"])
def test_a_stream_may_end_while_it_is_passing(end: str) -> None:
    world, limit = World(), limiter(10)
    stream, other = world.stream(limit), world.stream(limit)
    stream.release = lambda stream, _entry: getattr(world.scheduler, end)(stream, world.clock.now)
    for each in (stream, other, stream, stream, other):
        world.offer(each, 1, 1)
    world.run(10)
    assert not stream.held
    assert world.messages_of(other) == 2
    assert not limit.waiters


def test_a_release_that_fails_strands_nobody_else() -> None:
    world, limit = World(), limiter(10)
    other, broken = world.stream(limit), world.stream(limit)

    def fail(_stream: Stream, entry: Entry) -> None:
        raise OSError(entry.messages)

    broken.release = fail
    world.offer(other, 1, 1)
    for stream in (broken, other):
        world.offer(stream, 1, 1)
    with pytest.raises(OSError):
        world.run(0.1)
    world.run(1)
    assert world.messages_of(other) == 2


def test_rewiring_judges_anew_what_is_held() -> None:
    world, slow, fast = World(), limiter(1, name="slow"), limiter(1000, name="fast")
    stream = world.stream(slow)
    for _ in range(10):
        world.offer(stream, 10, 10)
    world.scheduler.rewire(stream, (fast,), 0)
    assert world.messages_of(stream) == 110 - 10
    assert slow.streams == set()
    assert not slow.waiters
    assert fast.streams == {stream}


ENTRIES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 1000), st.integers(1, 10_000)), min_size=1, max_size=80)


@settings(max_examples=100, deadline=None)
@given(
    entries=ENTRIES,
    messages=st.sampled_from([10, 100, 5000, 10**6]),
    size=st.none() | st.sampled_from([10**4, 10**7]),
)
def test_while_demand_waits_the_limit_is_used_in_full(
    entries: list[tuple[int, int, int]], messages: int, size: int | None
) -> None:
    """Every interval: not under the rate by more than one entry and one sleep's worth."""
    world, limit = World(), limiter(messages, size)
    streams = [world.stream(limit) for _ in range(5)]
    for index, count, length in entries:
        world.offer(streams[index], count, length)
    while limit.waiters:
        alarm = world.alarms.next_before(1 << 80)
        assert alarm is not None
        world.clock.now = alarm[0]
        world.scheduler.serve(limit, world.clock.now)
    largest = max(count for _, count, _ in entries)
    for start in range(len(world.log)):
        passed = 0
        for before, after in zip(world.log[start:], world.log[start + 1 :], strict=False):
            passed += before.messages
            due = messages * (after.at - world.log[start].at) / SECOND
            slack = largest + messages * LEAST_SLEEP_NS / SECOND + 1
            if size is None:
                assert passed >= due - slack


def test_the_judge_of_intervals_is_exact() -> None:
    """Burst 2, then one a second: three at once are one too many, and so is one that comes a nanosecond early."""
    value = Rate(1, SECOND, 2)
    within(value, [(0, 1), (0, 1), (SECOND, 1), (2 * SECOND, 5), (7 * SECOND, 1)])
    for early in ([(0, 1), (0, 1), (0, 1)], [(0, 1), (0, 1), (SECOND - 1, 1)], [(0, 5), (4 * SECOND - 1, 1)]):
        with pytest.raises(AssertionError):
            within(value, early)


def test_the_judge_looks_at_bytes_as_at_messages() -> None:
    world, limit, ledger = World(), limiter(100, 100), Ledger()
    stream: Stream = world.stream(limit)
    ledger.passed(named(stream.chain), Charge(0, 1, 50))
    ledger.passed(named(stream.chain), Charge(0, 1, 1))
    with pytest.raises(AssertionError):
        ledger.check()
    assert limit.limit == Limit(rate(100), rate(100))
