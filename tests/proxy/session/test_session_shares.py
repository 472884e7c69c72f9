"""Tenants share the memory for held frames: who fills its share is not read where it holds, all others are."""

from collections.abc import Callable
from typing import Any

from proxy.budgets import ENTRY_OVERHEAD
from proxy.session.transport import GATHER_MOST, WRITE_BUFFER_HIGH
from tests.proxy.conversation import NOTHING, Peer, World, publisher
from tests.proxy.wire import (
    PING,
    PONG,
    TOPIC,
    connect,
    message,
    producer,
    producer_success,
    send,
    sends,
    subscribe,
    success,
    unknown_command,
)

Make = Callable[..., World]
HELD = len(send(0)) + ENTRY_OVERHEAD
UMBRELLA = "persistent://umbrella/shop/orders"


def limited(entries: int, rate: int | str = 1) -> dict[str, Any]:
    """One message a second for both topics, and room for so many entries in all."""
    both = {"publish": {"messages": rate}, "dispatch": {"messages": rate}}
    return {
        "limits": {"topics": {TOPIC: both, UMBRELLA: both}},
        "publish": {"hold_total": str(entries * HELD * 3 // 2)},
    }


def publisher_of(world: World, topic: str) -> tuple[Peer, Peer]:
    client, broker = world.pair()
    client >> producer(topic=topic)
    broker << producer(topic=topic)
    broker >> producer_success()
    client << producer_success()
    return client, broker


def test_one_tenant_fills_half_and_only_its_connection_stops(make_world: Make) -> None:
    world = make_world(**limited(20))
    client, broker = publisher(world)
    innocent, innocents_broker = world.pair()
    client >> [*sends(30), PING]
    broker << send(0)
    assert world.engine.held.used == 10 * HELD
    assert (client.is_read, broker.is_read) == (False, True)
    assert (innocent.is_read, innocents_broker.is_read) == (True, True)
    innocent >> PING
    innocents_broker << PING
    assert +world.counters.throttled == {"client hold_process": 1}


def test_a_tenant_over_its_share_does_not_stop_another_tenants_connection(make_world: Make) -> None:
    """Nor its producer, which is over its own limit and holds a few entries."""
    world = make_world(**limited(20))
    client, _ = publisher(world)
    other, others_broker = publisher_of(world, UMBRELLA)
    client >> sends(30)
    other >> sends(4)
    assert (client.is_read, other.is_read) == (False, True)
    others_broker << send(0)
    for second in range(1, 4):
        world.advance(1)
        others_broker << send(second)


def test_a_connection_of_the_same_tenant_that_holds_nothing_is_read(make_world: Make) -> None:
    world = make_world(**limited(20))
    client, _ = publisher(world)
    quiet, quiets_broker = publisher_of(world, "persistent://acme/shop/other")
    client >> sends(30)
    quiet >> sends(3)
    quiets_broker << sends(3)
    assert quiet.is_read


def test_one_that_begins_to_hold_later_stops_at_its_first_entry(make_world: Make) -> None:
    world = make_world(**limited(20))
    client, _ = publisher(world)
    late, lates_broker = publisher_of(world, TOPIC)
    client >> sends(30)
    late >> [*sends(5), PING]
    assert not late.is_read
    lates_broker << NOTHING
    assert world.engine.held.used == 11 * HELD


def test_a_session_that_begins_while_a_tenant_is_over_is_read(make_world: Make) -> None:
    world = make_world(**limited(20))
    client, _ = publisher(world)
    client >> sends(30)
    late = world.client()
    late >> connect()
    world.dialled() << connect()
    assert late.is_read


def test_reading_goes_on_at_half_of_what_is_free(make_world: Make) -> None:
    world = make_world(**limited(20))
    client, broker = publisher(world)
    client >> [*sends(11), PING]
    world.advance(3)
    broker << sends(4)
    assert not client.is_read
    world.advance(1)
    broker << [send(4), PING]
    assert client.is_read
    assert world.counters.pauses == world.counters.resumes == {"client hold_process": 1}


def test_two_tenants_over_on_one_connection_are_one_reason(make_world: Make) -> None:
    world = make_world(**limited(8))
    client, _ = publisher(world, producer(2, UMBRELLA))
    fills_acme, _ = publisher_of(world, TOPIC)
    fills_umbrella, _ = publisher_of(world, UMBRELLA)
    client >> [*sends(2), *sends(2, 2)]
    fills_acme >> sends(10)
    fills_umbrella >> sends(10)
    assert +world.counters.throttled == {"client hold_process": 3}
    assert world.counters.pauses == {"client hold_process": 3}
    world.advance(40)
    assert world.counters.pauses == world.counters.resumes
    assert client.is_read


def test_whoever_fills_it_again_stops_those_behind_it_again(make_world: Make) -> None:
    """The first to go on takes what is free; used stays within the limit and one entry for each connection."""
    world = make_world(**limited(40))
    clients = [publisher(world)[0] for _ in range(5)]
    for client in clients:
        client >> sends(40)
    for _ in range(120):
        world.advance(1)
        assert world.engine.held.used <= 25 * HELD
        if world.engine.held.is_over("acme"):
            for session, client in zip(world.sessions, clients, strict=True):
                streams = [each for each in world.engine.registry.live() if each.connection is session.connection]
                assert client.is_read == (not any(stream.held for stream in streams))
    world.advance(100)
    assert all(client.is_read for client in clients)


def test_a_client_that_leaves_frees_its_tenants_share_at_once(make_world: Make) -> None:
    world = make_world(**limited(20))
    client, _ = publisher(world)
    other, _ = publisher_of(world, TOPIC)
    client >> sends(20)
    other >> sends(2)
    assert not other.is_read
    client.leave()
    assert world.engine.held.used == 2 * HELD
    assert other.is_read


def test_deliveries_count_for_their_tenant_and_stop_the_reading_of_the_broker(make_world: Make) -> None:
    world = make_world(**limited(6, "1/min"))
    client, broker = world.pair()
    client >> subscribe()
    broker >> [success(307), *[message(number) for number in range(10)]]
    assert (client.is_read, broker.is_read) == (True, False)
    assert world.engine.held.is_over("acme")
    assert +world.counters.throttled == {"broker hold_process": 1}


def test_while_stopped_for_its_share_the_broker_hears_that_the_client_lives(make_world: Make) -> None:
    world = make_world(**limited(20))
    client, broker = publisher(world)
    client >> sends(30)
    broker << send(0)
    broker >> PING
    broker << PONG
    client << NOTHING


LARGE = 100_000


def unsent(make_world: Make) -> tuple[World, Peer, Peer]:
    """Thirty large entries, held first, have passed by now, to a broker that takes none of them."""
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 10}}}})
    client, broker = publisher(world)
    broker.stop_reading()
    client >> sends(30, size=LARGE)
    assert client.is_read
    world.advance(5)
    assert not client.is_read
    return world, client, broker


def test_what_has_passed_and_nobody_takes_is_counted_until_it_is_taken(make_world: Make) -> None:
    """Else a tenant whose peers stand still would fill this process's memory, connection by connection."""
    world, client, broker = unsent(make_world)
    written = broker.transport.get_write_buffer_size()
    assert written > 29 * LARGE
    assert written - world.engine.held.used <= WRITE_BUFFER_HIGH + GATHER_MOST + LARGE
    broker.read_on()
    broker << sends(30, size=LARGE)
    assert world.engine.held.memory == 0
    assert client.is_read


def test_what_nobody_takes_is_given_back_with_its_session(make_world: Make) -> None:
    world, _client, broker = unsent(make_world)
    broker.leave()
    assert world.engine.held.memory == 0


def test_peers_that_stand_still_fill_no_more_than_may_be_held(make_world: Make) -> None:
    room = 30 * LARGE
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 10}}}}, publish={"hold_total": str(room)})
    pairs = [publisher_of(world, TOPIC) for _ in range(10)]
    for client, broker in pairs:
        broker.stop_reading()
        client >> sends(30, size=LARGE)
        world.advance(10)
    written = sum(broker.transport.get_write_buffer_size() for _, broker in pairs)
    assert written <= room + len(pairs) * (WRITE_BUFFER_HIGH + LARGE)
    for _client, broker in pairs:
        broker.read_on()
    world.advance(60)
    for _client, broker in pairs:
        assert broker.heard_names().count("SEND") == 30
    assert world.engine.held.memory == 0


def test_a_command_whose_end_has_not_come_is_counted(make_world: Make) -> None:
    world = make_world()
    client, broker = publisher(world)
    command = unknown_command(content=bytes(1_000_000))
    client.send_bytes(command[:3_000])
    assert world.engine.held.memory == 0, "each read ends in as much"
    client.send_bytes(command[3_000:300_000])
    assert world.engine.held.memory == 300_000
    client.send_bytes(command[300_000:700_000])
    assert world.engine.held.memory == 700_000
    client.send_bytes(command[700_000:])
    assert world.engine.held.memory == 0
    broker << command


def test_a_command_whose_end_never_comes_is_given_back_with_its_session(make_world: Make) -> None:
    world = make_world()
    client, _broker = publisher(world)
    client.send_bytes(unknown_command(content=bytes(1_000_000))[:-1])
    assert world.engine.held.memory > 1_000_000
    client.leave()
    assert world.engine.held.memory == 0


def test_memory_of_what_was_held_is_given_back_when_it_has_passed(make_world: Make) -> None:
    world = make_world(**limited(20, rate=10))
    publisher(world)[0] >> sends(15)
    assert world.engine.held.used > 0
    assert "Heap._go" not in world.loop.timers
    world.advance(1)
    assert "Heap._go" in world.loop.timers
