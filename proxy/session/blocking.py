"""Blocks of one session: of its streams (`SessionBlocks`), or of its whole client (`BlockedClientResponder`)."""

from collections.abc import Callable, Iterator
from typing import Any

from limiter.limiter import Stream, StreamName
from protocol.commands import PONG, body_of, encode, split
from protocol.endpoint import Endpoint
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    NotAllowedError,
    ProducerFenced,
    ServerError,
)
from protocol.topic_name import TopicName
from proxy.block_rules import Rule
from proxy.blocking.blocklist import Blocklist, LookAtSessions
from proxy.brokers.dialing import through_proxy
from proxy.kicks import KickChoice, KickEffect
from proxy.refusals import RefusedError, metadata_refused, request_refused
from proxy.session.streams import Streams, close_frame

_LOOKED_AT = 20
"""Streams that are looked at in one unit of work."""


class SessionBlocks:
    """Applies the blocklist to one session's streams: refuses blocked ones before the broker has them, ends open ones.

    Both peers get a CLOSE for a stream that is ended. The client gets it as from a broker: it looks the topic up and
    opens the stream again, and gets the error there. The broker gets it as a request of the proxy's own.

    Args:
        blocklist: The rules.
        streams: The session's producers and consumers.
        reply: Sends a frame to the client.
    """

    __slots__ = ("_blocklist", "_reply", "_streams")

    def __init__(self, blocklist: Blocklist, streams: Streams, reply: Callable[[bytes], None]) -> None:
        self._blocklist = blocklist
        self._streams = streams
        self._reply = reply

    def check(self, name: StreamName, topic: TopicName, error: ServerError, *, has_schema: bool) -> None:
        """Check a stream before it is opened, and the schema in its command.

        Raises:
            RefusedError: With `error`, if a rule is against it.
        """
        if name.direction == "dispatch" or not has_schema:  # else one question with that about the schema
            self._refuse(self._blocklist.rules.of_stream(name, topic), topic, error)
        if has_schema:
            self.check_schema(topic, name.producer_name, error)

    def check_schema(self, topic: TopicName, producer_name: str, error: ServerError) -> None:
        """Check a command with a schema: a broker stores it for the persistent topic of a name and for the other one.

        Raises:
            RefusedError: With `error`, if a rule is against producing on one of the two.
        """
        rules = self._blocklist.rules
        for each in (topic, topic.in_other_domain) if rules else ():
            self._refuse(rules.of_producer(each, producer_name), topic, error)

    def of_opened(self, stream: Stream) -> Rule | None:
        """Return the rule against a stream that the broker has just accepted, and perhaps has named.

        Such a stream is ended; the caller gives its client an error in place of the broker's answer.
        """
        rule = self._blocklist.rules.of_stream(stream.name) if stream.is_open else None
        if rule is not None:
            self._note_end(stream, rule)
            self._streams.expel(stream)
        return rule

    def end_streams(self, look: LookAtSessions) -> Iterator[None]:
        """End the streams that rules block, one in each step; a step without an end looks at some.

        Streams that the broker has not accepted yet are checked when it does.
        """
        for stream in self._streams.present():
            may_be_meant = self._is_accepted(stream) and self._blocklist.rules.may_mean(stream.name)
            rule = self._blocklist.rules.of_stream(stream.name) if may_be_meant else None
            if rule is not None:
                self._note_end(stream, rule)
                self._expel(stream)
            if look.is_unit_over(is_dear=may_be_meant):
                yield

    def kick(self, kick: KickChoice, effect: KickEffect) -> Iterator[None]:
        """End the streams that an operator kicks, one in each step; they may be opened again at once.

        A dry one only counts them.
        """
        for stream in self._chosen(kick.means_stream):
            if stream is not None:
                effect.streams += 1
                if not kick.is_dry:
                    self._expel(stream)
            yield

    def _chosen(self, means: Callable[[StreamName], bool]) -> Iterator[Stream | None]:
        """Yield the open streams that are meant, and None after each few others: there may be thousands."""
        for number, stream in enumerate(self._streams.present(), 1):
            if self._is_accepted(stream) and means(stream.name):
                yield stream
            elif number % _LOOKED_AT == 0:
                yield None

    def _is_accepted(self, stream: Stream) -> bool:
        return stream.is_open and not self._streams.is_opening(stream)

    def _expel(self, stream: Stream) -> None:
        """End an open stream at the broker and at the client."""
        was_closing = self._streams.is_closing(stream)
        self._streams.expel(stream)
        if not was_closing:  # else the client hears of its end already
            self._reply(close_frame(stream.name))

    def _refuse(self, rule: Rule | None, topic: TopicName, error: ServerError) -> None:
        if rule is not None:
            self._blocklist.refused(rule)
            self._streams.refusals.note(self._streams.connection, "blocked", topic.full, str(rule))
            raise RefusedError(error, str(rule))

    def _note_end(self, stream: Stream, rule: Rule) -> None:
        name = stream.name
        self._blocklist.ended(
            rule, self._streams.connection, direction=name.direction, topic=name.topic, stream=name.stream_id
        )


MOST_AT_ONCE = 256
"""Requests that are answered in one turn of the loop, as `protocol.scanner.MOST_PIECES` of other clients."""
_LARGEST_FRAME = 64 * 1024
"""Most bytes of a frame: a blocked client has only requests to send, which are small."""
_NOWHERE = Endpoint("pulsar", "blocked.invalid", 6650)
"""The broker in answers to lookups of a blocked client. It is dialled only if the client is unblocked at this very
moment. Then the allow-list refuses it, and the client looks the topic up again."""


class BlockedClientResponder:
    """Answers one blocked client in the place of a broker: it may connect, and all its requests are refused at once.

    An ERROR in answer to CONNECT would be shorter. But C++ and Python clients take it, whatever its code, for a broken
    connection: they connect again until their operation times out, and do not report the reason. An error in answer to
    a request ends their operation at once, and so it does Java's. Lookups lead back here: so a client sends PRODUCER
    for a producer that was open before, which can be ended for good.

    Args:
        connect: Its CONNECT frame.
        is_tls: Whether it reaches the proxy by TLS.
        rule: Returns the rule that blocks it; None once it is unblocked.
        reply: Sends a frame to it.
        leave: Ends the connection: an unblocked client comes again by itself, and is let in.
    """

    def __init__(
        self,
        connect: bytes,
        rule: Callable[[], Rule | None],
        reply: Callable[[bytes], None],
        leave: Callable[[], None],
        *,
        is_tls: bool,
    ) -> None:
        self._is_tls = is_tls
        self._rule = rule
        self._reply = reply
        self._leave = leave
        self._cutter = FrameCutter(_LARGEST_FRAME)
        version = body_of(split(connect)[0]).protocol_version
        reply(encode(CommandConnected(server_version="Sluice", protocol_version=version)))

    def feed(self, chunk: bytes) -> bool:
        """Answer the requests in the bytes read; return whether more are left, which wait for another turn of the loop.

        Raises:
            ProtocolError: If the client broke the protocol.
        """
        for answered, frame in enumerate(self._cutter.feed(chunk), 1):
            rule = self._rule()
            if rule is None:
                self._leave()
                return False
            self._answer(frame, rule)
            if answered == MOST_AT_ONCE:
                return True
        return False

    def _answer(self, frame: bytes, rule: Rule) -> None:
        envelope, _ = split(frame)
        if envelope.type == BaseCommand.PING:
            self._reply(PONG)
            return
        answer = _refusal(body_of(envelope), str(rule), is_tls=self._is_tls)
        if answer is not None:
            self._reply(answer)


def reopening_error(command: CommandProducer) -> Any:
    """Return the error for a PRODUCER: a client reopens its old one for ever after any but ProducerFenced."""
    return ProducerFenced if command.epoch else NotAllowedError


def _refusal(command: Any, message: str, *, is_tls: bool) -> bytes | None:
    if isinstance(command, CommandLookupTopic):
        answer = CommandLookupTopicResponse(response=CommandLookupTopicResponse.Connect, request_id=command.request_id)
        return encode(through_proxy(answer, _NOWHERE, is_tls=is_tls))
    if isinstance(command, CommandPartitionedTopicMetadata):
        return metadata_refused(command.request_id, NotAllowedError, message)
    if isinstance(command, CommandProducer):
        return request_refused(command.request_id, reopening_error(command), message)
    if "request_id" in command.DESCRIPTOR.fields_by_name:
        return request_refused(command.request_id, NotAllowedError, message)
    return None
