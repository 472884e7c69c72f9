"""Producers and consumers of one session, as streams with limits."""

from collections.abc import Callable, Iterator

import pytest

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import DIRECTIONS, Limit, rate
from limiter.stream import Stream
from protocol.kinds import MESSAGE, SEND
from protocol.pulsar_pb2 import CommandProducer, CommandProducerSuccess, CommandSubscribe, NotAllowedError
from proxy.budget import Budget
from proxy.observe.connection import Connection
from proxy.sessions import streams
from proxy.sessions.admittance import NearAdmittance
from proxy.sessions.holdings import Holdings
from proxy.sessions.outlet import Outlet
from proxy.sessions.rejections import Rejections
from proxy.sessions.relay import Relay
from proxy.sessions.streams import Streams, TooManyStreamsError
from proxy.sessions.throttle import Throttled
from proxy.shared_budget import Share
from tests.proxy.conversation import World
from tests.proxy.wire import TOPIC, active, message, messages
from tests.proxy.written import Written

Make = Callable[..., World]


class Opened:
    """The streams of one connection, with both of its relays writing into lists."""

    def __init__(self, world: World) -> None:
        gate = world.engine.gate
        self.written = Written()
        self.to_broker = Relay(SEND, 10_000, Outlet(Written()), gate, world.clock)
        self.to_client = Relay(MESSAGE, 10_000, Outlet(self.written), gate, world.clock)
        for relay in (self.to_broker, self.to_client):
            holdings = Holdings(Budget(10**9, lambda _is_full: None), Share(world.engine.held, lambda _is_over: None))
            relay.connect(lambda _kind, _command, frame: frame, Throttled(), holdings, world.counters)
        self.to_broker.exact.rejections = Rejections(
            lambda _frame: None, lambda: None, NotAllowedError, lambda _is_full: None, lambda *_kept: None
        )
        connection = Connection(1)
        admittance = NearAdmittance(world.engine.admission, connection, world.engine.rejects)
        relays = self.to_broker, self.to_client
        self.streams = Streams(world.engine, connection, admittance, relays)
        self._run = world.loop.run

    def producer(self, producer_id: int = 1, topic: str = TOPIC) -> Stream:
        command = CommandProducer(topic=topic, producer_id=producer_id, request_id=1, producer_name="mine")
        opened: Stream = self._run(self.streams.open_producer, command)
        return opened

    def consumer(self, consumer_id: int = 7) -> Stream:
        command = CommandSubscribe(
            topic=TOPIC, subscription="s", sub_type=CommandSubscribe.Shared, consumer_id=consumer_id, request_id=1
        )
        opened: Stream = self._run(self.streams.open_consumer, command)
        return opened


@pytest.fixture
def opened(world: World) -> Iterator[Opened]:
    for direction in DIRECTIONS:
        world.engine.registry.policies.put(direction, Setting.TOPIC, TOPIC, Value(Limit(rate(1)), "file"))
    opened = Opened(world)
    yield opened
    world.loop.run(opened.streams.close_all)


def test_producers_and_consumers_have_numbers_of_their_own(opened: Opened) -> None:
    producer, consumer = opened.producer(5), opened.consumer(5)
    assert opened.streams.producer(5) is producer
    assert opened.streams.consumer(5) is consumer
    assert opened.streams.producer(6) is None
    assert (producer.name.direction, producer.name.producer_name) == ("publish", "mine")
    assert (consumer.name.direction, consumer.name.subscription) == ("dispatch", "s")


def test_the_same_limiter_serves_all_producers_of_a_topic_in_whatever_spelling(opened: Opened) -> None:
    assert opened.producer(1).chain == opened.producer(2, "acme/shop/orders").chain != ()


def test_the_brokers_name_for_a_producer_replaces_the_clients(opened: Opened) -> None:
    producer = opened.producer()
    opened.streams.answered(CommandProducerSuccess(request_id=1, producer_name="theirs"), producer)
    assert producer.name.producer_name == "theirs"


def test_closing_twice_is_closing_once_and_never_closes_a_successor(opened: Opened) -> None:
    first = opened.producer()
    opened.streams.closing(first)
    second = opened.producer()
    assert not first.is_open
    opened.streams.close(first)
    assert opened.streams.producer(1) is second
    opened.streams.close(second)
    opened.streams.close(second)
    assert opened.streams.producer(1) is None


def test_a_command_waits_only_behind_something(world: World, opened: Opened) -> None:
    consumer = opened.consumer()
    assert not opened.streams.hold_behind(consumer, active())
    deliveries = b"".join(messages(2))
    world.loop.run(opened.to_client.feed, deliveries, len(deliveries))
    assert opened.written.parts == [message(0)]
    assert opened.streams.hold_behind(consumer, active())
    opened.streams.drop_held(consumer, ask_again=False)
    assert opened.written.parts == [message(0), active()]


def test_a_name_that_is_no_topic_opens_nothing(opened: Opened) -> None:
    with pytest.raises(ValueError, match="is not a topic name"):
        opened.producer(1, "persistent://only/two")
    assert opened.streams.producer(1) is None


def test_their_number_is_bounded_for_each_direction(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_STREAMS", 1)
    opened.producer(1)
    opened.consumer(1)
    with pytest.raises(TooManyStreamsError, match="has 1 streams"):
        opened.producer(2)
    opened.producer(1)
