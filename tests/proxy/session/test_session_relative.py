"""Dispatch limits that are relative to the publish rate, in conversation: who publishes, who consumes, what is told."""

from collections.abc import Callable
from typing import Any

import pytest

from accesslog.record import HeartbeatLine, LimitLine
from proxy.admin.routes.streams import view
from tests.proxy.backlog import Backlog, Published
from tests.proxy.conversation import Peer, World, consumer, publisher
from tests.proxy.wire import TOPIC, send, sends

Make = Callable[..., World]
TEN_MORE: dict[str, Any] = {"messages": 10, "relativeToPublishRate": True}


def limited(make_world: Make, more: dict[str, Any] | None = None, **settings: Any) -> World:
    return make_world(limits={"topics": {TOPIC: {"dispatch": {**TEN_MORE, **(more or {})}}}}, **settings)


def flowing(world: World) -> tuple[Published, Backlog]:
    """A producer, and a consumer with a backlog without end."""
    return Published(world, *publisher(world)), Backlog(world, *consumer(world))


def test_a_backlog_is_drained_by_what_is_configured_while_publishing_goes_on(make_world: Make) -> None:
    world = limited(make_world)
    published, backlog = flowing(world)
    published.at(100, seconds=15, beside=backlog)
    before = backlog.delivered
    published.at(100, seconds=10, beside=backlog)
    assert backlog.delivered - before == pytest.approx(1100, rel=0.01)


def test_when_publishing_stops_the_configured_rate_is_left_after_the_window(make_world: Make) -> None:
    world = limited(make_world)
    published, backlog = flowing(world)
    published.at(100, seconds=12, beside=backlog)
    backlog.go_on(12)
    before = backlog.delivered
    backlog.go_on(10)
    assert backlog.delivered - before == pytest.approx(100, abs=1)


def test_bytes_are_relative_too(make_world: Make) -> None:
    world = limited(make_world, {"messages": None, "bytes": 1000})
    published, backlog = flowing(world)
    published.at(50, seconds=15, beside=backlog)
    before = backlog.delivered_bytes
    published.at(50, seconds=10, beside=backlog)
    assert backlog.delivered_bytes - before == pytest.approx(10 * (1000 + 50 * published.entry_bytes), rel=0.02)


def in_force(world: World) -> float:
    (limiter,) = next(stream.chain for stream in world.engine.registry.live() if stream.chain)
    assert limiter.limit.messages is not None
    return limiter.limit.messages.per_second


@pytest.mark.parametrize("interval", ["200ms", "1s", "3s", "60s"])
def test_it_is_measured_each_second_however_long_the_lines_of_the_log(make_world: Make, interval: str) -> None:
    world = limited(make_world, access_log={"interval": interval})
    published, backlog = flowing(world)
    published.at(100, seconds=3.5, beside=backlog)
    assert in_force(world) == pytest.approx(110, rel=0.05)


def test_no_line_mixes_two_values_and_each_says_its_parts(make_world: Make) -> None:
    """Of a limit that changes each second, the ordinary lines say all: there are no more of them."""
    world = limited(make_world)
    published, backlog = flowing(world)
    for per_second in (100, 40, 300, 0, 20):
        published.at(per_second, seconds=2, beside=backlog)
    lines = world.lines(LimitLine)
    assert 10 <= len(lines) <= 11
    assert len({line.limit_messages for line in lines}) > 5
    for line in lines:
        assert line.limit_messages == pytest.approx(10 + line.published_messages)
        allowed = line.burst_messages + line.limit_messages * line.duration_ms / 1000 + 1
        assert line.passed_messages <= allowed
    assert {line.published_bytes for line in lines} == {None}, "bytes are not limited"


def test_an_absolute_limit_has_no_parts(make_world: Make) -> None:
    world = limited(make_world, {"relativeToPublishRate": False})
    published, backlog = flowing(world)
    published.at(100, seconds=2, beside=backlog)
    assert {(line.limit_messages, line.published_messages) for line in world.lines(LimitLine)} == {(10, None)}


def test_the_view_says_what_is_configured_and_what_is_measured(make_world: Make) -> None:
    world = limited(make_world)
    published, backlog = flowing(world)
    published.at(100, seconds=3, beside=backlog)
    (stream,) = [stream for stream in world.engine.registry.live() if stream.chain]
    shown = view(stream, world.clock.now)
    (limit,) = shown["limits"]
    assert limit["relative_to_publish_rate"] is True
    assert (limit["messages_per_s"], limit["published_messages_per_s"]) == pytest.approx((110, 100), rel=0.02)
    assert limit["published_bytes_per_s"] is None
    assert shown["waits_on"] is not None
    assert shown["waits_on"]["published_messages_per_s"] == limit["published_messages_per_s"]


@pytest.mark.parametrize("interval", ["1s", "60s"])
def test_at_rest_there_is_no_timer_and_no_line_but_the_heartbeats(make_world: Make, interval: str) -> None:
    world = limited(make_world, access_log={"interval": interval})
    client, broker = publisher(world)
    consumer(world)
    Published(world, client, broker).at(100, seconds=3)
    world.advance(90)
    assert world.loop.timers == ["Intervals._beat_idle"]
    before = len(world.lines())
    world.advance(60)
    assert {type(line) for line in world.lines()[before:]} == {HeartbeatLine}


def test_while_rates_come_to_rest_no_line_is_written(make_world: Make) -> None:
    world = limited(make_world)
    client, broker = publisher(world)
    consumer(world)
    Published(world, client, broker).at(100, seconds=3)
    world.advance(1.5)
    before = len(world.lines())
    world.advance(20)
    assert len(world.lines()) == before
    assert not world.engine.registry.relative.is_moving


def test_what_comes_after_a_rest_has_spans_of_its_own(make_world: Make) -> None:
    world = limited(make_world)
    published, backlog = flowing(world)
    published.at(100, seconds=3, beside=backlog)
    backlog.pause()
    world.advance(5.5)
    backlog.resume()
    backlog.go_on(3)
    lines = world.lines(LimitLine)
    assert max(line.duration_ms for line in lines) <= 1100
    values = [line.limit_messages for line in lines]
    assert 10 < values[-1] < max(values), "it went on falling in between"


def published_just_before_a_change(make_world: Make) -> tuple[World, Peer]:
    """A thousand messages, and a tenth of a second later a value changes, of whomever; and who published them."""
    world = limited(make_world)
    client, _ = publisher(world)
    consumer(world)
    world.advance(5.2)
    client >> sends(1000)
    world.advance(0.1)
    world.loop.run(world.intervals.flush)
    return world, client


def test_what_was_published_just_before_a_change_of_any_limit_is_measured(make_world: Make) -> None:
    world, _ = published_just_before_a_change(make_world)
    world.advance(0.7)
    assert in_force(world) == pytest.approx(10 + 1000 / 6, rel=0.01), "of six seconds that it is known"
    world.advance(10.5)
    assert in_force(world) == 10


def test_publishes_before_a_change_do_not_count_an_hour_later(make_world: Make) -> None:
    world, client = published_just_before_a_change(make_world)
    world.advance(3600)
    client >> send(1000)
    world.advance(1.2)
    assert in_force(world) == pytest.approx(10.1)


def test_without_relative_limits_nothing_is_measured(make_world: Make) -> None:
    world = limited(make_world, {"relativeToPublishRate": False}, access_log={"interval": "60s"})
    client, broker = publisher(world)
    consumer(world)
    Published(world, client, broker).at(100, seconds=3)
    assert world.engine.registry.relative.is_empty
    (_heart, timer) = sorted(world.loop.timers)
    assert timer == "Intervals._tick"
    assert world.counters.timers_fired == 0
