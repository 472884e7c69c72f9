"""Read and write FLOW without protobuf: the one consumer command that is sent for as long as messages come.

    type 11        field 11, its length     consumer_id             messagePermits
    08 0B          5A ..                    08 varint               10 varint

Every client writes FLOW in this form. Any other valid form is left to protobuf's decoder.

Source: CommandFlow of PulsarApi.proto; https://protobuf.dev/programming-guides/encoding/
"""

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from protocol.frames import MalformedFrame
from protocol.walk import varint

FLOW: Final = 11
MOST_PERMITS: Final = 2**31 - 1
"""Most permits in one FLOW: brokers read the field as a signed number of 32 bits."""
_TYPE: Final = 0x08
_BODY: Final = 0x5A
_CONSUMER: Final = 0x08
_PERMITS: Final = 0x10
_HEAD: Final = _TYPE << 32 | FLOW << 24 | _BODY << 16 | _CONSUMER  # the first five bytes, with a length of 0
_UINT32: Final = 0xFFFFFFFF


def read_flow(command: bytes) -> tuple[i64, i64]:
    """Return the consumer id and permits (0 to 2³²-1) of a BaseCommand; an id of -1 if it has another form."""
    size: i64 = len(command)
    no_id: i64 = -1  # native numbers: mypyc makes objects of a tuple that holds a literal
    none: i64 = 0
    # A length above 255 would change the bits of _BODY. A command of that length does not end after two numbers.
    if size < 8 or read_i64_be(command, 0) >> 24 != _HEAD | (size - 4) << 8:
        return no_id, none
    try:
        consumer, at = varint(command, 5, size)
        if consumer < 0 or at >= size or command[at] != _PERMITS:
            return no_id, none
        permits, at = varint(command, at + 1, size)
    except MalformedFrame:
        return no_id, none
    if at != size or permits < 0 or permits > _UINT32:
        return no_id, none
    return consumer, permits


def flow_frame(consumer_id: int, permits: int) -> bytes:
    """Return the FLOW frame that asks the broker for `permits` messages.

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
    """Append a number of 0 to 2⁶⁴-1 to `body` as a varint."""
    while number >= 0x80:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)
