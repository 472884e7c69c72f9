"""A producer that is there although its CLOSE has been answered: brokers authorize first, and claim the id then."""

import pytest

from protocol.commands import encode
from protocol.pulsar_pb2 import (
    AuthorizationError,
    CommandCloseProducer,
    CommandError,
    CommandProducerSuccess,
    CommandSuccess,
    ServiceNotReady,
)
from tests.proxy.conversation import NOTHING, Broker, Peer, World
from tests.proxy.wire import (
    NO_REQUEST,
    OTHER_TOPIC,
    body,
    close_producer,
    error,
    name_of,
    producer,
    send,
    success,
)


def request_of(broker: Peer) -> int:
    """The request id of the last command that the broker got."""
    return int(body(broker.heard()[-1]).request_id)


def let_in(request_id: int, *, is_ready: bool = True) -> bytes:
    return encode(CommandProducerSuccess(request_id=request_id, producer_name="late", producer_ready=is_ready))


def given_up(world: World) -> tuple[Peer, Broker, int]:
    """Its client closed what was not open yet; gives the request that may be answered late."""
    client, broker = world.pair()
    client >> producer()
    late = request_of(broker)
    client >> close_producer()
    broker >> encode(CommandSuccess(request_id=request_of(broker)))
    client << success(201)
    return client, broker, late


def test_a_producer_that_comes_after_its_close_is_closed_by_the_proxy(world: World) -> None:
    """As a client does that would not wait longer; its id is free when that is answered."""
    client, broker, late = given_up(world)
    broker >> let_in(late)
    (close,) = broker.heard()
    assert (name_of(close), body(close).producer_id) == ("CLOSE_PRODUCER", 1)
    client >> producer(request_id=7)
    client << error(7, ServiceNotReady, "producer id 1 of this connection is in use")
    broker >> success(body(close).request_id)
    client >> producer(topic=OTHER_TOPIC, request_id=8)
    assert broker.heard_names() == ["PRODUCER"]
    assert world.engine.held.memory == 0


def test_until_then_no_other_topic_has_its_id(world: World) -> None:
    """Its success would be the late one's."""
    client, broker, late = given_up(world)
    client >> producer(topic=OTHER_TOPIC, request_id=7)
    client << error(7, ServiceNotReady, "producer id 1 of this connection is in use")
    broker << NOTHING
    broker >> encode(CommandError(request_id=late, error=AuthorizationError, message="no"))
    client << NOTHING
    client >> producer(topic=OTHER_TOPIC, request_id=8)
    assert broker.heard_names() == ["PRODUCER"]


def test_who_asks_again_has_it_whichever_of_the_two_the_broker_lets_in(world: World) -> None:
    """The later may be answered before the former, which changes nothing then."""
    client, broker, late = given_up(world)
    client >> producer(request_id=7)
    again = request_of(broker)
    broker >> let_in(again)
    client << let_in(7)
    broker >> let_in(late)
    broker << NOTHING
    client >> send(0)
    broker << send(0)


def test_who_asks_again_is_refused_once_while_the_former_is_let_in(world: World) -> None:
    """The later may still be refused; and the former would be there then."""
    client, broker, late = given_up(world)
    client >> producer(request_id=7)
    again = request_of(broker)
    broker >> let_in(late)
    (close,) = broker.heard()
    assert client.heard_names() == ["ERROR"]
    broker >> [encode(CommandError(request_id=again, error=ServiceNotReady, message="no"))]
    broker >> success(body(close).request_id)
    client << NOTHING
    client >> producer(request_id=8)
    broker >> let_in(request_of(broker))
    client << let_in(8)


def test_what_may_come_late_is_bounded_and_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten, and ends the connection if it comes all the same."""
    monkeypatch.setattr("proxy.session.streams.MOST_GIVEN_UP", 2)
    client, broker, oldest = given_up(world)
    memory = world.engine.memory.used
    for number in range(3):
        client >> producer(request_id=number)
        broker.heard()
        client >> close_producer()
        broker >> success(201)
        client << success(201)
    assert memory < world.engine.memory.used <= 2 * memory
    broker >> let_in(oldest)
    assert client.is_gone
    assert world.counters.frame_errors == {"broker producer_after_close": 1}
    assert world.engine.memory.used == 0


def test_one_that_waits_for_exclusive_access_says_so_even_if_it_is_closed(world: World) -> None:
    client, broker, late = given_up(world)
    broker >> let_in(late, is_ready=False)
    client << NOTHING
    broker << NOTHING
    assert not client.is_gone


def test_one_that_was_let_in_before_the_proxys_own_close_came_is_none(world: World) -> None:
    client, broker = world.pair()
    broker.lets_go = False
    client >> producer()
    crossed = request_of(broker)
    closed = encode(CommandCloseProducer(producer_id=1, request_id=NO_REQUEST))
    broker >> closed
    assert client.heard_names() == ["ERROR", "CLOSE_PRODUCER"]
    own = request_of(broker)
    broker >> [let_in(crossed), encode(CommandSuccess(request_id=own))]
    client << NOTHING
    client >> producer(topic=OTHER_TOPIC, request_id=7)
    assert broker.heard_names() == ["PRODUCER"]
    broker >> let_in(crossed)
    assert client.is_gone, "only the proxy's own CLOSE may cross with it"
