"""Nobody keeps the loop to himself: work is done in turns, and what is held of who has left is given back."""

import select
from collections.abc import Callable

from protocol.scanner import MOST_PIECES
from proxy.session.data_path import MOST_COMMANDS
from proxy.session.keep_alive import LOOK_S, SELDOM
from proxy.session.transport import PauseReason
from proxy.slices import AT_ONCE, Work
from tests.proxy.conversation import NOTHING, Broker, Peer, World, consumer, publisher
from tests.proxy.wire import PING, PONG, connect, connected, flow, message, producer, producer_success, send, sends

Make = Callable[..., World]

KEEP_ALIVE = 30.0


def test_many_small_commands_are_handled_in_turns_and_in_order(world: World) -> None:
    client, broker = consumer(world)
    frames = [flow(number + 1) for number in range(3 * MOST_PIECES + 5)]
    client >> frames
    broker << frames
    assert world.counters.pauses[f"client {PauseReason.TURN}"] == 3
    assert client.is_read


def test_in_between_others_have_theirs(world: World) -> None:
    client, broker = world.pair()
    seen = []

    def flood() -> None:
        client.transport.receive(PING * 10 * MOST_PIECES)
        world.loop.call_soon(lambda: seen.append((len(broker.transport.written), client.is_read)))

    world.loop.run(flood)
    assert seen == [(MOST_COMMANDS * len(PING), False)]
    assert len(broker.heard()) == 10 * MOST_PIECES
    assert client.is_read


def test_commands_go_on_beside_work_that_fills_each_turn(world: World) -> None:
    client, broker = world.pair()
    client >> PING
    broker << PING
    turns, commands = 0, 20 * MOST_COMMANDS

    def turned() -> None:
        nonlocal turns
        turns += len(broker.transport.written) < commands * len(PING)

    def flood() -> None:
        world.engine.slices.run(Work.REQUESTS, iter(range(AT_ONCE[Work.REQUESTS] * 10 * commands)))
        client.transport.receive(PING * commands)

    world.loop.turned = turned
    world.loop.run(flood)
    assert broker.heard() == [PING] * commands
    assert turns <= 2 * commands // MOST_COMMANDS


def test_held_entries_too_are_taken_in_turns(make_world: Make) -> None:
    world = make_world(limits={"each_topic": {"publish": {"messages": 1}}})
    client, broker = publisher(world)
    (stream,) = world.engine.registry.live()
    seen = []

    def flood() -> None:
        client.transport.receive(b"".join(sends(2 * MOST_PIECES)))
        seen.append(stream.usage.offered_messages)

    world.loop.run(flood)
    assert seen == [MOST_PIECES]
    broker << send(0)
    assert stream.usage.held_messages == 2 * MOST_PIECES - 1


def test_what_was_read_behind_a_pause_is_counted_while_it_waits(make_world: Make) -> None:
    world = make_world(limits={"each_topic": {"publish": {"messages": "1/h"}}}, publish={"hold_connection": 1000})
    client, broker = publisher(world)
    frames = sends(100, size=1000)
    client >> b"".join(frames)
    broker << frames[0]
    (stream,) = world.engine.registry.live()
    held = sum(entry.memory for entry in stream.held)
    waiting = sum(map(len, frames)) - sum(len(frame) for frame in frames[: 1 + len(stream.held)])
    assert waiting > 90_000
    assert world.engine.held.used == held
    assert world.engine.held.aside == waiting
    client.leave()
    assert world.engine.held.memory == 0


def test_who_leaves_while_not_read_holds_nothing_soon_and_ends_in_order(make_world: Make) -> None:
    world = make_world(limits={"each_topic": {"publish": {"messages": "1/h"}}}, publish={"hold_connection": 1000})
    client, broker = publisher(world)
    client >> sends(5)
    broker << send(0)
    assert not client.is_read
    client >> PING
    client.half_close()
    broker << NOTHING
    assert world.engine.held.used > 0
    world.advance(0.6)
    assert world.engine.held.used == 0
    broker << PING
    assert broker.transport.is_eof_sent
    assert world.engine.registry.live() == []


def test_who_leaves_while_only_its_broker_is_slow_loses_nothing(world: World) -> None:
    client, broker = publisher(world)
    broker.stop_reading()
    frames = sends(10, size=100_000)
    for frame in frames:
        client >> frame
    assert not client.is_read
    client.half_close()
    world.advance(3)
    broker.read_on()
    broker << frames
    assert broker.transport.is_eof_sent


def test_client_that_closes_before_a_slow_broker_gets_no_reset(world: World) -> None:
    client, broker = publisher(world)
    broker.stop_reading()
    client >> sends(10, size=100_000)
    assert not client.is_read
    world.advance(SELDOM * KEEP_ALIVE - 1)
    client << NOTHING
    world.advance(2)
    client << PONG


def test_who_leaves_while_deliveries_are_held_loses_nothing_that_it_has_sent(make_world: Make) -> None:
    """It is read, and so it says itself that it has left: behind what it sent, whenever somebody looks."""
    limits = {"each_topic": {"dispatch": {"messages": "1/h"}}}
    world = make_world(limits=limits, publish={"hold_connection": 1000})
    client, broker = consumer(world)
    client >> producer()
    broker << producer()
    broker >> producer_success()
    client << producer_success()
    client >> flow(100)
    broker >> [message(number, 7, size=300) for number in range(6)]
    client << message(0, 7, size=300)
    assert not broker.is_read
    client.transport.state = 8  # what it sent and its end are there, and the timer comes first
    world.advance(2 * LOOK_S)
    broker.heard()  # the permits
    client >> sends(5)
    client.half_close()
    broker << sends(5)


def test_at_rest_no_timer_runs_though_a_turn_ended_last(world: World) -> None:
    client, broker = publisher(world)
    (session,) = world.sessions

    def slow_for_a_moment() -> None:
        session.writable(session.client, False)
        client.transport.receive(PING * (MOST_PIECES + 5))
        session.writable(session.client, True)

    world.loop.run(slow_for_a_moment)
    broker << [PING] * (MOST_PIECES + 5)
    assert client.is_read
    assert broker.is_read
    before = world.counters.keep_alives
    world.advance(100)
    assert world.counters.keep_alives == before


def test_send_with_too_many_messages_closes_and_names_the_key(make_world: Make) -> None:
    world = make_world(publish={"max_batch_messages": 1000})
    client, broker = publisher(world)
    client >> send(0, messages=1000)
    broker << send(0, messages=1000)
    client >> send(1, messages=1001)
    assert broker.is_gone
    assert +world.counters.frame_errors == {"client too_many_messages": 1}


def accepted_in_turns(world: World, then: Callable[[], None]) -> tuple[Peer, Broker]:
    """A client whose broker is there while its address is read in turns; `then` comes before its own turn does."""
    world.broker_answers = False
    client = world.client()
    client >> connect()
    group = world.sessions[-1].client.group
    assert group is not None

    def accept() -> None:
        with select.epoll() as group._epoll:
            world.dials[-1].accept()
        group._epoll = None
        group._descriptors.clear()
        assert world.dialled().transport.written == b""
        then()

    world.loop.run(accept)
    return client, world.dialled()


def test_sessions_of_a_crowded_address_go_on_when_their_turn_comes(world: World) -> None:
    client, broker = accepted_in_turns(world, lambda: None)
    broker << connect()
    broker >> connected()
    client << connected()
    client >> producer()
    broker << producer()


def test_a_session_whose_broker_speaks_before_its_turn_goes_on_then(world: World) -> None:
    client, broker = accepted_in_turns(world, lambda: world.dialled().transport.receive(connected()))
    broker << connect()
    client << connected()
    client >> producer()
    broker << producer()


def test_a_session_that_ends_before_its_turn_leaves_nothing(world: World) -> None:
    _, broker = accepted_in_turns(world, lambda: world.clients[-1].transport.break_off(None))
    broker << NOTHING
    assert broker.is_gone


def test_a_session_whose_broker_is_gone_before_its_turn_is_over(world: World) -> None:
    client, _ = accepted_in_turns(world, lambda: world.dialled().transport.break_off(ConnectionResetError()))
    assert client.is_gone
