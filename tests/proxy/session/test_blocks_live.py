"""What runs already ends for both peers when it is blocked, and its neighbours notice nothing."""

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseConsumer, CommandCloseProducer, ProducerFenced, ServiceNotReady
from proxy.blocking.blocklist import EndedByRule
from tests.proxy.blocks import OWN, block, close_to_broker, close_to_client, refused, unblock
from tests.proxy.conversation import NOTHING, Peer, World, consumer, publisher
from tests.proxy.wire import (
    NO_REQUEST,
    OTHER_TOPIC,
    TOPIC,
    close_consumer,
    close_producer,
    error,
    flow,
    message,
    messages,
    producer,
    producer_success,
    send,
    sends,
    subscribe,
    success,
)


def test_a_producer_ends_on_both_legs_and_its_neighbour_notices_nothing(world: World) -> None:
    client, broker = publisher(world)
    client >> producer(2, OTHER_TOPIC)
    broker << producer(2, OTHER_TOPIC)
    broker >> producer_success(2, name="neighbour")
    client << producer_success(2, name="neighbour")
    assert block(world, "producer", "named-by-broker") == EndedByRule(0, 1)
    client << close_to_client()
    broker << close_to_broker()
    client >> [send(0), send(0, producer_id=2), send(1)]
    broker << send(0, producer_id=2)
    assert world.counters.entries_ignored == 2
    broker >> success(OWN)
    client << NOTHING
    client >> producer(producer_name="named-by-broker", epoch=1)
    client << refused(101, "producer 'named-by-broker'", ProducerFenced)
    broker << NOTHING


def test_what_a_producer_held_is_dropped_and_counted(make_world) -> None:
    world: World = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = publisher(world)
    client >> sends(5)
    broker << send(0)
    (stream,) = world.engine.registry.live()
    block(world, "topic", TOPIC)
    client << close_to_client()
    broker << close_to_broker()
    world.advance(10)
    broker << NOTHING
    assert (stream.usage.dropped_messages, world.engine.held.used) == (4, 0)


def test_a_consumer_ends_on_both_legs_and_its_neighbour_notices_nothing(world: World) -> None:
    client, broker = consumer(world, permits=10)
    client >> [subscribe(8, subscription="other"), flow(10, 8)]
    broker >> success(308)
    broker.heard()
    client << success(308)
    assert block(world, "subscription", "sub") == EndedByRule(0, 1)
    client << encode(CommandCloseConsumer(consumer_id=7, request_id=NO_REQUEST))
    broker << encode(CommandCloseConsumer(consumer_id=7, request_id=OWN))
    broker >> [message(0), message(0, 8), success(OWN)]
    client << message(0, 8)
    client >> subscribe()
    client << refused(307, "subscription 'sub'")
    broker << NOTHING


def test_a_consumer_is_known_by_its_own_name_too(world: World) -> None:
    client, broker = world.pair()
    client >> subscribe(consumer_name="c")
    broker << subscribe(consumer_name="c")
    broker >> success(307)
    client << success(307)
    assert block(world, "consumer", "c") == EndedByRule(0, 1)
    client << "CLOSE_CONSUMER"
    broker << "CLOSE_CONSUMER"


def test_the_order_of_frames_stays_whole(world: World) -> None:
    """A frame that is passing in parts is finished first."""
    client, broker = publisher(world)
    frame = send(0, size=100)
    client.send_bytes(frame[:90])
    broker.transport.written.clear()
    block(world, "topic", TOPIC)
    client << close_to_client()
    assert bytes(broker.transport.written) == b""
    client.send_bytes(frame[90:])
    assert bytes(broker.transport.written).startswith(frame[90:])
    del broker.transport.written[: len(frame[90:])]
    broker << close_to_broker()


def test_the_same_id_is_usable_once_the_broker_gave_it_up(world: World) -> None:
    """Until then it would take the new producer for the old one, and forget it at once."""
    client, broker = publisher(world)
    block(world, "topic", TOPIC)
    unblock(world, "topic", TOPIC)
    client << close_to_client()
    broker << close_to_broker()
    client >> producer(epoch=1)
    client << error(101, ServiceNotReady, "producer id 1 of this connection is in use")
    broker << NOTHING
    broker >> success(OWN)
    client << NOTHING
    client >> producer(epoch=2)
    broker << producer(epoch=2)
    broker >> producer_success()
    client << producer_success()
    client >> send(0)
    broker << send(0)


def test_who_is_not_meant_goes_on(world: World) -> None:
    """A name on another topic, a topic whose name only begins alike, and Pulsar's own topics."""
    client, broker = publisher(world)
    client >> producer(2, "acme/shop/__change_events", producer_name="named-by-broker")
    broker >> producer_success(2)
    client.heard()
    assert block(world, "producer", "named-by-broker", topic=OTHER_TOPIC) == EndedByRule(0, 0)
    assert block(world, "topic", TOPIC[:-1]) == EndedByRule(0, 0)
    client << NOTHING
    assert block(world, "producer", "named-by-broker") == EndedByRule(0, 1)
    client << close_to_client(1)


def test_what_the_broker_closed_while_it_was_opened_is_not_told_of_again(world: World) -> None:
    block(world, "producer", "p")
    client, broker = world.pair()
    client >> producer()
    broker.heard()
    closed = encode(CommandCloseProducer(producer_id=1, request_id=NO_REQUEST))
    broker.lets_go = False
    broker >> [closed, producer_success(name="p")]
    client << [error(101, ServiceNotReady, "the broker closed it while it was being opened"), closed]
    broker << close_to_broker()


def test_blocking_twice_ends_nothing_more(world: World) -> None:
    client, _ = publisher(world)
    assert block(world, "topic", TOPIC) == EndedByRule(0, 1)
    assert block(world, "topic", TOPIC) == EndedByRule(0, 0)
    client << close_to_client()


def test_a_producer_that_the_broker_has_not_accepted_yet_is_judged_when_it_does(world: World) -> None:
    client, broker = world.pair()
    client >> producer(producer_name="p")
    broker << producer(producer_name="p")
    assert block(world, "producer", "p") == EndedByRule(0, 0)
    client << NOTHING
    broker >> producer_success(name="p")
    client << refused(101, "producer 'p'")
    broker << close_to_broker()


def test_a_producer_that_waits_for_exclusive_access_is_judged_when_it_has_it(world: World) -> None:
    block(world, "producer", "p")
    client, broker = world.pair()
    client >> producer()
    broker.heard()
    waiting = producer_success(name="p", producer_ready=False)
    broker >> waiting
    client << waiting
    broker >> producer_success(name="p")
    client << refused(101, "producer 'p'")


def test_what_the_broker_refuses_itself_stays_its_own_error(world: World) -> None:
    client, broker = world.pair()
    client >> producer(producer_name="p")
    broker.heard()
    block(world, "producer", "p")
    broker >> error(101)
    client << error(101)
    broker << NOTHING


def test_a_producer_that_its_client_closes_is_closed_by_both(make_world) -> None:
    """What it held goes nowhere, its close no longer waits, and its id is free when the broker has answered both."""
    world: World = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = publisher(world)
    client >> [*sends(3), close_producer()]
    broker << send(0)
    assert block(world, "topic", TOPIC) == EndedByRule(0, 1)
    broker << [close_producer(), close_to_broker()]
    broker >> success(201)
    client << success(201)


def test_a_client_that_closes_before_it_is_accepted_hears_both_answers(world: World) -> None:
    client, broker = world.pair()
    client >> [producer(producer_name="p"), close_producer()]
    broker.heard()
    block(world, "producer", "p")
    broker >> [producer_success(name="p"), success(201)]
    client << [refused(101, "producer 'p'"), success(201)]
    broker << close_to_broker()


def test_a_consumer_that_its_client_closes_is_closed_by_both(world: World) -> None:
    client, broker = consumer(world)
    client >> close_consumer()
    broker << close_consumer()
    block(world, "topic", TOPIC)
    assert broker.heard_names() == ["CLOSE_CONSUMER"]
    broker >> success(407)
    client << success(407)


def test_messages_held_for_a_blocked_consumer_are_dropped(make_world) -> None:
    """The broker delivers them to whoever subscribes next."""
    world: World = make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 1}}}})
    client, broker = consumer(world, permits=5)
    broker >> messages(3)
    client.heard()
    assert world.engine.held.used
    block(world, "subscription", "sub", topic=TOPIC)
    assert not world.engine.held.used
    client << "CLOSE_CONSUMER"
    world.advance(10)
    client << NOTHING


@pytest.mark.parametrize("blocked", ["publish", "dispatch"])
def test_producers_and_consumers_of_a_blocked_topic_end_on_every_connection(world: World, blocked: str) -> None:
    peers: list[Peer] = [(publisher if blocked == "publish" else consumer)(world)[0] for _ in range(3)]
    assert block(world, "topic", TOPIC) == EndedByRule(0, 3)
    for client in peers:
        client << ("CLOSE_PRODUCER" if blocked == "publish" else "CLOSE_CONSUMER")


def test_pulsars_own_topics_are_exempt_from_rules_of_names(world: World) -> None:
    block(world, "producer", "p")
    block(world, "subscription", "sub")
    client, broker = world.pair()
    frames = [producer(topic="acme/shop/__change_events", producer_name="p"), subscribe(topic="pulsar/system/x")]
    client >> frames
    broker << frames
