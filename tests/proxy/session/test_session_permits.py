"""What is asked of the broker, in conversation: by the size of entries, in bytes, or not limited at all."""

from collections.abc import Callable

import pytest

from accesslog.record import IntervalLine
from tests.proxy.conversation import NOTHING, Peer, World, consumer
from tests.proxy.wire import TOPIC, flow, message, messages, subscribe

Make = Callable[..., World]


@pytest.fixture
def ten_a_second(make_world: Make) -> World:
    return make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 10}}}})


def test_permits_that_were_asked_for_are_told_though_nothing_is_delivered(ten_a_second: World) -> None:
    client, broker = consumer(ten_a_second)
    client >> flow(1000)
    broker << flow(1)
    ten_a_second.advance(10)
    client.leave()
    ten_a_second.advance(1)
    asked, ended = ten_a_second.lines(IntervalLine)
    assert (asked.permits_asked, asked.permits_granted, asked.permits_withheld) == (1000, 1, 999)
    assert (ended.permits_asked, ended.permits_granted, ended.permits_withheld) == (0, 0, 0), "nothing is any longer"
    totals = ten_a_second.totals.by_name["acme", "shop", "dispatch"]
    assert (totals.permits_asked, totals.permits_granted) == (1000, 1)


def test_permits_of_an_unlimited_consumer_are_told_too(make_world: Make) -> None:
    world = make_world()
    client, broker = consumer(world)
    client >> flow(1000)
    broker << flow(1000)
    world.advance(1)
    (line,) = world.lines(IntervalLine)
    assert (line.permits_asked, line.permits_granted) == (1000, 1000)
    client.leave()
    world.advance(10)
    assert world.lines(IntervalLine) == [line], "who has told everything has no line for ending"


def test_permits_that_others_made_room_for_are_told(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 1000}}}})
    client, broker = consumer(world)
    other_client, other_broker = consumer(world)
    client >> flow(1000)
    broker >> message(0)
    other_client >> flow(1000)
    other_broker >> message(0)
    world.advance(10)
    permits = world.totals.by_name["acme", "shop", "dispatch"].permits_granted
    other_broker.heard()
    client.leave()
    world.advance(1)
    assert other_broker.heard_names() == ["FLOW"]
    assert world.totals.by_name["acme", "shop", "dispatch"].permits_granted > permits


def test_batches_are_asked_for_by_their_number(ten_a_second: World) -> None:
    """The broker stands at -5 after a batch of six for one permit, and would send another for each above 0."""
    client, broker = consumer(ten_a_second)
    client >> flow(1000)
    broker << flow(1)
    broker >> message(0, messages=6)
    client << message(0, messages=6)
    broker << flow(6)
    broker >> message(1, messages=6)
    broker << NOTHING
    ten_a_second.advance(0.6)
    client << message(1, messages=6)
    broker << flow(6)


def test_a_read_full_of_deliveries_is_told_as_it_passes(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 100}}}})
    client, broker = consumer(world)
    client >> flow(1000)
    broker << flow(1)
    broker >> message(0)
    broker << flow(20)
    broker >> messages(9, start=1)
    assert len(client.heard()) == 1 + 9
    broker << flow(9)


def test_bytes_are_metered_too(make_world: Make) -> None:
    """Else all of a receiver queue would have to be held here."""
    world = make_world(limits={"topics": {TOPIC: {"dispatch": {"bytes": 10_000}}}})
    client, broker = consumer(world, permits=1000)
    broker >> message(0, size=950)
    asked = [frame for frame in broker.heard() if frame in {flow(2), flow(3)}]
    assert len(asked) == 1, "2000 bytes are a horizon"
    broker >> messages(2, start=1)
    assert client.heard()[0] == message(0, size=950)


def test_an_entry_counts_as_one_where_it_is_so_configured(make_world: Make) -> None:
    """dispatchThrottlingOnBatchMessageEnabled: ten entries a second, whatever they hold."""
    world = make_world(
        dispatch={"dispatchThrottlingOnBatchMessageEnabled": True},
        limits={"topics": {TOPIC: {"dispatch": {"messages": 10}}}},
    )
    client, broker = consumer(world)
    client >> flow(1000)
    broker << flow(2)
    broker >> [message(0, messages=50), message(1, messages=50)]
    client << message(0, messages=50)
    broker << [flow(49), flow(1), flow(49)]
    world.advance(0.1)
    client << message(1, messages=50)


def test_what_fits_in_one_read_is_charged_by_entry_too(make_world: Make) -> None:
    world = make_world(
        dispatch={"dispatchThrottlingOnBatchMessageEnabled": True},
        limits={"topics": {TOPIC: {"dispatch": {"messages": 100}}}},
    )
    client, broker = consumer(world, permits=1000)
    broker >> [message(number, messages=3) for number in range(2)]
    broker >> messages(9, start=2)
    assert len(client.heard()) == 2 + 8, "ten tokens"
    (stream,) = world.engine.registry.live()
    broker >> message(11, messages=50)
    assert [entry.charged for entry in stream.held] == [1, 1]


def test_who_has_no_backlog_is_not_limited_where_it_is_so_configured(make_world: Make) -> None:
    """dispatchThrottlingOnNonBacklogConsumerEnabled: false. The broker made no use of permits for a second."""
    world = make_world(
        dispatch={"dispatchThrottlingOnNonBacklogConsumerEnabled": False},
        limits={"topics": {TOPIC: {"dispatch": {"messages": 10}}}},
    )
    client, broker = consumer(world, permits=100)
    broker >> message(0)
    client << message(0)
    broker << flow(2)
    world.advance(1)
    broker >> messages(20, start=1)
    client << messages(20, start=1)
    broker << flow(97)
    broker >> messages(79, start=21)
    client << messages(79, start=21)
    broker >> messages(2, start=100)
    client << message(100)
    world.advance(0.1)
    client << message(101)


def test_the_access_log_tells_of_permits_asked_granted_and_withheld(ten_a_second: World) -> None:
    _, broker = consumer(ten_a_second, permits=1000)
    broker >> message(0)
    ten_a_second.advance(1.2)
    (line,) = ten_a_second.lines(IntervalLine)
    assert (line.permits_asked, line.permits_granted, line.permits_withheld) == (1000, 3, 997)


@pytest.mark.parametrize("ends", [Peer.half_close, Peer.leave])
def test_a_session_that_ends_makes_room_for_others_and_not_for_its_own(
    make_world: Make, ends: Callable[[Peer], None]
) -> None:
    world = make_world(limits={"namespaces": {"acme/shop": {"dispatch_total": {"messages": 100}}}})
    more = [subscribe(number) for number in range(8, 16)]
    client, broker = consumer(world, *more)
    _, others_broker = consumer(world, permits=1000)
    client >> [flow(1000, consumer_id=number) for number in range(7, 16)]
    for number in range(7, 16):
        broker >> message(0, consumer_id=number)
    others_broker >> message(0)
    broker.heard()
    others_broker.heard()
    ends(client)
    broker << NOTHING
    assert "FLOW" in others_broker.heard_names()
