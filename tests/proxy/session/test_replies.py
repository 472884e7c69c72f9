"""The proxy's own answers to a client."""

from proxy.session.data_path import MOST_REPLIES
from proxy.session.transport import WRITE_BUFFER_HIGH
from tests.proxy.conversation import World, consumer
from tests.proxy.wire import PING, lookup, message, producer


def test_a_client_that_does_not_take_answers_is_not_read(world: World) -> None:
    """Else it could make the proxy keep any number of them."""
    client, broker = consumer(world)
    client.stop_reading()
    broker >> message(0, size=WRITE_BUFFER_HIGH)
    client >> PING
    broker << PING
    for number in range(100):
        client >> producer(number, topic="persistent://no/topic")
    assert not client.is_read
    assert client.transport.get_write_buffer_size() < WRITE_BUFFER_HIGH + 1000
    assert +world.counters.throttled == {"broker write_buffer": 1, "client replies": 1}
    client.read_on()
    assert client.is_read
    assert len(client.heard()) == 101


def test_refused_lookups_are_such_answers_too(make_world) -> None:
    world: World = make_world(max_lookups_in_flight=1)
    client, _ = world.pair()
    client.stop_reading()
    for request_id in range(20_000):
        if client.is_read:
            client >> lookup(request_id)
    assert not client.is_read
    assert client.transport.get_write_buffer_size() < WRITE_BUFFER_HIGH + 1000


def test_a_client_that_takes_its_answers_is_read_on(world: World) -> None:
    client, _ = world.pair()
    for number in range(100):
        client >> producer(number, topic="persistent://no/topic")
    assert client.is_read
    assert len(client.heard()) == 100


def test_answers_do_not_pile_up_behind_a_frame_that_the_broker_does_not_end(world: World) -> None:
    client, broker = consumer(world)
    large = message(0, size=3000)
    broker.send_bytes(large[:1000])
    asked = 0
    while client.is_read and asked < 2 * MOST_REPLIES:
        client >> producer(asked, topic="persistent://no/topic")
        asked += 1
    assert asked == MOST_REPLIES
    assert client.heard() == []
    broker.send_bytes(large[1000:])
    assert client.is_read
    assert len(client.heard()) == 1 + MOST_REPLIES
