"""Answers that may be megabytes: lists of a namespace's topics, and schemas. Only the request id is read, and replaced.

    type 33     field 33, its length     request_id     topics …
    08 21       8A 02 ..                 08 varint      12 ..

That is how every broker writes it. Another form of the same is decoded whole.

Source: CommandGetTopicsOfNamespaceResponse, CommandWatchTopicListSuccess, CommandGetSchemaResponse,
CommandGetOrCreateSchemaResponse of PulsarApi.proto: the request id is the first field of each
"""

from protocol.commands import SIZES, encode, read
from protocol.errors import MalformedFrame
from protocol.flow import add_varint
from protocol.pulsar_pb2 import BaseCommand
from protocol.walk import varint

LONG_ANSWERS: frozenset[int] = frozenset(
    {
        BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        BaseCommand.GET_SCHEMA_RESPONSE,
        BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
    }
)
"""Their types. The field of BaseCommand that one stands in has the number of its type."""
_REQUEST_ID = 0x08


def _varint(number: int) -> bytes:
    written = bytearray()
    add_varint(written, number)
    return bytes(written)


_BEGINS = {kind: b"\x08" + _varint(kind) + _varint(kind << 3 | 2) for kind in LONG_ANSWERS}


class LongAnswer:
    """One such answer.

    Args:
        kind: Its type, one of LONG_ANSWERS.
        command: The BaseCommand that it is in.

    Raises:
        MalformedFrame: If it is none.
    """

    def __init__(self, kind: int, command: bytes) -> None:
        self._begin = _BEGINS[kind]
        usual = _usual(self._begin, command)
        if usual is None:
            usual = _usual(self._begin, _rewritten(command))
            assert usual is not None, "the product's own encoder writes it as brokers do"
        self.request_id, self._rest = usual

    def with_request_id(self, request_id: int) -> bytes:
        """The frame that says the same under another request id."""
        number = _varint(request_id)
        inside = self._begin + _varint(1 + len(number) + len(self._rest)) + b"\x08" + number
        size = len(inside) + len(self._rest)
        return b"".join((SIZES.pack(size + 4, size), inside, self._rest))


def _usual(begin: bytes, command: bytes) -> tuple[int, bytes] | None:
    """The request id, and what is behind it; None if it has not the usual form."""
    if not command.startswith(begin):
        return None
    try:
        size, at = varint(command, len(begin), len(command))
        if size != len(command) - at or size < 1 or command[at] != _REQUEST_ID:
            return None
        request_id, at = varint(command, at + 1, len(command))
    except MalformedFrame:
        return None
    return request_id & 0xFFFFFFFFFFFFFFFF, command[at:]


def _rewritten(command: bytes) -> bytes:
    return encode(read(command))[SIZES.size :]
