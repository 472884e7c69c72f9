"""What the proxy does with a client's commands; all that is not named here passes as it came."""

from collections.abc import Callable
from typing import Any

from limiter.stream import Stream
from protocol.commands import body_of, decode, encode
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandError,
    CommandFlow,
    CommandLookupTopic,
    CommandProducer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    InvalidTopicName,
    TooManyRequests,
)
from proxy.sessions.requests import Requests
from proxy.sessions.streams import Streams, TooManyStreamsError


class ClientCommands:
    """Follows what a client opens, asks for and closes.

    Args:
        streams: The session's producers and consumers.
        requests: Where answers are awaited.
        look_up: Takes a LOOKUP; the frame that goes on, or None.
        reply: Sends a frame to the client.
    """

    def __init__(
        self,
        streams: Streams,
        requests: Requests,
        look_up: Callable[[CommandLookupTopic, bytes], bytes | None],
        reply: Callable[[bytes], None],
    ) -> None:
        self._streams = streams
        self._requests = requests
        self._look_up = look_up
        self._reply = reply
        self._handlers: dict[int, Callable[[Any, bytes], bytes | None]] = {
            BaseCommand.PRODUCER: self._producer,
            BaseCommand.SUBSCRIBE: self._subscribe,
            BaseCommand.FLOW: self._flow,
            BaseCommand.CLOSE_PRODUCER: self._close_producer,
            BaseCommand.CLOSE_CONSUMER: self._close_consumer,
            BaseCommand.UNSUBSCRIBE: self._unsubscribe,
            BaseCommand.SEEK: self._seek,
            BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: self._redeliver,
            BaseCommand.LOOKUP: self._look_up,
        }

    def handle(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """The frame that goes on to the broker in place of `frame`, or None."""
        handler = self._handlers.get(kind)
        return frame if handler is None else handler(body_of(decode(command)), frame)

    def _producer(self, command: CommandProducer, frame: bytes) -> bytes | None:
        return self._open(self._streams.open_producer, command, frame)

    def _subscribe(self, command: CommandSubscribe, frame: bytes) -> bytes | None:
        return self._open(self._streams.open_consumer, command, frame)

    def _open(self, open_stream: Callable[[Any], Stream | None], command: Any, frame: bytes) -> bytes | None:
        try:
            stream = open_stream(command)
        except ValueError as error:
            self._reply(_error(command.request_id, InvalidTopicName, str(error)))
            return None
        except TooManyStreamsError as error:
            self._reply(_error(command.request_id, TooManyRequests, str(error)))
            return None
        if stream is not None:
            self._requests.sent(command.request_id, lambda answer: self._streams.answered(stream, answer))
        return frame

    def _close_when_answered(self, request_id: int, stream: Stream) -> None:
        self._streams.closing(stream)
        self._requests.sent(request_id, lambda answer: self._streams.ended_if(answer, stream))

    def _flow(self, command: CommandFlow, frame: bytes) -> bytes | None:
        stream = self._streams.consumer(command.consumer_id)
        if stream is None or stream.permits is None:
            return frame
        if stream.permits.is_metered:
            stream.permits.ask(command.message_permits)
            return None
        stream.permits.pass_through(command.message_permits)
        return frame

    def _close_producer(self, command: CommandCloseProducer, frame: bytes) -> bytes | None:
        stream = self._streams.producer(command.producer_id)
        if stream is None:
            return frame
        self._close_when_answered(command.request_id, stream)
        return None if self._streams.hold_behind(stream, frame) else frame

    def _close_consumer(self, command: CommandCloseConsumer, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            if stream.permits is not None:
                stream.permits.forgo()
            self._streams.drop_held(stream, ask_again=False)
            self._close_when_answered(command.request_id, stream)
        return frame

    def _unsubscribe(self, command: CommandUnsubscribe, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._requests.sent(command.request_id, lambda answer: self._streams.ended_if(answer, stream))
        return frame

    def _seek(self, command: CommandSeek, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._requests.sent(command.request_id, lambda answer: self._streams.sought(answer, stream))
        return frame

    def _redeliver(self, command: CommandRedeliverUnacknowledgedMessages, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None and not command.message_ids:
            self._streams.drop_held(stream, ask_again=True)
        return frame


def _error(request_id: int, error: int, message: str) -> bytes:
    return encode(
        CommandError(
            request_id=request_id,
            error=error,  # type: ignore[arg-type]  # enum values are plain ints at run time
            message=message,
        )
    )
