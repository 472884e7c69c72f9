"""PROXY protocol headers in front of clients: whose address holds, who is refused, and how many may be without one."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from accesslog.record import ConnectionLine
from protocol.proxy_protocol import MOST_V2, SIGNATURE_V2, write_header
from proxy.session.proxy_headers import LEAST_AWAITED
from proxy.session.session import SessionState
from tests.proxy.conversation import Broker, Peer, World
from tests.proxy.tls import Authorities
from tests.proxy.wire import PING, connect, connected

Make = Callable[..., World]

BALANCER = "10.0.0.5"
CLIENT = "203.0.113.9"
NEIGHBOUR = "203.0.113.10"
V1 = b"PROXY TCP4 203.0.113.9 198.51.100.1 56324 6650\r\n"
V2 = write_header((CLIENT, 56324), ("198.51.100.1", 6650))
LOCALS = {
    "LOCAL": write_header(None),
    "UNKNOWN": b"PROXY UNKNOWN\r\n",
    "unix": SIGNATURE_V2 + b"\x21\x31\x00\xd8" + bytes(216),
}


def believing(mode: str = "required") -> dict[str, Any]:
    return {"proxy_protocol": {"mode": mode, "from": ["10.0.0.0/8"]}}


@pytest.fixture(scope="session")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def world(make_world: Make) -> World:
    return make_world(**believing())


def paired(world: World, header: bytes, address: str = BALANCER) -> tuple[Peer, Broker]:
    client = world.client(address)
    client.send_bytes(header)
    client >> connect()
    broker = world.dialled()
    broker << connect()
    broker >> connected()
    client << connected()
    return client, broker


def results(world: World) -> dict[str, int]:
    return dict(+world.counters.proxy_headers)


def state(world: World) -> SessionState:
    return world.sessions[-1].state


def ends(world: World) -> dict[str, int]:
    return dict(+world.counters.connections_ended)


@pytest.mark.parametrize(
    ("header", "result"), [(V1, "v1"), (V2, "v2"), (V2[:14] + b"\x00\x0f" + V2[16:] + b"TLV", "v2")]
)
@pytest.mark.parametrize("mode", ["optional", "required"])
def test_the_address_in_a_header_is_the_clients(make_world: Make, mode: str, header: bytes, result: str) -> None:
    world = make_world(**believing(mode))
    client, broker = paired(world, header)
    assert world.sessions[-1].connection.client_address == f"{CLIENT}:56324"
    assert results(world) == {result: 1}
    client >> PING
    broker << PING
    client.leave()
    (line,) = world.lines(ConnectionLine)
    assert line.client_address == f"{CLIENT}:56324"


def test_an_address_of_ipv6_is_written_as_that_of_a_socket(world: World) -> None:
    client, _ = paired(world, write_header(("2001:db8::9", 1)))
    assert world.sessions[-1].connection.client_address == "[2001:db8::9]:1"
    assert world.sessions[-1].connection.client_network == "2001:db8::/64"
    client.leave()


@pytest.mark.parametrize("header", LOCALS.values(), ids=LOCALS)
def test_where_a_header_names_no_client_the_balancers_own_address_holds(world: World, header: bytes) -> None:
    paired(world, header)
    assert world.sessions[-1].connection.client_host == BALANCER
    assert results(world) == {"local": 1}


@settings(max_examples=60, deadline=None)
@given(
    header=st.sampled_from([V1, V2, *LOCALS.values(), b""]),
    cuts=st.lists(st.integers(1, 400), max_size=6),
)
def test_wherever_the_first_bytes_are_cut_those_behind_the_header_go_on_as_they_came(
    header: bytes, cuts: list[int]
) -> None:
    world = World(**believing("optional"))
    stream = header + connect() + PING + PING
    client = world.client(BALANCER)
    at = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for begin, end in pairwise(at):
        client.send_bytes(stream[begin:end])
    broker = world.dialled()
    broker << [connect(), PING, PING]
    world.close()


def test_without_a_header_an_optional_ones_client_is_the_peer_itself(make_world: Make) -> None:
    world = make_world(**believing("optional"))
    paired(world, b"")
    paired(world, b"", "192.0.2.7")
    assert [session.connection.client_host for session in world.sessions] == [BALANCER, "192.0.2.7"]
    assert results(world) == {"none": 2}


def test_without_a_header_where_one_must_be_a_client_is_refused_at_its_first_byte(world: World) -> None:
    client = world.client(BALANCER)
    with capture_logs() as log:
        client.send_bytes(connect()[:1])
    assert client.is_gone
    assert (ends(world), results(world)) == ({"proxy_header": 1}, {"missing": 1})
    (line,) = log
    assert (line["cause"], line["client"]) == ("proxy_header", f"{BALANCER}:40001")
    assert "no PROXY protocol header, which proxy_protocol.mode required asks for" in line["detail"]


@pytest.mark.parametrize("header", [V1, V2])
def test_a_header_from_elsewhere_is_refused_with_a_line_that_says_so(make_world: Make, header: bytes) -> None:
    world = make_world(**believing("optional"))
    client = world.client("192.0.2.7")
    with capture_logs() as log:
        client.send_bytes(header + connect())
    assert client.is_gone
    assert (ends(world), results(world)) == ({"proxy_header": 1}, {"not_believed": 1})
    (line,) = log
    assert (line["cause"], line["client"]) == ("proxy_header", "192.0.2.7:40001"), "not whom it claims to be"
    assert "proxy_protocol.from names no network with this address" in line["detail"]


def test_where_one_must_be_a_client_from_elsewhere_is_refused_before_it_speaks(world: World) -> None:
    client = world.client("192.0.2.7")
    assert client.is_gone
    assert (ends(world), results(world)) == ({"proxy_header": 1}, {"not_believed": 1})


def test_who_is_gone_before_it_is_let_in_has_no_address_and_is_no_stranger(world: World) -> None:
    """As the checks of a balancer may be."""
    with capture_logs() as log:
        client = world.client("")
    assert client.is_gone
    assert (ends(world), results(world), log) == ({"client_reset": 1}, {}, [])


@pytest.mark.parametrize("address", [BALANCER, f"::ffff:{BALANCER}"])
def test_a_balancer_is_known_by_its_address_within_ipv6_too(world: World, address: str) -> None:
    paired(world, V2, address)
    assert world.sessions[-1].connection.client_host == CLIENT


def test_switched_off_a_header_is_what_it_was_and_the_line_says_what_to_set(make_world: Make) -> None:
    world = make_world()
    client = world.client(BALANCER)
    with capture_logs() as log:
        client.send_bytes(V1)
    assert client.is_gone
    assert (ends(world), results(world)) == ({"frame_error": 1}, {})
    assert "proxy_protocol" in log[0]["detail"]
    assert "mode and from" in log[0]["detail"]


def test_a_header_has_the_handshakes_time_and_no_more(world: World) -> None:
    client = world.client(BALANCER)
    client.send_bytes(V1[:-1])
    world.advance(world.config.handshake_timeout - 0.1)
    assert not client.is_gone
    world.advance(0.2)
    assert ends(world) == {"handshake_timeout": 1}


# ---- whose address counts


def test_places_are_those_of_the_address_in_the_header(make_world: Make) -> None:
    world = make_world(**believing(), admission={"max_connections_per_address": 1})
    paired(world, V2)
    paired(world, write_header((NEIGHBOUR, 1)))
    third = world.client(BALANCER)
    third.send_bytes(V1 + connect())
    assert third.heard_names() == ["ERROR"]
    assert ends(world) == {"too_many_connections": 1}
    assert world.engine.shared.reads.groups.keys() == {CLIENT, NEIGHBOUR}


def test_client_over_a_bound_gets_its_error_after_the_header(make_world: Make) -> None:
    world = make_world(**believing(), admission={"connection_rate_per_address": "1/1h"})
    paired(world, V2)
    again = world.client(BALANCER)
    again.send_bytes(V2 + connect())
    assert again.heard_names() == ["ERROR"]
    assert len(world.dials) == 1


def test_blocks_are_of_the_address_in_the_header(make_world: Make) -> None:
    world = make_world(**believing(), blocks=[{"address": CLIENT}])
    blocked = world.client(BALANCER)
    blocked.send_bytes(V2 + connect())
    assert world.counters.blocked == {"address": 1}
    paired(world, write_header((NEIGHBOUR, 1)))


def test_an_error_names_the_address_in_the_header(world: World) -> None:
    client = world.client(BALANCER)
    with capture_logs() as log:
        client.send_bytes(V2 + b"\xff" * 64)
    assert ends(world) == {"frame_error": 1}
    assert log[0]["client"] == f"{CLIENT}:56324"
    assert f"client {CLIENT}:56324: " in log[0]["detail"]


def test_a_header_behind_the_balancers_is_the_clients_own_and_is_not_believed(world: World) -> None:
    forger = world.client(BALANCER)
    forger.send_bytes(V2 + write_header((NEIGHBOUR, 1)) + connect())
    assert forger.is_gone
    assert (ends(world), results(world)) == ({"frame_error": 1}, {"v2": 1})
    (line,) = world.lines(ConnectionLine)
    assert line.client_address == f"{CLIENT}:56324"


# ---- those that are without


def test_a_connection_without_its_header_takes_no_place_and_is_in_no_group(world: World) -> None:
    client = world.client(BALANCER)
    assert state(world) is SessionState.PROXY_HEADER
    assert world.engine.admission.taken == 0
    assert not world.engine.shared.reads.groups
    assert world.engine.connector.under_way == 1, "its time runs"
    client.send_bytes(V2)
    assert state(world) is SessionState.GREETING
    assert world.engine.admission.taken == 1
    assert world.engine.shared.reads.groups.keys() == {CLIENT}


def test_of_those_without_a_header_the_newest_displaces_the_oldest(make_world: Make) -> None:
    world = make_world(**believing(), max_connections=5)
    silent = [world.client(BALANCER) for _ in range(LEAST_AWAITED)]
    assert not any(client.is_gone for client in silent)
    with capture_logs() as log:
        paired(world, V2)
    assert [client.is_gone for client in silent] == [True] + [False] * (LEAST_AWAITED - 1)
    assert (ends(world), results(world)) == ({"proxy_header": 1}, {"displaced": 1, "v2": 1})
    assert f"{LEAST_AWAITED} later connections wait for theirs" in log[0]["detail"]
    headers = world.engine.proxy_headers
    assert headers is not None
    assert len(headers) == LEAST_AWAITED - 1, "whose header has come waits no more"
    world.advance(world.config.handshake_timeout)
    assert len(headers) == 0


def test_a_tenth_of_all_connections_may_be_without(make_world: Make) -> None:
    world = make_world(**believing(), max_connections=2000)
    silent = [world.client(BALANCER) for _ in range(201)]
    assert [client.is_gone for client in silent] == [True] + [False] * 200


def test_silent_connections_of_a_balancer_keep_nobody_out_whose_header_comes(make_world: Make) -> None:
    """Who fills what may be without a header has filled nothing that others need."""
    world = make_world(**believing(), max_connections=20, admission={"max_connections_per_address": 3})
    for _ in range(3 * LEAST_AWAITED):
        world.client(BALANCER)
    for port in range(3):
        paired(world, write_header((CLIENT, port)))
        paired(world, write_header((NEIGHBOUR, port)))


@pytest.mark.parametrize(
    "header", [b"PROXY TCP4 " + b"1" * 200, SIGNATURE_V2 + b"\x21\x11" + (MOST_V2 + 1).to_bytes(2)]
)
def test_what_is_kept_of_a_header_is_bounded(world: World, header: bytes) -> None:
    client = world.client(BALANCER)
    client.send_bytes(header)
    assert client.is_gone
    assert results(world) == {"too_long": 1}
    assert not world.sessions[-1]._unhandled


# ---- in front of TLS


@pytest.fixture
def make_tls(make_world: Make, authorities: Authorities) -> Make:
    def make(**settings: object) -> World:
        return make_world(**authorities.settings(), **settings)

    return make


@pytest.mark.parametrize("cut", ["one", "with the handshake", "bytes"])
def test_tls_begins_behind_the_header(make_tls: Make, authorities: Authorities, cut: str) -> None:
    world = make_tls(**believing())
    client = world.tls_client(authorities.client(), BALANCER)
    assert not client.tries_handshake()
    header, hello = V2, client.records()
    for part in {"one": [header, hello], "with the handshake": [header + hello]}.get(
        cut, [bytes([byte]) for byte in header + hello]
    ):
        client.send_records(part)
    client.hear_records()
    client.shake_hands()
    client >> [connect(), PING]
    broker = world.dialled()
    broker << [connect(), PING]
    broker >> connected()
    client << connected()
    connection = world.sessions[-1].connection
    assert (connection.client_host, connection.is_tls) == (CLIENT, True)


def test_an_optional_header_may_be_left_out_in_front_of_tls(make_tls: Make, authorities: Authorities) -> None:
    world = make_tls(**believing("optional"))
    for address in (BALANCER, "192.0.2.7"):
        client = world.tls_client(authorities.client(), address)
        client.shake_hands()
        client >> connect()
        world.dialled() << connect()
        assert world.sessions[-1].connection.client_host == address


def test_a_client_of_tls_that_is_not_admitted_is_told_nothing_that_is_not_tls(
    make_tls: Make, authorities: Authorities
) -> None:
    world = make_tls(**believing(), admission={"max_connections_per_address": 1})
    first = world.tls_client(authorities.client(), BALANCER)
    first.send_records(V2)
    second = world.tls_client(authorities.client(), BALANCER)
    second.send_records(V2)
    assert second.is_gone
    assert Peer.heard_bytes(second) == b""
    assert ends(world) == {"too_many_connections": 1}


def test_an_error_of_tls_names_the_address_in_the_header(make_tls: Make, authorities: Authorities) -> None:
    world = make_tls(**believing())
    client = world.tls_client(authorities.client(), BALANCER)
    with capture_logs() as log:
        client.send_records(V2 + connect())
    assert f"client {CLIENT}:56324 speaks no TLS" in log[0]["detail"]
