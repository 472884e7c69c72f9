"""A process that drains, told as conversations with its clients."""

from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pytest

from proxy.drain import DrainCause, DrainOutcome, DrainService, Phase
from proxy.policies.keys import Principal
from proxy.policies.store import Action
from proxy.server import Server
from tests.proxy.conversation import BROKER, NOTHING, Peer, World, publisher
from tests.proxy.wire import TOPIC, body, connect, connected, lookup, name_of, send, sends, success

Make = Callable[..., World]
TARGET = f"{BROKER[0]}:{BROKER[1]}"


class Sessions:
    """The sessions of a world, in the place of a server that listens."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.listens = True
        self.has_left_queues = False

    @property
    def sessions(self) -> list[object]:
        return list(self._world.sessions)

    @property
    def accepted(self) -> int:
        return len(self._world.sessions)

    def accepted_after(self, number: int) -> list[object]:
        return [session for session in self._world.sessions[number:] if not session.has_ended]

    async def leave_port(self) -> None:
        self.listens = False

    def leave_queues(self) -> None:
        self.has_left_queues = True

    def end_sessions(self) -> None:
        for session in self._world.sessions:
            session.shut_down()


class Draining:
    """A world whose process drains on request; its brokers close what they are asked to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.audited: list[tuple[str, str]] = []
        self.server = Sessions(world)
        self.service = DrainService(world.config.drain, world.engine, cast("Server", self.server), self._note)

    def _note(self, action: Action, author: Principal) -> None:
        self.audited.append((author.name, action.effect))

    def begin(self) -> None:
        self.world.loop.run(self.service.begin, DrainCause.SIGTERM)

    def advance(self, seconds: float, *brokers: Peer) -> None:
        """Let time pass; the brokers answer each CLOSE within a tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.world.advance(0.1)
            for broker in brokers:
                closes = [frame for frame in broker.heard() if name_of(frame).startswith("CLOSE")]
                broker >> [success(body(frame).request_id) for frame in closes]

    @property
    def state(self) -> tuple[Phase, DrainOutcome | None]:
        return self.service.phase, self.service.outcome


@pytest.fixture
def draining(world: World) -> Draining:
    return Draining(world)


def hang_up(*clients: Peer) -> None:
    """Close each connection that the proxy has ended, as clients do."""
    for client in clients:
        if client.transport.is_eof_sent and not client.is_gone:
            client.half_close()


def test_process_without_clients_is_drained_after_the_delay(draining: Draining) -> None:
    draining.begin()
    draining.advance(4.8)
    assert draining.service.phase is Phase.DELAYING, "a balancer may still send clients"
    draining.advance(0.3)
    assert draining.state == (Phase.DRAINED, DrainOutcome.MOVED)
    draining.world.loop.run(draining.service.begin, DrainCause.REST)
    assert draining.service.cause == "SIGTERM"


def test_clients_are_served_and_let_in_until_the_delay_is_over(draining: Draining) -> None:
    client, broker = publisher(draining.world)
    draining.begin()
    draining.advance(4.9)
    client >> sends(2)
    broker << sends(2)
    publisher(draining.world, address="192.0.2.8")
    assert draining.state == (Phase.DELAYING, None)


def test_clients_leave_after_the_delay_and_lookups_last(draining: Draining) -> None:
    asking, asked = draining.world.pair()
    client, broker = publisher(draining.world)
    draining.begin()
    draining.advance(5)
    assert client.heard() == []
    asking >> lookup(1)
    asked << lookup(1)
    draining.advance(0.2, broker)
    assert client.heard_names() == ["CLOSE_PRODUCER"]
    assert client.transport.is_eof_sent
    draining.advance(0.5)
    assert not asking.transport.is_eof_sent, "a client that has left may look up by it"
    draining.advance(1)
    assert not asking.transport.is_eof_sent, "its lookup has no answer"
    draining.advance(0.8)
    assert asking.transport.is_eof_sent
    hang_up(client, asking)
    draining.advance(1)
    assert draining.state == (Phase.DRAINED, DrainOutcome.MOVED)
    moved = draining.service.moved
    assert (moved["connections"], moved["streams"]) == (2, 1)


def test_connections_leave_one_after_the_other(draining: Draining) -> None:
    pairs = [publisher(draining.world) for _ in range(100)]
    draining.begin()
    draining.advance(6, *(broker for _, broker in pairs))
    gone = sum(client.transport.is_eof_sent for client, _ in pairs)
    assert 40 <= gone <= 60
    draining.advance(2, *(broker for _, broker in pairs))
    assert all(client.transport.is_eof_sent for client, _ in pairs)


def test_client_that_comes_back_is_served_and_leaves_again(draining: Draining) -> None:
    _client, broker = publisher(draining.world)
    draining.begin()
    draining.advance(5.3, broker)
    again, at_broker = publisher(draining.world)
    draining.advance(0.9, at_broker)
    again >> sends(2)
    at_broker << sends(2)
    assert not again.transport.is_eof_sent
    draining.advance(0.5, at_broker)
    assert again.heard_names() == ["CLOSE_PRODUCER"]
    assert again.transport.is_eof_sent
    hang_up(_client, again)
    draining.advance(1.2)
    assert draining.state == (Phase.DRAINED, DrainOutcome.MOVED)


def test_client_that_comes_when_time_is_short_is_closed(make_world: Make) -> None:
    draining = Draining(make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}}))
    client, broker = publisher(draining.world)
    client >> sends(40)
    draining.begin()
    draining.advance(28.1)
    assert draining.service.phase is Phase.MOVING
    again = draining.world.client()
    again >> connect(TARGET)
    again << NOTHING
    assert again.transport.is_eof_sent
    assert draining.world.counters.drain_refused == {"data": 1}
    broker.heard()


@pytest.mark.parametrize(("cause", "is_left"), [(DrainCause.SIGTERM, True), (DrainCause.REST, False)])
def test_queues_are_left_when_the_process_is_about_to_end(
    draining: Draining, cause: DrainCause, *, is_left: bool
) -> None:
    """After another drain it goes on, and answers clients that come."""
    publisher(draining.world)
    draining.world.loop.run(draining.service.begin, cause)
    draining.advance(4.9)
    assert not draining.server.has_left_queues
    draining.advance(25.2)
    assert draining.service.phase is Phase.DRAINED
    assert draining.server.has_left_queues is is_left


def test_queues_are_left_when_a_signal_comes_in_a_drain(draining: Draining) -> None:
    publisher(draining.world)
    draining.world.loop.run(draining.service.begin, DrainCause.REST)
    draining.advance(10)
    draining.begin()
    draining.advance(20.2)
    assert draining.server.has_left_queues


def test_clients_that_all_come_back_leave_once(draining: Draining) -> None:
    """As where a proxy is alone: to move them again and again would only cost them acknowledgements."""
    pairs = [publisher(draining.world) for _ in range(100)]
    draining.begin()
    draining.advance(5)
    while draining.service.phase is Phase.MOVING and not draining.world.engine.admission.is_draining:
        for client, _ in list(pairs):
            if client.transport.is_eof_sent and not client.is_gone:
                hang_up(client)
                pairs.append(publisher(draining.world))
        draining.advance(0.1, *(broker for client, broker in pairs if not client.is_gone))
    assert draining.service.moved["connections"] <= 2 * 100
    hang_up(*(client for client, _ in pairs))
    for _ in range(30):
        draining.advance(0.1, *(broker for client, broker in pairs if not client.is_gone))
        hang_up(*(client for client, _ in pairs))
    assert draining.state == (Phase.DRAINED, DrainOutcome.MOVED)
    assert all(client.is_gone or client.transport.is_eof_sent for client, _ in pairs)


def test_process_beside_others_on_its_port_listens_no_more(draining: Draining) -> None:
    client, broker = publisher(draining.world)
    draining.advance(0.2)
    draining.world.loop.run(draining.service.begin, DrainCause.REPLACED)
    draining.advance(0.2, broker)
    assert not draining.server.listens
    assert client.transport.is_eof_sent, "no balancer has to notice"


def test_client_from_a_queue_of_the_left_port_is_let_in(draining: Draining) -> None:
    _client, broker = publisher(draining.world)
    draining.world.loop.run(draining.service.begin, DrainCause.REPLACED)
    draining.advance(0.2, broker)
    queued, _ = draining.world.pair()
    assert queued.transport.is_eof_sent is False
    draining.advance(2, broker)
    assert queued.transport.is_eof_sent, "and leaves like the others"


def test_client_that_the_loop_is_about_to_open_is_let_in(draining: Draining) -> None:
    """No connection is counted yet."""
    client = draining.world.client()
    draining.world.engine.counters.connections_open["handshake"] -= 1
    draining.world.loop.run(draining.service.begin, DrainCause.REPLACED)
    draining.world.engine.counters.connections_open["handshake"] += 1
    draining.advance(0.5)
    client >> connect()
    at_broker = draining.world.dialled()
    at_broker << connect()
    at_broker >> connected()
    client << connected()


def test_client_from_a_queue_has_time_to_greet(draining: Draining) -> None:
    _client, broker = publisher(draining.world)
    draining.world.loop.run(draining.service.begin, DrainCause.REPLACED)
    draining.advance(0.5, broker)
    queued = draining.world.client()
    draining.advance(0.8)
    queued >> connect()
    at_broker = draining.world.dialled()
    at_broker << connect()
    at_broker >> connected()
    queued << connected()


@pytest.mark.parametrize("cause", [DrainCause.REPLACED, DrainCause.SIGTERM])
def test_client_that_greets_as_the_drain_begins_is_let_in(make_world: Make, cause: DrainCause) -> None:
    draining = Draining(make_world(drain={"delay": 0}))
    early, greets = draining.world.client(), draining.world.client()
    greets >> connect()
    dialled = draining.world.dialled()
    draining.world.loop.run(draining.service.begin, cause)
    draining.advance(0.5)
    early >> connect()
    for client, at_broker in ((greets, dialled), (early, draining.world.dialled())):
        at_broker << connect()
        at_broker >> connected()
        client << connected()
    draining.advance(1.5)
    hang_up(early, greets)
    draining.advance(2)
    assert draining.state == (Phase.DRAINED, DrainOutcome.MOVED)


def test_clients_leave_in_their_time_however_many_connect(draining: Draining) -> None:
    pairs = [publisher(draining.world) for _ in range(100)]
    brokers = [broker for _, broker in pairs]
    draining.begin()
    draining.advance(5.1, *brokers)
    left: list[int] = []
    for _ in range(20):
        for _ in range(20):
            stranger = draining.world.client()
            stranger >> connect(TARGET)
            stranger.half_close()
        draining.advance(0.1, *brokers)
        left.append(sum(client.transport.is_eof_sent for client, _ in pairs))
    assert max(after - before for before, after in pairwise(left)) <= 10, "50 a second leave"
    assert left[-1] == 100
    assert all("CLOSE_PRODUCER" in client.heard_names() for client, _ in pairs)
    hang_up(*(client for client, _ in pairs))
    draining.advance(4)
    assert draining.state == (Phase.DRAINED, DrainOutcome.MOVED)


def test_held_entries_are_left_to_the_client_when_time_is_short(make_world: Make) -> None:
    draining = Draining(make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}}))
    client, broker = publisher(draining.world)
    client >> sends(40)
    passed = broker.heard()
    draining.begin()
    for _ in range(279):
        draining.world.advance(0.1)
        passed += broker.heard()
    assert "CLOSE_PRODUCER" not in client.heard_names()
    assert "CLOSE_PRODUCER" not in map(name_of, passed)
    assert passed == sends(len(passed))
    draining.advance(0.3, broker)
    assert client.heard_names() == ["CLOSE_PRODUCER"]


def test_begin_and_early_end_are_audited_with_their_author(draining: Draining) -> None:
    publisher(draining.world)
    draining.world.loop.run(draining.service.begin, DrainCause.REST, Principal("ops", "192.0.2.7"))
    draining.begin()
    draining.world.loop.run(draining.service.end)
    draining.world.loop.run(draining.service.end)
    assert draining.audited == [
        ("ops", "began to drain: 1 connections, 1 producers and consumers"),
        ("SIGTERM", "ended at once, with 1 connections that had not gone on elsewhere"),
    ]


def test_second_signal_ends_the_drain(draining: Draining) -> None:
    _client, broker = publisher(draining.world)
    draining.begin()
    draining.world.loop.run(draining.service.end)
    draining.advance(0.1)
    assert draining.state == (Phase.DRAINED, DrainOutcome.ENDED)
    assert broker.is_gone


def test_a_drain_that_was_taken_back_may_begin_again(make_world: Make) -> None:
    """With the times that are configured, although the first one was of a takeover, which has no delay."""
    draining = Draining(make_world(drain={"delay": 5, "period": 1, "timeout": 30}))
    publisher(draining.world)
    service, loop = draining.service, draining.world.loop
    loop.run(service.begin, DrainCause.TAKEOVER)
    draining.advance(0.1)
    assert service.phase is Phase.MOVING
    loop.run(service.end)
    loop.run(service.cancel)
    _client, broker = publisher(draining.world)
    draining.begin()
    over = loop.create_task(service.over())
    draining.advance(4.8, broker)
    assert (service.phase, over.done()) == (Phase.DELAYING, False)
    draining.advance(10, broker)
    assert over.done()


def test_clients_that_are_left_at_the_timeout_end(make_world: Make) -> None:
    draining = Draining(make_world(drain={"delay": 1, "period": 1, "timeout": 3}))
    client, broker = publisher(draining.world)
    draining.begin()
    draining.advance(3.1)
    assert draining.state == (Phase.DRAINED, DrainOutcome.TIME_OVER)
    assert client.is_gone or client.transport.is_eof_sent
    assert "CLOSE_PRODUCER" in broker.heard_names()
    client >> send(0)
