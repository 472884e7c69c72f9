"""What the proxy does with a broker's commands; all that is not named here passes as it came."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from protocol.commands import encode, read
from protocol.errors import ProtocolError
from protocol.listing import LISTINGS, Listing
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnected,
    CommandPing,
    CommandReachedEndOfTopic,
    CommandSendError,
    CommandSendReceipt,
    CommandSuccess,
    CommandTopicMigrated,
)
from proxy.observe.counters import Counters
from proxy.sessions.requests import Requests
from proxy.sessions.streams import Streams

_OF_ANY_REQUEST = frozenset({BaseCommand.SUCCESS, BaseCommand.ERROR})
"""They answer requests that the proxy does not follow, too."""
_ANSWERS = (
    _OF_ANY_REQUEST
    | LISTINGS
    | {BaseCommand.PRODUCER_SUCCESS, BaseCommand.LOOKUP_RESPONSE, BaseCommand.PARTITIONED_METADATA_RESPONSE}
)


class ProducerAfterCloseError(ProtocolError):
    """A broker lets a producer in that nobody asked for here, or whose id cannot be told any more.

    By now the id may be asked for again, with another topic, and what it is at the broker is not known.
    """

    cause = "producer_after_close"


class BrokerEvents(Protocol):
    """What a session's traffic wants to hear of, and answers."""

    def connected(self, command: CommandConnected) -> None:
        """The handshake is over."""

    def pinged(self) -> bool:
        """The broker asks for a sign of life; True if the proxy gave it in the client's place."""


class BrokerCommands:
    """Follows what a broker answers and closes, and keeps it from leading clients around the proxy.

    Args:
        streams: The session's producers and consumers.
        requests: Where answers are awaited.
        events: Told of what concerns the connections themselves.
        counters: Told of removed addresses.
    """

    __slots__ = ("_counters", "_events", "_requests", "_streams")

    def __init__(self, streams: Streams, requests: Requests, events: BrokerEvents, counters: Counters) -> None:
        self._streams = streams
        self._requests = requests
        self._events = events
        self._counters = counters

    def handle(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """The frame that goes on to the client in place of `frame`, or None."""
        if kind in _ANSWERS:
            return self._answer(kind, command, frame)
        handler = self._HANDLERS.get(kind)
        return frame if handler is None else handler(self, read(command), frame)

    def _answer(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """An answer to one of the requests that are followed, or to another one, whose id is the client's own."""
        if kind in LISTINGS:
            return self._topics_listed(kind, command)
        answer = read(command)
        if not self._requests.is_own(answer.request_id) and kind in _OF_ANY_REQUEST:
            return frame
        if self._requests.waits_for(answer.request_id):
            return self._requests.answered(kind, answer)
        if kind == BaseCommand.PRODUCER_SUCCESS and answer.producer_ready:
            raise ProducerAfterCloseError("a producer is there whose id has been given up, or that nobody asked for")
        return None

    def _topics_listed(self, kind: int, command: bytes) -> bytes | None:
        """A listing may be megabytes: it goes on as it came, but for its request id. A SUCCESS stands for it here."""
        listing = Listing(kind, command)
        if not self._requests.waits_for(listing.request_id):
            return None
        client_id = self._requests.client_id(listing.request_id)
        self._requests.answered(kind, CommandSuccess(request_id=listing.request_id))
        return None if client_id is None else listing.with_request_id(client_id)

    def _connected(self, command: CommandConnected, frame: bytes) -> bytes:
        self._events.connected(command)
        return frame

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
        """Without the broker's address the client looks the topic up again: through the proxy."""
        if not command.assigned_broker_service_url and not command.assigned_broker_service_url_tls:
            return frame
        self._counters.lures_removed += 1
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
        """It names another cluster's brokers; the client finds the new place by looking up again, through the proxy."""
        self._counters.lures_removed += 1

    def _ping(self, _command: CommandPing, frame: bytes) -> bytes | None:
        return None if self._events.pinged() else frame

    _HANDLERS: ClassVar[dict[int, Callable[["BrokerCommands", Any, bytes], bytes | None]]] = {
        BaseCommand.CONNECTED: _connected,
        BaseCommand.CLOSE_PRODUCER: _close_producer,
        BaseCommand.CLOSE_CONSUMER: _close_consumer,
        BaseCommand.ACTIVE_CONSUMER_CHANGE: _about_consumer,
        BaseCommand.REACHED_END_OF_TOPIC: _about_consumer,
        BaseCommand.SEND_RECEIPT: _send_answered,
        BaseCommand.SEND_ERROR: _send_answered,
        BaseCommand.TOPIC_MIGRATED: _topic_migrated,
        BaseCommand.PING: _ping,
    }
