"""Reads the few numbers that metering needs straight out of a frame, without decoding it.

A protobuf message is a row of fields, each a tag (field number · 8 + wire type) and a value; this walk steps over
all fields but the wanted ones. `tests/protocol/test_walk.py` holds it against protobuf's own decoder.

Compiled by mypyc where a C compiler is at hand; plain Python otherwise.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from typing import Final

from mypy_extensions import i64

from protocol.errors import MalformedFrame

CHECKSUM_MAGIC: Final = 0x0E01
BROKER_ENTRY_MAGIC: Final = 0x0E02
_NUM_MESSAGES_IN_BATCH: Final = 11


class Cursor:
    """Where a walk stands: `at` is the next byte, `value` what was read last."""

    __slots__ = ("at", "value")

    def __init__(self) -> None:
        self.at: i64 = 0
        self.value: i64 = 0


def u32(data: bytes, at: i64) -> i64:
    """The big-endian number of four bytes at `at`; the caller has checked that they are there."""
    b0: i64 = data[at]
    b1: i64 = data[at + 1]
    b2: i64 = data[at + 2]
    b3: i64 = data[at + 3]
    return b0 << 24 | b1 << 16 | b2 << 8 | b3


def varint(data: bytes, end: i64, cursor: Cursor) -> None:
    """Read the varint at `cursor.at` into `cursor.value`.

    A number of ten bytes is negative or above 2**63; neither is an id or a count, so it becomes -1.

    Raises:
        MalformedFrame: If the number runs over `end` or over ten bytes.
    """
    at: i64 = cursor.at
    value: i64 = 0
    shift: i64 = 0
    while at < end:
        byte: i64 = data[at]
        at += 1
        if shift == 63:
            if byte > 1:
                break
            cursor.at = at
            cursor.value = -1
            return
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            cursor.at = at
            cursor.value = value
            return
        shift += 7
    raise MalformedFrame("a number inside a command or its metadata has no end")


def skip(data: bytes, end: i64, wire_type: i64, cursor: Cursor) -> None:
    """Step over one field's value.

    Raises:
        MalformedFrame: If it runs over `end` or has a wire type that protobuf gave up.
    """
    if wire_type == 0:
        varint(data, end, cursor)
        return
    if wire_type == 2:
        varint(data, end, cursor)
        if cursor.value < 0 or cursor.value > end - cursor.at:
            raise MalformedFrame("a field is longer than the message that holds it")
        cursor.at += cursor.value
        return
    if wire_type == 5:
        cursor.at += 4
    elif wire_type == 1:
        cursor.at += 8
    else:
        raise MalformedFrame(f"a field has the unknown wire type {wire_type}")
    if cursor.at > end:
        raise MalformedFrame("a field is longer than the message that holds it")


def command_type(data: bytes, at: i64, end: i64, cursor: Cursor) -> i64:
    """The type of the BaseCommand in `data[at:end]`, wherever in it the field stands; -1 if it has none."""
    if end - at >= 2 and data[at] == 0x08:
        first: i64 = data[at + 1]
        if first < 0x80 and (end - at == 2 or data[at + 2] != 0x08):
            return first
    kind: i64 = -1
    cursor.at = at
    while cursor.at < end:
        varint(data, end, cursor)
        tag: i64 = cursor.value
        if tag == 0x08:
            varint(data, end, cursor)
            kind = cursor.value
        else:
            skip(data, end, tag & 7, cursor)
    return kind


def ids_of(data: bytes, at: i64, end: i64, kind: i64, cursor: Cursor) -> i64:
    """The id (field 1) of the SEND or MESSAGE in the BaseCommand `data[at:end]`.

    `cursor.value` is then what the command's field 3 says: num_messages of a SEND, 0 where it is absent.

    Raises:
        MalformedFrame: If the command or its id is missing or broken.
    """
    wanted: i64 = kind << 3 | 2
    owner: i64 = -1
    third: i64 = 0
    cursor.at = at
    while cursor.at < end:
        varint(data, end, cursor)
        tag: i64 = cursor.value
        if tag != wanted:
            skip(data, end, tag & 7, cursor)
            continue
        varint(data, end, cursor)
        inner_end: i64 = cursor.at + cursor.value
        if cursor.value < 0 or inner_end > end:
            raise MalformedFrame("a command is longer than its frame")
        while cursor.at < inner_end:
            varint(data, inner_end, cursor)
            tag = cursor.value
            if tag == 0x08:
                varint(data, inner_end, cursor)
                owner = cursor.value
            elif tag == 0x18:
                varint(data, inner_end, cursor)
                third = cursor.value
            else:
                skip(data, inner_end, tag & 7, cursor)
    if owner < 0:
        raise MalformedFrame("a payload command names no producer or consumer")
    cursor.value = third
    return owner


def messages_in_metadata(data: bytes, at: i64, end: i64, cursor: Cursor) -> i64:
    """num_messages_in_batch of the MessageMetadata in `data[at:end]`; 1 where it is absent or makes no sense."""
    messages: i64 = 1
    cursor.at = at
    while cursor.at < end:
        varint(data, end, cursor)
        tag: i64 = cursor.value
        if tag >> 3 == _NUM_MESSAGES_IN_BATCH and tag & 7 == 0:
            varint(data, end, cursor)
            messages = cursor.value
        else:
            skip(data, end, tag & 7, cursor)
    return messages if 1 <= messages < 0x80000000 else 1
