"""A blocked client: it may connect, and whatever it asks for is refused at once, with the reason.

An ERROR in answer to CONNECT would be shorter. But C++ and Python clients take that, whatever its code, for a broken
connection: they connect again and again until their operation times out, and nobody reads the reason. An error in
answer to a request ends their operation there and then, and Java's too. Lookups lead back here: so a producer that was
open before asks for PRODUCER, and can be ended for good.
"""

from collections.abc import Callable
from typing import Any

from protocol.commands import body_of, encode, split
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPong,
    CommandProducer,
    NotAllowedError,
    ProducerFenced,
)
from proxy.blocking.rules import Rule
from proxy.brokers.lookup import through_proxy
from proxy.refusals import metadata_refused, request_refused

MOST_AT_ONCE = 256
"""Requests that are answered in one turn of the loop, as `protocol.scanner.MOST_PIECES` of other clients."""
_LARGEST_FRAME = 64 * 1024
"""Requests are small, and of this client nothing else is awaited."""
_NOWHERE = "pulsar://blocked.invalid:6650"
"""Where lookups lead: no broker is ever asked for it, unless the client is unblocked at this very moment; then the
allow-list refuses it, and the client looks the topic up again."""
_PONG = encode(CommandPong())


class TurnedAway:
    """Answers one blocked client in the place of a broker.

    Args:
        connect: Its CONNECT frame.
        rule: Gives what blocks it; None once it is unblocked.
        reply: Sends a frame to it.
        leave: Ends the connection: an unblocked client comes again by itself, and is let in.
    """

    def __init__(
        self, connect: bytes, rule: Callable[[], Rule | None], reply: Callable[[bytes], None], leave: Callable[[], None]
    ) -> None:
        self._rule = rule
        self._reply = reply
        self._leave = leave
        self._cutter = FrameCutter(_LARGEST_FRAME)
        version = body_of(split(connect)[0]).protocol_version
        reply(encode(CommandConnected(server_version="Sluice", protocol_version=version)))

    def feed(self, chunk: bytes) -> bool:
        """Take what was read. Whether there is more than is answered in one turn: then others have theirs first.

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
            self._reply(_PONG)
            return
        answer = _refusal(body_of(envelope), str(rule))
        if answer is not None:
            self._reply(answer)


def reopening_error(command: CommandProducer) -> Any:
    """The error for a PRODUCER: one that was open before is opened anew for ever after any but being fenced off."""
    return ProducerFenced if command.epoch else NotAllowedError


def _refusal(command: Any, message: str) -> bytes | None:
    if isinstance(command, CommandLookupTopic):
        found = CommandLookupTopicResponse(response=CommandLookupTopicResponse.Connect, broker_service_url=_NOWHERE)
        found.request_id = command.request_id
        return encode(through_proxy(found))
    if isinstance(command, CommandPartitionedTopicMetadata):
        return metadata_refused(command.request_id, NotAllowedError, message)
    if isinstance(command, CommandProducer):
        return request_refused(command.request_id, reopening_error(command), message)
    if "request_id" in command.DESCRIPTOR.fields_by_name:
        return request_refused(command.request_id, NotAllowedError, message)
    return None
