"""FLOW, the one command of a consumer that comes as long as messages do: read and written without decoding it.

    type 11        field 11, its length     consumer_id             messagePermits
    08 0B          5A ..                    08 varint               10 varint

That is how every client writes it. Another form of the same is left to protobuf's decoder.

Source: CommandFlow of PulsarApi.proto; https://protobuf.dev/programming-guides/encoding/
"""

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from protocol.errors import MalformedFrame
from protocol.walk import varint

FLOW: Final = 11
MOST_PERMITS: Final = 2**31 - 1
"""Permits in one FLOW: brokers take them for a signed number."""
_TYPE: Final = 0x08
_BODY: Final = 0x5A
_CONSUMER: Final = 0x08
_PERMITS: Final = 0x10
_HEAD: Final = _TYPE << 32 | FLOW << 24 | _BODY << 16 | _CONSUMER  # the first five bytes, with a length of 0
_UINT32: Final = 0xFFFFFFFF


def read_flow(command: bytes) -> tuple[i64, i64]:
    """The consumer's id and its permits (0 to 2³²-1) in a BaseCommand; an id of -1 if it has not the usual form."""
    size: i64 = len(command)
    nobody: i64 = -1  # a native number: of a tuple with a literal in it mypyc makes objects
    none: i64 = 0
    # a length above 255 would reach into _BODY; but what is so long does not end behind two numbers
    if size < 8 or read_i64_be(command, 0) >> 24 != _HEAD | (size - 4) << 8:
        return nobody, none
    try:
        consumer, at = varint(command, 5, size)
        if consumer < 0 or at >= size or command[at] != _PERMITS:
            return nobody, none
        permits, at = varint(command, at + 1, size)
    except MalformedFrame:
        return nobody, none
    if at != size or permits < 0 or permits > _UINT32:
        return nobody, none
    return consumer, permits


def flow_frame(consumer_id: int, permits: int) -> bytes:
    """The frame that asks for so many messages.

    Args:
        consumer_id: 0 to 2⁶⁴-1.
        permits: 1 to MOST_PERMITS.
    """
    body = bytearray((_CONSUMER,))
    add_varint(body, consumer_id)
    body.append(_PERMITS)
    add_varint(body, permits)
    size = len(body)
    return bytes((0, 0, 0, size + 8, 0, 0, 0, size + 4, _TYPE, FLOW, _BODY, size)) + body


def add_varint(body: bytearray, number: int) -> None:
    """Write a number of 0 to 2⁶⁴-1 behind `body`."""
    while number >= 0x80:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)
