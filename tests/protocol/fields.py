"""Protobuf messages field by field, as an encoder that means ill might write them."""

from tests.protocol.choices import Choices

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
ANYTHING = [VARINT, FIXED64, LENGTH, FIXED32]
HIGHEST = 2**29 - 1
_PADDINGS = [0, 0, 0, 0, 1, 3]


def varint(number: int, padding: int = 0) -> bytes:
    """`number` with up to `padding` needless bytes, ten bytes at most."""
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F)
    groups += [0] * min(padding, 10 - len(groups))
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def tag(number: int, wire_type: int, padding: int = 0) -> bytes:
    """A tag of five bytes at most: with more, decoders disagree."""
    plain = varint(number << 3 | wire_type)
    return varint(number << 3 | wire_type, min(padding, 5 - len(plain)))


def delimited(number: int, value: bytes) -> bytes:
    return tag(number, LENGTH) + varint(len(value)) + value


def any_varint(choose: Choices) -> bytes:
    return varint(choose.number(), choose.one_of([0, 0, 0, 1, 4, 9]))


def any_field(choose: Choices, number: int, wire_types: list[int]) -> bytes:
    """One field with any value of one of these wire types."""
    wire_type = choose.one_of(wire_types)
    head = tag(number, wire_type, choose.one_of(_PADDINGS))
    if wire_type == VARINT:
        return head + any_varint(choose)
    if wire_type == LENGTH:
        value = choose.octets(20)
        return head + varint(len(value), choose.one_of(_PADDINGS)) + value
    return head + choose.take(8 if wire_type == FIXED64 else 4)


def unknown_field(choose: Choices, lowest: int) -> bytes:
    """A field that no schema knows; all its numbers are below `lowest`."""
    number = choose.one_of([lowest, lowest + 17, 2**20, HIGHEST])
    return any_field(choose, number, ANYTHING)
