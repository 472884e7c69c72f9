"""Lines of several steady intervals: what ends them, and what they sum up."""

from collections.abc import Callable
from typing import Any

from accesslog.record import HeartbeatLine, IntervalLine, LimitLine
from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Lease, Limit, rate
from tests.proxy.conversation import World, publisher
from tests.proxy.observe.test_intervals import seconds
from tests.proxy.wire import TOPIC, producer, send

Make = Callable[..., World]
STEADY = {"access_log": {"steady_interval": 10}}
TEN = {"namespaces": {"acme/shop": {"publish": {"messages": 10}}}}
TENANT = {"acme": {"publish": {"messages": 1000}}}
BOTH = {"namespaces": {"acme/shop": {"publish": {"messages": 100}}}, "tenants": TENANT}


def each_second(world: World, client: Any, count: int, *ids: int) -> None:
    for _ in range(count):
        for number in ids or (1,):
            client >> send(0, producer_id=number)
        world.advance(1)


def spans(world: World, kind: Any, **which: Any) -> list[tuple[tuple[float, float], bool]]:
    lines = [line for line in world.lines(kind) if all(getattr(line, name) == of for name, of in which.items())]
    return [(seconds(line), line.steady) for line in lines]


def test_steady_stream_has_a_line_at_multiples_of_the_interval(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 24)
    expected = [((0.0, 10.0), True), ((10.0, 20.0), True)]
    assert (spans(world, IntervalLine), spans(world, LimitLine)) == (expected, expected)
    first, *_ = world.lines(IntervalLine)
    assert (first.offered_messages, first.passed_messages, first.largest_entry_messages) == (10, 10, None)
    assert first.largest_entry_bytes == first.passed_bytes // 10
    limit, *_ = world.lines(LimitLine)
    assert (limit.passed_messages, limit.largest_entry_messages) == (10, 1)
    assert world.totals.by_name["acme", "shop", "publish"].passed_messages == 24, "totals do not wait for lines"


def test_interval_with_a_wait_has_lines_of_its_own(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 4)
    client >> [send(number) for number in range(15)]
    world.advance(2)
    each_second(world, client, 10)
    expected = [((0.0, 4.0), True), ((4.0, 5.0), False), ((5.0, 6.0), False), ((6.0, 10.0), True)]
    assert spans(world, LimitLine)[:4] == expected
    assert spans(world, IntervalLine)[:4] == expected


def test_streams_of_a_reached_limit_have_a_line_each_interval(make_world: Make) -> None:
    world = make_world(limits=BOTH, **STEADY)
    client, _ = publisher(world, producer(2), producer(3, f"{TOPIC}-other"))
    each_second(world, client, 3, 1, 2, 3)
    client >> [send(number) for number in range(150)]
    each_second(world, client, 1, 2, 3)
    each_second(world, client, 8, 1, 2, 3)
    assert spans(world, IntervalLine, stream_id=2)[:2] == [((0.0, 3.0), True), ((3.0, 4.0), False)], "the same topic"
    assert spans(world, IntervalLine, stream_id=3)[0] == ((0.0, 10.0), True), "another topic"
    assert spans(world, LimitLine, level="tenant")[0] == ((0.0, 10.0), True)


def test_more_than_a_rate_in_an_interval_has_a_line_of_its_own(make_world: Make) -> None:
    limit = {"messages": 10, "burst_messages": 100}
    world = make_world(limits={"namespaces": {"acme/shop": {"publish": limit}}}, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 3)
    client >> [send(number) for number in range(11)]
    world.advance(1)
    each_second(world, client, 8)
    assert spans(world, LimitLine)[:3] == [((0.0, 3.0), True), ((3.0, 4.0), False), ((4.0, 10.0), True)]
    assert all(line.throttled_ms == 0 for line in world.lines(LimitLine))


def test_another_value_ends_the_line(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 3)
    world.advance(0.4)
    client >> send(0)
    world.loop.run(world.intervals.change)
    new = Value(Limit(rate(50)), "rest")
    world.engine.registry.policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop", new)
    world.loop.run(world.engine.policies_changed)
    world.advance(0.6)
    each_second(world, client, 8)
    limits = [(seconds(line), line.limit_messages) for line in world.lines(LimitLine)]
    assert limits[:2] == [((0.0, 3.0), 10.0), ((3.0, 3.4), 10.0)]
    assert {value for _, value in limits[2:]} == {50.0}
    assert [seconds(line) for line in world.lines(IntervalLine)][:2] == [(0.0, 3.0), (3.0, 3.4)]


def test_step_of_the_wall_clock_ends_lines_before_it(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 3)
    wall = world.intervals._wall
    world.intervals._wall = lambda: wall() + 5_000_000_000
    each_second(world, client, 4)
    lines = world.lines(LimitLine)
    assert [(seconds(line), line.steady) for line in lines[:1]] == [((0.0, 3.0), True)]
    assert (lines[1].steady, (lines[1].end - lines[1].start).total_seconds(), lines[1].duration_ms) == (False, 6, 1000)


def test_proxy_that_comes_to_rest_writes_what_it_kept(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 3)
    world.advance(1.5)
    assert spans(world, LimitLine) == [((0.0, 3.0), True)]
    assert len(world.loop.timers) == 1, "the heartbeat's"
    assert seconds(world.lines(HeartbeatLine)[-1])[1] == 4.0


def test_stream_that_ends_has_its_lines(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 3)
    client >> send(0)
    client.leave()
    world.advance(1)
    assert spans(world, IntervalLine) == [((0.0, 3.0), True), ((3.0, 4.0), False)]


def test_limit_that_a_fleet_shares_has_a_line_each_interval(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 2)
    (stream,) = world.engine.registry.live()
    (limiter,) = stream.chain
    world.loop.run(world.intervals.flush)
    limiter.lease = Lease()
    each_second(world, client, 8)
    assert spans(world, LimitLine)[1:4] == [((2.0, 3.0), False), ((3.0, 4.0), False), ((4.0, 5.0), False)]
    assert spans(world, IntervalLine)[1:] == [((2.0, 10.0), True)]


def test_heartbeat_says_up_to_when_all_lines_are_there(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 24)
    client >> [send(number) for number in range(15)]
    world.advance(2)
    counted = [line for line in world.lines() if isinstance(line, (HeartbeatLine, IntervalLine, LimitLine))]
    kept = 0
    for number, beat in enumerate(counted):
        if isinstance(beat, HeartbeatLine):
            until = beat.complete_until or beat.end
            assert not [line for line in counted[number:] if not isinstance(line, HeartbeatLine) and line.end <= until]
            kept += beat.complete_until is not None
    assert kept > 10


def test_lines_have_the_monotonic_time_of_their_end(make_world: Make) -> None:
    world = make_world(limits=TEN, **STEADY)
    client, _ = publisher(world)
    each_second(world, client, 12)
    ends = {(line.end, line.mono_us) for line in world.lines()}
    first, mono_us = min(ends)
    assert all((end - first).total_seconds() * 1e6 == own_us - mono_us for end, own_us in ends)
