"""The producers and consumers of one session, as streams with limits.

What the proxy believes of an id must be what the broker does with it, or a client could be charged as another one:

    (free) ──PRODUCER, SUBSCRIBE──▶ opening ──SUCCESS──▶ open ──the client's CLOSE──▶ closing ──SUCCESS──▶ (free)
                                       │                   ├── UNSUBSCRIBE's SUCCESS ──▶ (free)
                                       ├──ERROR──▶ (free)  │
                                       └─ the broker's CLOSE, a block ──▶ the proxy's own CLOSE ──SUCCESS──▶ (free)

An id that is not free is refused to another command. Only what is open passes entries. A broker's CLOSE may be of the
stream that had the id before, written late: so the proxy closes what may be there. So it does where a PRODUCER is let
in whose CLOSE has been answered before (`GivenUp`).

Source: org.apache.pulsar.broker.service.ServerCnx
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from google.protobuf.message import Message

from limiter.levels import Client
from limiter.limiter import Stream, StreamName
from limiter.rates import NANOS_PER_SECOND
from protocol.commands import encode, text
from protocol.errors import ProtocolError
from protocol.limits import MOST_NAME_BYTES
from protocol.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandError,
    CommandProducer,
    CommandProducerSuccess,
    CommandSendError,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    InvalidTopicName,
    NotAllowedError,
    ServiceNotReady,
    TooManyRequests,
)
from protocol.topic_name import TopicName, parse_topic
from proxy.admission import NotAdmittedError
from proxy.budgets import Claim
from proxy.observe.connection import Connection
from proxy.refusals import NO_REQUEST, TOO_MANY_DEBTS, TOO_MUCH_KEPT, RefusedError, request_refused
from proxy.session.admission import SessionAdmission, error_of
from proxy.session.data_path import DataPath
from proxy.session.engine import Engine
from proxy.session.responses import Requests

MOST_GIVEN_UP = 1000
"""Of one connection; the oldest is forgotten, and its late answer ends the connection."""


class GivenUp:
    """PRODUCERs of one connection whose CLOSE was answered before they were themselves.

    Brokers authorize a PRODUCER before they give it its id, and may let it in long after its CLOSE: an honest client
    closes what took longer to open than it would wait. So a producer may still come, and no other topic may have its
    id. Another name may: with each answer the broker says the name that its producer has.

        PRODUCER(id 1, topic A) ─▶ authorizes …           CLOSE(id 1) ─▶ SUCCESS: nobody has the id
                                   … PRODUCER_SUCCESS: the broker has id 1 on topic A

    Source: handleProducer of org.apache.pulsar.broker.service.ServerCnx
    """

    __slots__ = ("_order", "_topics")

    def __init__(self) -> None:
        self._topics: dict[int, dict[int, str]] = {}
        """By request id, by producer id."""
        self._order: deque[tuple[int, int]] = deque()
        """Producer and request ids, some of which have been answered since."""

    def add(self, producer_id: int, topic: str, request_id: int) -> int | None:
        """Keep one more; gives the request that is forgotten for it, if there is one."""
        self._topics.setdefault(producer_id, {})[request_id] = topic
        self._order.append((producer_id, request_id))
        if len(self._order) <= MOST_GIVEN_UP:
            return None
        whose, oldest = self._order.popleft()
        return oldest if self.answered(whose, oldest) else None

    def answered(self, producer_id: int, request_id: int) -> bool:
        """The broker answered one, or it is forgotten. Whether it was kept."""
        topics = self._topics.get(producer_id, {})
        was_kept = topics.pop(request_id, None) is not None
        if was_kept and not topics:
            del self._topics[producer_id]
        return was_kept

    def forbids(self, producer_id: int, topic: str) -> bool:
        """Whether a producer of another topic may still come under this id."""
        return any(one != topic for one in self._topics.get(producer_id, {}).values())


MOST_STREAMS = 65_536
"""Producers and consumers of one connection."""
STREAM_MEMORY = 3 * 1024
"""Bytes that a stream takes beside its names; its limiters are counted by themselves (`limiter/registry.py`)."""
_COPIES = 4
"""Times that a name is kept: as the stream's, in what finds it, and in what is to be told of it."""
BETWEEN_REDELIVERIES_NS = NANOS_PER_SECOND
"""What is held of a consumer is dropped for a redelivery at most so often."""


class NameTooLongError(ProtocolError):
    """A broker gives a producer a name that no client could have chosen."""

    cause = "name_too_long"


Opening = CommandProducer | CommandSubscribe


class Streams:
    """Opens and closes streams as the commands of a session say.

    Args:
        engine: Where their limits are.
        connection: Whose they are.
        admittance: Says whether there are too many.
        paths: In which producers pass, and in which consumers do.
        requests: Where the answers to the proxy's own requests are awaited.
        memory: Counts what is kept of them.
        reply: Sends a frame to the client.
    """

    __slots__ = (
        "_admittance",
        "_closing",
        "_drops_from",
        "_engine",
        "_expelled",
        "_given_up",
        "_memory",
        "_opening",
        "_reply",
        "_requests",
        "_to_broker",
        "_to_client",
        "connection",
        "rejects",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        engine: Engine,
        connection: Connection,
        admittance: SessionAdmission,
        paths: tuple[DataPath, DataPath],
        requests: Requests,
        memory: Claim,
        reply: Callable[[bytes], None],
    ) -> None:
        self._engine = engine
        self.connection = connection
        self._to_broker, self._to_client = paths
        self._requests = requests
        self._memory = memory
        self._reply = reply
        self.rejects = engine.rejects
        self._admittance = admittance
        # As sets they would be three times as large in a connection that has none.
        self._opening: dict[Stream, tuple[int, int]] = {}
        """With the request ids, the proxy's and the client's, that the broker has not answered."""
        self._closing: dict[Stream, None] = {}
        self._expelled: dict[tuple[str, int], None] = {}
        """The ids that the proxy itself closes at the broker, which has not answered yet."""
        self._given_up: GivenUp | None = None
        """None as long as there was none: few sessions have any."""
        self._drops_from: dict[Stream, int] | None = None
        """From when on what is held of a consumer may be dropped again for a redelivery; None likewise."""

    @staticmethod
    def name_of(command: Opening) -> tuple[StreamName, TopicName]:
        """How a PRODUCER or SUBSCRIBE names its stream, and its topic.

        Raises:
            RefusedError: If its topic has no valid name, or some name is too long.
        """
        try:
            topic = parse_topic(command.topic)
        except ValueError as error:
            raise RefusedError(InvalidTopicName, str(error)) from None
        if isinstance(command, CommandProducer):
            name = StreamName(
                "publish",
                topic.tenant,
                topic.namespace,
                topic.full,
                command.producer_id,
                producer_name=_bounded("producer", command.producer_name),
            )
        else:
            name = StreamName(
                "dispatch",
                topic.tenant,
                topic.namespace,
                topic.full,
                command.consumer_id,
                subscription=_bounded("subscription", command.subscription),
                consumer_name=_bounded("consumer", command.consumer_name),
            )
        return name, topic

    def open(self, name: StreamName, topic: TopicName) -> Stream:
        """Begin with a stream that is about to be asked of the broker; `asked` follows.

        Raises:
            RefusedError: If its id is not free, or if there are too many for the connection, for what may be kept, or
                for a bound of `admission`.
        """
        path = self._to_broker if name.direction == "publish" else self._to_client
        if name.stream_id in path.streams or not self._is_free(name):
            kind = "producer" if name.direction == "publish" else "consumer"
            raise RefusedError(ServiceNotReady, f"{kind} id {name.stream_id} of this connection is in use")
        if len(path.streams) >= MOST_STREAMS:
            raise RefusedError(
                TooManyRequests, f"this connection has {MOST_STREAMS} streams, the most that one may have"
            )
        if self._engine.registry.owes_too_much(self.connection.client_network, self._engine.clock()):
            self._engine.memory.refused += 1
            raise RefusedError(TooManyRequests, TOO_MANY_DEBTS)
        stream = Stream(name, (), path.release, self.connection)
        try:
            self._admittance.open(stream, topic)
        except NotAdmittedError as error:
            raise RefusedError(error_of(error), str(error)) from None
        if not self._memory.take(_memory_of(name)):
            self._admittance.close(stream)
            raise RefusedError(TooManyRequests, TOO_MUCH_KEPT)
        path.streams[name.stream_id] = stream
        whose = self.connection
        client = Client(name.producer_name, whose.client_role, whose.client_host, name.subscription)
        registry = self._engine.registry
        registry.open(stream, topic, self._engine.clock(), client)
        if name.direction == "publish":
            registry.answer(stream, self._to_broker)
        else:
            stream.by_entry = self._engine.dispatch_rules.by_entry
            registry.meter(stream, partial(self._to_broker.grant, name.stream_id))
        return stream

    def asked(self, stream: Stream, request_id: int, client_id: int) -> None:
        """The broker is asked for it, under the proxy's request id and the client's."""
        self._opening[stream] = request_id, client_id

    def is_closing(self, stream: Stream) -> bool:
        """Whether the client asked to close it, and has no answer yet."""
        return stream in self._closing

    def closing(self, stream: Stream) -> None:
        """The client asked to close it; its id is free when the broker has answered."""
        self._closing[stream] = None

    def close(self, stream: Stream) -> None:
        """The stream is over, and what it held is dropped; commands among it go on, as somebody awaits their answer."""
        if not stream.is_open:
            return
        self._closing.pop(stream, None)
        if self._drops_from is not None:
            self._drops_from.pop(stream, None)
        self._give_up(stream)
        self._admittance.close(stream)
        self._memory.add(-_memory_of(stream.name))
        path = self._path_of(stream)
        path.forget(stream)
        path.give_back(stream, self._engine.registry.close(stream, self._engine.clock()))

    def expel(self, stream: Stream) -> None:
        """Close a stream here, and at the broker by a CLOSE of the proxy's own, whose SUCCESS makes its id free."""
        self.close(stream)
        self._close_at_broker(stream.name)

    def _close_at_broker(self, name: StreamName, *, or_is_gone: bool = False) -> None:
        """Its id is free when that is done; `or_is_gone`: also when the broker has none to close."""
        key = name.direction, name.stream_id
        self._expelled[key] = None

        def answered(answer: CommandSuccess | CommandError) -> None:
            if or_is_gone or isinstance(answer, CommandSuccess):  # else the broker may have it still
                self._expelled.pop(key, None)

        self._to_broker.writer.insert(self._requests.own(_close_of(name), answered))

    def _is_free(self, name: StreamName) -> bool:
        """Whether the broker has let go of an id that no stream has here."""
        if (name.direction, name.stream_id) in self._expelled:
            return False
        if self._given_up is None or name.direction == "dispatch":
            return True
        return not self._given_up.forbids(name.stream_id, name.topic)

    def _give_up(self, stream: Stream) -> None:
        """Its opening may not be answered any more. A consumer's is not: its id is taken before it is authorized."""
        name, opening = stream.name, self._opening.pop(stream, None)
        if opening is None:
            return
        request_id, _client_id = opening
        if name.direction == "dispatch":
            self._requests.forget(request_id)
            return
        self._given_up = self._given_up or GivenUp()
        self._requests.disown(request_id, partial(self._answered_late, name, request_id), _size_of(name.topic))
        forgotten = self._given_up.add(name.stream_id, name.topic, request_id)
        if forgotten is not None:
            self._requests.forget(forgotten)

    def _answered_late(self, name: StreamName, request_id: int, answer: Message) -> None:
        """A producer that was given up is there after all, or is refused.

        Who has its id by now is on the same topic; but while that is opening it may be refused, and the former stays.
        What the proxy closes by now was there before it did.
        """
        if isinstance(answer, CommandProducerSuccess) and not answer.producer_ready:
            return
        if self._given_up is not None:
            self._given_up.answered(name.stream_id, request_id)
        if isinstance(answer, CommandError) or (name.direction, name.stream_id) in self._expelled:
            return
        stream = self.producer(name.stream_id)
        if stream is None:
            self._close_at_broker(name)
        elif stream in self._opening:
            self.closed_by_broker(stream)

    def closed_by_broker(self, stream: Stream) -> None:
        """The broker closed the stream of this id, or perhaps the one before it: who has it now is not said.

        Older brokers refuse a CLOSE of what they have closed already.
        """
        opening = self._opening.get(stream)
        if opening is None:
            self.close(stream)
            self._close_at_broker(stream.name, or_is_gone=True)
            return
        self.expel(stream)
        self._reply(request_refused(opening[1], ServiceNotReady, "the broker closed it while it was being opened"))

    def drop_held(self, stream: Stream, *, ask_again: bool) -> None:
        """Forget what is held of a consumer, because the broker will deliver it again.

        What the broker said about the consumer and waits among it goes on: that is not said twice.

        Args:
            stream: The consumer.
            ask_again: The client still counts on the permits of what is dropped.
        """
        dropped = self._engine.rate_limiter.drop_held(stream, self._engine.clock())
        # First the permits: afterwards more may be read, and a judge would take it for part of what is dropped.
        if stream.permits is not None:
            entries = [entry for entry in dropped if not entry.is_free]
            messages, size = sum(entry.messages for entry in entries), sum(entry.size for entry in entries)
            stream.permits.dropped(len(entries), messages, size, ask_again=ask_again)
        self._path_of(stream).give_back(stream, dropped)

    def leave(self, stream: Stream) -> None:
        """A consumer is about to end: the broker delivers to others what it has not got, and so nothing more comes.

        What is on its way still would come before what is dropped here.
        """
        self._forgo(stream)
        self.drop_held(stream, ask_again=False)
        stream.is_accepted = False

    @staticmethod
    def rewound(stream: Stream) -> None:
        """The broker is asked to deliver to a consumer what it has got already."""
        if stream.permits is not None:
            stream.permits.rewound()

    @property
    def tells_backlogs_apart(self) -> bool:
        """Whether subscriptions with a backlog are treated in another way."""
        return self._engine.dispatch_rules.spares_caught_up

    def redeliver(self, stream: Stream, frame: bytes) -> bool:
        """Ask the broker for all that a consumer has not acknowledged, in place of what is held of it.

        The permits of that follow behind: before, the broker would use them for what nobody wants any more. They are
        for entries that limits have not counted. So what is held is dropped once in a second: else a limited consumer
        could have the broker deliver as much as it likes to the proxy, for 20 bytes a time.

        Returns:
            Whether it was done; else the command is to go on, and what is held stays.
        """
        if stream.held:
            now = self._engine.clock()
            self._drops_from = self._drops_from or {}
            if now < self._drops_from.get(stream, now):
                return False
            self._drops_from[stream] = now + BETWEEN_REDELIVERIES_NS
        self._to_broker.writer.insert(frame)
        self.drop_held(stream, ask_again=True)
        return True

    def answered(self, answer: Message, stream: Stream) -> None:
        """The broker accepted a producer, and perhaps named it, or a consumer; or refused it.

        A consumer that asked to be closed meanwhile is let in no more.

        Raises:
            NameTooLongError: If it names a producer so.
        """
        self._opening.pop(stream, None)
        if isinstance(answer, CommandError):
            self.close(stream)
        elif isinstance(answer, CommandProducerSuccess):
            name = text(answer.producer_name)
            if len(name) > MOST_NAME_BYTES:
                raise NameTooLongError(f"a producer's name of {len(name)} characters, {MOST_NAME_BYTES} are allowed")
            stream.is_accepted = True
            self._admittance.accepted(stream)
            before = _memory_of(stream.name)
            self._engine.registry.name(stream, name, self._engine.clock())
            self._memory.add(_memory_of(stream.name) - before)
        else:
            stream.is_accepted = stream not in self._closing
            self._admittance.accepted(stream)

    def waits(self, stream: Stream) -> None:
        """The broker has let a producer in, which waits there until others have gone; another answer follows."""
        self._admittance.accepted(stream)

    def close_answered(self, answer: CommandSuccess | CommandError, stream: Stream) -> None:
        """The broker answered a CLOSE.

        A consumer is over even if that was refused: clients give theirs up whatever the answer (C++'s, Go's and Java's
        do), and brokers refuse only where they have none to close. A producer goes on as it was.
        """
        self._closing.pop(stream, None)
        if isinstance(answer, CommandSuccess) or stream.name.direction == "dispatch":
            self.close(stream)

    def unsubscribe_answered(self, answer: CommandSuccess | CommandError, stream: Stream) -> None:
        """The broker answered an UNSUBSCRIBE.

        It refuses while the subscription has other consumers: then this one goes on, with what is held and asked for.
        """
        if isinstance(answer, CommandSuccess):
            self.close(stream)

    def sought(self, answer: CommandSuccess | CommandError, stream: Stream) -> None:
        """The broker answered a SEEK: what is still held is from before, and will come again if it is wanted.

        Mostly it has closed the consumer before. If not, the client still counts on what it had asked for.
        """
        if isinstance(answer, CommandSuccess) and stream.is_open:
            self.rewound(stream)
            self.drop_held(stream, ask_again=not self.is_closing(stream))

    def accepted(self) -> list[Stream]:
        """Those that the broker has accepted and that are not over."""
        paths = (self._to_broker, self._to_client)
        return [stream for path in paths for stream in path.streams.values() if stream not in self._opening]

    def send_answered(self, command: CommandSendReceipt | CommandSendError, frame: bytes) -> bool:
        """The broker answered a SEND. Whether its answer has been passed on, because refusals may wait behind it."""
        rejections = self._to_broker.rejections
        return rejections is not None and rejections.answered(command, frame)

    def producer(self, producer_id: int) -> Stream | None:
        """The open producer of this id."""
        return self._to_broker.streams.get(producer_id)

    def consumer(self, consumer_id: int) -> Stream | None:
        """The open consumer of this id."""
        return self._to_client.streams.get(consumer_id)

    def hold_behind(self, stream: Stream, frame: bytes) -> bool:
        """Let a command wait behind what its stream holds. False if it holds nothing, so that the command may go."""
        if not stream.held:
            return False
        self._path_of(stream).hold_behind(stream, frame)
        return True

    def pass_on(self, frame: bytes) -> None:
        """A command that had to wait for an answer of the proxy's goes on to the broker."""
        self._to_broker.writer.insert(frame)

    def when_decided(self, then: Callable[[], None]) -> None:
        """Call `then` when what is held of producers is held by a limit."""
        self._engine.registry.when_decided(list(self._to_broker.streams.values()), then)

    def close_all(self) -> None:
        """The session ends. No consumer wants anything any more: or one that is closed would make room for the next."""
        for consumer in self._to_client.streams.values():
            self._forgo(consumer)
        for path in (self._to_broker, self._to_client):
            for stream in list(path.streams.values()):
                self.close(stream)
            path.abandon()

    @staticmethod
    def _forgo(consumer: Stream) -> None:
        if consumer.permits is not None:
            consumer.permits.forgo()

    def _path_of(self, stream: Stream) -> DataPath:
        return self._to_broker if stream.name.direction == "publish" else self._to_client


def _bounded(what: str, name: str | bytes) -> str:
    """A name that is the same here and at the broker.

    Raises:
        RefusedError: If it is too long, or no UTF-8: of that, decoders make different text.
    """
    if not isinstance(name, str):  # protobuf hands out a string field that is not UTF-8 as bytes
        raise RefusedError(NotAllowedError, f"the {what}'s name is not UTF-8")
    size = len(name.encode())
    if size > MOST_NAME_BYTES:
        raise RefusedError(NotAllowedError, f"the {what}'s name has {size} bytes, {MOST_NAME_BYTES} are allowed")
    return name


def _memory_of(name: StreamName) -> int:
    """Bytes that its stream takes."""
    names = name.topic, name.producer_name, name.subscription, name.consumer_name
    return STREAM_MEMORY + _COPIES * sum(map(_size_of, names))


def _size_of(name: str) -> int:
    """Bytes of a text: one character above the first 65,536 makes all of it as wide as it is, four bytes each."""
    return len(name) if name.isascii() else 4 * len(name)


def _close_of(name: StreamName) -> CommandCloseProducer | CommandCloseConsumer:
    if name.direction == "publish":
        return CommandCloseProducer(producer_id=name.stream_id, request_id=0)
    return CommandCloseConsumer(consumer_id=name.stream_id, request_id=0)


def close_told(name: StreamName) -> bytes:
    """The frame by which a broker tells a client that it closed a stream."""
    command = _close_of(name)
    command.request_id = NO_REQUEST
    return encode(command)
