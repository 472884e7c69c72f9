"""Encode control commands as frames, and decode frames.

    simple frame    [total_size u32][command_size u32][BaseCommand]
    payload frame   … [magic and checksum][metadata_size u32][MessageMetadata][payload]

Responses that may be megabytes (topic lists, schemas) get another request id without the rest being decoded:

    type 33     field 33, its length     request_id     topics …
    08 21       8A 02 ..                 08 varint      12 ..

Every broker writes them in this form. Any other valid form is decoded whole.

Source: https://pulsar.apache.org/docs/developing-binary-protocol/#framing; in PulsarApi.proto the request id is the
first field of CommandGetTopicsOfNamespaceResponse, CommandWatchTopicListSuccess, CommandGetSchemaResponse and
CommandGetOrCreateSchemaResponse
"""

from struct import Struct
from typing import Any, cast

from google.protobuf.message import DecodeError, Message

from protocol.flow import add_varint
from protocol.frames import MOST_COMMAND, FrameTooLarge, MalformedFrame
from protocol.pulsar_pb2 import BaseCommand, CommandPing, CommandPong
from protocol.walk import varint

SIZES = Struct(">II")

# In BaseCommand the number of a command's field is the number of its type.
_FIELD_OF: dict[str, tuple[int, str]] = {
    field.message_type.full_name: (field.number, field.name)
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


def wrap(command: Message) -> BaseCommand:
    """Return the BaseCommand that holds `command`, with its type set."""
    number, name = _FIELD_OF[command.DESCRIPTOR.full_name]
    envelope = BaseCommand(type=cast("BaseCommand.Type", number))
    getattr(envelope, name).CopyFrom(command)
    return envelope


def encode(command: Message) -> bytes:
    """Return the simple frame of `command`, which is a Command… message and not the BaseCommand around it."""
    return framed(wrap(command))


def framed(envelope: BaseCommand) -> bytes:
    """Return the simple frame of a BaseCommand."""
    body = envelope.SerializeToString()
    return SIZES.pack(len(body) + 4, len(body)) + body


def encode_with_payload(command: Message, headers_and_payload: bytes) -> bytes:
    """Return the payload frame of `command`; `headers_and_payload` is everything after the command."""
    body = wrap(command).SerializeToString()
    return SIZES.pack(len(body) + 4 + len(headers_and_payload), len(body)) + body + headers_and_payload


def decode(command: bytes) -> BaseCommand:
    """Decode a BaseCommand: a frame without its two sizes.

    Raises:
        MalformedFrame: If the bytes are not a BaseCommand that this protocol file knows.
    """
    try:
        return BaseCommand.FromString(command)
    except DecodeError as error:
        raise MalformedFrame(f"the command cannot be decoded ({error})") from None


def body_of(envelope: BaseCommand) -> Any:
    """Return the one command inside a BaseCommand, whatever its type.

    Raises:
        MalformedFrame: If the BaseCommand has no command of the type that it names.
    """
    descriptor = BaseCommand.DESCRIPTOR.fields_by_number.get(envelope.type)
    if descriptor is None or not envelope.HasField(descriptor.name):
        raise MalformedFrame(f"the envelope of type {envelope.type} is empty")
    return getattr(envelope, descriptor.name)


def read(command: bytes) -> Any:
    """Decode a BaseCommand (a frame without its two sizes) and return the one command inside.

    Raises:
        FrameTooLarge: If the BaseCommand has more than MOST_COMMAND bytes.
        MalformedFrame: If there is no command, or it lacks a required field. Brokers end the connection for that.
    """
    return whole_body(_decode_some(command))


def read_known(command: bytes) -> tuple[Any, bool]:
    """Decode a BaseCommand as `read` does, and discard the fields that this protocol file does not know.

    Returns the command, and whether the BaseCommand would now be encoded in another number of bytes.

    Raises:
        ProtocolError: As `read` does.
    """
    envelope = _decode_some(command)
    envelope.DiscardUnknownFields()
    return whole_body(envelope), envelope.ByteSize() != len(command)


def whole_body(envelope: BaseCommand) -> Any:
    """Return the one command inside a BaseCommand, if it has all required fields.

    Raises:
        MalformedFrame: If there is no command, or it lacks a required field.
    """
    body = body_of(envelope)
    # The decoder does not check required fields. The names of the missing ones could take 15 times the command's bytes.
    if not body.IsInitialized():
        raise MalformedFrame(f"{body.DESCRIPTOR.name} lacks a field that it must have")
    return body


def _decode_some(command: bytes) -> BaseCommand:
    if len(command) > MOST_COMMAND:
        raise FrameTooLarge(len(command), MOST_COMMAND)
    return decode(command)


def text(value: str | bytes) -> str:
    """Return a string field as text; protobuf returns a string that is not valid UTF-8 as bytes."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def command_in(frame: bytes) -> bytes:
    """Return the BaseCommand of a whole frame that a scanner has found, still encoded."""
    return frame[SIZES.size : SIZES.size + SIZES.unpack_from(frame)[1]]


def split(frame: bytes) -> tuple[BaseCommand, bytes]:
    """Return a whole frame's command, and the bytes after the command: magic, checksum, metadata, payload.

    Raises:
        MalformedFrame: If the command is longer than the frame or cannot be decoded.
    """
    command_size = SIZES.unpack_from(frame)[1] if len(frame) >= SIZES.size else 0
    if len(frame) < SIZES.size + command_size:
        raise MalformedFrame(f"a command of {command_size} bytes in a frame of {len(frame)}")
    return decode(frame[SIZES.size : SIZES.size + command_size]), frame[SIZES.size + command_size :]


LONG_ANSWERS: frozenset[int] = frozenset(
    {
        BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        BaseCommand.GET_SCHEMA_RESPONSE,
        BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
    }
)
"""Command types of the responses that may be megabytes."""
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
        parts = _parts(self._begin, command)
        if parts is None:
            parts = _parts(self._begin, encode(read(command))[SIZES.size :])
            assert parts is not None, "protobuf's encoder writes the form that brokers write"
        self.request_id, self._rest = parts

    def with_request_id(self, request_id: int) -> bytes:
        """Return the frame of this response with another request id."""
        number = _varint(request_id)
        inside = self._begin + _varint(1 + len(number) + len(self._rest)) + b"\x08" + number
        size = len(inside) + len(self._rest)
        return b"".join((SIZES.pack(size + 4, size), inside, self._rest))


def _parts(begin: bytes, command: bytes) -> tuple[int, bytes] | None:
    """Return the request id and the bytes after the request id; None if the command has another form."""
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


PING, PONG = encode(CommandPing()), encode(CommandPong())
"""The frames of idle connections: clients and brokers send them in turns, each 30 to 60 s."""
