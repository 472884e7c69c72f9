"""Sessions of a worker that ask their supervisor.

That bounds refuse there as in one process, is shown where they are shown: tests/proxy/session/test_*admi*.py.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.commands import encode
from protocol.proxy_protocol import write_header
from protocol.pulsar_pb2 import CommandCloseProducer, CommandProducer, CommandProducerSuccess, ProducerBusy
from proxy.admission_control import BoundName
from proxy.workers.channel import Enter
from tests.proxy.blocks import block, metadata
from tests.proxy.conversation import BROKER, NOTHING, Peer, World
from tests.proxy.wire import (
    OTHER_TOPIC,
    PING,
    TOPIC,
    body,
    close_producer,
    connect,
    connected,
    error,
    producer,
    send,
    subscribe,
    success,
)
from tests.proxy.workers.remote_admission_world import RemoteAdmissionWorld

Make = Callable[..., RemoteAdmissionWorld]
DATA = f"{BROKER[0]}:{BROKER[1]}"
ONE_PRODUCER = "producers of one topic: at most 1 (admission.max_producers_per_topic)"


@pytest.fixture
def world_kind() -> type[World]:
    return RemoteAdmissionWorld


def deaf(make_world: Make, **bounds: object) -> tuple[RemoteAdmissionWorld, Peer, Peer]:
    """A client past the handshake; from now on its questions are heard when the test says so."""
    world = make_world(admission=bounds)
    client, broker = world.pair(DATA)
    world.is_answering = False
    return world, client, broker


def test_nothing_is_asked_where_no_bound_is_in_force(make_world: Make) -> None:
    world, client, broker = deaf(make_world)
    said = [producer(), subscribe(), metadata()]
    client >> said
    broker << said
    assert world.asked == []


def test_no_broker_is_dialled_for_a_client_that_is_not_let_in_yet(make_world: Make) -> None:
    world = make_world()
    world.is_answering = False
    client = world.client()
    client >> connect()
    assert (world.dials, client.is_read) == ([], False)
    world.hear()
    broker = world.dialled()
    broker << connect()
    broker >> connected()
    client << connected()
    assert client.is_read


def test_a_client_that_is_silent_until_it_is_let_in_is_served_all_the_same(make_world: Make) -> None:
    world = make_world()
    world.is_answering = False
    client = world.client()
    world.hear()
    assert client.is_read
    client >> connect()
    world.dialled() << connect()


def test_a_client_whose_header_has_come_is_asked_for_by_its_address_and_read_until_it_greets(make_world: Make) -> None:
    """Else one that is refused would be reset with its CONNECT unread, and might not hear why."""
    believed = {"proxy_protocol": {"mode": "required", "from": ["10.0.0.5"]}}
    world = make_world(admission={"max_connections_per_address": 1}, **believed)
    world.is_answering = False
    header, clients = write_header(("203.0.113.9", 1)), [world.client("10.0.0.5") for _ in range(2)]
    assert world.asked == [], "nobody is asked for before it is known who comes"
    for client in clients:
        client.send_bytes(header)
        assert client.is_read
        client >> connect()
        assert not client.is_read
    assert [message.source for message in world.asked if isinstance(message, Enter)] == ["203.0.113.9"] * 2
    world.hear()
    assert world.dials
    assert clients[1].heard_names() == ["ERROR"]


def test_what_a_client_sends_behind_its_question_keeps_its_place(make_world: Make) -> None:
    world, client, broker = deaf(make_world, max_producers_per_topic=1)
    client >> [PING, producer(), close_producer(), send(0)]
    broker << PING
    assert not client.is_read
    world.hear()
    assert client.is_read
    broker << [producer(), close_producer()]
    client << NOTHING
    assert world.counters.entries_ignored == 1


def test_a_refusal_comes_before_what_was_sent_behind(make_world: Make) -> None:
    world, client, broker = deaf(make_world, max_producers_per_topic=1)
    client >> [producer(1), producer(2), producer(3, OTHER_TOPIC), producer(4)]
    for _ in range(4):
        world.hear()
    broker << [producer(1), producer(3, OTHER_TOPIC)]
    client << [error(102, ProducerBusy, ONE_PRODUCER), error(104, ProducerBusy, ONE_PRODUCER)]
    assert world.counters.not_admitted == {BoundName.PRODUCERS: 2}


def test_a_client_has_one_question_under_way_however_many_it_sends(make_world: Make) -> None:
    world, client, broker = deaf(make_world, lookup_rate_per_address="1000/s")
    said = [metadata(number) for number in range(1, 600)]
    client >> said
    assert len(world.asked) == 1
    for _ in said:
        assert len(world.asked) == 1
        world.hear()
    broker << said


def leaves(client: Peer, _broker: Peer) -> None:
    client.leave()


def loses_its_broker(_client: Peer, broker: Peer) -> None:
    broker.leave(ConnectionResetError("reset by peer"))


@pytest.mark.parametrize("end", [leaves, loses_its_broker])
def test_who_goes_while_an_answer_is_under_way_gives_his_place_back(
    make_world: Make, end: Callable[[Peer, Peer], None]
) -> None:
    world, client, broker = deaf(make_world, max_producers_per_topic=1)
    client >> producer()
    world.is_delivering = False
    world.hear()
    assert len(world.admission_server) == 2, "the connection, and the producer"
    end(client, broker)
    world.hear()
    broker << NOTHING
    assert len(world.admission_server) == 0
    world.is_answering = world.is_delivering = True
    other, other_broker = world.pair(DATA)
    other >> producer()
    other_broker << producer()


def test_who_goes_before_he_is_let_in_has_no_place(make_world: Make) -> None:
    world = make_world(max_connections=1)
    world.is_answering = False
    world.client().leave()
    world.hear()
    world.is_answering = True
    world.pair()


def test_what_is_blocked_while_the_answer_is_under_way_gets_no_place(make_world: Make) -> None:
    world, client, broker = deaf(make_world, max_producers_per_topic=1)
    client >> producer()
    block(world, "topic", TOPIC)
    world.hear()
    broker << NOTHING
    assert client.heard_names() == ["ERROR"]
    world.hear()
    assert len(world.admission_server) == 1, "the connection"
    assert client.is_read


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("open", "close", "answer", "refuse", "hear", "deliver", "leave", "reset")),
        st.sampled_from((0, 1)),
        st.sampled_from((1, 2)),
    ),
    max_size=50,
)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS)
def test_however_messages_and_commands_meet_no_more_come_in_and_every_place_is_given_back(
    steps: list[tuple[str, int, int]],
) -> None:
    """The world checks at its end that nothing is left of any question or place."""
    world = RemoteAdmissionWorld(admission={"max_producers_per_topic": 2})
    pairs = [world.pair(DATA) for _ in range(2)]
    world.is_answering = world.is_delivering = False
    requests = itertools.count(1)
    unanswered: list[list[Any]] = [[], []]
    for step, which, producer_id in steps:
        client, broker = pairs[which]
        unanswered[which] += [body(frame) for frame in broker.heard()]
        if step in {"answer", "refuse"}:
            commands, unanswered[which] = unanswered[which], []
            broker >> [_success_of(one) if step == "answer" else error(one.request_id) for one in commands]
        else:
            acts: dict[str, Callable[[], object]] = {
                "open": partial(client.__rshift__, producer(producer_id, request_id=next(requests))),
                "close": partial(
                    client.__rshift__, CommandCloseProducer(producer_id=producer_id, request_id=next(requests))
                ),
                "hear": world.hear,
                "deliver": partial(world.loop.run, world._answer_all),
                "leave": client.leave,
                "reset": partial(broker.leave, ConnectionResetError("reset by peer")),
            }
            acts[step]()
        relays = [session.forwarding.to_broker for session in world.sessions if session.forwarding is not None]
        assert sum(len(relay.streams) for relay in relays) <= 2
    assert not world.counters.frame_errors
    world.close()


def _success_of(command: Any) -> bytes:
    if isinstance(command, CommandProducer):
        return encode(CommandProducerSuccess(request_id=command.request_id, producer_name="p"))
    return success(command.request_id)
