"""A session's life: its two connections, and how they end together."""

from collections.abc import Callable

import pytest

from proxy.session.keep_alive import SELDOM
from proxy.session.session import Session
from proxy.session.transport import PeerTransport
from tests.proxy.conversation import NOTHING, World, consumer, publisher
from tests.proxy.kernel_transport import ROOM
from tests.proxy.wire import (
    NO_REQUEST,
    PING,
    PONG,
    TOPIC,
    body,
    connect,
    connected,
    lookup,
    message,
    producer,
    producer_success,
    receipt,
    send,
    sends,
    subscribe,
    success,
    unknown_command,
)

LIMITED = {"topics": {TOPIC: {"publish": {"messages": "1/h"}}}}

Make = Callable[..., World]

KEEP_ALIVE = 30.0


def test_a_session_tells_a_client_and_its_broker_of_each_other(world: World) -> None:
    """The whole way of a message and its receipt."""
    client = world.client()
    client >> connect("127.0.0.1:6651")
    broker = world.dialled()
    broker << connect()
    broker >> connected()
    client << connected()
    client >> producer()
    broker << producer()
    broker >> producer_success()
    client << producer_success()
    client >> sends(3)
    broker << sends(3)
    broker >> [receipt(0), receipt(1), receipt(2)]
    client << [receipt(0), receipt(1), receipt(2)]
    assert client.is_read


def test_pings_are_the_peers_own_business_while_both_are_read(world: World) -> None:
    client, broker = world.pair()
    client >> PING
    broker << PING
    broker >> PONG
    client << PONG
    broker >> PING
    client << PING


@pytest.mark.parametrize("cut", range(1, 30))
def test_commands_that_nobody_knows_pass_byte_for_byte_however_they_arrive(world: World, cut: int) -> None:
    client, broker = world.pair()
    frame = unknown_command()
    client.send_bytes(frame[:cut])
    client.send_bytes(frame[cut:])
    broker << frame
    broker.send_bytes(frame[:cut])
    broker.send_bytes(frame[cut:])
    client << frame


def test_a_session_ends_with_its_client(world: World) -> None:
    client, broker = world.pair()
    client.leave()
    assert broker.is_gone
    assert world.finished == world.sessions
    assert +world.counters.connections_ended == {"client_closed": 1}


def test_a_reset_by_the_client_is_told_apart_from_a_close(world: World) -> None:
    client, broker = world.pair()
    client.leave(ConnectionResetError("reset by peer"))
    assert broker.is_gone
    assert +world.counters.connections_ended == {"client_reset": 1}


def test_a_session_ends_with_its_broker_and_the_client_gets_what_was_passed_on(world: World) -> None:
    client, broker = consumer(world)
    client.stop_reading()
    broker >> message(1, size=ROOM)
    broker.leave()
    assert not client.is_gone
    client.read_on()
    client << message(1, size=ROOM)
    assert client.is_gone
    assert +world.counters.connections_ended == {"broker_closed": 1}


def test_a_client_that_takes_nothing_is_given_up_after_the_linger_time(world: World) -> None:
    client, broker = consumer(world)
    client.stop_reading()
    broker >> message(1, size=ROOM)
    broker.half_close()
    world.advance(world.config.linger - 0.1)
    assert not client.is_gone
    world.advance(0.2)
    assert client.transport.was_aborted
    assert client.is_gone


def test_a_client_that_half_closes_still_gets_its_answers(world: World) -> None:
    client, broker = publisher(world)
    client >> sends(2)
    client.half_close()
    broker << sends(2)
    assert broker.transport.is_eof_sent
    broker >> [receipt(0), receipt(1)]
    client << [receipt(0), receipt(1)]
    broker.leave()
    assert client.is_gone
    assert +world.counters.connections_ended == {"client_closed": 1}


def test_silent_broker_of_half_closed_client_ends_after_linger(world: World) -> None:
    client, broker = publisher(world)
    client.half_close()
    world.advance(world.config.linger - 0.1)
    assert not client.is_gone
    world.advance(0.2)
    assert broker.is_gone
    assert client.is_gone


@pytest.mark.parametrize("is_greeted", [False, True])
def test_a_client_that_half_closes_without_traffic_waits_for_nobody(world: World, *, is_greeted: bool) -> None:
    client = world.client()
    client >> connect()
    broker = world.dialled()
    if is_greeted:
        broker >> connected()
        client >> PING
    client.half_close()
    assert client.is_gone
    assert broker.is_gone
    assert +world.counters.connections_ended == {"client_closed": 1}


def test_nothing_is_written_to_a_broker_behind_the_end_of_the_client(make_world) -> None:
    """A PONG in the client's place would come after the end that was already told."""
    world = make_world(linger="60s")
    client, broker = world.pair()
    client >> lookup()
    broker << lookup()
    client.half_close()
    client.stop_reading()
    for number in range(8):
        broker >> send(number, size=100_000)
    assert not broker.is_read
    world.advance(SELDOM * KEEP_ALIVE + 1)
    assert world.counters.keep_alives == 1
    assert not world.loop.trouble
    broker << NOTHING


def test_shutting_down_ends_both_connections(world: World) -> None:
    client, broker = world.pair()
    world.loop.run(world.sessions[0].shut_down)
    assert client.is_gone
    assert broker.is_gone
    assert +world.counters.connections_ended == {"shutdown": 1}


def test_a_peer_that_breaks_the_protocol_ends_its_session_and_nobody_elses(world: World) -> None:
    client, broker = world.pair()
    neighbour, neighbours_broker = world.pair()
    broker.send_bytes(b"\x7f\xff\xff\xff\x00\x00\x00\x00")
    assert client.is_gone
    assert broker.is_gone
    assert +world.counters.frame_errors == {"broker too_large": 1}
    neighbour >> PING
    neighbours_broker << PING


def test_a_command_that_cannot_be_decoded_ends_the_session(world: World) -> None:
    client, broker = world.pair()
    client.send_bytes(b"\x00\x00\x00\x08\x00\x00\x00\x04\x08\x05\x2a\x09")  # a PRODUCER longer than its frame
    assert broker.is_gone
    assert +world.counters.frame_errors == {"client malformed": 1}


def test_connected_sets_the_frame_size_of_both_directions(world: World) -> None:
    client = world.client()
    client >> connect()
    broker = world.dialled()
    broker << connect()
    broker >> connected(max_message_size=20 * 1024 * 1024)
    client << connected(max_message_size=20 * 1024 * 1024)
    large = 6 * 1024 * 1024
    client >> producer()
    broker << producer()
    broker >> producer_success()
    client << producer_success()
    client >> send(0, size=large)
    broker << send(0, size=large)
    client >> [subscribe()]
    broker >> [success(307), message(0, size=large)]
    client << [success(307), message(0, size=large)]


@pytest.mark.parametrize("side", ["client", "broker"])
def test_connected_can_also_lower_the_frame_size(world: World, side: str) -> None:
    client = world.client()
    client >> connect()
    broker = world.dialled()
    broker >> connected(max_message_size=1000)
    frame = send(0, size=12_000) if side == "client" else message(0, size=12_000)
    (client if side == "client" else broker) >> frame
    assert +world.counters.frame_errors == {f"{side} too_large": 1}


def test_without_connected_frames_are_bounded_by_pulsars_default(world: World) -> None:
    client, _broker = world.pair()
    client.send_bytes((5 * 1024 * 1024 + 10 * 1024 - 4 + 1).to_bytes(4, "big") + b"\x00\x00\x00\x04\x08\x06\x32\x00")
    assert +world.counters.frame_errors == {"client too_large": 1}


def test_clients_over_the_bound_are_told_and_closed(make_world) -> None:
    world = make_world(max_connections=1)
    world.pair()
    late = world.client()
    (answer,) = [body(frame) for frame in late.heard()]
    assert answer.request_id == NO_REQUEST
    assert answer.message == "too_many_connections: connections of this proxy: at most 1 (max_connections)"
    assert late.is_gone
    assert +world.counters.connections_ended == {"too_many_connections": 1}


def test_the_end_is_written_into_the_access_log_with_what_was_read(world: World) -> None:
    client, broker = world.pair("127.0.0.1:6651")
    client >> PING
    broker >> PONG
    world.advance(2)
    client.leave()
    (line,) = [line for line in world.lines() if type(line).__name__ == "ConnectionLine"]
    assert (line.role, line.broker, line.end_cause) == ("data", "127.0.0.1:6651", "client_closed")
    assert line.client_version == "test-client"
    assert line.client_address == "192.0.2.7:40001"
    assert line.bytes_from_client == len(connect("127.0.0.1:6651")) + len(PING)
    assert line.bytes_from_broker == len(connected()) + len(PONG)
    assert line.duration_ms == 2000


def test_a_client_that_the_loop_has_accepted_when_the_process_ends_is_closed(world: World) -> None:
    session = Session(world.engine, 1, world.session_log, world.finished.append, world.config.listen[0])
    world.sessions.append(session)
    world.loop.run(session.shut_down)
    transport = world.loop.transports(world.loop, ("192.0.2.7", 40_001))
    world.loop.run(transport.connect, session.client)
    assert transport.is_lost
    assert world.finished == [session]
    assert not world.engine.sessions


def test_what_arrives_behind_the_end_goes_nowhere(world: World) -> None:
    client, broker = world.pair()
    session = world.sessions[0]
    broker.stop_reading()
    client >> PING
    world.loop.run(session.shut_down)
    world.loop.run(session.arrived, PeerTransport("client", session, world.engine.shared), PING)
    broker.read_on()
    broker << PING
    broker << NOTHING


def test_of_a_delivery_under_way_nothing_reaches_a_client_that_half_closed(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 1}}}})
    client, broker = consumer(world, permits=10)
    broker >> [message(0), message(1)]
    client << message(0)
    half = message(2, size=1000)
    broker.send_bytes(half[:500])
    client.half_close()
    broker.send_bytes(half[500:] + receipt(5))
    client << receipt(5)
