"""Producers and consumers of one session, as streams with limits."""

from collections.abc import Callable, Iterator

import pytest

from limiter.levels import Setting
from limiter.limiter import Stream, StreamName
from limiter.policies import Value
from limiter.token_bucket import DIRECTIONS, NANOS_PER_SECOND, Limit, rate
from protocol.frames import MESSAGE, MOST_NAME_BYTES, SEND
from protocol.pulsar_pb2 import (
    CommandError,
    CommandProducer,
    CommandProducerSuccess,
    CommandSubscribe,
    CommandSuccess,
    InvalidTopicName,
    NotAllowedError,
    ServerError,
    ServiceNotReady,
    TooManyRequests,
)
from proxy.budgets import Budget, Claim, Pool, Share
from proxy.config.model import ClientMemory
from proxy.observe.connection import Connection
from proxy.refusals import NO_REQUEST, RefusedError
from proxy.session import streams
from proxy.session.data_path import DataPath, FrameWriter, HeldMemory
from proxy.session.responses import Rejections, Requests
from proxy.session.session_admission import SessionAdmission
from proxy.session.streams import NameTooLongError, Opening, Streams
from proxy.session.transport import Throttled
from tests.proxy.conversation import World
from tests.proxy.wire import TOPIC, active, body, message, messages, name_of
from tests.proxy.written import Written

Make = Callable[..., World]


class Opened:
    """The streams of one connection, with both of its relays writing into lists."""

    def __init__(self, world: World, address: str = "") -> None:
        scheduler = world.engine.scheduler
        self.written = Written()
        self.asked = Written()
        self.told: list[bytes] = []

        def path(kind: int, written: Written) -> DataPath:
            memory = HeldMemory(
                Budget(10**9, lambda _is_full: None),
                Share(world.engine.held, lambda _is_over: None),
                Claim(Pool(10**9, 10**9), ""),
            )
            rejections = Rejections(
                lambda _frame: None,
                lambda: None,
                NotAllowedError,
                lambda _is_full: None,
                lambda *_kept: None,
                lambda _: None,
            )
            return DataPath(
                kind,
                10_000,
                Throttled(),
                FrameWriter(written),
                memory,
                scheduler,
                lambda _kind, _command, frame: frame,
                world.counters,
                world.clock,
                rejections=rejections,
            )

        self.to_broker, self.to_client = path(SEND, self.asked), path(MESSAGE, self.written)
        connection = Connection(1, address)
        admission = SessionAdmission(world.engine.admission, connection, world.engine.refusals)
        self.memory = world.engine.memory_of(connection)
        self.requests = Requests(self.memory, world.counters)
        self.streams = Streams(
            world.engine,
            connection,
            admission,
            self.to_broker,
            self.to_client,
            self.requests,
            self.memory,
            self.told.append,
        )
        self._run = world.loop.run

    def end(self) -> None:
        self.streams.close_all()
        self.memory.end()

    def open(self, command: Opening, *, is_answered: bool = True) -> Stream:
        stream: Stream = self._run(self._open, command)
        if is_answered:
            answers = CommandProducerSuccess(producer_name="mine"), CommandSuccess()
            self.streams.answered(answers[stream.name.direction == "dispatch"], stream)
            self.requests.forget(self.requests.last_id)
        return stream

    def producer(self, producer_id: int = 1, topic: str = TOPIC, name: str = "mine") -> Stream:
        return self.open(_producer(producer_id, topic, name))

    def consumer(self, consumer_id: int = 7) -> Stream:
        return self.open(_consumer(consumer_id))

    def _open(self, command: Opening) -> Stream:
        name, topic = self.streams.name_of(command)
        stream = self.streams.open(name, topic)
        self.requests.forward(command, lambda answer: answer)
        self.streams.asked(stream, self.requests.last_id, 17)
        return stream


def _producer(producer_id: int = 1, topic: str = TOPIC, name: str = "mine") -> CommandProducer:
    return CommandProducer(topic=topic, producer_id=producer_id, request_id=1, producer_name=name)


def _consumer(consumer_id: int = 7, subscription: str = "s", name: str = "") -> CommandSubscribe:
    return CommandSubscribe(
        topic=TOPIC,
        subscription=subscription,
        sub_type=CommandSubscribe.Shared,
        consumer_id=consumer_id,
        consumer_name=name,
        request_id=1,
    )


def _is_refused(opened: Opened, command: Opening, error: ServerError, text: str) -> None:
    with pytest.raises(RefusedError, match=text) as refused:
        opened.open(command)
    assert refused.value.error == error


@pytest.fixture
def opened(world: World) -> Iterator[Opened]:
    for direction in DIRECTIONS:
        world.engine.registry.policies.put(direction, Setting.TOPIC, TOPIC, Value(Limit(rate(1)), "file"))
    opened = Opened(world)
    yield opened
    world.loop.run(opened.end)


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


def test_a_name_of_a_brokers_that_no_client_could_choose_breaks_the_protocol(opened: Opened) -> None:
    producer = opened.producer()
    opened.streams.answered(CommandProducerSuccess(producer_name="x" * MOST_NAME_BYTES), producer)
    assert producer.name.producer_name == "x" * MOST_NAME_BYTES
    with pytest.raises(NameTooLongError, match=f"4097 characters, {MOST_NAME_BYTES} are allowed"):
        opened.streams.answered(CommandProducerSuccess(producer_name="x" * 4097), producer)


def test_closing_twice_is_closing_once_and_never_closes_a_successor(opened: Opened) -> None:
    first = opened.producer()
    opened.streams.close(first)
    second = opened.producer()
    opened.streams.close(first)
    assert opened.streams.producer(1) is second
    opened.streams.close(second)
    opened.streams.close(second)
    assert opened.streams.producer(1) is None


@pytest.mark.parametrize("command", [_producer(7), _consumer(7)], ids=["producer", "consumer"])
def test_an_id_is_refused_until_the_broker_is_known_to_have_let_go_of_it(opened: Opened, command: Opening) -> None:
    opening = opened.open(command, is_answered=False)
    _is_refused(opened, command, ServiceNotReady, "id 7 of this connection is in use")
    opened.streams.answered(CommandSuccess(), opening)
    _is_refused(opened, command, ServiceNotReady, "in use")
    opened.streams.closing(opening)
    _is_refused(opened, command, ServiceNotReady, "in use")
    opened.streams.close_answered(CommandSuccess(), opening)
    opened.streams.close(opened.open(command))
    opened.streams.answered(CommandError(), opened.open(command, is_answered=False))
    assert opened.open(command).is_open


@pytest.mark.parametrize("is_answered", [False, True], ids=["opening", "open"])
@pytest.mark.parametrize("command", [_producer(7), _consumer(7)], ids=["producer", "consumer"])
def test_what_a_broker_closes_is_closed_by_the_proxy_before_its_id_is_free(
    opened: Opened, command: Opening, *, is_answered: bool
) -> None:
    """The broker may mean the stream before it: its CLOSE was on its way."""
    stream = opened.open(command, is_answered=is_answered)
    opened.streams.closed_by_broker(stream)
    assert not stream.is_open
    (close,) = [body(frame) for frame in opened.asked.parts]
    refused = [] if is_answered else [("ERROR", 17)]
    assert [(name_of(frame), body(frame).request_id) for frame in opened.told] == refused
    _is_refused(opened, command, ServiceNotReady, "in use")
    opened.requests.answered(13, CommandSuccess(request_id=close.request_id))
    assert opened.open(command).is_open


def test_an_id_that_the_broker_would_not_close_stays_in_use(opened: Opened) -> None:
    opened.streams.expel(opened.producer())
    (close,) = [body(frame) for frame in opened.asked.parts]
    opened.requests.answered(14, CommandError(request_id=close.request_id))
    _is_refused(opened, _producer(), ServiceNotReady, "in use")


def test_an_id_that_the_broker_closed_and_has_not_any_more_is_free(opened: Opened) -> None:
    """Older brokers refuse to close what is not there."""
    opened.streams.closed_by_broker(opened.producer())
    (close,) = [body(frame) for frame in opened.asked.parts]
    opened.requests.answered(14, CommandError(request_id=close.request_id))
    assert opened.producer().is_open


def test_a_client_hears_of_a_close_of_no_request() -> None:
    name, _ = Streams.name_of(_consumer())
    assert (name_of(streams.close_frame(name)), body(streams.close_frame(name)).request_id) == (
        "CLOSE_CONSUMER",
        NO_REQUEST,
    )


def test_entries_pass_only_once_the_broker_has_let_them_in(opened: Opened) -> None:
    for command in (_producer(), _consumer()):
        stream = opened.open(command, is_answered=False)
        assert not stream.is_accepted
        answers = CommandProducerSuccess(), CommandSuccess()
        opened.streams.answered(answers[stream.name.direction == "dispatch"], stream)
        assert stream.is_accepted


def test_a_consumer_that_asked_to_be_closed_before_is_let_in_no_more(opened: Opened) -> None:
    consumer = opened.open(_consumer(), is_answered=False)
    opened.streams.leave(consumer)
    opened.streams.closing(consumer)
    opened.streams.answered(CommandSuccess(), consumer)
    assert not consumer.is_accepted


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
    _is_refused(opened, _producer(1, "persistent://only/two"), InvalidTopicName, "is not a topic name")
    assert opened.streams.producer(1) is None


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (_producer(name="n" * (MOST_NAME_BYTES + 1)), "producer"),
        (_producer(name="ü" * (MOST_NAME_BYTES // 2) + "n"), "producer"),
        (_consumer(subscription="s" * (MOST_NAME_BYTES + 1)), "subscription"),
        (_consumer(name="n" * (MOST_NAME_BYTES + 1)), "consumer"),
    ],
)
def test_names_are_bounded_in_bytes(opened: Opened, command: Opening, kind: str) -> None:
    _is_refused(opened, command, NotAllowedError, f"the {kind}'s name has 4097 bytes, 4096 are allowed")


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (_producer(name="mine"), "producer"),
        (_consumer(subscription="mine"), "subscription"),
        (_consumer(name="mine"), "consumer"),
    ],
)
def test_a_name_that_decoders_read_differently_is_refused(opened: Opened, command: Opening, kind: str) -> None:
    """Java makes one unknown character of `ED A0 80`, Python three."""
    odd = command.SerializeToString().replace(b"mine", b"\xed\xa0\x80e")
    _is_refused(opened, type(command).FromString(odd), NotAllowedError, f"the {kind}'s name is not UTF-8")


def test_their_number_is_bounded_for_each_direction(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_STREAMS", 1)
    opened.producer(1)
    opened.consumer(1)
    _is_refused(opened, _producer(2), TooManyRequests, "has 1 streams")


def test_what_is_kept_of_them_is_bounded_and_given_back(opened: Opened, world: World) -> None:
    world.engine.memory.per_connection = 3 * streams.STREAM_MEMORY
    opened.producer(1)
    opened.producer(2)
    _is_refused(opened, _producer(3), TooManyRequests, "client_memory")
    assert opened.streams.producer(3) is None
    opened.streams.close(opened.streams.producer(1) or opened.producer(9))
    opened.streams.close(opened.streams.producer(2) or opened.producer(9))
    assert opened.memory.held == 0


def test_a_client_that_owes_under_ever_new_names_is_refused_and_forgiven_nothing(make_world: Make) -> None:
    """Who makes many debts, each of another topic's limit, may open no more until they are paid; others may."""
    limits = {"namespaces": {"acme/shop": {"publish": {"messages": 1}}}}
    world = make_world(limits=limits, client_memory={"total": 800_000})
    registry, clock = world.engine.registry, world.clock
    debtor, other = Opened(world, "192.0.2.1:7"), Opened(world, "192.0.2.2:7")
    debts = _debts_until_refused(debtor, clock.now)
    world.loop.run(debtor.end)
    assert 20 < debts < 100
    assert sum(not limiter.is_idle(clock.now) for limiter in registry.limiters.values()) == debts
    assert other.producer(1).chain
    clock.now += 2000 * NANOS_PER_SECOND
    again = Opened(world, "192.0.2.1:8")
    assert again.producer(1, topic="persistent://acme/shop/y").chain
    for opened in (other, again):
        world.loop.run(opened.end)


def _debts_until_refused(opened: Opened, now: int) -> int:
    for number in range(1000):
        try:
            _owe_a_thousand(opened, f"persistent://acme/shop/x{number}", now)
        except RefusedError as refused:
            return number if "too many debts" in str(refused) else 0
    return 0


def _owe_a_thousand(opened: Opened, topic: str, now: int) -> None:
    stream = opened.producer(1, topic)
    (limiter,) = stream.chain
    limiter.charge(1000, 0, now)
    opened.streams.close(stream)


def test_a_client_of_ten_thousand_partitions_has_room_for_its_streams() -> None:
    topic = "persistent://some-tenant/some-namespace/some-topic-partition-10000"
    name = StreamName("dispatch", "some-tenant", "some-namespace", topic, 1, "", "some-subscription", "some-consumer")
    assert 12_000 * streams._memory_of(name) <= ClientMemory().connection


def test_a_long_name_counts_with_every_copy_also_when_it_is_the_brokers(opened: Opened) -> None:
    before = opened.memory.held
    producer = opened.producer(1)
    short = opened.memory.held - before
    opened.streams.answered(CommandProducerSuccess(producer_name="x" * 4096), producer)
    assert opened.memory.held - before == short + 4 * (4096 - len("mine"))
    opened.streams.close(producer)
    assert opened.memory.held == before
