"""Commands and metadata that are sound but odd: fields doubled, unknown, over-long, in any order. And broken ones.

A client's command is sound only if every decoder reads it alike: the type, then one body, in which no field follows one
with a length.
"""

from protocol.pulsar_pb2 import CommandFlow, MessageIdData, MessageMetadata
from tests.protocol import fields as wire
from tests.protocol.choices import Choices

SEND, MESSAGE = 6, 9
_NUMBERS_ONLY = [wire.VARINT, wire.FIXED64, wire.FIXED32]


def message_id(choose: Choices) -> bytes:
    ledger_id, partition = choose.number(), choose.below(7) - 1
    return MessageIdData(ledger_id=ledger_id, entry_id=choose.number(), partition=partition).SerializeToString()


def send_field(choose: Choices) -> bytes:
    """A field of CommandSend."""
    number = choose.one_of([1, 3, 1, 3, 2, 4, 5, 6, 7, 8, 9, 10])
    if number == 9:
        return wire.delimited(9, message_id(choose))
    return wire.any_field(choose, number, wire.ANYTHING) if number < 9 else wire.unknown_field(choose, 10)


def message_field(choose: Choices) -> bytes:
    """A field of CommandMessage."""
    number = choose.one_of([1, 1, 3, 2, 4, 4, 5, 6])
    if number == 2:
        return wire.delimited(2, message_id(choose))
    if number == 4 and choose.chance(2):  # ack_set in its packed form
        return wire.delimited(4, b"".join(wire.any_varint(choose) for _ in range(choose.below(4))))
    if number == 4:
        return wire.any_field(choose, 4, _NUMBERS_ONLY)
    return wire.any_field(choose, number, wire.ANYTHING) if number < 6 else wire.unknown_field(choose, 6)


def body(choose: Choices, kind: int, ids: bytes = b"") -> bytes:
    """The fields of one, with `ids` as the last numbers."""
    any_field = send_field if kind == SEND else message_field
    row = [any_field(choose) for _ in range(choose.below(7))]
    if kind == SEND:
        with_length = [field for field in row if field[0] & 7 == wire.LENGTH]
        return b"".join([*(field for field in row if field not in with_length), ids, *with_length[:1]])
    return b"".join(row) + ids


def type_field(choose: Choices, kind: int) -> bytes:
    return wire.tag(1, wire.VARINT, choose.one_of([0, 0, 0, 2])) + wire.varint(kind, choose.one_of([0, 0, 0, 2]))


def of_client(choose: Choices, kind: int, inside: bytes) -> bytes:
    """A client's BaseCommand; its numbers may be over-long."""
    padding = choose.one_of([0, 0, 0, 2])
    return b"\x08" + wire.varint(kind, padding) + wire.delimited(kind, inside)


def envelope_field(choose: Choices, kind: int) -> bytes:
    """A field of BaseCommand that may stand in one of this kind."""
    which = choose.below(5)
    if which == 0:
        return type_field(choose, kind)
    if which == 1:
        return wire.delimited(11, CommandFlow(consumer_id=1, message_permits=2).SerializeToString())
    if which == 2:
        return wire.any_field(choose, kind, _NUMBERS_ONLY)
    if which == 3:
        return wire.any_field(choose, 1, [wire.FIXED64, wire.LENGTH, wire.FIXED32])
    return wire.unknown_field(choose, 100)


def command(choose: Choices, kind: int) -> bytes:
    """A BaseCommand with a type and one body."""
    if kind == SEND:
        return of_client(choose, kind, body(choose, kind))
    row = [type_field(choose, kind), wire.delimited(kind, body(choose, kind))]
    row += [envelope_field(choose, kind) for _ in range(choose.below(5))]
    return b"".join(choose.shuffled(row))


def metadata(choose: Choices) -> bytes:
    """A MessageMetadata, its required fields not always there."""
    return b"".join(_metadata_field(choose) for _ in range(choose.below(9)))


def _metadata_field(choose: Choices) -> bytes:
    which = choose.below(5)
    if which == 0:
        return MessageMetadata(producer_name="p", sequence_id=1, publish_time=2).SerializeToString()
    if which == 1:
        return wire.unknown_field(choose, 100)
    plain = [1, 2, 3, 5, 6, 8, 9, 12, 14, 15, 16, 17, 18, 19, 20]
    return wire.any_field(choose, 11 if which == 2 else choose.one_of(plain), wire.ANYTHING)


def broken(choose: Choices, sound: bytes) -> bytes:
    """`sound` with a few bytes changed, put in, taken out or cut off; or noise instead."""
    data = bytearray(choose.octets(40) if choose.chance(8) else sound)
    for _ in range(choose.below(4)):
        at = choose.below(len(data) + 1)
        new = wire.any_varint(choose) if choose.chance(2) else choose.take(1)
        damage = choose.one_of(["change", "put in", "take out", "cut off"])
        if damage == "cut off":
            del data[at:]
        else:
            data[at : at + (0 if damage == "put in" else len(new))] = b"" if damage == "take out" else new
    return bytes(data)
