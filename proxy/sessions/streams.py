"""The producers and consumers of one session, as streams with limits."""

from collections.abc import Callable

from google.protobuf.message import Message

from limiter.levels import Client
from limiter.stream import Entry, Stream, StreamName
from protocol.commands import text
from protocol.pulsar_pb2 import (
    CommandProducer,
    CommandProducerSuccess,
    CommandSendError,
    CommandSendReceipt,
    CommandSubscribe,
)
from protocol.topic_name import TopicName, parse_topic
from proxy.observe.connection import Connection
from proxy.sessions.admittance import Admittance
from proxy.sessions.engine import Engine
from proxy.sessions.flows import Grants
from proxy.sessions.late_answers import LateAnswers
from proxy.sessions.relay import Relay

MOST_STREAMS = 65_536
"""Producers and consumers of one connection."""


class TooManyStreamsError(Exception):
    """One connection wants more producers and consumers than it may have."""


class Streams:
    """Opens and closes streams as the commands of a session say.

    Args:
        engine: Where their limits are.
        connection: Whose they are.
        admittance: Says whether there are too many.
        relays: In which producers pass, and in which consumers do.
    """

    __slots__ = (
        "_admittance",
        "_closing",
        "_delivers",
        "_engine",
        "_opening",
        "_publishes",
        "_to_broker",
        "_to_client",
        "connection",
        "rejects",
    )

    def __init__(
        self,
        engine: Engine,
        connection: Connection,
        admittance: Admittance,
        relays: tuple[Relay, Relay],
    ) -> None:
        self._engine = engine
        self.connection = connection
        self._to_broker, self._to_client = relays
        self._publishes, self._delivers = relays[0].exact.release, relays[1].exact.release
        self.rejects = engine.rejects
        self._admittance = admittance
        self._closing: dict[Stream, None] = {}
        self._opening: dict[Stream, None] = {}
        # As sets they would be three times as large in a connection that has none.

    def open_producer(self, command: CommandProducer) -> Stream | None:
        """A PRODUCER command went by; None if its id is in use, by a producer that the broker will not give up for it.

        Raises:
            ValueError: If its topic has no valid name.
            TooManyStreamsError: If the connection has too many streams.
            NotAdmittedError: If there are too many for a bound of `admission`.
        """
        topic = parse_topic(command.topic)
        name = StreamName(
            "publish",
            topic.tenant,
            topic.namespace,
            topic.full,
            command.producer_id,
            producer_name=text(command.producer_name),
        )
        stream = Stream(name, (), self._publishes, self.connection)
        if not self._open(stream, topic, self._to_broker):
            return None
        self._engine.registry.answer(stream, LateAnswers(self._to_broker.exact))
        return stream

    def open_consumer(self, command: CommandSubscribe) -> Stream | None:
        """A SUBSCRIBE command went by; the same for consumers."""
        topic = parse_topic(command.topic)
        name = StreamName(
            "dispatch",
            topic.tenant,
            topic.namespace,
            topic.full,
            command.consumer_id,
            subscription=text(command.subscription),
            consumer_name=text(command.consumer_name),
        )
        stream = Stream(name, (), self._delivers, self.connection, is_accepted=True)
        stream.by_entry = self._engine.dispatch_rules.by_entry
        if not self._open(stream, topic, self._to_client):
            return None
        self._engine.registry.meter(stream, Grants(self._to_broker.outlet, command.consumer_id).grant)
        return stream

    def is_closing(self, stream: Stream) -> bool:
        """Whether the client asked to close it, and has no answer yet."""
        return stream in self._closing

    def closing(self, stream: Stream) -> None:
        """The client asked to close it; its id may be used again."""
        self._closing[stream] = None

    def close(self, stream: Stream) -> None:
        """The stream is over, and what it held is dropped; commands among it go on, as somebody awaits their answer."""
        if not stream.is_open:
            return
        self._closing.pop(stream, None)
        self._opening.pop(stream, None)
        self._admittance.close(stream)
        relay = self._relay_of(stream)
        if relay.streams.get(stream.name.stream_id) is stream:
            relay.forget(stream)
            if relay is self._to_broker:
                relay.exact.rejections.closed(stream)
        self._after_drop(stream, self._engine.registry.close(stream, self._engine.clock()))

    def drop_held(self, stream: Stream, *, ask_again: bool) -> None:
        """Forget what is held of a consumer, because the broker will deliver it again.

        What the broker said about the consumer and waits among it goes on: that is not said twice.

        Args:
            stream: The consumer.
            ask_again: The client still counts on the permits of what is dropped.
        """
        dropped = self._engine.gate.drop_held(stream, self._engine.clock())
        self._after_drop(stream, dropped)
        if stream.permits is not None:
            entries = [entry for entry in dropped if not entry.is_free]
            messages, size = sum(entry.messages for entry in entries), sum(entry.size for entry in entries)
            stream.permits.dropped(len(entries), messages, size, ask_again=ask_again)

    def leave(self, stream: Stream) -> None:
        """A consumer is about to end: the broker delivers to others what it has not got, and so nothing more comes.

        What is on its way still would come before what is dropped here.
        """
        self._forgo(stream)
        self.drop_held(stream, ask_again=False)
        stream.is_accepted = False

    def redeliver(self, stream: Stream, frame: bytes) -> None:
        """Ask the broker for all that a consumer has not acknowledged, in place of what is held of it.

        The permits of that follow behind: before, the broker would use them for what nobody wants any more.
        """
        self._to_broker.outlet.insert(frame)
        self.drop_held(stream, ask_again=True)

    def answered(self, answer: Message | None, stream: Stream) -> None:
        """The broker accepted a producer, and perhaps named it, or a consumer; or refused it.

        A consumer that asked to be closed meanwhile is let in no more.
        """
        self._opening.pop(stream, None)
        if answer is None:
            self.close(stream)
        elif stream.name.direction == "publish":
            stream.is_accepted = True
            if isinstance(answer, CommandProducerSuccess):
                self._engine.registry.name(stream, text(answer.producer_name), self._engine.clock())

    def close_answered(self, answer: Message | None, stream: Stream) -> None:
        """The broker answered a CLOSE.

        A consumer is over even if that was refused: clients give theirs up whatever the answer (C++'s, Go's and Java's
        do), and brokers refuse only where they have none to close. A producer goes on as it was.
        """
        self._closing.pop(stream, None)
        if answer is not None or stream.name.direction == "dispatch":
            self.close(stream)

    def unsubscribe_answered(self, answer: Message | None, stream: Stream) -> None:
        """The broker answered an UNSUBSCRIBE.

        It refuses while the subscription has other consumers: then this one goes on, with what is held and asked for.
        """
        if answer is not None:
            self.close(stream)

    def sought(self, answer: Message | None, stream: Stream) -> None:
        """The broker answered a SEEK: what is still held is from before, and will come again if it is wanted.

        Mostly it has closed the consumer before. If not, the client still counts on what it had asked for.
        """
        if answer is not None and stream.is_open:
            self.drop_held(stream, ask_again=not self.is_closing(stream))

    def accepted(self) -> list[Stream]:
        """Those that the broker has accepted and that are not over."""
        relays = (self._to_broker, self._to_client)
        return [stream for relay in relays for stream in relay.streams.values() if stream not in self._opening]

    def send_answered(self, command: CommandSendReceipt | CommandSendError, frame: bytes) -> bool:
        """The broker answered a SEND. Whether its answer has been passed on, because refusals may wait behind it."""
        return self._to_broker.exact.rejections.answered(command, frame)

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
        self._relay_of(stream).exact.hold_behind(stream, frame)
        return True

    def pass_on(self, frame: bytes) -> None:
        """A command that had to wait for an answer of the proxy's goes on to the broker."""
        self._to_broker.outlet.insert(frame)

    def when_decided(self, then: Callable[[], None]) -> None:
        """Call `then` when what is held of producers is held by a limit."""
        self._engine.registry.when_decided(list(self._to_broker.streams.values()), then)

    def close_all(self) -> None:
        """The session ends. No consumer wants anything any more: or one that is closed would make room for the next."""
        for consumer in self._to_client.streams.values():
            self._forgo(consumer)
        for relay in (self._to_broker, self._to_client):
            for stream in list(relay.streams.values()):
                self.close(stream)
            relay.exact.abandon()

    @staticmethod
    def _forgo(consumer: Stream) -> None:
        if consumer.permits is not None:
            consumer.permits.forgo()

    def _after_drop(self, stream: Stream, dropped: list[Entry]) -> None:
        relay = self._relay_of(stream)
        for command in dropped:
            if command.is_free:
                relay.outlet.insert(command.frame)
        relay.exact.give_back(stream, dropped)

    def _open(self, stream: Stream, topic: TopicName, relay: Relay) -> bool:
        """Register a stream. False, and no change, if its id is taken: else a client could rename what is limited."""
        before = relay.streams.get(stream.name.stream_id)
        if before is not None and before not in self._closing:
            return False
        if before is not None:
            self.close(before)
        if len(relay.streams) >= MOST_STREAMS:
            raise TooManyStreamsError(f"this connection has {MOST_STREAMS} streams, the most that one may have")
        self._admittance.open(stream, topic)
        relay.streams[stream.name.stream_id] = stream
        self._opening[stream] = None
        name, whose = stream.name, self.connection
        client = Client(name.producer_name, whose.client_role, whose.client_host, name.subscription)
        self._engine.registry.open(stream, topic, self._engine.clock(), client)
        return True

    def _relay_of(self, stream: Stream) -> Relay:
        return self._to_broker if stream.name.direction == "publish" else self._to_client
