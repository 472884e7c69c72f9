"""The request ids of conversations: tests say the client's to both peers, and those on the wire are looked up here.

`tests/proxy/session/test_requests.py` looks at the ids themselves.
"""

from typing import Any

from protocol.commands import encode, split
from protocol.frames import ProtocolError
from protocol.pulsar_pb2 import BaseCommand, CommandProducerSuccess
from proxy.session.responses import Answered, Requests
from tests.proxy.wire import body

_ASKED = {
    BaseCommand.PRODUCER,
    BaseCommand.SUBSCRIBE,
    BaseCommand.CLOSE_PRODUCER,
    BaseCommand.CLOSE_CONSUMER,
    BaseCommand.UNSUBSCRIBE,
    BaseCommand.SEEK,
    BaseCommand.LOOKUP,
    BaseCommand.PARTITIONED_METADATA,
    BaseCommand.GET_TOPICS_OF_NAMESPACE,
    BaseCommand.WATCH_TOPIC_LIST,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE,
    BaseCommand.GET_SCHEMA,
    BaseCommand.GET_OR_CREATE_SCHEMA,
}
_ANSWERS = {
    BaseCommand.SUCCESS,
    BaseCommand.ERROR,
    BaseCommand.PRODUCER_SUCCESS,
    BaseCommand.LOOKUP_RESPONSE,
    BaseCommand.PARTITIONED_METADATA_RESPONSE,
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
    BaseCommand.GET_SCHEMA_RESPONSE,
    BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
}
OWN = 2**64 - 2
"""In place of the client's: the request is the proxy's own. The next one is one less."""

_client_ids: dict[int, int | None] = {}
_sent = Requests._sent


def _noted(self: Requests, command: Any, client_id: int | None, act: Answered, memory: int) -> bytes:
    frame = _sent(self, command, client_id, act, memory)
    _client_ids[self.last_id] = client_id
    return frame


Requests._sent = _noted  # type: ignore[method-assign]


class RequestIds:
    """Those between the proxy and one broker."""

    def __init__(self) -> None:
        self._on_the_wire: dict[int, list[int]] = {}
        self._answered: dict[int, int] = {}
        self._own = OWN

    def as_asked(self, frame: bytes) -> bytes:
        """What came to the broker, under the id that the client gave it."""
        try:
            envelope, rest = split(frame)
        except ProtocolError:
            return frame
        if envelope.type not in _ASKED or rest:
            return frame
        command = body(frame)
        if command.request_id not in _client_ids:
            return frame
        wire, client_id = command.request_id, _client_ids[command.request_id]
        if client_id is None:
            client_id, self._own = self._own, self._own - 1
        self._on_the_wire.setdefault(client_id, []).append(wire)
        command.request_id = client_id
        return encode(command)

    def as_answered(self, frame: bytes) -> bytes:
        """What the broker answers to the oldest request of that id, as it stands on the wire; perhaps once more."""
        if not is_answer(frame):
            return frame
        command = body(frame)
        client_id, asked = command.request_id, self._on_the_wire.get(command.request_id)
        if asked:
            self._answered[client_id] = asked[0]
            if not isinstance(command, CommandProducerSuccess) or command.producer_ready:
                del asked[0]
        if client_id not in self._answered:
            return frame
        command.request_id = self._answered[client_id]
        return encode(command)


def is_answer(frame: bytes) -> bool:
    """Whether it answers a request that the proxy follows, or might."""
    try:
        envelope, rest = split(frame)
    except ProtocolError:
        return False
    return envelope.type in _ANSWERS and not rest


def is_own(request_id: int) -> bool:
    """Whether it stands for a request of the proxy's own."""
    return 2**63 < request_id <= OWN
