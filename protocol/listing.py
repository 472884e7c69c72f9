"""A namespace's topics, as a broker lists them: perhaps megabytes, of which only the request id is read, and replaced.

    type 33     field 33, its length     request_id     topics …
    08 21       8A 02 ..                 08 varint      12 ..

That is how every broker writes it. Another form of the same is decoded whole.

Source: CommandGetTopicsOfNamespaceResponse, CommandWatchTopicListSuccess of PulsarApi.proto
"""

from protocol.commands import SIZES, encode, read
from protocol.errors import MalformedFrame
from protocol.flow import add_varint
from protocol.pulsar_pb2 import BaseCommand
from protocol.walk import varint

_BEGINS: dict[int, bytes] = {
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: b"\x08\x21\x8a\x02",
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS: b"\x08\x41\x8a\x04",
}
LISTINGS = frozenset(_BEGINS)
"""Types of the commands that list topics."""
_REQUEST_ID = 0x08


class Listing:
    """One of them.

    Args:
        kind: Its type, one of LISTINGS.
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
        self.request_id, self._topics = usual

    def with_request_id(self, request_id: int) -> bytes:
        """The frame that lists the same under another request id."""
        number = _varint(request_id)
        inside = self._begin + _varint(1 + len(number) + len(self._topics)) + b"\x08" + number
        size = len(inside) + len(self._topics)
        return b"".join((SIZES.pack(size + 4, size), inside, self._topics))


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


def _varint(number: int) -> bytes:
    written = bytearray()
    add_varint(written, number)
    return bytes(written)
