"""Handshakes that fail, each in its way: a session exists from the accept on, and when it fails nothing of it stays."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from protocol.proxy_protocol import SIGNATURE_V2
from proxy.kicks import Kick, KickEffect, kicking
from proxy.session.proxy_headers import LEAST_AWAITED
from tests.proxy.conversation import Peer, World
from tests.proxy.wire import NO_REQUEST, PING, body, connect, connected, error

OTHER = "192.0.2.99"
LONG = connect(client_version="v" * 100_000)

Failing = Callable[[World, Peer], None]


def leaves(_world: World, client: Peer) -> None:
    client.leave()


def resets(_world: World, client: Peer) -> None:
    client.leave(ConnectionResetError("reset by peer"))


def half_closes(_world: World, client: Peer) -> None:
    client.half_close()


def leaves_in_the_middle_of_a_long_connect(_world: World, client: Peer) -> None:
    client.send_bytes(LONG[:90_000])
    client.leave()


def says_garbage(_world: World, client: Peer) -> None:
    client.send_bytes(b"\xff" * 64)


def greets_in_tls(_world: World, client: Peer) -> None:
    client.send_bytes(bytes.fromhex("16030100a5010000a10303") + bytes(160))


def is_announced_by_the_proxy_protocol(_world: World, client: Peer) -> None:
    client.send_bytes(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 6650\r\n")


def begins_with_another_command(_world: World, client: Peer) -> None:
    client >> PING


def says_nothing(world: World, _client: Peer) -> None:
    world.advance(world.config.handshake_timeout)


def says_half_a_connect(world: World, client: Peer) -> None:
    client.send_bytes(LONG[:90_000])
    world.advance(world.config.handshake_timeout)


def says_more_than_may_be_kept(_world: World, client: Peer) -> None:
    client.send_bytes(connect(client_version="v" * 200_000)[:-1])


def wants_a_broker_that_is_not_allowed(_world: World, client: Peer) -> None:
    client >> connect("192.0.2.9:6650")


def wants_what_is_no_address(_world: World, client: Peer) -> None:
    client >> connect("http://192.0.2.9:6651")


def wants_a_name_that_leads_nowhere(_world: World, client: Peer) -> None:
    client >> connect("nowhere.example:6650")


def finds_its_broker_refusing(world: World, client: Peer) -> None:
    client >> [LONG, PING]
    world.refuse(ConnectionRefusedError("refused"))


def finds_its_broker_silent(world: World, client: Peer) -> None:
    client >> [LONG, PING]
    world.advance(world.config.connect_timeout)


def leaves_while_its_broker_is_dialled(_world: World, client: Peer) -> None:
    client >> [LONG, PING]
    client.leave()


def leaves_while_a_name_is_resolved(world: World, client: Peer) -> None:
    asked = world.loop.create_future()

    async def unanswered(*_asked: Any, **_more: Any) -> Any:
        await asked

    world.loop.getaddrinfo = unanswered  # type: ignore[method-assign]
    client >> connect("slow.example:6650")
    assert len(world.engine.targets._names) == 1
    client.leave()
    world.loop.run(asked.set_exception, OSError("no answer"))


def is_not_answered_by_its_broker(world: World, client: Peer) -> None:
    client >> [LONG, PING]
    world.accept()
    world.advance(world.config.handshake_timeout)


def finds_its_broker_closing(world: World, client: Peer) -> None:
    client >> LONG
    world.accept().half_close()


def is_refused_by_its_broker(world: World, client: Peer) -> None:
    client >> LONG
    broker = world.accept()
    broker >> error(NO_REQUEST)
    broker.leave()


def finds_its_broker_talking_garbage(world: World, client: Peer) -> None:
    client >> LONG
    world.accept().send_bytes(b"\xff" * 64)


def is_one_too_many_of_its_address(world: World, client: Peer) -> None:
    others = [world.client(), world.client()]
    assert [other.is_gone for other in others] == [False, True]
    client.leave()
    others[0].leave()


def is_blocked(world: World, _client: Peer) -> None:
    blocked = world.client(OTHER)
    blocked >> LONG
    assert body(blocked.heard()[0]).server_version == "Sluice"
    world.advance(world.config.handshake_timeout)


def is_there_when_the_process_ends(world: World, _client: Peer) -> None:
    world.loop.run(world.sessions[-1].shut_down)


def is_dialling_when_the_process_ends(world: World, client: Peer) -> None:
    client >> [LONG, PING]
    world.loop.run(world.sessions[-1].shut_down)


def _kick(world: World) -> None:
    kick = Kick(connection_id=world.sessions[-1].connection.connection_id)
    world.loop.run(lambda: list(kicking(world.engine.sessions, kick, KickEffect())))


def is_kicked_before_it_greets(world: World, _client: Peer) -> None:
    _kick(world)


def is_kicked_while_its_broker_is_dialled(world: World, client: Peer) -> None:
    client >> [LONG, PING]
    _kick(world)


WAYS: list[tuple[Failing, dict[str, int]]] = [
    (leaves, {"client_closed": 1}),
    (resets, {"client_reset": 1}),
    (half_closes, {"client_closed": 1}),
    (leaves_in_the_middle_of_a_long_connect, {"client_closed": 1}),
    (says_garbage, {"frame_error": 1}),
    (greets_in_tls, {"frame_error": 1}),
    (is_announced_by_the_proxy_protocol, {"frame_error": 1}),
    (begins_with_another_command, {"frame_error": 1}),
    (says_nothing, {"handshake_timeout": 1}),
    (says_half_a_connect, {"handshake_timeout": 1}),
    (says_more_than_may_be_kept, {"over_budget": 1}),
    (wants_a_broker_that_is_not_allowed, {"target_refused": 1}),
    (wants_what_is_no_address, {"target_refused": 1}),
    (wants_a_name_that_leads_nowhere, {"target_refused": 1}),
    (finds_its_broker_refusing, {"broker_unreachable": 1}),
    (finds_its_broker_silent, {"broker_unreachable": 1}),
    (leaves_while_its_broker_is_dialled, {"client_closed": 1}),
    (leaves_while_a_name_is_resolved, {"client_closed": 1}),
    (is_not_answered_by_its_broker, {"handshake_timeout": 1}),
    (finds_its_broker_closing, {"broker_closed": 1}),
    (is_refused_by_its_broker, {"broker_closed": 1}),
    (finds_its_broker_talking_garbage, {"frame_error": 1}),
    (is_one_too_many_of_its_address, {"client_closed": 2, "too_many_connections": 1}),
    (is_blocked, {"blocked": 1, "handshake_timeout": 1}),
    (is_kicked_before_it_greets, {"kicked": 1}),
    (is_kicked_while_its_broker_is_dialled, {"kicked": 1}),
    (is_there_when_the_process_ends, {"shutdown": 1}),
    (is_dialling_when_the_process_ends, {"shutdown": 1}),
]


BALANCER = "10.0.0.5"
V1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 6650\r\n"


def says_half_a_header(world: World, client: Peer) -> None:
    client.send_bytes(V1[:-1])
    world.advance(world.config.handshake_timeout)


def leaves_in_the_middle_of_a_header(_world: World, client: Peer) -> None:
    client.send_bytes(V1[:-1])
    client.leave()


def resets_in_the_middle_of_a_header(_world: World, client: Peer) -> None:
    client.send_bytes(V1[:9])
    client.leave(ConnectionResetError("reset by peer"))


def half_closes_in_the_middle_of_a_header(_world: World, client: Peer) -> None:
    client.send_bytes(V1[:9])
    client.half_close()


def sends_a_header_that_is_none(_world: World, client: Peer) -> None:
    client.send_bytes(b"PROXY TCP4 nowhere 192.0.2.2 1 6650\r\n" + LONG)


def sends_a_header_without_an_end(_world: World, client: Peer) -> None:
    client.send_bytes(b"PROXY TCP4 " + b"1" * 100_000)


def sends_a_longer_header_than_is_taken(_world: World, client: Peer) -> None:
    client.send_bytes(SIGNATURE_V2 + b"\x21\x11\xff\xff")


def sends_a_header_of_another_version(_world: World, client: Peer) -> None:
    client.send_bytes(SIGNATURE_V2 + b"\x31\x11\x00\x0c" + bytes(12))


def sends_no_header(_world: World, client: Peer) -> None:
    client.send_bytes(LONG)


def comes_from_elsewhere(world: World, client: Peer) -> None:
    assert world.client(OTHER).is_gone
    client.leave()


def is_displaced_by_others(world: World, client: Peer) -> None:
    others = [world.client(BALANCER) for _ in range(LEAST_AWAITED)]
    assert client.is_gone
    for other in others:
        other.leave()


def is_one_too_many_of_the_address_in_its_header(world: World, client: Peer) -> None:
    others = [world.client(BALANCER), world.client(BALANCER), client]
    for other in others:
        other.send_bytes(V1)
    assert [other.is_gone for other in others] == [False, False, True]
    others[0].leave()
    others[1].leave()


def sends_a_header_and_garbage(_world: World, client: Peer) -> None:
    client.send_bytes(V1 + b"\xff" * 64)


def sends_a_header_and_says_nothing(world: World, client: Peer) -> None:
    client.send_bytes(V1)
    world.advance(world.config.handshake_timeout)


def waits_for_its_balancer_when_the_process_ends(world: World, _client: Peer) -> None:
    world.loop.run(world.sessions[-1].shut_down)


HEADERS: list[tuple[Failing, dict[str, int]]] = [
    (leaves, {"client_closed": 1}),
    (says_nothing, {"handshake_timeout": 1}),
    (says_half_a_header, {"handshake_timeout": 1}),
    (leaves_in_the_middle_of_a_header, {"client_closed": 1}),
    (resets_in_the_middle_of_a_header, {"client_reset": 1}),
    (half_closes_in_the_middle_of_a_header, {"client_closed": 1}),
    (sends_a_header_that_is_none, {"proxy_header": 1}),
    (sends_a_header_without_an_end, {"proxy_header": 1}),
    (sends_a_longer_header_than_is_taken, {"proxy_header": 1}),
    (sends_a_header_of_another_version, {"proxy_header": 1}),
    (sends_no_header, {"proxy_header": 1}),
    (comes_from_elsewhere, {"proxy_header": 1, "client_closed": 1}),
    (is_displaced_by_others, {"proxy_header": 1, "client_closed": LEAST_AWAITED}),
    (is_one_too_many_of_the_address_in_its_header, {"too_many_connections": 1, "client_closed": 2}),
    (sends_a_header_and_garbage, {"frame_error": 1}),
    (sends_a_header_and_says_nothing, {"handshake_timeout": 1}),
    (waits_for_its_balancer_when_the_process_ends, {"shutdown": 1}),
]


@pytest.mark.parametrize(("failing", "ends"), HEADERS, ids=[failing.__name__ for failing, _ in HEADERS])
def test_nothing_stays_of_a_session_whose_header_fails(
    make_world: Callable[..., World], failing: Failing, ends: dict[str, int]
) -> None:
    world = make_world(
        proxy_protocol={"mode": "required", "from": ["10.0.0.0/8"]},
        max_connections=100,
        admission={"max_connections_per_address": 2},
    )
    world.broker_answers = False
    resting = world.loop.timers
    client = world.client(BALANCER)
    assert len(world.engine.sessions) == 1, "a session exists from the accept on"
    assert world.engine.admission.taken == 0, "and has no place before it is known whose it is"
    assert world.engine.connector.under_way == 1, "but its time runs"
    failing(world, client)
    world.advance(world.config.linger)
    assert +world.counters.connections_ended == ends
    assert world.engine.proxy_headers is not None
    assert len(world.engine.proxy_headers) == 0, "no header is awaited"
    assert_nothing_stays(world, resting)


@pytest.mark.parametrize(("failing", "ends"), WAYS, ids=[failing.__name__ for failing, _ in WAYS])
def test_nothing_stays_of_a_session_whose_handshake_fails(
    make_world: Callable[..., World], failing: Failing, ends: dict[str, int]
) -> None:
    world = make_world(
        allowed_brokers=["*.example:6650"],
        admission={"max_connections_per_address": 2},
        blocks=[{"address": OTHER, "reason": "test"}],
        client_memory={"connection": "150KB"},
    )
    world.broker_answers = False
    resting = world.loop.timers
    client = world.client()
    assert len(world.engine.sessions) == 1, "a session exists from the accept on"
    assert world.engine.admission.taken == 2, "and has its places: in all, and of its address"
    assert world.engine.connector.under_way == 1, "and its time runs"
    failing(world, client)
    world.advance(world.config.linger)
    assert +world.counters.connections_ended == ends
    assert_nothing_stays(world, resting)


def test_a_handshake_that_succeeds_leaves_a_session_and_nothing_else(make_world: Callable[..., World]) -> None:
    """What the table above asserts can fail."""
    world = make_world()
    resting = world.loop.timers
    client = world.client()
    client >> connect()
    world.dialled() >> connected()
    assert world.engine.connector.under_way == 0
    with pytest.raises(AssertionError, match="session"):
        assert_nothing_stays(world, resting)


def assert_nothing_stays(world: World, resting: list[str]) -> None:
    engine = world.engine
    assert not engine.sessions, "no session is known"
    assert world.finished == sorted(world.sessions, key=world.finished.index), "each session ended once"
    assert engine.connector.under_way == 0, "no handshake and no dial is under way"
    assert engine.admission.taken == engine.admission.provisional == 0, "places are given back"
    assert (engine.memory.used, engine.memory._by_address) == (0, {}), "no memory is claimed"
    assert (engine.lookups.used, engine.held.memory) == (0, 0), "nor anything else"
    assert not engine.shared.reads.groups, "no group of an address is left"
    assert not engine.targets._names, "no name is asked for"
    assert not +world.counters.connections_open, "no connection is counted"
    assert not +world.counters.throttled, "no reason not to read is left"
    assert all(dial.outcome.done() for dial in world.dials), "no dial goes on"
    brokers = [dial.transport for dial in world.dials if dial.transport.get_protocol() is not None]
    assert all(broker.is_lost for broker in brokers), "no connection to a broker is open"
    assert all(client.is_gone for client in world.clients), "no socket is open"
    assert world.loop.timers == resting, "no timer runs"
    assert not [task for task in asyncio.all_tasks(world.loop) if not task.done()], "no task runs"
