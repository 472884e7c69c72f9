"""The producers and consumers of one session, as streams with limits."""

from collections.abc import Callable
from dataclasses import replace

from google.protobuf.message import Message

from limiter.permits import Permits
from limiter.registry import meters_of
from limiter.stream import Stream, StreamName
from protocol.commands import encode, text
from protocol.pulsar_pb2 import CommandFlow, CommandProducer, CommandProducerSuccess, CommandSubscribe
from protocol.topic_name import TopicName, parse_topic
from proxy.engine import Engine
from proxy.observe.connection import Connection
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
        to_broker: The relay in which producers pass.
        to_client: The relay in which consumers pass.
    """

    def __init__(self, engine: Engine, connection: Connection, to_broker: Relay, to_client: Relay) -> None:
        self._engine = engine
        self._connection = connection
        self._to_broker = to_broker
        self._to_client = to_client

    def open_producer(self, command: CommandProducer) -> Stream:
        """A PRODUCER command went by.

        Raises:
            ValueError: If its topic has no valid name.
            TooManyStreamsError: If the connection has too many streams.
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
        return self._open(Stream(name, (), self._to_broker.release, self._connection), topic, self._to_broker)

    def open_consumer(self, command: CommandSubscribe) -> Stream:
        """A SUBSCRIBE command went by. Raises as `open_producer` does."""
        topic = parse_topic(command.topic)
        name = StreamName(
            "dispatch",
            topic.tenant,
            topic.namespace,
            topic.full,
            command.consumer_id,
            subscription=text(command.subscription),
        )
        stream = Stream(name, (), self._to_client.release, self._connection)
        self._open(stream, topic, self._to_client)
        stream.permits = Permits(meters_of(stream.chain), stream.usage, self._grant(command.consumer_id))
        return stream

    def close(self, stream: Stream) -> None:
        """The stream is over, and what it held is dropped."""
        if not stream.is_open:
            return
        relay = self._relay_of(stream)
        if relay.streams.get(stream.name.stream_id) is stream:
            del relay.streams[stream.name.stream_id]
        relay.give_back(self._engine.registry.close(stream, self._engine.clock()))

    def drop_held(self, stream: Stream, *, ask_again: bool) -> None:
        """Forget what is held of a consumer, because the broker will deliver it again.

        What the broker said about the consumer and waits among it goes on: that is not said twice.

        Args:
            stream: The consumer.
            ask_again: The client still counts on the permits of what is dropped.
        """
        messages = stream.usage.held_messages
        dropped = self._engine.gate.drop_held(stream, self._engine.clock())
        relay = self._relay_of(stream)
        for command in (entry for entry in dropped if entry.messages == 0):
            relay.outlet.insert(command.parts)
        relay.give_back(sum(entry.memory for entry in dropped))
        if stream.permits is not None:
            stream.permits.dropped(messages, ask_again=ask_again)

    def answered(self, stream: Stream, answer: Message | None) -> None:
        """The broker accepted a producer, and perhaps named it, or a consumer; or refused it."""
        if answer is None:
            self.close(stream)
        elif isinstance(answer, CommandProducerSuccess):
            stream.name = replace(stream.name, producer_name=text(answer.producer_name))

    def ended_if(self, answer: Message | None, stream: Stream) -> None:
        """The broker answered an UNSUBSCRIBE."""
        if answer is not None:
            self.close(stream)

    def sought(self, answer: Message | None, stream: Stream) -> None:
        """The broker answered a SEEK: what is still held is from before, and will come again if it is wanted."""
        if answer is not None and stream.is_open:
            self.drop_held(stream, ask_again=False)

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
        self._relay_of(stream).hold_behind(stream, frame)
        return True

    def close_all(self) -> None:
        """The session ends."""
        for relay in (self._to_broker, self._to_client):
            for stream in list(relay.streams.values()):
                self.close(stream)

    def _open(self, stream: Stream, topic: TopicName, relay: Relay) -> Stream:
        before = relay.streams.get(stream.name.stream_id)
        if before is not None:
            self.close(before)
        if len(relay.streams) >= MOST_STREAMS:
            raise TooManyStreamsError(f"this connection has {MOST_STREAMS} streams, the most that one may have")
        relay.streams[stream.name.stream_id] = stream
        self._engine.registry.open(stream, topic, self._engine.clock())
        return stream

    def _relay_of(self, stream: Stream) -> Relay:
        return self._to_broker if stream.name.direction == "publish" else self._to_client

    def _grant(self, consumer_id: int) -> Callable[[int], None]:
        outlet = self._to_broker.outlet

        def grant(permits: int) -> None:
            outlet.insert([encode(CommandFlow(consumer_id=consumer_id, message_permits=permits))])

        return grant
