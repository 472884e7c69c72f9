"""Replace the request id of responses that may be megabytes (topic lists, schemas) without decoding the rest.

    type 33     field 33, its length     request_id     topics …
    08 21       8A 02 ..                 08 varint      12 ..

Every broker writes them in this form. Any other valid form is decoded whole.

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
"""Command types of these responses. In BaseCommand, the number of a command's field is the number of its type."""
_REQUEST_ID = 0x08


def _varint(number: int) -> bytes:
    written = bytearray()
    add_varint(written, number)
    return bytes(written)


_BEGINS = {kind: b"\x08" + _varint(kind) + _varint(kind << 3 | 2) for kind in LONG_ANSWERS}


class LongAnswer:
    """A response of a type in LONG_ANSWERS: its request id, and the rest as it was received.

    Args:
        kind: The command's type, one of LONG_ANSWERS.
        command: The encoded BaseCommand.

    Raises:
        MalformedFrame: If `command` is not such a response.
    """

    def __init__(self, kind: int, command: bytes) -> None:
        self._begin = _BEGINS[kind]
        usual = _usual(self._begin, command)
        if usual is None:
            usual = _usual(self._begin, _rewritten(command))
            assert usual is not None, "the product's own encoder writes it as brokers do"
        self.request_id, self._rest = usual

    def with_request_id(self, request_id: int) -> bytes:
        """Return the frame of this response with another request id."""
        number = _varint(request_id)
        inside = self._begin + _varint(1 + len(number) + len(self._rest)) + b"\x08" + number
        size = len(inside) + len(self._rest)
        return b"".join((SIZES.pack(size + 4, size), inside, self._rest))


def _usual(begin: bytes, command: bytes) -> tuple[int, bytes] | None:
    """Return the request id and the bytes behind it; None if the command has not the usual form."""
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
