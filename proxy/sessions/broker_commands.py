"""What the proxy does with a broker's commands; all that is not named here passes as it came."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from protocol.commands import body_of, decode, encode
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnected,
    CommandError,
    CommandLookupTopicResponse,
    CommandPing,
    CommandProducerSuccess,
    CommandReachedEndOfTopic,
    CommandSendError,
    CommandSendReceipt,
    CommandSuccess,
    CommandTopicMigrated,
)
from proxy.observe.counters import Counters
from proxy.sessions.requests import Requests
from proxy.sessions.streams import Streams


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
        looked_up: Takes the answer to a LOOKUP; the frame that goes on to the client, or None.
        events: Told of what concerns the connections themselves.
        counters: Told of removed addresses.
    """

    __slots__ = ("_counters", "_events", "_looked_up", "_requests", "_streams")

    def __init__(
        self,
        streams: Streams,
        requests: Requests,
        looked_up: Callable[[CommandLookupTopicResponse, bytes], bytes | None],
        events: BrokerEvents,
        counters: Counters,
    ) -> None:
        self._streams = streams
        self._requests = requests
        self._events = events
        self._counters = counters
        self._looked_up = looked_up

    def handle(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """The frame that goes on to the client in place of `frame`, or None."""
        handler = self._HANDLERS.get(kind)
        return frame if handler is None else handler(self, body_of(decode(command)), frame)

    def _connected(self, command: CommandConnected, frame: bytes) -> bytes:
        self._events.connected(command)
        return frame

    def _producer_success(self, command: CommandProducerSuccess, frame: bytes) -> bytes | None:
        if not command.producer_ready:  # it waits for exclusive access, and a second answer will come
            return frame
        return frame if self._requests.done(command.request_id, command) else None

    def _success(self, command: CommandSuccess, frame: bytes) -> bytes | None:
        return frame if self._requests.done(command.request_id, command) else None

    def _error(self, command: CommandError, frame: bytes) -> bytes | None:
        return frame if self._requests.done(command.request_id, None) else None

    def _send_answered(self, command: CommandSendReceipt | CommandSendError, frame: bytes) -> bytes | None:
        return None if self._streams.send_answered(command, frame) else frame

    def _close_producer(self, command: CommandCloseProducer, frame: bytes) -> bytes:
        stream = self._streams.producer(command.producer_id)
        if stream is not None:
            self._streams.close(stream)
        return self._without_address(command, frame)

    def _close_consumer(self, command: CommandCloseConsumer, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._streams.close(stream)
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

    def _lookup_response(self, command: CommandLookupTopicResponse, frame: bytes) -> bytes | None:
        return self._looked_up(command, frame)

    _HANDLERS: ClassVar[dict[int, Callable[["BrokerCommands", Any, bytes], bytes | None]]] = {
        BaseCommand.CONNECTED: _connected,
        BaseCommand.PRODUCER_SUCCESS: _producer_success,
        BaseCommand.SUCCESS: _success,
        BaseCommand.ERROR: _error,
        BaseCommand.LOOKUP_RESPONSE: _lookup_response,
        BaseCommand.CLOSE_PRODUCER: _close_producer,
        BaseCommand.CLOSE_CONSUMER: _close_consumer,
        BaseCommand.ACTIVE_CONSUMER_CHANGE: _about_consumer,
        BaseCommand.REACHED_END_OF_TOPIC: _about_consumer,
        BaseCommand.SEND_RECEIPT: _send_answered,
        BaseCommand.SEND_ERROR: _send_answered,
        BaseCommand.TOPIC_MIGRATED: _topic_migrated,
        BaseCommand.PING: _ping,
    }
