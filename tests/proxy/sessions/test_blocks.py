"""What is blocked: refused before the broker hears of it, and ended where it runs already."""

from typing import Any

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandCloseProducer,
    NotAllowedError,
    ProducerFenced,
    ServiceNotReady,
)
from proxy.blocking.blocklist import Ended
from proxy.blocking.rules import Rule, read_key
from tests.proxy.conversation import NOTHING, Peer, World, consumer, publisher
from tests.proxy.sessions.test_client_role import token
from tests.proxy.wire import (
    NO_REQUEST,
    OTHER_TOPIC,
    PING,
    TOPIC,
    close_consumer,
    close_producer,
    connect,
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

OWN = 2**64 - 2
"""The first request id of the proxy's own."""
AS_BILLING: dict[str, Any] = {"auth_method_name": "token", "auth_data": token({"sub": "billing"})}


def block(world: World, kind: str, name: str, reason: str = "too loud", **where: str) -> Ended:
    done: tuple[Rule, Ended] = world.loop.run(world.engine.blocklist.block, read_key(kind, name, **where), reason)
    return done[1]


def unblock(world: World, kind: str, name: str, **where: str) -> None:
    assert world.loop.run(world.engine.blocklist.unblock, read_key(kind, name, **where))


def refused(request_id: int, who: str, kind: int = NotAllowedError) -> bytes:
    return error(request_id, kind, f"{who} is blocked by Sluice: too loud")


def close_to_client(producer_id: int = 1) -> bytes:
    return encode(CommandCloseProducer(producer_id=producer_id, request_id=NO_REQUEST))


def close_to_broker(producer_id: int = 1, request_id: int = OWN) -> bytes:
    return encode(CommandCloseProducer(producer_id=producer_id, request_id=request_id))


# ---- connections


@pytest.mark.parametrize("name", ["192.0.2.7", "192.0.2.0/24", "::ffff:192.0.2.7"])
def test_a_blocked_address_is_refused_and_no_broker_is_asked(world: World, name: str) -> None:
    block(world, "address", name)
    client = world.client()
    client >> connect()
    who = "address '192.0.2.0/24'" if "/" in name else "address '192.0.2.7'"
    client << error(NO_REQUEST, NotAllowedError, f"blocked: {who} is blocked by Sluice: too loud")
    assert client.is_gone
    assert world.dials == []
    assert world.counters.connections_ended == {"blocked": 1}


def test_a_blocked_role_is_refused_and_others_are_not(world: World) -> None:
    block(world, "role", "billing")
    client = world.client()
    client >> connect(**AS_BILLING)
    client << error(NO_REQUEST, NotAllowedError, "blocked: role 'billing' is blocked by Sluice: too loud")
    assert client.is_gone
    world.pair()


@pytest.mark.parametrize(("kind", "name"), [("address", "192.0.2.7"), ("role", "billing")])
def test_a_connection_that_is_open_ends_with_the_error_and_what_it_held_is_given_back(
    make_world, kind: str, name: str
) -> None:
    world: World = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client = world.client()
    client >> connect(**AS_BILLING)
    broker = world.dialled()
    client >> [producer(), *sends(5)]
    assert block(world, kind, name) == Ended(1, 0)
    client << error(NO_REQUEST, NotAllowedError, f"blocked: {kind} '{name}' is blocked by Sluice: too loud")
    assert client.is_gone
    assert broker.is_gone
    assert world.engine.held.used == 0


def test_a_client_is_judged_when_it_says_who_it_is_and_when_its_broker_is_being_dialled(world: World) -> None:
    world.broker_answers = False
    silent, dialling = world.client(), world.client()
    dialling >> connect()
    assert block(world, "address", "192.0.2.7") == Ended(1, 0)
    dialling << "ERROR"
    silent << NOTHING
    silent >> connect()
    silent << "ERROR"
    assert world.counters.blocked == {"address": 2}


def test_an_unblocked_client_is_let_in_at_once(world: World) -> None:
    block(world, "address", "192.0.2.0/24")
    unblock(world, "address", "192.0.2.0/24")
    world.pair()


# ---- what is opened anew


@pytest.mark.parametrize(
    ("kind", "name", "where"),
    [
        ("producer", "p", {}),
        ("producer", "p", {"topic": TOPIC}),
        ("producer", "p", {"namespace": "acme/shop"}),
        ("topic", TOPIC, {}),
    ],
)
def test_a_producer_that_is_blocked_never_reaches_the_broker(
    world: World, kind: str, name: str, where: dict[str, str]
) -> None:
    client, broker = world.pair()
    block(world, kind, name, **where)
    client >> [producer(producer_name="p"), PING]
    broker << PING
    place = f" in {next(iter(where.values()))}" if where else ""
    client << refused(101, f"{kind} '{name}'{place}")
    assert world.counters.blocked == {kind: 1}
    unblock(world, kind, name, **where)
    client >> producer(producer_name="p")
    broker << producer(producer_name="p")


@pytest.mark.parametrize(
    ("kind", "name", "where"),
    [
        ("consumer", "c", {}),
        ("subscription", "sub", {}),
        ("subscription", "sub", {"topic": TOPIC}),
        ("consumer", "c", {"namespace": "acme/shop"}),
        ("topic", TOPIC, {}),
    ],
)
def test_a_consumer_that_is_blocked_never_reaches_the_broker(
    world: World, kind: str, name: str, where: dict[str, str]
) -> None:
    client, broker = world.pair()
    block(world, kind, name, **where)
    client >> [subscribe(consumer_name="c"), PING]
    broker << PING
    place = f" in {next(iter(where.values()))}" if where else ""
    client << refused(307, f"{kind} '{name}'{place}")
    unblock(world, kind, name, **where)
    client >> subscribe(consumer_name="c")
    broker << subscribe(consumer_name="c")


def test_who_is_not_meant_passes(world: World) -> None:
    block(world, "producer", "p", topic=OTHER_TOPIC)
    block(world, "subscription", "p")
    block(world, "topic", f"{TOPIC}-partition-1")
    client, broker = world.pair()
    frames = [producer(producer_name="p"), producer(2, f"{TOPIC}-partition-2"), subscribe(consumer_name="p")]
    client >> frames
    broker << frames


def test_a_producer_that_is_opened_again_is_fenced_off(world: World) -> None:
    """After most errors clients open a producer that they had before again and again, for ever."""
    block(world, "producer", "p")
    client, _ = world.pair()
    client >> producer(producer_name="p", epoch=1)
    client << refused(101, "producer 'p'", ProducerFenced)


def test_a_topic_without_a_name_gets_the_error_that_it_always_gets(world: World) -> None:
    block(world, "producer", "p")
    client, broker = world.pair()
    client >> producer(topic="persistent://x", producer_name="p")
    broker << NOTHING
    assert b"is not a topic name" in b"".join(client.heard())


def test_a_name_that_the_broker_chooses_is_checked_when_it_is_told(world: World) -> None:
    block(world, "producer", "standalone-0-7")
    client, broker = world.pair()
    client >> producer()
    broker << producer()
    broker >> producer_success(name="standalone-0-7")
    client << refused(101, "producer 'standalone-0-7'")
    broker << close_to_broker()
    broker >> success(OWN)
    client << NOTHING
    assert world.engine.registry.live() == []


# ---- what runs already


def test_a_producer_ends_on_both_legs_and_its_neighbour_notices_nothing(world: World) -> None:
    client, broker = publisher(world)
    client >> producer(2, OTHER_TOPIC)
    broker << producer(2, OTHER_TOPIC)
    broker >> producer_success(2, name="neighbour")
    client << producer_success(2, name="neighbour")
    assert block(world, "producer", "named-by-broker") == Ended(0, 1)
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
    assert block(world, "subscription", "sub") == Ended(0, 1)
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
    assert block(world, "consumer", "c") == Ended(0, 1)
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
    assert bytes(broker.transport.written) == frame[90:] + close_to_broker()


@pytest.mark.parametrize("answer", [success(OWN), error(OWN)], ids=["success", "error"])
def test_the_same_id_is_usable_once_the_broker_gave_it_up(world: World, answer: bytes) -> None:
    """Until then it would take the new producer for the old one, and forget it at once."""
    client, broker = publisher(world)
    block(world, "topic", TOPIC)
    unblock(world, "topic", TOPIC)
    client << close_to_client()
    broker << close_to_broker()
    client >> producer(epoch=1)
    client << error(101, ServiceNotReady, "it was blocked and is still being closed")
    broker << NOTHING
    broker >> answer
    client << NOTHING
    client >> producer(epoch=2)
    broker << producer(epoch=2)
    broker >> producer_success()
    client << producer_success()
    client >> send(0)
    broker << send(0)


def test_blocking_twice_ends_nothing_more(world: World) -> None:
    client, _ = publisher(world)
    assert block(world, "topic", TOPIC) == Ended(0, 1)
    assert block(world, "topic", TOPIC) == Ended(0, 0)
    client << close_to_client()


def test_a_producer_that_the_broker_has_not_accepted_yet_is_judged_when_it_does(world: World) -> None:
    client, broker = world.pair()
    client >> producer(producer_name="p")
    broker << producer(producer_name="p")
    assert block(world, "producer", "p") == Ended(0, 0)
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


def test_a_producer_that_its_client_closes_is_not_closed_twice(make_world) -> None:
    """But what it held goes nowhere, and its close no longer waits."""
    world: World = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, broker = publisher(world)
    client >> [*sends(3), close_producer()]
    broker << send(0)
    assert block(world, "topic", TOPIC) == Ended(0, 1)
    broker << close_producer()
    broker >> success(201)
    client << success(201)


def test_a_client_that_closes_before_it_is_accepted_hears_both_answers(world: World) -> None:
    client, broker = world.pair()
    client >> [producer(producer_name="p"), close_producer()]
    broker.heard()
    block(world, "producer", "p")
    broker >> [producer_success(name="p"), success(201)]
    client << [producer_success(name="p"), success(201)]
    broker << NOTHING


def test_a_consumer_that_its_client_closes_is_not_closed_twice(world: World) -> None:
    client, broker = consumer(world)
    client >> close_consumer()
    broker << close_consumer()
    block(world, "topic", TOPIC)
    broker << NOTHING
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
    assert block(world, "topic", TOPIC) == Ended(0, 3)
    for client in peers:
        client << ("CLOSE_PRODUCER" if blocked == "publish" else "CLOSE_CONSUMER")


def test_pulsars_own_topics_are_exempt_from_rules_of_names(world: World) -> None:
    block(world, "producer", "p")
    block(world, "subscription", "sub")
    client, broker = world.pair()
    frames = [producer(topic="acme/shop/__change_events", producer_name="p"), subscribe(topic="pulsar/system/x")]
    client >> frames
    broker << frames
