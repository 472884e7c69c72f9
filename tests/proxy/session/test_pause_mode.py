"""What stops reading, as it is configured: above all `publish.mode: pause`, the classic way of PIP-322."""

from collections.abc import Callable
from typing import Any

import pytest

from accesslog.record import ThrottleLine
from proxy.budgets import ENTRY_OVERHEAD
from proxy.session.keep_alive import OFTEN
from tests.proxy.conversation import NOTHING, World, publisher
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    PONG,
    TOPIC,
    close_producer,
    message,
    producer,
    send,
    sends,
    subscribe,
    success,
)

Make = Callable[..., World]
HELD = len(send(0)) + ENTRY_OVERHEAD


def pausing(rate: int | str = 1, **settings: Any) -> dict[str, Any]:
    return {"limits": {"topics": {TOPIC: {"publish": {"messages": rate}}}}, "publish": {"mode": "pause"}, **settings}


def test_a_producer_over_its_limit_stops_its_whole_connection(make_world: Make) -> None:
    """A neighbour on it waits although it has no limit: that is what this mode means."""
    world = make_world(**pausing())
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> [*sends(3), *sends(2, 2), PING]
    broker << send(0)
    assert not client.is_read
    assert +world.counters.throttled == {"client publish_rate": 1}
    world.advance(1)
    broker << send(1)
    world.advance(1)
    broker << [send(2), *sends(2, 2), PING]
    assert client.is_read
    assert world.counters.pauses == world.counters.resumes == {"client publish_rate": 2}


def test_other_connections_go_on(make_world: Make) -> None:
    world = make_world(**pausing())
    client, _ = publisher(world)
    other, others_broker = world.pair()
    client >> sends(5)
    other >> PING
    others_broker << PING
    assert other.is_read


def test_no_more_is_held_than_the_entry_that_was_refused(make_world: Make) -> None:
    """What was read already waits as it came; what was not, in the socket."""
    world = make_world(**pausing())
    client, _ = publisher(world)
    client >> sends(50)
    client >> sends(50, start=50)
    assert world.engine.held.used == HELD
    assert client.transport.unread == 1
    for _ in range(5):
        world.advance(1)
        assert world.engine.held.used == HELD


@pytest.mark.parametrize("rate", [1, 7, 50])
@pytest.mark.parametrize("cut", [11, 200, 100_000])
def test_the_limit_holds_exactly_from_the_first_second_on(make_world: Make, rate: int, cut: int) -> None:
    world = make_world(**pausing(rate))
    client, broker = publisher(world)
    stream = b"".join(sends(rate * 10))
    for at in range(0, len(stream), cut):
        client.send_bytes(stream[at : at + cut])
    passed = broker.heard()
    burst = max(1, rate // 10)
    for tenth in range(1, 81):
        world.advance(0.1)
        passed += broker.heard()
        allowed = burst + rate * tenth / 10
        assert allowed - 1 <= len(passed) <= allowed + 1
    assert passed == sends(rate * 10)[: len(passed)]


def test_a_held_producers_close_waits_behind_it(make_world: Make) -> None:
    world = make_world(**pausing())
    client, broker = publisher(world)
    client >> [*sends(2), close_producer(), PING]
    broker << send(0)
    world.advance(0.9)
    broker << NOTHING
    world.advance(0.1)
    broker << [send(1), close_producer(), PING]


def test_both_peers_get_signs_of_life_during_a_pause(
    make_world: Make,
) -> None:
    world = make_world(**pausing("1/min"))
    client, broker = publisher(world)
    client >> sends(3)
    broker << send(0)
    broker >> PING
    broker << PONG
    world.advance(2 * OFTEN * 30 + 1)
    client << [PONG, PONG]
    broker << [PONG, PONG]


def test_a_client_that_leaves_while_paused_gives_all_back(make_world: Make) -> None:
    world = make_world(**pausing())
    client, broker = publisher(world)
    client >> sends(5)
    client.leave()
    assert world.engine.held.used == 0
    assert +world.counters.throttled == {}
    assert broker.is_gone
    assert world.counters.pauses == world.counters.resumes


def test_a_pause_is_written_into_the_access_log_by_its_name(make_world: Make) -> None:
    world = make_world(**pausing())
    client, _ = publisher(world)
    client >> sends(2)
    world.advance(1)
    (line,) = world.lines(ThrottleLine)
    assert (line.side, line.cause, line.duration_ms) == ("client", "publish_rate", 1000)


def test_deliveries_are_held_as_ever(make_world: Make) -> None:
    world = make_world(**pausing(limits={"topics": {TOPIC: {"dispatch": {"messages": 1}}}}))
    client, broker = world.pair()
    client >> subscribe()
    broker >> [success(307), *[message(number) for number in range(5)], PING]
    client << [success(307), message(0), PING]
    assert broker.is_read


def test_a_raised_limit_ends_the_pause_at_once(make_world: Make) -> None:
    world = make_world(**pausing())
    client, broker = publisher(world)
    client >> [*sends(5), PING]
    broker << send(0)
    world.engine.registry.policies.clear()
    world.loop.run(world.engine.policies_changed)
    broker << [*sends(4, start=1), PING]
    assert client.is_read


def test_it_is_held_and_no_connection_pauses_unless_told_otherwise(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> [*sends(3), *sends(2, 2), PING]
    broker << [send(0), *sends(2, 2), PING]
    assert client.is_read
