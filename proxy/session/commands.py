"""Translation of commands: which of a client's go on to the broker, which of a broker's to the client, and how changed.

Commands that are not named here pass as they came. The data path handles FLOW (`data_path.py`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast

from google.protobuf.message import Message

from limiter.limiter import Stream
from protocol.commands import LONG_ANSWERS, PONG, LongAnswer, encode, read, read_known
from protocol.frames import MOST_COMMAND as LARGEST_READ
from protocol.frames import FrameTooLarge, ProtocolError
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandActiveConsumerChange,
    CommandAuthChallenge,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnected,
    CommandError,
    CommandGetOrCreateSchema,
    CommandLookupTopic,
    CommandPing,
    CommandProducer,
    CommandProducerSuccess,
    CommandReachedEndOfTopic,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSendError,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    CommandTopicMigrated,
    CommandUnsubscribe,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    NotAllowedError,
    ServerError,
    ServiceNotReady,
)
from protocol.walk import read_command, schema_data_in
from proxy.counters import Counters
from proxy.fleet_topics import WHY
from proxy.refusals import (
    RefusedError,
    lookup_refused,
    metadata_refused,
    request_refused,
    schema_not_created,
    schema_refused,
)
from proxy.session.blocking import SessionBlocks, reopening_error
from proxy.session.data_path import FrameWriter
from proxy.session.handshake import longest_frame, offers_more
from proxy.session.identity import SessionIdentity
from proxy.session.lookups import SessionLookups, TopicQuestion
from proxy.session.responses import Requests
from proxy.session.streams import Streams, topic_named
from proxy.session.transport import PeerTransport

_REFUSED: dict[int, Callable[[int, ServerError, str], bytes]] = {
    BaseCommand.LOOKUP: lookup_refused,
    BaseCommand.PARTITIONED_METADATA: metadata_refused,
    BaseCommand.GET_SCHEMA: schema_refused,
    BaseCommand.GET_OR_CREATE_SCHEMA: schema_not_created,
}
"""The functions that make the error response to a request, by its type. All other requests get an ERROR."""
_SCHEMAS: dict[int, tuple[int, int]] = {
    BaseCommand.PRODUCER: (BaseCommand.PRODUCER_FIELD_NUMBER << 3 | 2, CommandProducer.SCHEMA_FIELD_NUMBER << 3 | 2),
    BaseCommand.SUBSCRIBE: (BaseCommand.SUBSCRIBE_FIELD_NUMBER << 3 | 2, CommandSubscribe.SCHEMA_FIELD_NUMBER << 3 | 2),
    BaseCommand.GET_OR_CREATE_SCHEMA: (
        BaseCommand.GET_OR_CREATE_SCHEMA_FIELD_NUMBER << 3 | 2,
        CommandGetOrCreateSchema.SCHEMA_FIELD_NUMBER << 3 | 2,
    ),
}
"""Commands with a schema, whose own data may be longer (`protocol.frames.MOST_COMMAND`): tags of both."""
BETWEEN_BROKERS = frozenset({BaseCommand.END_TXN_ON_PARTITION, BaseCommand.END_TXN_ON_SUBSCRIPTION})
"""Types of the commands that a transaction's coordinator sends to other brokers. A broker without authorization takes
them from any client, and for each writes a marker into the topic: an entry that no limit was charged and no block has
stopped.

Source: org.apache.pulsar.broker.service.ServerCnx.handleEndTxnOnPartition"""
NOT_OFFERED = frozenset(range(BaseCommand.SCALABLE_TOPIC_LOOKUP, BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE + 1))
"""Types of the commands for scalable topics and for the discovery of transaction coordinators, of Pulsar 5. Answers to
them name brokers' own addresses, and Sluice does not know their consumers. A CONNECTED goes on without the flags that
offer them, so clients do without.

Source: CommandScalableTopicLookup, CommandWatchTcAssignments of PulsarApi.proto 5.0.0-M1"""
_OF_TRANSACTIONS = frozenset({BaseCommand.ADD_PARTITION_TO_TXN, BaseCommand.ADD_SUBSCRIPTION_TO_TXN})
"""Types of the commands that name topics of a transaction; at its end the broker writes a marker into each."""
TRANSACTION_REQUESTS = _OF_TRANSACTIONS | {
    BaseCommand.NEW_TXN,
    BaseCommand.END_TXN,
    BaseCommand.TC_CLIENT_CONNECT_REQUEST,
}
"""Types of the requests to a transaction's coordinator. They must not be repeated: END_TXN fails the second time."""
TRANSACTION_ANSWERS = frozenset(
    {
        BaseCommand.NEW_TXN_RESPONSE,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        BaseCommand.END_TXN_RESPONSE,
        BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
    }
)
_LOOKED_AT = BETWEEN_BROKERS | NOT_OFFERED | TRANSACTION_REQUESTS | {BaseCommand.CONNECT, BaseCommand.AUTH_RESPONSE}
"""Types that are not read and do not simply pass. The last two carry the client's credentials."""
MOST_READ = 64 * 1024
"""Most bytes of a command that is read, without its schema: names, and the words of a proxy in front on its client."""
_UNSIGNED = 2**64 - 1
_MOST_ABOUT_ALL = 64
"""Most bytes of a REDELIVER for everything: two numbers. A longer one names messages, and may have any length."""


class BrokersCommandError(ProtocolError):
    """A client sends a command that only brokers send to each other."""

    cause = "brokers_command"


class FleetTopicError(ProtocolError):
    """A client adds a topic of a fleet to its transaction; no client may use these topics."""

    cause = "fleet_topic"


class NotOfferedError(ProtocolError):
    """A client uses a feature that its CONNECTED did not offer."""

    cause = "not_offered"


class SecondConnectError(ProtocolError):
    """A client sends a second CONNECT: the broker would take its credentials for Sluice's."""

    cause = "second_connect"


class ClientCommands:
    """Follows what a client opens, asks for and closes.

    Args:
        streams: The session's producers and consumers.
        requests: Where answers are awaited.
        blocks: The blocking rules for this session's streams.
        lookups: Handles lookups and other questions about topics.
        reply: Sends a frame to the client.
        counters: Count commands with fields that are left out.
        identity: The client's identity; None where brokers verify it.
    """

    __slots__ = ("_blocks", "_counters", "_identity", "_lookups", "_reply", "_requests", "_streams")

    def __init__(
        self,
        streams: Streams,
        requests: Requests,
        blocks: SessionBlocks,
        lookups: SessionLookups,
        reply: Callable[[bytes], None],
        counters: Counters,
        identity: SessionIdentity | None = None,
    ) -> None:
        self._counters = counters
        self._identity = identity
        self._streams = streams
        self._requests = requests
        self._blocks = blocks
        self._reply = reply
        self._lookups = lookups

    def handle(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """Return the frame that goes on to the broker in place of `frame`, or None.

        Raises:
            FrameTooLarge: If it has more bytes than any client needs; to read them takes time.
            BrokersCommandError: If it is a broker's to another one.
            FleetTopicError: If it names a topic of a fleet in a transaction.
            NotOfferedError: If Sluice keeps its client from being offered it.
            SecondConnectError: If it is CONNECT, where Sluice verifies clients.
            UnaskedAuthError: If it is an AUTH_RESPONSE that Sluice has not asked for.
        """
        if kind not in self._HANDLERS:
            return frame if kind not in _LOOKED_AT else self._look_at(kind, command, frame)
        if len(command) > _MOST_ABOUT_ALL and kind == BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            self._note_redelivery(command)
            return frame
        if len(command) > MOST_READ and _size_without_schema_data(kind, command) > MOST_READ:
            raise FrameTooLarge(len(command), MOST_READ)
        body, differs = read_known(command)  # a newer broker might read the others otherwise: protocol/walk.py
        if differs:
            self._counters.fields_left_out += 1
        return self._handle(kind, body)

    def _look_at(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """Refuse or keep a command that must not reach a broker."""
        name = BaseCommand.Type.Name(cast("BaseCommand.Type", kind))
        if kind in BETWEEN_BROKERS:
            raise BrokersCommandError(f"a client sent {name}, which only brokers send to each other")
        if kind in NOT_OFFERED:
            raise NotOfferedError(f"a client sent {name}, which its CONNECTED did not offer")
        if kind in TRANSACTION_REQUESTS:
            if kind in _OF_TRANSACTIONS and self._lookups.names_fleet(command):
                raise FleetTopicError(f"a client sent {name} with a topic that {WHY}")
            self._requests.of_transactions += 1
            return frame
        if self._identity is None:
            return frame
        if kind == BaseCommand.CONNECT:
            raise SecondConnectError("a client sent a second CONNECT")
        self._identity.answered(read(command))
        return None

    def _note_redelivery(self, command: bytes) -> None:
        """Note a redelivery of named messages, where limits spare consumers without a backlog; only its id is read."""
        if self._streams.tells_backlogs_apart:
            _, consumer_id, _ = read_command(command, 0, len(command), BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
            stream = self._streams.consumer(consumer_id & _UNSIGNED)
            if stream is not None:
                self._streams.rewound(stream)

    def _handle(self, kind: int, command: Any) -> bytes | None:
        try:
            return self._HANDLERS[kind](self, command)
        except RefusedError as refused:
            refusal_of = _REFUSED.get(kind, request_refused)
            self._reply(refusal_of(command.request_id, refused.error, str(refused)))
        return None

    def _producer(self, command: CommandProducer) -> bytes:
        return self._open(command, reopening_error(command))

    def _subscribe(self, command: CommandSubscribe) -> bytes:
        return self._open(command, NotAllowedError)

    def _open(self, command: CommandProducer | CommandSubscribe, if_blocked: ServerError) -> bytes:
        name, topic = self._streams.name_of(command)
        self._streams.check(topic)
        self._blocks.check(name, topic, if_blocked, has_schema=command.HasField("schema"))
        opened = self._streams.opened_before(name)
        if opened is not None:
            return self._open_again(command, opened)
        client_id, stream = command.request_id, self._streams.open(name, topic)
        try:
            frame = self._requests.forward(command, partial(self._opened, stream))
        except RefusedError:
            self._streams.close(stream)
            raise
        self._streams.asked(stream, self._requests.last_id, client_id)
        return frame

    def _open_again(self, command: CommandProducer | CommandSubscribe, stream: Stream) -> bytes:
        """Ask for an open stream once more.

        The broker may have closed the stream by now, and may open another one. So the command has the stream's name:
        the broker must not choose another one, which Sluice would learn too late.
        """
        client_id = command.request_id
        if isinstance(command, CommandProducer) and not command.producer_name:
            command.producer_name, command.user_provided_producer_name = stream.name.producer_name, False
        frame = self._requests.forward(command, self._when_answered(self._streams.answered_again, stream))
        self._streams.asked_again(stream, self._requests.last_id, client_id)
        return frame

    def _opened(self, stream: Stream, answer: Message) -> Message:
        if isinstance(answer, CommandProducerSuccess) and not answer.producer_ready:
            self._streams.waits(stream)
            return answer
        self._streams.answered(answer, stream)
        if isinstance(answer, CommandError):
            return answer
        rule = self._blocks.of_opened(stream)
        return answer if rule is None else CommandError(request_id=0, error=NotAllowedError, message=str(rule))

    def _when_answered(
        self, act: Callable[[Any, Stream], None], stream: Stream | None
    ) -> Callable[[Message], Message | None]:
        """Return a handler that passes the answer on to the client, and calls `act` with it if there is a stream."""

        def answered(answer: Message) -> Message:
            if stream is not None:
                act(answer, stream)
            return answer

        return answered

    def _close_producer(self, command: CommandCloseProducer) -> bytes | None:
        stream = self._streams.producer(command.producer_id)
        frame = self._close(command, stream)
        return None if stream is not None and self._streams.hold_behind(stream, frame) else frame

    def _close_consumer(self, command: CommandCloseConsumer) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._streams.leave(stream)
        return self._close(command, stream)

    def _close(self, command: CommandCloseProducer | CommandCloseConsumer, stream: Stream | None) -> bytes:
        act = self._when_answered(self._streams.close_answered, stream)
        if stream is None:
            return self._requests.forward(command, act)
        if self._streams.is_closing(stream):
            raise RefusedError(ServiceNotReady, "this producer or consumer is already being closed")
        self._streams.closing(stream)
        return self._requests.forward_close(command, act)

    def _unsubscribe(self, command: CommandUnsubscribe) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        return self._requests.forward(command, self._when_answered(self._streams.unsubscribe_answered, stream))

    def _seek(self, command: CommandSeek) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._streams.rewound(stream)
        return self._requests.forward(command, self._when_answered(self._streams.sought, stream))

    def _redeliver(self, command: CommandRedeliverUnacknowledgedMessages) -> bytes | None:
        """Handle a consumer's request for everything once more.

        Clients that send a consumer epoch discard older messages themselves, so held entries may be dropped. Clients
        without one accept them in order, so none may be missing: a cumulative acknowledgement of a later message would
        acknowledge the missing ones unseen.
        """
        stream, frame = self._streams.consumer(command.consumer_id), encode(command)
        if stream is not None:
            self._streams.rewound(stream)
        if stream is None or command.message_ids or not command.HasField("consumer_epoch"):
            return frame
        return None if self._streams.redeliver(stream, frame) else frame

    def _look_up(self, command: CommandLookupTopic) -> bytes:
        return self._lookups.asked(command)

    def _ask_about(self, command: TopicQuestion) -> bytes:
        return self._lookups.asked_about(command)

    def _create_schema(self, command: CommandGetOrCreateSchema) -> bytes:
        self._blocks.check_schema(topic_named(command.topic), command.producer_name, NotAllowedError)
        return self._lookups.asked_about(command)

    def _watch(self, command: CommandWatchTopicList) -> bytes:
        return self._lookups.watched(command)

    def _close_watcher(self, command: CommandWatchTopicListClose) -> bytes:
        return self._lookups.watcher_closed(command)

    # One table for all sessions: of its own it would be the largest thing that an idle one has.
    _HANDLERS: ClassVar[dict[int, Callable[["ClientCommands", Any], bytes | None]]] = {
        BaseCommand.PRODUCER: _producer,
        BaseCommand.SUBSCRIBE: _subscribe,
        BaseCommand.CLOSE_PRODUCER: _close_producer,
        BaseCommand.CLOSE_CONSUMER: _close_consumer,
        BaseCommand.UNSUBSCRIBE: _unsubscribe,
        BaseCommand.SEEK: _seek,
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: _redeliver,
        BaseCommand.LOOKUP: _look_up,
        BaseCommand.PARTITIONED_METADATA: _ask_about,
        BaseCommand.GET_TOPICS_OF_NAMESPACE: _ask_about,
        BaseCommand.GET_SCHEMA: _ask_about,
        BaseCommand.GET_OR_CREATE_SCHEMA: _create_schema,
        BaseCommand.WATCH_TOPIC_LIST: _watch,
        BaseCommand.WATCH_TOPIC_LIST_CLOSE: _close_watcher,
    }


def _size_without_schema_data(kind: int, command: bytes) -> int:
    if kind not in _SCHEMAS or len(command) > LARGEST_READ:
        return len(command)
    return len(command) - schema_data_in(command, 0, len(command), *_SCHEMAS[kind], MOST_READ)


_OF_ANY_REQUEST = frozenset({BaseCommand.SUCCESS, BaseCommand.ERROR})
"""Types that also answer requests which the proxy does not follow."""
_ANSWERS = (
    _OF_ANY_REQUEST
    | LONG_ANSWERS
    | {BaseCommand.PRODUCER_SUCCESS, BaseCommand.LOOKUP_RESPONSE, BaseCommand.PARTITIONED_METADATA_RESPONSE}
)


class ProducerAfterCloseError(ProtocolError):
    """A broker accepts a producer that no client asked for, or whose request is forgotten (`GivenUp`).

    The client may have used the id again, with another topic. So the producer that the broker has is not known.
    """

    cause = "producer_after_close"


class BrokerCommands:
    """Follows what a broker answers and closes, and keeps it from leading clients around the proxy.

    Args:
        streams: The session's producers and consumers.
        requests: Where answers are awaited.
        client: The client, for which a PING is answered while it is not read.
        to_broker: Where that answer goes.
        greeted: Told of the longest frame that a CONNECTED says; 0 if it says none.
        counters: Told of removed addresses.
        identity: The client's identity; None where brokers verify it.
    """

    __slots__ = ("_client", "_counters", "_greeted", "_identity", "_requests", "_streams", "_to_broker")

    def __init__(
        self,
        streams: Streams,
        requests: Requests,
        client: PeerTransport,
        to_broker: FrameWriter,
        greeted: Callable[[int], None],
        counters: Counters,
        identity: SessionIdentity | None = None,
    ) -> None:
        self._identity = identity
        self._streams = streams
        self._requests = requests
        self._greeted = greeted
        self._client = client
        self._to_broker = to_broker
        self._counters = counters

    def handle(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """Return the frame that goes on to the client in place of `frame`, or None."""
        if kind in _ANSWERS:
            return self._answer(kind, command, frame)
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            return handler(self, read(command), frame)
        if kind in TRANSACTION_ANSWERS:
            self._requests.of_transactions = max(0, self._requests.of_transactions - 1)
        return frame

    def _answer(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """An answer to one of the requests that are followed, or to another one, whose id is the client's own."""
        if kind in LONG_ANSWERS:
            return self._answered_at_length(kind, command)
        answer = read(command)
        if not self._requests.is_own(answer.request_id) and kind in _OF_ANY_REQUEST:
            return frame
        if self._requests.waits_for(answer.request_id):
            return self._requests.answered(kind, answer)
        if kind == BaseCommand.PRODUCER_SUCCESS and answer.producer_ready:
            raise ProducerAfterCloseError("the broker opened a producer for no pending request")
        return None

    def _answered_at_length(self, kind: int, command: bytes) -> bytes | None:
        """Pass on an answer of perhaps megabytes with the client's request id; handlers get a SUCCESS in its place."""
        answer = LongAnswer(kind, command)
        if not self._requests.waits_for(answer.request_id):
            return None
        client_id = self._requests.client_id(answer.request_id)
        self._requests.answered(kind, CommandSuccess(request_id=answer.request_id))
        return None if client_id is None else answer.with_request_id(client_id)

    def _connected(self, command: CommandConnected, frame: bytes) -> bytes:
        self._greeted(longest_frame(command))
        if not offers_more(command):
            return frame
        self._counters.broker_urls_stripped += 1
        command.feature_flags.ClearField("supports_scalable_topics")
        command.feature_flags.ClearField("supports_tc_metadata_discovery")
        return encode(command)

    def _auth_challenge(self, command: CommandAuthChallenge, frame: bytes) -> bytes | None:
        """Answer a challenge, if Sluice has shown the broker credentials of its own; else pass it to the client."""
        if self._identity is None:
            return frame
        self._identity.challenged(command)
        return None

    def _send_answered(self, command: CommandSendReceipt | CommandSendError, frame: bytes) -> bytes | None:
        return None if self._streams.send_answered(command, frame) else frame

    def _close_producer(self, command: CommandCloseProducer, frame: bytes) -> bytes:
        stream = self._streams.producer(command.producer_id)
        if stream is not None:
            self._streams.closed_by_broker(stream)
        return self._without_address(command, frame)

    def _close_consumer(self, command: CommandCloseConsumer, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._streams.closed_by_broker(stream)
        return self._without_address(command, frame)

    def _without_address(self, command: CommandCloseProducer | CommandCloseConsumer, frame: bytes) -> bytes:
        """Strip the broker's address from a CLOSE. Without it the client looks the topic up again, by the proxy."""
        if not command.assigned_broker_service_url and not command.assigned_broker_service_url_tls:
            return frame
        self._counters.broker_urls_stripped += 1
        command.ClearField("assigned_broker_service_url")
        command.ClearField("assigned_broker_service_url_tls")
        return encode(command)

    def _about_consumer(
        self, command: CommandActiveConsumerChange | CommandReachedEndOfTopic, frame: bytes
    ) -> bytes | None:
        stream = self._streams.consumer(command.consumer_id)
        if stream is None or not self._streams.hold_behind(stream, frame):
            return frame
        return None

    def _topic_migrated(self, _command: CommandTopicMigrated, _frame: bytes) -> None:
        """Drop the command: it names another cluster's brokers. A new lookup leads the client there, by the proxy."""
        self._counters.broker_urls_stripped += 1

    def _ping(self, _command: CommandPing, frame: bytes) -> bytes | None:
        """Answer the broker's PING for a client that is not read: a broker waits 5 s only.

        While an answer waits for the end of an unfinished frame, further PINGs need none.
        """
        if not self._client.is_throttled():
            return frame
        if not self._to_broker.waiting:
            self._counters.keep_alives += 1
            self._to_broker.insert(PONG)
        return None

    _HANDLERS: ClassVar[dict[int, Callable[["BrokerCommands", Any, bytes], bytes | None]]] = {
        BaseCommand.CONNECTED: _connected,
        BaseCommand.AUTH_CHALLENGE: _auth_challenge,
        BaseCommand.CLOSE_PRODUCER: _close_producer,
        BaseCommand.CLOSE_CONSUMER: _close_consumer,
        BaseCommand.ACTIVE_CONSUMER_CHANGE: _about_consumer,
        BaseCommand.REACHED_END_OF_TOPIC: _about_consumer,
        BaseCommand.SEND_RECEIPT: _send_answered,
        BaseCommand.SEND_ERROR: _send_answered,
        BaseCommand.TOPIC_MIGRATED: _topic_migrated,
        BaseCommand.PING: _ping,
    }
