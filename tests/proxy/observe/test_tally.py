"""What becomes of counts: the log's lines, and the metrics' totals."""

from collections import deque
from collections.abc import Callable

from accesslog.record import HeartbeatLine, IntervalLine, LimitLine
from tests.proxy.conversation import World, consumer, publisher
from tests.proxy.wire import TOPIC, message, messages, send, sends

Make = Callable[..., World]
SHOP = ("acme", "shop", "publish")


def limited(make_world: Make, **limit: object) -> World:
    return make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1, **limit}}}})


def test_totals_are_as_of_now_and_no_line_is_written_for_them(make_world: Make) -> None:
    world = limited(make_world)
    client, _ = publisher(world)
    client >> sends(3, size=100)
    world.advance(0.25)
    before = len(world.lines())
    for _ in range(3):
        deque(world.intervals.settling(), 0)
    assert len(world.lines()) == before
    totals = world.totals.by_name[SHOP]
    assert (totals.received_messages, totals.passed_messages, totals.throttled_ns) == (3, 1, 250_000_000)
    assert world.totals.by_level["publish", "topic"].throttled_ns == 250_000_000


def test_looking_changes_neither_lines_nor_totals(make_world: Make) -> None:
    """However often somebody looks, each thing is counted once."""

    def run(looks: int) -> tuple[list[object], object, object]:
        world = limited(make_world)
        client, _ = publisher(world)
        for number in range(10):
            client >> send(number)
            world.advance(0.43)
            for _ in range(looks):
                deque(world.intervals.settling(), 0)
        client.leave()
        world.advance(2)
        totals, level = world.totals.by_name[SHOP], world.totals.by_level["publish", "topic"]
        counted = {name: getattr(totals, name) for name in totals.__slots__}
        return world.lines(), counted, (level.rejected_messages, level.throttled_ns)

    assert run(looks=3) == run(looks=0)


def test_a_limit_that_rejects_says_how_much(make_world: Make) -> None:
    world = limited(make_world, mode="reject")
    client, _ = publisher(world)
    client >> sends(4, size=100)
    world.advance(1)
    (line,) = world.lines(IntervalLine)
    assert (line.offered_messages, line.passed_messages, line.held_messages) == (4, 1, 0)
    assert (line.rejected_messages, line.rejected_bytes) == (3, 300)
    assert (line.reason, line.reason_name, line.reason_messages) == ("topic", TOPIC, 1.0)
    (limit,) = world.lines(LimitLine)
    assert (limit.mode, limit.passed_messages, limit.rejected_messages, limit.rejected_bytes) == ("reject", 1, 3, 300)
    assert world.totals.by_name[SHOP].rejected_messages == 3
    assert world.totals.by_name[SHOP].rejected_bytes == 300
    assert world.totals.by_level["publish", "topic"].rejected_messages == 3


def test_a_limit_that_is_only_observed_says_what_it_would_have_done(make_world: Make) -> None:
    world = limited(make_world, mode="observe")
    client, broker = publisher(world)
    client >> sends(4, size=100)
    broker << sends(4, size=100)
    world.advance(1.5)
    first, second = world.lines(IntervalLine)[0], world.lines(IntervalLine)[-1]
    assert (first.passed_messages, first.held_messages, first.throttled_ms, first.reason) == (4, 0, 0, "")
    assert (first.limit_level, first.limit_messages) == ("", None), "it is in force for nobody"
    world.advance(4)
    lines = world.lines(IntervalLine)
    assert [line.would_hold_messages for line in lines] == [3, 2, 1, 0]
    assert [line.would_throttle_ms for line in lines] == [1000, 1000, 1000, 0]
    assert [line.would_delay_max_ms for line in lines] == [0, 1000, 2000, 3000]
    assert sum(line.would_exceed_messages for line in lines) == 0
    assert second.held_since is None
    limits = world.lines(LimitLine)
    assert {line.mode for line in limits} == {"observe"}
    assert sum(line.passed_messages for line in limits) == 4
    assert world.totals.by_name[SHOP].would_throttle_ns == 3_000_000_000
    assert world.totals.by_name[SHOP].throttled_ns == 0
    assert world.totals.by_level == {}, "nobody waited on it"


def test_what_no_connection_could_hold_is_told_apart(make_world: Make) -> None:
    """With the limit enforced it would not have been read yet."""
    limits = {"topics": {TOPIC: {"publish": {"messages": 1, "mode": "observe"}}}}
    world = make_world(limits=limits, publish={"hold_connection": "700"})
    client, _ = publisher(world)
    client >> sends(6, size=100)
    world.advance(1)
    (line,) = world.lines(IntervalLine)
    assert (line.would_hold_messages, line.would_exceed_messages) == (2, 3)
    assert world.totals.by_name[SHOP].would_exceed_messages == 3


def test_what_would_have_been_held_is_told_of_a_stream_that_has_ended_too(make_world: Make) -> None:
    """Short lives count: else a limit that is tried out would seem to hold nobody."""
    world = limited(make_world, mode="observe")
    client, _ = publisher(world)
    client >> sends(4, size=100)
    world.advance(0.5)
    client.leave()
    world.advance(1)
    (line,) = world.lines(IntervalLine)
    assert (line.would_throttle_ms, line.would_hold_messages, line.would_exceed_messages) == (500, 0, 3)
    assert world.totals.by_name[SHOP].would_throttle_ns == 500_000_000


TEN = {"topics": {TOPIC: {"dispatch": {"messages": 10}}}}


def charged(line: IntervalLine) -> tuple[int, int | None]:
    return line.passed_messages, line.charged_messages


def test_where_an_entry_counts_as_one_the_line_says_what_counts_against_limits(make_world: Make) -> None:
    world = make_world(limits=TEN, dispatch={"dispatchThrottlingOnBatchMessageEnabled": True})
    _, broker = consumer(world, permits=1000)
    broker >> message(0, messages=50)
    world.advance(1)
    broker >> message(1)
    world.advance(1)
    first, second = (line for line in world.lines(IntervalLine) if line.passed_messages)
    assert charged(first) == (50, 1)
    assert charged(second) == (1, None), "all of it"
    assert first.charged_bytes is None


def test_line_counts_what_a_spared_subscription_passed_apart(
    make_world: Make,
) -> None:
    rule = {"dispatchThrottlingOnNonBacklogConsumerEnabled": False}
    world = make_world(limits=TEN, dispatch=rule, access_log={"interval": "10s"})
    client, broker = consumer(world, permits=100)
    broker >> message(0)
    world.advance(1)
    broker >> messages(99, start=1)
    client.heard()
    broker >> messages(3, start=100)
    world.advance(10)
    line, *_ = world.lines(IntervalLine)
    assert charged(line) == (103, 5), "the first, the one that used up its permits, and those behind it"
    (limit,) = world.lines(LimitLine)
    assert (limit.passed_messages, limit.passed_bytes) == (line.charged_messages, line.charged_bytes)
    assert (line.limit_level, line.limit_messages) == ("topic", 10.0), "as at the end"


def test_lines_say_nothing_of_that_where_all_counts(make_world: Make) -> None:
    world = make_world(limits=TEN)
    _, broker = consumer(world, permits=100)
    broker >> message(0, messages=50)
    world.advance(1)
    assert b'"passed_messages":50' in world.files.data
    assert b"charged" not in world.files.data


def test_lines_without_streams_are_not_looked_for(world: World) -> None:
    deque(world.intervals.settling(), 0)
    assert {type(line) for line in world.lines()} == {HeartbeatLine}
