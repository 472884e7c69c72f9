"""Clients of a process that drains: their streams end at the broker, then at the client, then the connection ends."""

from collections.abc import Callable

import pytest

from accesslog.record import ConnectionLine
from protocol.commands import SIZES, encode
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandGetLastMessageId,
)
from proxy.session import leaving
from proxy.session.leaving import CALM_NS, CONSUMERS_NS, COORDINATOR_NS, PRODUCERS_NS, REQUESTS_NS
from proxy.session.session import GREETING_NS
from tests.proxy.conversation import BROKER, NOTHING, Peer, World, consumer, publisher
from tests.proxy.wire import (
    OTHER_TOPIC,
    TOPIC,
    body,
    close_producer,
    connect,
    lookup,
    message,
    messages,
    name_of,
    producer,
    producer_success,
    receipt,
    seek,
    send,
    sends,
    subscribe,
    success,
)

Make = Callable[..., World]
TARGET = f"{BROKER[0]}:{BROKER[1]}"
LAST_MESSAGE = encode(CommandGetLastMessageId(consumer_id=7, request_id=3))


def closed_producer(producer_id: int = 1) -> bytes:
    """The CLOSE that a broker sends unasked."""
    return encode(CommandCloseProducer(producer_id=producer_id, request_id=2**64 - 1))


def closed_consumer(consumer_id: int = 7) -> bytes:
    return encode(CommandCloseConsumer(consumer_id=consumer_id, request_id=2**64 - 1))


def held(world: World, *more: bytes, entries: int) -> tuple[Peer, Peer]:
    """A producer of which the first of its entries has passed, and the others are held."""
    client, broker = publisher(world, *more)
    client >> sends(entries)
    broker << send(0)
    return client, broker


@pytest.fixture(autouse=True)
def calm_ns(monkeypatch: pytest.MonkeyPatch) -> int:
    """Clients leave at once after they have opened their streams; the time that is awaited else."""
    monkeypatch.setattr(leaving, "CALM_NS", 0)
    return CALM_NS


def test_client_that_opens_streams_together_is_awaited(
    world: World, calm_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "CALM_NS", calm_ns)
    client, broker = publisher(world)
    leave(world)
    world.advance(calm_ns / 2e9)
    client >> producer(2, OTHER_TOPIC)
    broker >> producer_success(2)
    world.advance(calm_ns / 2e9)
    leave(world)
    assert broker.heard_names() == ["PRODUCER"]
    world.advance(calm_ns / 2e9)
    leave(world)
    assert broker.heard_names() == ["CLOSE_PRODUCER", "CLOSE_PRODUCER"]


def leave(world: World, *, is_late: bool = False) -> None:
    """Look at all clients once, as the drain does."""
    for session in world.sessions:
        world.loop.run(lambda each=session: each.leave(is_late=is_late))


def answer_closes(broker: Peer) -> list[str]:
    """Have the broker do as it is asked; return the commands that it has got."""
    frames = broker.heard()
    broker >> [success(body(frame).request_id) for frame in frames if name_of(frame).startswith("CLOSE")]
    return [name_of(frame) for frame in frames]


def close_causes(world: World) -> list[str]:
    return [line.end_cause for line in world.lines(ConnectionLine)]


@pytest.fixture
def one_a_second(make_world: Make) -> World:
    return make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})


def test_producer_leaves_after_its_last_receipt(world: World) -> None:
    client, broker = publisher(world)
    client >> sends(2)
    broker << sends(2)
    leave(world)
    (close,) = broker.heard()
    assert (name_of(close), body(close).producer_id) == ("CLOSE_PRODUCER", 1)
    client << NOTHING
    broker >> [receipt(0), receipt(1)]
    client << [receipt(0), receipt(1)]
    broker >> success(body(close).request_id)
    client << closed_producer()


def test_connection_ends_when_its_streams_have_left(world: World) -> None:
    client, broker = publisher(world)
    leave(world)
    answer_closes(broker)
    assert client.transport.is_eof_sent
    assert broker.is_gone
    assert not client.is_gone, "to close it while the client sends would reset it"
    client >> sends(3)
    client.half_close()
    assert client.is_gone
    assert close_causes(world) == ["drained"]


def test_client_that_does_not_close_is_left_after_linger(world: World) -> None:
    client, broker = publisher(world)
    leave(world)
    answer_closes(broker)
    world.advance(world.config.linger - 0.1)
    assert not client.is_gone
    world.advance(0.2)
    assert client.is_gone


def test_entries_after_the_close_are_dropped_without_receipt(world: World) -> None:
    client, broker = publisher(world)
    leave(world)
    broker << "CLOSE_PRODUCER"
    client >> sends(3)
    broker << NOTHING
    client << NOTHING


def test_held_entries_pass_before_their_producer_leaves(one_a_second: World) -> None:
    world = one_a_second
    client, broker = held(world, entries=4)
    leave(world)
    world.advance(2)
    broker << sends(2, start=1)
    leave(world)
    client >> sends(2, start=4)
    world.advance(1)
    broker << send(3)
    leave(world)
    broker << "CLOSE_PRODUCER"


def test_neighbours_of_a_held_producer_go_on_meanwhile(one_a_second: World) -> None:
    world = one_a_second
    client, broker = held(world, producer(2, OTHER_TOPIC), entries=2)
    leave(world)
    client >> sends(3, producer_id=2)
    broker << sends(3, producer_id=2)


def test_neighbour_with_short_waits_is_served_until_all_leave(make_world: Make) -> None:
    """Its limit keeps it back for less than a second each time, while another's keeps entries for eight."""
    limits = {TOPIC: {"publish": {"messages": 1}}, OTHER_TOPIC: {"publish": {"messages": 20}}}
    world = make_world(limits={"topics": limits})
    client, broker = held(world, producer(2, OTHER_TOPIC), entries=9)
    for start in range(0, 120, 20):
        client >> sends(20, start=start, producer_id=2)
        for _ in range(25):
            leave(world)
            world.advance(0.05)
        heard = broker.heard()
        assert sum(body(frame).producer_id == 2 for frame in heard) == 20, "while the other one holds entries"
        assert {name_of(frame) for frame in heard} == {"SEND"}
    for _ in range(50):
        leave(world)
        world.advance(0.05)
    assert [name for name in map(name_of, broker.heard()) if name != "SEND"] == ["CLOSE_PRODUCER", "CLOSE_PRODUCER"]


def test_held_entries_that_fit_no_time_are_left_to_the_client(one_a_second: World) -> None:
    world = one_a_second
    client, broker = held(world, entries=3)
    leave(world)
    broker << NOTHING
    leave(world, is_late=True)
    client << NOTHING
    assert answer_closes(broker) == ["CLOSE_PRODUCER"]
    client << closed_producer()
    world.advance(5)
    broker << NOTHING
    assert world.engine.held.memory == 0


def test_entry_under_way_is_passed_whole(world: World) -> None:
    client, broker = publisher(world)
    entry = send(0, size=5000)
    client.send_bytes(entry[:100])
    leave(world)
    client.send_bytes(entry[100:])
    broker << [entry, "CLOSE_PRODUCER"]


def test_consumer_that_leaves_gets_no_more_messages(world: World) -> None:
    client, broker = consumer(world, permits=10)
    leave(world)
    broker >> messages(2)
    client << NOTHING
    assert answer_closes(broker) == ["CLOSE_CONSUMER"]
    client << closed_consumer()
    assert client.transport.is_eof_sent


def test_consumer_is_told_when_its_connection_ends(world: World) -> None:
    """A client that opens it again at once would else do so on this connection."""
    client, broker = consumer(world)
    leave(world)
    client << NOTHING
    assert not client.transport.is_eof_sent
    answer_closes(broker)
    client << closed_consumer()
    assert client.transport.is_eof_sent


@pytest.mark.parametrize("question", [LAST_MESSAGE, seek()], ids=["last message", "seek"])
def test_question_about_a_consumer_that_has_left_is_dropped(world: World, question: bytes) -> None:
    """The broker would answer with an error, which the client would tell its user."""
    client, broker = consumer(world)
    leave(world)
    client >> question
    assert answer_closes(broker) == ["CLOSE_CONSUMER"]
    client << closed_consumer()


def test_held_deliveries_are_left_to_the_broker(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 1}}}})
    client, broker = consumer(world, permits=10)
    broker >> messages(3)
    client << message(0)
    leave(world)
    world.advance(5)
    client << NOTHING
    leave(world)
    client << closed_consumer()


def test_consumers_leave_after_producers(world: World) -> None:
    client, broker = publisher(world, subscribe())
    leave(world)
    assert answer_closes(broker) == ["CLOSE_PRODUCER"]
    client << NOTHING
    assert answer_closes(broker) == ["CLOSE_CONSUMER"]
    client << [closed_consumer(), closed_producer()]


def test_broker_that_answers_no_close_is_not_awaited(world: World) -> None:
    client, _broker = publisher(world, subscribe())
    leave(world)
    world.advance(PRODUCERS_NS / 1e9)
    leave(world)
    client << NOTHING
    world.advance(CONSUMERS_NS / 1e9)
    leave(world)
    client << [closed_consumer(), closed_producer()]


def test_open_request_is_awaited(world: World) -> None:
    client, broker = world.pair()
    client >> lookup(1)
    broker << lookup(1)
    leave(world)
    assert not client.transport.is_eof_sent
    broker >> success(1)
    leave(world)
    assert not client.transport.is_eof_sent


def test_request_without_answer_is_awaited_for_a_second(world: World) -> None:
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    client >> producer(3, "persistent://public/default/slow")
    leave(world)
    broker << "PRODUCER"
    world.advance(REQUESTS_NS / 1e9)
    leave(world)
    assert answer_closes(broker) == ["CLOSE_PRODUCER", "CLOSE_PRODUCER"]
    assert client.heard_names() == ["CLOSE_PRODUCER", "CLOSE_PRODUCER"]


def test_producer_waiting_for_access_leaves_with_its_connection(world: World) -> None:
    client, broker = world.pair(TARGET)
    client >> producer(producer_access_mode=2)
    broker << "PRODUCER"
    broker >> producer_success(producer_ready=False)
    client << "PRODUCER_SUCCESS"
    leave(world)
    world.advance(REQUESTS_NS / 1e9)
    leave(world)
    assert client.transport.is_eof_sent
    assert broker.is_gone


def test_producer_that_its_client_closes_gets_no_close(world: World) -> None:
    client, broker = publisher(world, producer(2, OTHER_TOPIC))
    leave(world)
    closes = broker.heard()
    client >> close_producer(2)
    broker << "CLOSE_PRODUCER"
    broker >> [*(success(body(frame).request_id) for frame in closes), success(202)]
    client << [success(202), closed_producer()]


def test_producer_opened_while_its_client_leaves_leaves_too(world: World) -> None:
    """A request that no answer comes to some clients take for an error, and the broker would have the producer."""
    client, broker = publisher(world)
    leave(world)
    closes = broker.heard()
    client >> producer(2, OTHER_TOPIC)
    broker << "PRODUCER"
    broker >> [success(body(frame).request_id) for frame in closes]
    leave(world)
    client << NOTHING
    broker >> producer_success(producer_id=2)
    client << producer_success(producer_id=2)
    leave(world)
    assert answer_closes(broker) == ["CLOSE_PRODUCER"]
    leave(world)
    assert client.heard_names() == ["CLOSE_PRODUCER", "CLOSE_PRODUCER"]
    assert client.transport.is_eof_sent


def test_request_without_answer_delays_the_end_for_a_second(world: World) -> None:
    client, broker = publisher(world)
    leave(world)
    closes = broker.heard()
    client >> producer(2, OTHER_TOPIC)
    broker >> [success(body(frame).request_id) for frame in closes]
    world.advance(REQUESTS_NS / 1e9)
    leave(world)
    client << closed_producer()
    assert client.transport.is_eof_sent


def test_idle_client_leaves_at_once_and_one_that_greets_soon(world: World) -> None:
    idle, _broker = world.pair()
    greeting = world.client()
    leave(world)
    assert idle.transport.is_eof_sent
    assert not greeting.transport.is_eof_sent
    world.advance(GREETING_NS / 1e9)
    leave(world)
    assert greeting.transport.is_eof_sent


def of_type(kind: int) -> bytes:
    """A command that is passed on unread."""
    command = bytes([BaseCommand.TYPE_FIELD_NUMBER << 3, kind])
    return SIZES.pack(len(command) + 4, len(command)) + command


END, ENDED = of_type(BaseCommand.END_TXN), of_type(BaseCommand.END_TXN_RESPONSE)


def test_end_of_a_transaction_is_awaited(world: World) -> None:
    """If its answer got lost, the client would end the transaction once more, and get an error."""
    client, broker = publisher(world)
    client >> END
    broker << "END_TXN"
    leave(world)
    broker << NOTHING
    broker >> ENDED
    client << "END_TXN_RESPONSE"
    leave(world)
    answer_closes(broker)
    client << closed_producer()


def leaving_in_a_transaction(world: World) -> tuple[Peer, Peer]:
    """A client that ends a transaction while its consumer is being closed."""
    client, broker = consumer(world)
    leave(world)
    client >> END
    assert answer_closes(broker) == ["CLOSE_CONSUMER", "END_TXN"]
    return client, broker


def test_end_of_a_transaction_while_consumers_leave_is_awaited(world: World) -> None:
    """The client leaves when the answer has gone to it, without a further look."""
    client, broker = leaving_in_a_transaction(world)
    client << NOTHING
    broker >> ENDED
    world.advance(0)
    client << ["END_TXN_RESPONSE", closed_consumer()]


def test_client_between_two_transactions_is_awaited(world: World) -> None:
    """Its next request is under way, and an answer to it is the moment in which no other one is."""
    client, broker = consumer(world)
    leave(world)
    client >> END
    broker >> ENDED
    assert answer_closes(broker) == ["CLOSE_CONSUMER", "END_TXN"]
    client << "END_TXN_RESPONSE"
    leave(world)
    client << NOTHING
    client >> END
    broker >> ENDED
    world.advance(0)
    client << ["END_TXN_RESPONSE", closed_consumer()]


def test_transactions_without_a_pause_are_left_to_the_client(world: World) -> None:
    client, broker = leaving_in_a_transaction(world)
    world.advance(COORDINATOR_NS / 1e9)
    client >> END
    broker << NOTHING
    broker >> ENDED
    world.advance(0)
    client << ["END_TXN_RESPONSE", closed_consumer()]


def test_leaving_awaits_the_end_of_a_transaction(world: World) -> None:
    client, broker = publisher(world)
    leave(world)
    client >> END
    assert answer_closes(broker) == ["CLOSE_PRODUCER", "END_TXN"]
    client << NOTHING
    broker >> ENDED
    leave(world)
    client << ["END_TXN_RESPONSE", closed_producer()]


def test_client_whose_broker_is_dialled_is_awaited(world: World) -> None:
    world.broker_answers = False
    client = world.client()
    client >> connect(TARGET)
    leave(world)
    assert not client.transport.is_eof_sent
    leave(world, is_late=True)
    assert client.transport.is_eof_sent


def test_draining_process_closes_clients_that_greet_it(world: World) -> None:
    world.engine.admission.close()
    client = world.client()
    client >> connect(TARGET)
    client << NOTHING
    assert client.transport.is_eof_sent
    assert not world.dials
    assert world.counters.drain_refused == {"data": 1}
    client.half_close()
    assert client.is_gone


def test_client_that_goes_away_while_it_leaves_is_over(one_a_second: World) -> None:
    client, _broker = held(one_a_second, entries=3)
    leave(one_a_second)
    client.leave()
    leave(one_a_second, is_late=True)
    assert close_causes(one_a_second) == ["client_closed"]
