"""What the proxy does with a client's commands but for FLOW; all that is not named here passes as it came."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from google.protobuf.message import Message

from limiter.stream import Stream
from protocol.commands import body_of, decode
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    InvalidTopicName,
    TooManyRequests,
)
from proxy.admission import NotAdmittedError
from proxy.refusals import request_refused
from proxy.sessions.admittance import UndecidedError, error_of
from proxy.sessions.blocks import SessionBlocks
from proxy.sessions.lookups import SessionLookups
from proxy.sessions.requests import Requests
from proxy.sessions.streams import Streams, TooManyStreamsError


class ClientCommands:
    """Follows what a client opens, asks for and closes.

    Args:
        streams: The session's producers and consumers.
        requests: Where answers are awaited.
        blocks: What of that is blocked.
        lookups: Takes what asks for topics.
        reply: Sends a frame to the client.
    """

    __slots__ = ("_blocks", "_lookups", "_reply", "_requests", "_streams")

    def __init__(
        self,
        streams: Streams,
        requests: Requests,
        blocks: SessionBlocks,
        lookups: SessionLookups,
        reply: Callable[[bytes], None],
    ) -> None:
        self._streams = streams
        self._requests = requests
        self._blocks = blocks
        self._reply = reply
        self._lookups = lookups

    def handle(self, kind: int, command: bytes, frame: bytes) -> bytes | None:
        """The frame that goes on to the broker in place of `frame`, or None."""
        handler = self._HANDLERS.get(kind)
        if handler is None:
            return frame
        try:
            return handler(self, body_of(decode(command)), frame)
        except UndecidedError as undecided:
            undecided.again = partial(self._handle_late, kind, command, frame)
            return None

    def _handle_late(self, kind: int, command: bytes, frame: bytes) -> None:
        """What it waited for is there; by now other things may be against it, too."""
        passes = self.handle(kind, command, frame)
        if passes is not None:
            self._streams.pass_on(passes)

    def _producer(self, command: CommandProducer, frame: bytes) -> bytes | None:
        if self._blocks.refuses_producer(command):
            return None
        return self._open(self._streams.open_producer, command, frame)

    def _subscribe(self, command: CommandSubscribe, frame: bytes) -> bytes | None:
        if self._blocks.refuses_consumer(command):
            return None
        return self._open(self._streams.open_consumer, command, frame)

    def _open(self, open_stream: Callable[[Any], Stream | None], command: Any, frame: bytes) -> bytes | None:
        try:
            stream = open_stream(command)
        except ValueError as error:
            self._reply(request_refused(command.request_id, InvalidTopicName, str(error)))
            return None
        except TooManyStreamsError as error:
            self._reply(request_refused(command.request_id, TooManyRequests, str(error)))
            return None
        except NotAdmittedError as error:
            self._reply(request_refused(command.request_id, error_of(error.what), str(error)))
            return None
        answered = (
            partial(self._opened, stream, command.request_id) if stream else partial(self._again, open_stream, command)
        )
        self._requests.sent(command.request_id, answered)
        return frame

    def _opened(self, stream: Stream, request_id: int, answer: Message | None) -> bool:
        self._streams.answered(answer, stream)
        return answer is None or not self._blocks.ends_opened(stream, request_id)

    def _again(self, open_stream: Callable[[Any], Stream | None], command: Any, answer: Message | None) -> bool:
        """An id that was in use is answered: if its first owner has gone meanwhile, there is a new one.

        If whether it may come in is known later only, the client hears of it before, and is not read before.
        """
        stream = None
        try:
            with suppress(TooManyStreamsError, NotAdmittedError):
                stream = open_stream(command) if answer is not None else None
        except UndecidedError as undecided:
            undecided.again = partial(self._again, open_stream, command, answer)
        return stream is None or self._opened(stream, command.request_id, answer)

    def _when_answered(self, request_id: int, act: Callable[[Message | None, Stream], None], stream: Stream) -> None:
        def answered(answer: Message | None) -> bool:
            act(answer, stream)
            return True

        self._requests.sent(request_id, answered)

    def _close_when_answered(self, request_id: int, stream: Stream) -> None:
        self._streams.closing(stream)
        self._when_answered(request_id, self._streams.close_answered, stream)

    def _close_producer(self, command: CommandCloseProducer, frame: bytes) -> bytes | None:
        stream = self._streams.producer(command.producer_id)
        if stream is None:
            return frame
        self._close_when_answered(command.request_id, stream)
        return None if self._streams.hold_behind(stream, frame) else frame

    def _close_consumer(self, command: CommandCloseConsumer, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._streams.leave(stream)
            self._close_when_answered(command.request_id, stream)
        return frame

    def _unsubscribe(self, command: CommandUnsubscribe, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._when_answered(command.request_id, self._streams.unsubscribe_answered, stream)
        return frame

    def _seek(self, command: CommandSeek, frame: bytes) -> bytes:
        stream = self._streams.consumer(command.consumer_id)
        if stream is not None:
            self._when_answered(command.request_id, self._streams.sought, stream)
        return frame

    def _redeliver(self, command: CommandRedeliverUnacknowledgedMessages, frame: bytes) -> bytes | None:
        """Everything is asked for again: who says an epoch ignores by itself what was sent before that.

        Who says none takes what was sent before, and in order: what is held then must not be missing there. An
        acknowledgement of what the broker sent behind it would acknowledge it unseen.
        """
        stream = self._streams.consumer(command.consumer_id)
        if stream is None or command.message_ids or not command.HasField("consumer_epoch"):
            return frame
        self._streams.redeliver(stream, frame)
        return None

    def _look_up(self, command: CommandLookupTopic, frame: bytes) -> bytes | None:
        return self._lookups.asked(command, frame)

    def _count_partitions(self, command: CommandPartitionedTopicMetadata, frame: bytes) -> bytes | None:
        return self._lookups.asked_partitions(command, frame)

    def _list_topics(self, command: CommandGetTopicsOfNamespace, frame: bytes) -> bytes | None:
        return self._lookups.asked_topics(command, frame)

    # One table for all sessions: of its own it would be the largest thing that an idle one has.
    _HANDLERS: ClassVar[dict[int, Callable[["ClientCommands", Any, bytes], bytes | None]]] = {
        BaseCommand.PRODUCER: _producer,
        BaseCommand.SUBSCRIBE: _subscribe,
        BaseCommand.CLOSE_PRODUCER: _close_producer,
        BaseCommand.CLOSE_CONSUMER: _close_consumer,
        BaseCommand.UNSUBSCRIBE: _unsubscribe,
        BaseCommand.SEEK: _seek,
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: _redeliver,
        BaseCommand.LOOKUP: _look_up,
        BaseCommand.PARTITIONED_METADATA: _count_partitions,
        BaseCommand.GET_TOPICS_OF_NAMESPACE: _list_topics,
    }
