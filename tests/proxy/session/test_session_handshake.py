"""From the first byte of a client to its broker's CONNECTED."""

import tracemalloc

import pytest
from structlog.testing import capture_logs

from protocol.pulsar_pb2 import ServiceNotReady
from proxy.session.session import Session
from tests.proxy.conversation import NOTHING, Peer, World
from tests.proxy.endpoints import broker_at
from tests.proxy.wire import NO_REQUEST, PING, body, connect, lookup, producer, subscribe


def only_error(client: Peer) -> str:
    """The client got nothing but one ERROR that belongs to no request, and its connection is closed."""
    (error,) = [body(frame) for frame in client.heard()]
    assert (error.request_id, error.error) == (NO_REQUEST, ServiceNotReady)
    assert client.is_gone
    return str(error.message)


def test_connect_may_arrive_byte_by_byte(world: World) -> None:
    client = world.client()
    for byte in connect():
        client.send_bytes(bytes([byte]))
    world.dialled() << connect()


def test_a_data_connection_goes_to_the_broker_that_it_names(world: World) -> None:
    world.engine.targets.learn(broker_at("pulsar://192.0.2.9:6650"))
    client = world.client()
    client >> connect("192.0.2.9:6650")
    assert world.dials[-1].address == ("192.0.2.9", 6650)
    world.dialled() << connect()
    assert world.counters.connections_open["data"] == 1


def test_without_a_name_it_is_a_lookup_connection(world: World) -> None:
    world.pair()
    assert world.counters.connections_open["lookup"] == 1


@pytest.mark.parametrize(
    "target", ["10.0.0.1:6650", "127.0.0.1:22", "127.0.0.1:6652", "localhost:6651", "http://127.0.0.1", "x", "..:6651"]
)
def test_nobody_reaches_anything_else_through_the_proxy(world: World, target: str) -> None:
    client = world.client()
    client >> connect(target)
    assert "target_refused" in only_error(client)
    assert world.dials == []
    assert +world.counters.connections_ended == {"target_refused": 1}


def test_a_name_is_resolved_once_and_that_address_is_used(make_world) -> None:
    """Else a name could lead somewhere else after it was checked (CVE-2022-24280)."""
    settings = {"allowed_brokers": ["*.brokers.example:6650"], "allowed_broker_networks": ["192.0.2.0/24"]}
    world = make_world(**settings)
    world.loop.names = {"b1.brokers.example": ["198.51.100.1", "192.0.2.44"], "b2.brokers.example": ["127.0.0.1"]}
    client = world.client()
    client >> connect("b1.brokers.example:6650")
    assert world.dials[-1].address == ("192.0.2.44", 6650)
    other = world.client()
    other >> connect("b2.brokers.example:6650")
    assert "outside of allowed_broker_networks" in only_error(other)


def test_the_addresses_of_a_broker_are_tried_one_after_the_other(make_world) -> None:
    """`localhost` is often ::1 first, where a broker that listens on 127.0.0.1 is not."""
    world = make_world(broker="pulsar://localhost:6651")
    world.loop.names = {"localhost": ["::1", "127.0.0.1"]}
    world.broker_answers = False
    client = world.client()
    client >> connect()
    assert world.dials[-1].address == ("::1", 6651)
    world.refuse(ConnectionRefusedError("nobody on ::1"))
    assert world.dials[-1].address == ("127.0.0.1", 6651)
    broker = world.accept()
    broker << connect()


def test_an_address_that_is_silent_leaves_time_for_the_others(make_world) -> None:
    world = make_world(broker="pulsar://localhost:6651", connect_timeout="6s")
    world.loop.names = {"localhost": ["192.0.2.1", "192.0.2.2", "192.0.2.3"]}
    world.broker_answers = False
    client = world.client()
    client >> connect()
    world.advance(1.9)
    assert [dial.address[0] for dial in world.dials] == ["192.0.2.1"]
    world.advance(0.2)
    assert [dial.address[0] for dial in world.dials] == ["192.0.2.1", "192.0.2.2"]
    assert world.dials[0].transport.is_closing()
    world.advance(2)
    broker = world.accept()
    assert world.dials[-1].address[0] == "192.0.2.3"
    broker << connect()
    world.advance(10)
    client << NOTHING


@pytest.mark.parametrize("name", ["nowhere.example", "a..example", "x" * 70 + ".example"])
def test_a_name_that_leads_nowhere_is_told_at_once(make_world, name: str) -> None:
    world = make_world(allowed_brokers=["*.example:6650"])
    client = world.client()
    client >> connect(f"{name}:6650")
    assert "cannot be resolved" in only_error(client)


def test_frames_wait_in_order_while_the_broker_is_dialled(world: World) -> None:
    world.broker_answers = False
    client = world.client()
    client >> [connect(), PING]
    assert not client.is_read
    client >> [producer(), lookup(), subscribe()]
    client << NOTHING
    broker = world.accept()
    broker << [connect(), PING, producer(), lookup(), subscribe()]
    assert client.is_read


def test_frames_cut_in_the_middle_wait_as_well(world: World) -> None:
    world.broker_answers = False
    client = world.client()
    frames = PING + producer() + subscribe() + lookup()
    client.send_bytes(connect() + frames[:20])
    client.send_bytes(frames[20:])
    broker = world.accept()
    broker << [connect(), PING, producer(), subscribe(), lookup()]


@pytest.mark.parametrize("blocks", [[], [{"role": "blocked"}]])
def test_no_bytes_behind_a_greeting_are_kept(make_world, blocks: list[object]) -> None:
    """Else each of ten thousand could have a quarter of a megabyte kept for as long as it stays."""
    world = make_world(blocks=blocks)
    chunk = connect(auth_method_name="basic", auth_data=b"blocked:x") + PING * 8_000
    tracemalloc.start()
    try:
        clients = [world.client() for _ in range(2)]
        before, _ = tracemalloc.get_traced_memory()
        for client in clients:
            client.send_bytes(chunk)
            client.transport.written.clear()
        for dial in world.dials:
            dial.transport.written.clear()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(world.dials) == (0 if blocks else 2)
    assert after - before < 2 / 5 * len(chunk)


def test_a_long_greeting_counts_as_its_clients_memory_while_kept(world: World) -> None:
    greeting = connect(auth_method_name="basic", auth_data=b"x" * 100_000)
    client = world.client()
    client.send_bytes(greeting[:60_000])
    assert world.engine.memory.used == 60_000
    client.send_bytes(greeting[60_000:] + PING)
    world.dialled() << [greeting, PING]
    assert world.engine.memory.used == len(greeting), "and not what came behind it"


def test_client_and_operator_hear_of_an_unreachable_broker(world: World) -> None:
    world.broker_answers = False
    client = world.client()
    client >> connect()
    with capture_logs() as logs:
        world.refuse(ConnectionRefusedError("nobody listens there"))
    assert "nobody listens there" in only_error(client)
    assert +world.counters.connections_ended == {"broker_unreachable": 1}
    assert [(line["cause"], line["client"]) for line in logs] == [("broker_unreachable", "192.0.2.7:40001")]


def test_dialling_has_its_time(make_world) -> None:
    world = make_world(connect_timeout="2s")
    world.broker_answers = False
    client = world.client()
    client >> connect()
    world.advance(1.9)
    client << NOTHING
    world.advance(0.2)
    assert "no connection within 2 s" in only_error(client)


def test_a_client_that_leaves_during_a_dial_leaves_nothing(world: World) -> None:
    world.broker_answers = False
    client = world.client()
    client >> connect()
    client.leave(ConnectionResetError())
    assert world.finished == world.sessions
    assert world.dials[-1].outcome.cancelled()


@pytest.mark.parametrize("begin", [b"", connect()[:11]])
def test_a_client_that_does_not_greet_in_time_is_closed(world: World, begin: bytes) -> None:
    client = world.client()
    client.send_bytes(begin)
    world.advance(29.9)
    assert not client.is_gone
    world.advance(0.2)
    assert "handshake_timeout" in only_error(client)


def test_a_broker_that_answers_connect_late_ends_the_connection(world: World) -> None:
    client = world.client()
    client >> connect()
    broker = world.dialled()
    world.advance(30.1)
    assert "handshake_timeout" in only_error(client)
    assert broker.is_gone


def test_a_session_that_is_connected_has_no_deadline(world: World) -> None:
    client, broker = world.pair()
    world.advance(3600)
    client >> PING
    broker << PING


def test_a_client_that_half_closes_before_it_greets_is_over(world: World) -> None:
    client = world.client()
    client.half_close()
    assert client.is_gone
    assert +world.counters.connections_ended == {"client_closed": 1}


@pytest.mark.parametrize(
    ("hello", "cause"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "tls_hello"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "http_request"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "proxy_protocol"),
        (b"\xff" * 64, "too_large"),
        (PING, "no_connect"),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x06\x08\x02\x12\x02\x20\x14", "malformed"),  # a CONNECT of no version
    ],
)
def test_strangers_are_closed_with_one_line_and_a_count(world: World, hello: bytes, cause: str) -> None:
    client = world.client()
    with capture_logs() as logs:
        client.send_bytes(hello)
    assert client.is_gone
    assert +world.counters.frame_errors == {f"client {cause}": 1}
    assert [line["cause"] for line in logs] == ["frame_error"]
    assert cause in logs[0]["detail"]


def test_a_brokers_bytes_before_its_greeting_are_not_the_clients(world: World) -> None:
    """Something else may listen there: its banner must not go back to it as if the client had said it."""
    world.broker_answers = False
    client = world.client()
    client >> connect()
    dial = world.dials[-1]

    def accept_and_speak() -> None:
        dial.accept()
        dial.transport.receive(b"SSH-2.0-OpenSSH_9.6\r\n")

    world.loop.run(accept_and_speak)
    assert client.is_gone
    assert +world.counters.frame_errors == {"broker too_large": 1}


def test_a_broker_connected_after_its_sessions_end_is_dropped(world: World) -> None:
    session = Session(world.engine, 1, world.session_log, world.finished.append, world.config.listen[0])
    world.sessions.append(session)
    client, broker = (world.loop.transports(world.loop, ("192.0.2.7", port)) for port in (40_001, 6650))
    world.loop.run(client.connect, session.client)
    world.loop.run(session.shut_down)
    world.loop.run(broker.connect, session.broker)
    assert broker.is_lost
    assert not session.broker.is_connected
