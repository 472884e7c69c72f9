"""Commands as a broker reads them, and by hand in every form that the wire allows.

Brokers read with LightProto, which is not protobuf: a message that comes twice replaces the former (protobuf merges the
two), the last scalar wins, a message's length only says when its reader stops looking for a further field, numbers are
cut to their width, a bool is true only as 1, and a field that is missing ends the connection.

Source: `parseFrom` of org.apache.pulsar.common.api.proto.BaseCommand, CommandProducer and LightProtoCodec, 4.0.8
"""

from dataclasses import dataclass
from typing import Any

FieldList = list[tuple[int, Any]]
"""Numbers and values of a message's fields, in the order in which they stand on the wire."""

VARINT, LENGTH = 0, 2
_WIRE_TYPE = {"text": LENGTH, "many": LENGTH}


class Unreadable(Exception):
    """A broker ends the connection for it."""


@dataclass(frozen=True, slots=True)
class Field:
    """What a broker knows of a field.

    Args:
        name: As in the command's class.
        kind: `u64`, `i32`, `bool`, `enum`, `text`, `many` (messages that nobody looks into).
        required: Whether the command is unreadable without it.
        words: Of an enum, how many values there are, from 0 on; any other is as if it were not there.
    """

    name: str
    kind: str
    required: bool = False
    words: int = 0


Schema = dict[int, Field]


def varint(number: int, width: int = 1) -> bytes:
    """A number in at least `width` bytes: more than it needs are allowed, up to ten."""
    encoded = bytearray()
    number &= 2**64 - 1
    while number > 0x7F or len(encoded) < width - 1:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def message(fields: FieldList, width: int = 1) -> bytes:
    """Encode fields: numbers, text, bytes, and lists of fields for messages."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [varint(number << 3 | VARINT), varint(value, width)]
            continue
        content = message(value) if isinstance(value, list) else value.encode() if isinstance(value, str) else value
        parts += [varint(number << 3 | LENGTH), varint(len(content)), content]
    return b"".join(parts)


def frame(command: bytes, payload: bytes = b"") -> bytes:
    """The frame that carries an encoded BaseCommand."""
    return (len(command) + 4 + len(payload)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + payload


def command(kind: int, fields: FieldList) -> bytes:
    """The frame of a command in its usual form."""
    return frame(message([(1, kind), (kind, fields)]))


def taken_apart(whole: bytes) -> tuple[bytes, bytes]:
    """A frame's BaseCommand, and what stands behind it."""
    end = 8 + int.from_bytes(whole[4:8], "big")
    return whole[8:end], whole[end:]


class _Reader:
    """Netty's ByteBuf, as far as LightProto uses it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, bits: int) -> int:
        value = 0
        for place in range(10):
            if self.at >= len(self.data):
                raise Unreadable("it ends inside a number")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value & (1 << bits) - 1
        raise Unreadable("a malformed varint")

    def length(self) -> int:
        number = self.number(32)
        return number - 2**32 if number >= 2**31 else number

    def skip(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise Unreadable("it ends inside a field")
        begin, self.at = self.at, self.at + count
        return self.data[begin : self.at]

    def skip_unknown(self, tag: int) -> None:
        match tag & 7:
            case 0:
                self.number(32)
            case 1:
                self.skip(8)
            case 2:
                self.skip(self.length())
            case 5:
                self.skip(4)
            case _:
                raise Unreadable("an unknown wire type")


def _read(reader: _Reader, end: int, schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tags = {number << 3 | _WIRE_TYPE.get(known.kind, VARINT): known for number, known in schema.items()}
    while reader.at < end:
        tag = reader.number(32)
        known = tags.get(tag)
        if known is None:
            reader.skip_unknown(tag)
        elif known.kind == "many":
            found.setdefault(known.name, []).append(reader.skip(reader.length()))
        elif (value := _value(reader, known)) is not None:
            found[known.name] = value
    missing = [known.name for known in schema.values() if known.required and known.name not in found]
    if missing:
        raise Unreadable(f"required fields are missing: {missing}")
    return found


def _value(reader: _Reader, known: Field) -> int | str | None:
    match known.kind:
        case "text":
            return reader.skip(reader.length()).decode(errors="replace")
        case "bool":
            return reader.number(32) == 1
        case "enum":
            word = reader.number(32)
            return word if word < known.words else None
        case _:
            return reader.number(64 if known.kind == "u64" else 32)


def read_command(data: bytes, schemas: dict[int, Schema]) -> tuple[int, dict[str, Any]]:
    """The type of a BaseCommand, and the fields of the command of that type.

    Args:
        data: A frame without its two sizes.
        schemas: What the broker knows, by type; all its commands are read, whichever the type names.

    Raises:
        Unreadable: If the broker cannot read it.
    """
    reader, kind, found = _Reader(data), 0, dict[int, dict[str, Any]]()
    while reader.at < len(data):
        tag = reader.number(32)
        number = tag >> 3
        if tag == 8:
            value = reader.number(32)
            kind = value if value in schemas else kind
        elif tag & 7 == LENGTH and number in schemas:
            size = reader.length()
            found[number] = _read(reader, reader.at + size, schemas[number])
        else:
            reader.skip_unknown(tag)
    if kind not in found:
        raise Unreadable(f"a command of type {kind}, which is not in it")
    return kind, found[kind]
