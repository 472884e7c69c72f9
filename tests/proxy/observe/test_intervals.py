"""Spans of the access log: which lines come when, and that none is counted twice."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from accesslog.record import HeartbeatLine, IntervalLine, LimitLine, StandstillLine
from limiter.activity import MOST_ENDED
from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, rate
from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseProducer, CommandProducerSuccess
from proxy.observe.intervals import HEARTBEAT_S
from proxy.session.transport import LOOK_S
from proxy.slices import AT_ONCE, Work
from tests.proxy.conversation import World, publisher
from tests.proxy.wire import NO_REQUEST, TOPIC, producer, send, sends

Make = Callable[..., World]
SLICE = AT_ONCE[Work.LINES]
ONE_A_SECOND = {"namespaces": {"acme/shop": {"publish": {"messages": 1}}}}


def seconds(line: Any) -> tuple[float, float]:
    """Begin and end of a line's span, since the world began."""
    start = line.start.timestamp() - 1_700_000_000
    return round(start, 6), round(start + line.duration_ms / 1000, 6)


def test_lines_end_at_the_boundaries_of_the_wall_clock(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    world.advance(10.3)
    client >> send(0)
    world.advance(3)
    client >> send(1)
    world.advance(3)
    assert [seconds(line) for line in world.lines(IntervalLine)] == [(10.0, 11.0), (13.0, 14.0)]


def test_who_waits_has_a_line_in_every_interval(make_world: Make) -> None:
    """A bucket with a burst of one has kept 20 ms' worth besides (`TokenBucket`): who waits goes so much earlier."""
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    world.advance(0.5)
    client >> [send(0, messages=4), send(1)]
    world.advance(6)
    lines = world.lines(IntervalLine)
    assert [line.held_messages for line in lines] == [1, 1, 1, 1, 0]
    assert [line.throttled_ms for line in lines] == [500, 1000, 1000, 1000, 480]
    assert [line.passed_messages for line in lines] == [4, 0, 0, 0, 1]
    assert [line.delay_max_ms for line in lines] == [0, 0, 0, 0, 3980]
    assert [line.reason for line in lines] == ["topic"] * 5
    limits = world.lines(LimitLine)
    assert [line.throttled_ms for line in limits] == [500, 1000, 1000, 1000, 480]


def test_delay_begins_when_the_last_part_has_come(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    world.advance(0.5)
    first, second = send(0, messages=4), send(1, size=2000)
    client >> [first, second[:1000]]
    world.advance(2)
    client >> second[1000:]
    world.advance(4)
    lines = world.lines(IntervalLine)
    assert [line.delay_max_ms for line in lines if line.passed_messages] == [0, 1980]
    assert sum(line.throttled_ms for line in lines) == 1980


def test_spans_follow_each_other_without_overlap(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    for number in range(20):
        client >> send(number)
        world.advance(0.37)
        if number % 4 == 0:
            world.loop.run(world.intervals.flush)
    spans = [seconds(line) for line in world.lines(IntervalLine)]
    assert len(spans) > 10
    assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(spans))


def test_every_message_is_in_exactly_one_line(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND, access_log={"interval": "500ms"})
    client, broker = publisher(world)
    client >> sends(7)
    for _ in range(9):
        world.advance(0.77)
        world.loop.run(world.intervals.flush)
    passed = len(broker.heard())
    client.leave()
    world.advance(1)
    lines = world.lines(IntervalLine)
    assert sum(line.offered_messages for line in lines) == 7
    assert sum(line.passed_messages for line in lines) == passed == 7
    assert sum(line.passed_messages for line in world.lines(LimitLine)) == 7
    totals = world.totals.by_name["acme", "shop", "publish"]
    assert (totals.received_messages, totals.passed_messages) == (7, 7)


def test_a_changed_limit_ends_the_span_so_that_no_line_mixes_two_values(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    client >> sends(3)
    world.advance(0.4)
    world.loop.run(world.intervals.flush)
    new = Value(Limit(rate(50)), "rest")
    world.engine.registry.policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop", new)
    world.loop.run(world.engine.policies_changed)
    world.advance(2)
    lines = world.lines(LimitLine)
    assert [(seconds(line)[1], line.limit_messages, line.source) for line in lines] == [
        (0.4, 1.0, "namespace file"),
        (1.0, 50.0, "namespace rest"),
    ]


def test_what_follows_a_change_while_all_is_quiet_does_not_begin_before_it(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    world.advance(10.4)
    world.loop.run(world.intervals.flush)
    world.advance(0.1)
    client >> send(0)
    world.advance(1)
    (line,) = world.lines(LimitLine)
    assert seconds(line) == (10.4, 11.0)


def test_line_of_a_waiting_stream_begins_where_the_last_ended(make_world: Make) -> None:
    """A change ends an interval just before a boundary, which passes while the lines are made."""
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    client >> sends(5)
    world.advance(0.98)
    tell = world.intervals._write

    def slowly(*of: Any) -> None:
        world.clock.now += 15_000_000
        tell(*of)

    world.intervals._write = slowly  # type: ignore[method-assign,assignment]
    world.loop.run(world.intervals.flush)
    world.intervals._write = tell  # type: ignore[method-assign]
    world.advance(2)
    for kind in (LimitLine, IntervalLine):
        spans = [seconds(line) for line in world.lines(kind)]
        assert [begin for begin, _ in spans] == [0.0, *(end for _, end in spans[:-1])], kind
        assert all(line.throttled_ms <= line.duration_ms for line in world.lines(kind))


def test_a_limiter_that_is_made_anew_has_a_line_from_then_on(make_world: Make) -> None:
    """A full one was forgotten for want of room: the new one's bucket cannot tell what found no room in the old one."""
    world = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": 100}}}})
    client, _ = publisher(world)
    client >> sends(3)
    world.advance(1.2)
    client.leave()
    world.advance(1.1)
    (first,) = world.lines(LimitLine)
    world.loop.run(world.engine.registry.make_room, world.clock.now)
    world.advance(0.3)
    client, _ = publisher(world)
    world.advance(0.1)
    client >> sends(2)
    world.advance(1)
    _, again = world.lines(LimitLine)
    assert (seconds(first), seconds(again)) == ((0.0, 1.0), (2.6, 3.0))
    lasts_s = again.duration_ms / 1e3
    assert again.tokens_messages == pytest.approx(10 + 100 * lasts_s - again.overflow_messages - 2, abs=0.01)


def test_a_timer_is_set_only_by_activity(make_world: Make) -> None:
    world = make_world()
    assert len(world.loop.timers) == 1, "the heartbeat's"
    client, _ = publisher(world)
    world.advance(2 * LOOK_S)
    assert len(world.loop.timers) == 1, "nobody looks any more whether the client takes its answers"
    client >> send(0)
    assert len(world.loop.timers) == 2
    world.advance(1)
    assert len(world.loop.timers) == 1


def test_a_splinter_before_a_boundary_is_joined_to_the_next_interval(make_world: Make) -> None:
    world = make_world()
    client, _ = publisher(world)
    world.advance(4.95)
    client >> send(0)
    world.advance(3)
    assert [seconds(line) for line in world.lines(IntervalLine)] == [(4.0, 6.0)]


def test_a_proxy_at_rest_beats_and_says_nothing_else(make_world: Make) -> None:
    world = make_world()
    world.advance(3 * HEARTBEAT_S + 1)
    lines = world.lines()
    assert {type(line) for line in lines} == {HeartbeatLine}
    assert [seconds(line) for line in lines] == [(0, 0), (0, 30), (30, 60), (60, 90)]


def test_at_rest_the_files_hear_how_long_nothing_will_come(make_world: Make) -> None:
    world = make_world()
    world.advance(3 * HEARTBEAT_S + 1)
    assert world.files.rests == [HEARTBEAT_S] * 3


def test_they_hear_nothing_while_a_line_is_about_to_come(make_world: Make) -> None:
    world = make_world(access_log={"interval": "7s"})
    client, _ = publisher(world)
    world.advance(HEARTBEAT_S - 1)
    client >> send(0)
    world.advance(2)
    assert world.files.rests == []


def test_the_last_heartbeat_of_an_orderly_end_says_so(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    client >> sends(3)
    world.advance(0.2)
    world.loop.run(world.intervals.stop)
    lines = world.lines()
    assert [line.last for line in lines if isinstance(line, HeartbeatLine)][-1]
    assert isinstance(lines[-1], HeartbeatLine)
    assert sum(line.offered_messages for line in lines if isinstance(line, IntervalLine)) == 3
    assert not [name for name in world.loop.timers if "Intervals" in name]


def test_a_standstill_is_told_once_however_many_timers_it_kept_from_ringing(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    publisher(world)
    world.advance(10)
    for late_ms in (499, 3000, 2900, 2500):
        world.loop.run(partial(world.engine.slices.lateness.timer_fired, late_ms * 1_000_000))
    world.advance(1)
    world.loop.run(partial(world.engine.slices.lateness.timer_fired, 700_000_000))
    assert [line.duration_ms for line in world.lines(StandstillLine)] == [3000, 700]


def test_what_a_closed_stream_did_is_still_told(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    client >> sends(3)
    client.leave()
    world.advance(1)
    (line,) = world.lines(IntervalLine)
    assert (line.offered_messages, line.passed_messages, line.dropped_messages, line.held_messages) == (3, 1, 2, 0)


def test_lines_end_at_the_moment_of_which_who_changes_values_is_told(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = publisher(world)
    world.advance(10.3)
    client >> send(0)
    moments: list[tuple[int, int]] = []
    world.loop.run(lambda: moments.append(world.intervals.flush()))
    ((at_ns, now),) = moments
    assert now == world.clock.now
    assert world.lines(LimitLine)[-1].end == datetime.fromtimestamp(at_ns / 1e9, UTC)


def many(make_world: Make) -> World:
    """A world in which more streams have done something than are told of in one go."""
    world = make_world(limits=ONE_A_SECOND)
    ids = range(2, 3 * SLICE)
    client, _ = publisher(world, *(producer(number, f"{TOPIC}-{number}") for number in ids))
    client >> [send(0, producer_id=number) for number in ids]
    return world


def turns_until(world: World, at: float, act: Callable[[], None]) -> None:
    """Call `act` in each of some turns of the loop from that moment on."""

    def turn(left: int) -> None:
        act()
        if left:
            world.loop.call_soon(turn, left - 1)

    world.loop.run(world.loop.call_later, at, turn, 20)


def test_lines_of_many_streams_are_made_in_slices_and_count_up_to_the_same_moment(make_world: Make) -> None:
    world, made = many(make_world), []
    turns_until(world, 1.0, lambda: made.append(world.access.lines))
    world.advance(1)
    assert max(after - before for before, after in pairwise(made)) == SLICE
    lines = world.lines(IntervalLine)
    assert len(lines) == 3 * SLICE - 2
    assert {seconds(line) for line in lines} == {(0.0, 1.0)}
    beat = world.lines(HeartbeatLine)[-1]
    assert world.lines()[-1] == beat
    assert seconds(beat)[1] == 1.0, "it is of the moment of its lines: no step of the clock comes between"


def test_totals_are_whole_in_the_middle_of_it(make_world: Make) -> None:
    world, seen = many(make_world), set()

    def look() -> None:
        deque(world.intervals.settling(), 0)
        seen.add(world.totals.by_name["acme", "shop", "publish"].passed_messages)

    turns_until(world, 1.0, look)
    world.advance(1)
    assert seen == {3 * SLICE - 2}


def test_who_is_about_to_change_a_value_has_all_lines_first(make_world: Make) -> None:
    world, made = many(make_world), []

    def flush() -> None:
        world.intervals.flush()
        made.append(len(world.lines(IntervalLine)))

    turns_until(world, 1.0, flush)
    world.advance(1)
    assert set(made) - {0} == {3 * SLICE - 2}


def test_what_happens_between_two_slices_is_in_the_next_interval(make_world: Make) -> None:
    world = many(make_world)
    streams = world.engine.registry.live()

    def more() -> None:
        for stream in streams:
            world.engine.scheduler.count_dropped(stream, 1, 100)

    turns_until(world, 1.0, more)
    world.advance(3)
    first, *_ = (line for line in world.lines(IntervalLine) if line.stream_id == 3 * SLICE - 1)
    assert first.dropped_messages <= 1
    assert sum(line.dropped_messages for line in world.lines(IntervalLine)) == 21 * len(streams)


def test_who_comes_and_goes_within_an_interval_is_told_once_and_most_before_its_end(
    make_world: Make,
) -> None:
    world = make_world()
    journal = world.engine.journal
    client, broker = world.pair()
    world.advance(0.3)
    for number in range(MOST_ENDED + 20):
        client >> producer(1, request_id=2 * number)
        broker >> encode(CommandProducerSuccess(request_id=2 * number, producer_name="p"))
        client >> send(0)
        broker >> encode(CommandCloseProducer(producer_id=1, request_id=NO_REQUEST))
    assert len(journal.streams) == MOST_ENDED
    early = world.lines(IntervalLine)
    assert len(early) == 20
    assert {seconds(line) for line in early} == {(0, 0.3)}
    world.advance(1)
    lines = world.lines(IntervalLine)
    assert sum(line.passed_messages for line in lines) == len(lines) == MOST_ENDED + 20
    assert world.totals.by_name["acme", "shop", "publish"].passed_messages == MOST_ENDED + 20
