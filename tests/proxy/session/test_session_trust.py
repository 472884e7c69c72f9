"""Whom the broker has not let in, and what it has refused, costs nobody anything."""

from collections.abc import Callable

from protocol.commands import encode_with_payload
from protocol.pulsar_pb2 import CommandAck, CommandProducerSuccess
from tests.proxy.conversation import World, publisher
from tests.proxy.wire import OTHER_TOPIC, TOPIC, close_producer, error, producer, send, sends

Make = Callable[..., World]
ONE_A_SECOND = {"topics": {TOPIC: {"publish": {"messages": 1}}}}


def test_who_was_not_let_in_by_the_broker_leaves_no_debt(make_world: Make) -> None:
    """Else anybody who can connect could stop a topic, a role or a tenant for months, with one frame."""
    world = make_world(limits=ONE_A_SECOND)
    stranger, strangers_broker = world.pair()
    stranger >> [producer(), send(0, messages=100_000)]
    strangers_broker << producer()
    client, broker = publisher(world)
    client >> send(0)
    broker << send(0)
    assert world.counters.entries_ignored == 1


def test_a_close_that_the_broker_refuses_leaves_the_producer_as_it_was(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> close_producer()
    broker << close_producer()
    broker >> error(201)
    client >> [producer(topic=OTHER_TOPIC, request_id=9), *sends(2)]
    broker << send(0)


def test_an_id_whose_first_owner_was_refused_belongs_to_the_next(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = world.pair()
    client >> producer()
    broker << producer()
    broker >> error(101)
    client >> producer(request_id=9)
    broker << producer(request_id=9)
    broker >> CommandProducerSuccess(request_id=9, producer_name="second")
    client >> sends(2)
    broker << send(0)


def test_an_ack_with_a_tail_cannot_hold_up_what_the_limit_lets_pass(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, broker = publisher(world)
    client >> sends(60)
    broker << send(0)
    ack = encode_with_payload(CommandAck(consumer_id=7, ack_type=CommandAck.Individual), bytes(1000))
    client.send_bytes(ack[:-1])
    world.advance(30.5)
    broker << sends(30, start=1)
    client.send_bytes(ack[-1:])
    broker << ack
