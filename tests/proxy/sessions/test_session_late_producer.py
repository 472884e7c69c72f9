"""A producer that is there although its CLOSE has been answered: brokers authorize first, and claim the id then."""

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseProducer, CommandProducerSuccess, CommandSuccess
from tests.proxy.conversation import NOTHING, Peer, World
from tests.proxy.wire import NO_REQUEST, OTHER_TOPIC, body, close_producer, producer, success


def request_of(broker: Peer) -> int:
    """The request id of the last command that the broker got."""
    return int(body(broker.heard()[-1]).request_id)


def let_in(request_id: int, *, is_ready: bool = True) -> bytes:
    return encode(CommandProducerSuccess(request_id=request_id, producer_name="late", producer_ready=is_ready))


def test_a_producer_that_comes_after_its_close_ends_the_connection(world: World) -> None:
    """Another one may have been asked for under its id, whose success would be the first one's."""
    client, broker = world.pair()
    client >> producer()
    late = request_of(broker)
    client >> close_producer()
    broker >> encode(CommandSuccess(request_id=request_of(broker)))
    client << success(201)
    client >> producer(topic=OTHER_TOPIC, request_id=7)
    broker >> let_in(late)
    assert client.is_gone
    assert world.counters.frame_errors == {"broker producer_after_close": 1}


def test_one_that_waits_for_exclusive_access_says_so_even_if_it_is_closed(world: World) -> None:
    client, broker = world.pair()
    client >> producer()
    late = request_of(broker)
    client >> close_producer()
    broker >> encode(CommandSuccess(request_id=request_of(broker)))
    client << success(201)
    broker >> let_in(late, is_ready=False)
    client << NOTHING
    assert not client.is_gone
    assert world.counters.answers_ignored == 1


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
