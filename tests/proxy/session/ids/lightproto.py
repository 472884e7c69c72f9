"""Commands as a broker reads them, and by hand in every form that the wire allows.

Brokers read with LightProto, which is not protobuf: a message that comes twice replaces the former (protobuf merges the
two), the last scalar wins, numbers are cut to their width, a bool is true only as 1, and a field that is missing ends
the connection. A message's length, at every depth, only says when its reader stops looking for a further field: what
that field runs over goes with it, and the reader outside goes on behind.

Source: `parseFrom` of org.apache.pulsar.common.api.proto.BaseCommand, CommandProducer and LightProtoCodec, 4.0.8
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

FieldList = list[tuple[int, Any]]
"""Numbers and values of a message's fields, in the order in which they stand on the wire."""

VARINT, LENGTH, GROUP, END_OF_GROUP, FIXED = 0, 2, 3, 4, 5
_WIRE_TYPE = {"text": LENGTH, "many": LENGTH, "packed": LENGTH}


class Unreadable(Exception):
    """A broker ends the connection for it."""


@dataclass(frozen=True, slots=True)
class Field:
    """What a broker knows of a field.

    Args:
        name: As in the command's class.
        kind: `u64`, `i32`, `bool`, `enum`, `text`, `many` (messages), `packed` (numbers, several in one field).
        required: Whether the command is unreadable without it.
        words: Of an enum, how many values there are, from 0 on; any other is as if it were not there.
        inside: Of messages, what is in one.
    """

    name: str
    kind: str
    required: bool = False
    words: int = 0
    inside: "Schema | None" = None


class Schema(dict[int, Field]):
    """The fields of a message, by number."""

    @cached_property
    def by_tag(self) -> dict[int, Field]:
        """As they stand on the wire; with another wire type a field is unknown."""
        return {number << 3 | _WIRE_TYPE.get(known.kind, VARINT): known for number, known in self.items()}

    @cached_property
    def required(self) -> list[str]:
        """Names of those without which it is unreadable."""
        return [known.name for known in self.values() if known.required]


def varint(number: int, width: int = 1) -> bytes:
    """A number in at least `width` bytes: more than it needs are allowed, up to ten."""
    encoded = bytearray()
    number &= 2**64 - 1
    while number > 0x7F or len(encoded) < width - 1:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def message(fields: FieldList, width: int = 1, head_width: int = 1) -> bytes:
    """Encode fields: numbers, text, bytes, and lists of fields for messages.

    Args:
        fields: Of the message.
        width: Bytes that a number takes at least.
        head_width: Bytes that a tag and a length take at least.
    """
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [varint(number << 3 | VARINT, head_width), varint(value, width)]
            continue
        content = message(value) if isinstance(value, list) else value.encode() if isinstance(value, str) else value
        parts += [varint(number << 3 | LENGTH, head_width), varint(len(content), head_width), content]
    return b"".join(parts)


def overrunning(number: int, before: bytes, content: bytes) -> bytes:
    """A message whose last field runs over its length, up to `content`: a field, for all who cut it off there.

    Args:
        number: Of the field that holds it.
        before: What stands in it before that last field.
        content: What readers find behind it that do not cut.
    """
    wrapper = varint(998 << 3 | LENGTH) + varint(len(content))
    inside = before + varint(200 << 3 | LENGTH) + varint(len(wrapper))
    return varint(number << 3 | LENGTH) + varint(len(inside)) + inside + wrapper + content


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
    fields: dict[str, Any] = {}
    while reader.at < end:
        tag = reader.number(32)
        known = schema.by_tag.get(tag)
        if known is None:
            reader.skip_unknown(tag)
        elif known.inside is not None:
            size = reader.length()
            fields.setdefault(known.name, []).append(_read(reader, reader.at + size, known.inside))
        elif known.kind == "packed":
            size = reader.length()
            fields[known.name] = _numbers(reader, reader.at + size)
        elif (value := _value(reader, known)) is not None:
            fields[known.name] = value
    missing = [name for name in schema.required if name not in fields]
    if missing:
        raise Unreadable(f"required fields are missing: {missing}")
    return fields


def _numbers(reader: _Reader, end: int) -> list[int]:
    numbers = []
    while reader.at < end:
        numbers.append(reader.number(64))
    return numbers


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


def read_command(data: bytes, schemas: Mapping[int, Schema]) -> tuple[int, dict[str, Any]]:
    """The type of a BaseCommand, and the fields of the command of that type.

    Args:
        data: A frame without its two sizes.
        schemas: What the broker knows, by type; all its commands are read, whichever the type names.

    Raises:
        Unreadable: If the broker cannot read it.
    """
    reader, kind, commands = _Reader(data), 0, dict[int, dict[str, Any]]()
    while reader.at < len(data):
        tag = reader.number(32)
        number = tag >> 3
        if tag == 8:
            value = reader.number(32)
            kind = value if value in schemas else kind
        elif tag & 7 == LENGTH and number in schemas:
            size = reader.length()
            commands[number] = _read(reader, reader.at + size, schemas[number])
        else:
            reader.skip_unknown(tag)
    if kind not in commands:
        raise Unreadable(f"a command of type {kind}, which is not in it")
    return kind, commands[kind]
