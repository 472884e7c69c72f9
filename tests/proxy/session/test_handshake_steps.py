"""Steps of TLS handshakes are units of work: a few in each turn of the loop, and addresses have turns."""

import ssl
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from proxy.counters import Counters
from proxy.session.broker_connector import BrokerHandshake
from proxy.session.session import SessionState
from proxy.session.transport import PeerTransport, TransportContext, TransportOwner
from proxy.slices import AT_ONCE, Slices, Work
from proxy.tls.transport import MOST_UNSECURED
from tests.manual_clock import ManualClock
from tests.proxy.conversation import TlsClient, World
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.manual_loop import ManualLoop
from tests.proxy.tls import Authorities
from tests.proxy.wire import connect

Make = Callable[..., World]
CROWD = 60
STEPS = AT_ONCE[Work.HANDSHAKES]


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def world(make_world: Make, authorities: Authorities) -> World:
    return make_world(**authorities.settings())


class AnsweredInTurns:
    """The transports that the proxy has written to after each turn of the loop."""

    def __init__(self, loop: ManualLoop, transports: list[FakeTransport]) -> None:
        self.after_turns = [0]
        self._transports = transports
        loop.turned = self._turned

    def _turned(self) -> None:
        self.after_turns.append(sum(bool(transport.written) for transport in self._transports))

    def most(self) -> int:
        return max(after - before for before, after in pairwise(self.after_turns))


def hello(client: TlsClient) -> bytes:
    client.tries_handshake()
    return client.records()


def crowd_says_hello(world: World, authorities: Authorities, *later: bytes) -> list[TlsClient]:
    clients = [world.tls_client(authorities.client()) for _ in range(CROWD)]
    records = [hello(client) for client in clients]

    def all_of_them() -> None:
        for client, begun in zip(clients, records, strict=True):
            for piece in (begun, *later):
                client.transport.receive(piece)

    world.loop.call_soon(all_of_them)
    return clients


def test_few_clients_are_answered_in_each_turn(world: World, authorities: Authorities) -> None:
    clients = crowd_says_hello(world, authorities)
    answered = AnsweredInTurns(world.loop, [client.transport for client in clients])
    world.loop.settle()
    assert answered.after_turns[-1] == CROWD
    assert answered.most() <= STEPS
    assert world.counters.work_ns.keys() >= {Work.HANDSHAKES}
    for client in clients:
        client.shake_hands()
    assert {session.state for session in world.sessions} == {SessionState.GREETING}


def test_a_client_is_not_read_until_its_step(world: World, authorities: Authorities) -> None:
    clients = crowd_says_hello(world, authorities)
    unread = list[int]()
    world.loop.turned = lambda: unread.append(sum(not client.is_read for client in clients))
    world.loop.settle()
    assert max(unread) >= CROWD - 2 * STEPS
    assert unread[-1] == 0


def test_a_neighbour_waits_for_one_step_of_a_crowd(world: World, authorities: Authorities) -> None:
    neighbour = world.tls_client(authorities.client(), "192.0.2.99")
    begun = hello(neighbour)
    clients = crowd_says_hello(world, authorities)
    world.loop.call_soon(neighbour.transport.receive, begun)
    answered_before = list[int]()

    def turned() -> None:
        if neighbour.transport.written and not answered_before:
            answered_before.append(sum(bool(client.transport.written) for client in clients))

    world.loop.turned = turned
    world.loop.settle()
    assert answered_before[0] <= 2 * STEPS


def test_clients_that_leave_before_their_step_cost_none(world: World, authorities: Authorities) -> None:
    clients = crowd_says_hello(world, authorities)

    def leave() -> None:
        for client in clients:
            client.transport.break_off(ConnectionResetError("by peer"))

    world.loop.call_soon(leave)
    world.loop.settle()
    assert sum(bool(client.transport.written) for client in clients) <= 2 * STEPS
    assert len(world.finished) == CROWD
    assert not world.loop.trouble


def test_bytes_read_with_the_handshake_are_heard_at_their_step(world: World, authorities: Authorities) -> None:
    client = world.tls_client(authorities.client())
    while not client.tries_handshake():
        client.send_records(client.records())
        client.hear_records()
    last = client.records() + client.sealed(connect())
    crowd_says_hello(world, authorities)
    world.loop.call_soon(client.transport.receive, last)
    world.loop.settle()
    assert client.is_read
    world.dialled() << [connect()]


def test_a_peer_sends_little_before_its_handshake(world: World, authorities: Authorities) -> None:
    """What waits for a step is kept, for each of thousands of connections."""
    client = world.tls_client(authorities.client())
    session = world.sessions[-1]
    tls: Any = client.transport.get_protocol()
    assert len(tls.get_buffer(-1)) == MOST_UNSECURED
    world.loop.run(tls.feed, b"\x16\x03\x01\x40\x00" + bytes(MOST_UNSECURED), MOST_UNSECURED + 5)
    assert client.is_gone or session.has_ended
    assert world.counters.tls_failures == {"client broken": 1}


def test_few_brokers_are_greeted_in_each_turn() -> None:
    counters, loop = Counters(), ManualLoop(ManualClock())
    shared = TransportContext(counters, Slices(counters, loop.clock))
    transports = [FakeTransport(loop, ("10.0.0.1", 6651)) for _ in range(CROWD)]
    context: Any = ssl.create_default_context()
    answered = AnsweredInTurns(loop, transports)

    def connect_all() -> None:
        for transport in transports:
            peer = PeerTransport("broker", TransportOwner(), shared)
            handshake: Any = BrokerHandshake(peer, context, shared.tls_buffers(), "localhost", counters)
            transport.connect(handshake)

    loop.run(connect_all)
    assert answered.after_turns[-1] == CROWD
    assert answered.most() <= STEPS
    assert counters.work_ns.keys() == {Work.HANDSHAKES}
    loop.close()
