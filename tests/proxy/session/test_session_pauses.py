"""When reading stops and goes on: hold budgets, back pressure, and the signs of life meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest

from accesslog.record import ThrottleLine
from proxy.budgets import ENTRY_OVERHEAD
from proxy.session.keep_alive import OFTEN, SELDOM
from proxy.session.transport import WRITE_BUFFER_HIGH
from tests.proxy.conversation import NOTHING, World, consumer, publisher
from tests.proxy.kernel_transport import ROOM
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    PONG,
    TOPIC,
    message,
    producer,
    receipt,
    send,
    sends,
    subscribe,
    success,
)

Make = Callable[..., World]
FRAME = len(send(0))
HELD = FRAME + ENTRY_OVERHEAD
TOO_MUCH = WRITE_BUFFER_HIGH + ROOM
"""Bytes for a peer that does not read."""
TEN_FRAMES = {"publish": {"hold_connection": str(10 * HELD)}}

KEEP_ALIVE = 30.0


def limited(**settings: Any) -> dict[str, Any]:
    return {"limits": {"topics": {TOPIC: {"publish": {"messages": 1}, "dispatch": {"messages": 1}}}}, **settings}


def offered(world: World) -> int:
    return sum(stream.usage.offered_entries for stream in world.engine.registry.live())


def test_a_full_hold_budget_pauses_reading_at_the_next_frame(make_world: Make) -> None:
    """What is already read stays unprocessed, neighbours and PINGs included."""
    world = make_world(**limited(**TEN_FRAMES))
    client, broker = publisher(world)
    client >> [*sends(30), PING]
    broker << send(0)
    assert not client.is_read
    assert offered(world) == 11
    assert +world.counters.throttled == {"client hold_connection": 1}


def test_reading_goes_on_when_half_of_the_budget_is_free(make_world: Make) -> None:
    world = make_world(**limited(**TEN_FRAMES))
    client, broker = publisher(world)
    client >> [*sends(11), PING]
    world.advance(4)
    broker << sends(5)
    assert not client.is_read
    world.advance(1)
    broker << [send(5), PING]
    assert client.is_read
    assert world.counters.pauses == world.counters.resumes == {"client hold_connection": 1}


def test_what_was_left_over_is_taken_before_what_comes_later(make_world: Make) -> None:
    world = make_world(**limited(**TEN_FRAMES))
    client, broker = publisher(world)
    client >> sends(30)
    client >> sends(30, start=30)
    assert client.transport.unread == 1
    for second in range(60):
        broker << send(second)
        world.advance(1)
    assert client.is_read
    assert world.counters.pauses == world.counters.resumes


@pytest.mark.parametrize("cut", range(1, FRAME, 7))
def test_a_pause_inside_a_frame_takes_effect_behind_it(make_world: Make, cut: int) -> None:
    world = make_world(**limited(**TEN_FRAMES))
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    stream = b"".join(sends(14)) + send(0, producer_id=2) + PING
    end = 12 * FRAME + cut
    client.send_bytes(stream[:end])
    client.send_bytes(stream[end:])
    world.advance(14)
    came = broker.heard()
    assert [frame for frame in came if frame in sends(14)] == sends(14)
    assert sorted(came) == sorted([*sends(14), send(0, producer_id=2), PING])


def test_a_pause_is_written_into_the_access_log_when_it_ends(make_world: Make) -> None:
    world = make_world(**limited(**TEN_FRAMES))
    client, _ = publisher(world)
    client >> sends(11)
    world.advance(7)
    (line,) = world.lines(ThrottleLine)
    assert (line.side, line.cause, line.duration_ms) == ("client", "hold_connection", 5000)


def test_while_paused_the_broker_hears_at_once_that_the_client_lives(make_world: Make) -> None:
    """Its own probe waits five seconds only."""
    world = make_world(**limited(**TEN_FRAMES))
    client, broker = publisher(world)
    client >> sends(20)
    broker << send(0)
    broker >> PING
    broker << PONG
    client << NOTHING
    assert world.counters.keep_alives == 1


def test_while_a_frame_for_the_broker_is_unfinished_its_probes_pile_up_no_answers(make_world: Make) -> None:
    world = make_world(**limited(**TEN_FRAMES))
    client, broker = publisher(world)
    client >> sends(20)
    session = world.sessions[0]
    outlet = session._make_forwarding().to_broker.writer
    outlet.mid_frame = True
    broker >> [PING] * 1000
    assert outlet.waiting == [PONG]
    assert world.counters.keep_alives == 1
    outlet.mid_frame = False


def test_while_paused_both_sides_get_a_pong_at_intervals(make_world: Make) -> None:
    world = make_world(**limited(**TEN_FRAMES))
    world.engine.registry.policies.clear()
    client, broker = publisher(world)
    client.transport.peer_reads = True
    broker.stop_reading()
    client >> send(0, size=TOO_MUCH)
    assert not client.is_read
    world.advance(SELDOM * KEEP_ALIVE - 0.1)
    client << NOTHING
    world.advance(0.2)
    client << PONG
    world.advance(2 * SELDOM * KEEP_ALIVE)
    client << [PONG, PONG]
    broker.read_on()
    broker << [send(0, size=TOO_MUCH), PONG, PONG, PONG]
    world.advance(100)
    client << NOTHING
    broker << NOTHING


def test_a_pong_never_lands_inside_a_frame_to_the_broker(world: World) -> None:
    client, broker = publisher(world)
    broker.stop_reading()
    large = send(0, size=2 * TOO_MUCH)
    client.send_bytes(large[:TOO_MUCH])
    assert not client.is_read
    world.advance(SELDOM * KEEP_ALIVE + 1)
    client << PONG
    broker.read_on()
    broker << NOTHING
    client.send_bytes(large[TOO_MUCH:])
    broker << [large, PONG]


def test_a_pong_never_lands_inside_a_frame_to_the_client(make_world: Make) -> None:
    world = make_world(**limited(publish={"hold_connection": str(50 * HELD)}))
    client, broker = publisher(world, subscribe())
    client >> sends(60)
    assert not client.is_read
    large = receipt(0) + message(1, size=3000)
    broker.send_bytes(large[:1000])
    world.advance(OFTEN * KEEP_ALIVE + 0.1)
    client << receipt(0)
    broker.send_bytes(large[1000:])
    client << [message(1, size=3000), PONG]


def test_an_answer_to_the_brokers_ping_never_lands_inside_a_frame(world: World) -> None:
    client, broker = publisher(world)
    broker.stop_reading()
    large = send(0, size=2 * TOO_MUCH)
    client.send_bytes(large[:TOO_MUCH])
    broker >> PING
    broker.read_on()
    broker << NOTHING
    client.send_bytes(large[TOO_MUCH:])
    broker << [large, PONG]


def test_a_broker_that_takes_nothing_stops_the_reading_of_its_client(world: World) -> None:
    client, broker = publisher(world)
    neighbour, neighbours_broker = world.pair()
    broker.stop_reading()
    for frame in sends(10, size=100_000):
        client >> frame
    assert not client.is_read
    assert broker.is_read
    assert broker.transport.get_write_buffer_size() <= WRITE_BUFFER_HIGH + 100_000 + FRAME
    neighbour >> PING
    neighbours_broker << PING
    broker.read_on()
    broker << sends(10, size=100_000)
    assert client.is_read
    assert world.counters.pauses == {"client write_buffer": 1}


def test_what_waited_for_a_slow_reader_is_memory_of_the_system_again(world: World) -> None:
    client, broker = publisher(world)
    broker.stop_reading()
    for frame in sends(10, size=100_000):
        client >> frame
    assert "Heap._go" not in world.loop.timers
    broker.read_on()
    assert "Heap._go" in world.loop.timers


def test_a_client_that_takes_nothing_stops_the_reading_of_its_broker(world: World) -> None:
    client, broker = consumer(world)
    client.stop_reading()
    for number in range(20):
        broker >> message(number, size=100_000)
    assert not broker.is_read
    assert client.is_read
    assert client.transport.get_write_buffer_size() <= WRITE_BUFFER_HIGH + 101_000
    client >> PING
    broker << PING
    client.read_on()
    client.transport.peer_reads = True
    assert len(client.heard()) == 20


def test_held_deliveries_pause_the_reading_of_the_broker_and_the_client_stays_alive(make_world: Make) -> None:
    """The answers to the client's PINGs lie unread in the broker's socket."""
    world = make_world(
        limits={"topics": {TOPIC: {"dispatch": {"messages": "1/min"}}}}, publish={"hold_connection": "200"}
    )
    client, broker = world.pair()
    client >> subscribe()
    broker >> [success(307), *[message(number) for number in range(10)]]
    assert not broker.is_read
    assert client.is_read
    client.heard()
    world.advance(2 * OFTEN * KEEP_ALIVE + 1)
    assert client.heard_names() == ["PONG", "PONG"]


def test_two_reasons_overlap_and_reading_goes_on_only_without_both(make_world: Make) -> None:
    world = make_world(**limited(**TEN_FRAMES))
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    broker.stop_reading()
    client >> [send(0, producer_id=2, size=TOO_MUCH), *sends(20)]
    assert +world.counters.throttled == {"client write_buffer": 1}
    broker.read_on()
    assert +world.counters.throttled == {"client hold_connection": 1}
    assert not client.is_read
    world.advance(20.1)
    assert client.is_read
