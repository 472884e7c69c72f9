"""The walk reads what protobuf reads.

Two oracles. `pulsar_pb2` is the proxy's own decoder; it also refuses fields that are broken inside and that the walk
skips. So malformed commands are compared with `narrow`, protobuf's decoder with a schema of only those fields that the
walk reads. The walk must refuse every command that `narrow` refuses, and beyond these only REFUSED_HERE_ONLY: commands
that protobuf and the broker's decoder (LightProto) read in two ways.
"""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.frames import MalformedFrame
from protocol.pulsar_pb2 import BaseCommand, CommandProducer, CommandSend, MessageMetadata
from protocol.walk import (
    UNCOUNTED,
    message_count,
    messages_in_metadata,
    read_command,
    schema_data_in,
    skip,
    u32,
    varint,
)
from tests.examples import examples
from tests.protocol import fields as wire
from tests.protocol import ill_commands as ill
from tests.protocol.choices import EDGES, Check, Choices, choices, in_bulk
from tests.protocol.ill_commands import MESSAGE, SEND

REFUSED_HERE_ONLY = (
    "a command without a type",  # protobuf's Python decoder does not insist on required fields; the broker's does
    # Two types, or a number that no enum has: decoders keep the last type that they know, which depends on their age.
    "a command of type",
    "a command is there twice",  # protobuf merges the two; brokers' LightProto takes the last
    # LightProto goes on after a field that runs over the end of its message: it could read bytes that are skipped here.
    "a command does not begin with its type",
    "the body of a command of type",
    "a field follows one that has a length",
    "a field has the unknown wire type 3",  # protobuf steps over a group, LightProto refuses it
)


def narrow(kind: int) -> Any:
    """The message class with `type` and, for `kind`, the fields 1 and 3 of its command."""
    file = descriptor_pb2.FileDescriptorProto(name=f"narrow{kind}.proto", package=f"narrow{kind}", syntax="proto2")
    body = file.message_type.add(name="Body")
    envelope = file.message_type.add(name="Envelope")
    number = descriptor_pb2.FieldDescriptorProto
    body.field.add(name="owner", number=1, type=number.TYPE_UINT64, label=number.LABEL_OPTIONAL)
    body.field.add(name="third", number=3, type=number.TYPE_INT32, label=number.LABEL_OPTIONAL)
    envelope.field.add(name="type", number=1, type=number.TYPE_INT32, label=number.LABEL_OPTIONAL)
    envelope.field.add(
        name="body",
        number=kind,
        type=number.TYPE_MESSAGE,
        label=number.LABEL_OPTIONAL,
        type_name=f".narrow{kind}.Body",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"narrow{kind}.Envelope"))


NARROW = {SEND: narrow(SEND), MESSAGE: narrow(MESSAGE)}


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def walked(command: bytes, kind: int) -> tuple[int, int, int]:
    """Type, id (negative from 2**63 on, which the scanner refuses) and count; as the scanner reads them."""
    type_, owner, third = read_command(command, 0, len(command), kind)
    return type_, owner, message_count(third)


def _send_agrees(choose: Choices) -> None:
    command = ill.command(choose, SEND)
    decoded = BaseCommand.FromString(command)
    kind, owner, messages = walked(command, SEND)
    assert kind == decoded.type == SEND
    assert owner == (signed(decoded.send.producer_id) if decoded.send.HasField("producer_id") else -1)
    assert messages == max(1, decoded.send.num_messages)


def _message_agrees(choose: Choices) -> None:
    command = ill.command(choose, MESSAGE)
    decoded = BaseCommand.FromString(command)
    kind, owner, _ = walked(command, MESSAGE)
    assert kind == decoded.type == MESSAGE
    assert owner == (signed(decoded.message.consumer_id) if decoded.message.HasField("consumer_id") else -1)


def _verdict_agrees(choose: Choices) -> None:
    kind = choose.one_of([SEND, MESSAGE])
    command = ill.broken(choose, ill.command(choose, kind))
    try:
        decoded = NARROW[kind].FromString(command)
    except DecodeError:
        decoded = None
    refusal = ""
    try:
        values = walked(command, kind)
    except MalformedFrame as error:
        refusal = str(error)
    if decoded is None:
        assert refusal, f"protobuf refuses {command.hex(' ')}"
    elif refusal:
        assert refusal.startswith(REFUSED_HERE_ONLY), command.hex(" ")
    else:
        owner = signed(decoded.body.owner) if decoded.body.HasField("owner") else -1
        assert values == (decoded.type, owner, max(1, decoded.body.third)), command.hex(" ")


def _metadata_agrees(choose: Choices) -> None:
    before, metadata = choose.octets(3), ill.metadata(choose)
    messages = messages_in_metadata(before + metadata + choose.octets(3), len(before), len(before) + len(metadata))
    assert messages == max(1, MessageMetadata.FromString(metadata).num_messages_in_batch)


def _broken_metadata_is_counted(choose: Choices) -> None:
    metadata = ill.broken(choose, ill.metadata(choose))
    assert 1 <= messages_in_metadata(metadata, 0, len(metadata)) < 2**31


CHECKS = {
    "a SEND is read as protobuf reads it": _send_agrees,
    "a MESSAGE is read as protobuf reads it": _message_agrees,
    "of any bytes the walk refuses what protobuf refuses and reads the rest alike": _verdict_agrees,
    "num_messages_in_batch is read as protobuf reads it": _metadata_agrees,
    "metadata that cannot be read is still counted": _broken_metadata_is_counted,
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@settings(max_examples=examples(200))
@given(choose=choices())
def test_the_walk_agrees_with_protobuf(check: Check, choose: Choices) -> None:
    check(choose)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_walk_agrees_with_protobuf_in_thousands_of_cases(check: Check) -> None:
    in_bulk(check, 5000)


@given(st.sampled_from(sorted(BaseCommand.Type.values())), st.binary(max_size=300))
def test_the_type_of_every_command_is_found(kind: int, value: bytes) -> None:
    command = wire.tag(1, 0) + wire.varint(kind) + wire.delimited(kind, value)
    other = SEND if kind == MESSAGE else MESSAGE
    assert read_command(command, 0, len(command), other) == (kind, -1, 0)


@pytest.mark.parametrize(
    "within",
    [
        b"\x22\x04\x0a\x00\x12\x02",  # a property, whose value runs over its end
        b"\x6a\x04\x0a\x00\x12\x02",  # a key
        b"\x6a\x06\x1a\x04\x0a\x00\x12\x02",  # a key's metadata
    ],
)
def test_a_field_beyond_its_message_in_metadata_is_skipped_whole(within: bytes) -> None:
    """As at the broker (LightProto), which counts permits by the field that follows."""
    hidden = b"\x7a\x04" + b"\x58\xa0\x9c\x01"
    metadata = within + hidden
    assert messages_in_metadata(metadata, 0, len(metadata)) == 20_000
    sound = within[:-1] + b"\x00" + hidden
    assert messages_in_metadata(sound, 0, len(sound)) == 1


def _within(tag: int, fields: bytes) -> bytes:
    length = len(fields)
    return bytes([tag, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14]) + fields


@pytest.mark.parametrize(
    "fields",
    [
        lambda count: b"\x10\x00" * count,
        lambda count: b"\x22\x02\x0a\x00" * (count // 2),
        lambda count: _within(0x22, b"\x0a\x00" * count),
        lambda count: _within(0x6A, b"\x1a\x00" * count),
        lambda count: _within(0x6A, _within(0x1A, b"\x0a\x00" * count)),
    ],
    ids=["of its own", "of many properties", "of one property", "of one key", "of one key's metadata"],
)
def test_of_metadata_few_fields_are_looked_at(fields: Callable[[int], bytes]) -> None:
    """A publisher may write 2.6 million, and a turn of the loop has 10 ms."""
    batch_of_seven = b"\x58\x07"
    few, many = fields(29_000) + batch_of_seven, fields(31_000) + batch_of_seven
    assert messages_in_metadata(few, 0, len(few)) == 7
    assert messages_in_metadata(many, 0, len(many)) == UNCOUNTED


def test_unreadable_metadata_counts_what_was_read_before() -> None:
    batch_of_five = wire.tag(11, 0) + wire.varint(5)
    assert messages_in_metadata(batch_of_five + b"\xff", 0, 3) == 5
    assert messages_in_metadata(b"\x0f" + batch_of_five, 0, 3) == 1


SOUND_SEND = wire.delimited(SEND, bytes.fromhex("08011002"))


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("08 06 08 12", "a SEND that ends as a PING"),
        ("08 12 08 06", "a PING that ends as a SEND"),
        ("08 06 08 63", "a SEND for decoders that do not know type 99"),
        ("08 86 80 80 80 10", "2**32 + 6: SEND for a decoder of 32 bits"),
        ("08 00", "type 0, which a piece has that continues a frame"),
        ("08 ff ff ff ff ff ff ff ff ff 01", "type -1"),
        ("08 06 88 80 80 80 10 12", "a tag of 33 bits: `type`, and so a PING, for a decoder of 32"),
        ("88 80 80 80 80 00 06", "a tag of six bytes"),
        ("08 06 00 00", "field number 0"),
        ("08 06 2b 2c", "a group"),
        ("08 06 2e", "wire type 6"),
        ("0d 06 00 00 00", "a type that is no varint"),
        ("", "no type at all"),
    ],
)
def test_a_command_that_decoders_disagree_on_is_refused(command: str, why: str) -> None:
    for ambiguous in (bytes.fromhex(command) + SOUND_SEND, SOUND_SEND + bytes.fromhex(command)):
        with pytest.raises(MalformedFrame):
            read_command(ambiguous, 0, len(ambiguous), SEND)


@pytest.mark.parametrize(("kind", "why"), [(SEND, "does not end with the command"), (MESSAGE, "twice")])
def test_a_command_that_is_there_twice_is_refused(kind: int, why: str) -> None:
    body = wire.delimited(kind, bytes.fromhex("08011002"))
    twice = wire.tag(1, 0) + wire.varint(kind) + body + body
    with pytest.raises(MalformedFrame, match=why):
        read_command(twice, 0, len(twice), kind)


@pytest.mark.parametrize("length", [5, 127, 2**31 - 1, 2**32 - 1, 2**32 + 4, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("number", [SEND, 77])
def test_a_length_that_lies_is_refused(length: int, number: int) -> None:
    command = b"\x08\x09" + wire.tag(number, 2) + wire.varint(length) + b"\x08\x01\x10\x02"
    with pytest.raises(MalformedFrame, match="longer than"):
        read_command(command, 0, len(command), MESSAGE)


_HIDDEN = b"\x08\x06\x32\x06\x08\x01\x10\x02\x18\x01"
"""A SEND that brokers would read after a field that runs over the end of its message."""
_OVER = b"\xba\x3e" + bytes([len(_HIDDEN)])


@pytest.mark.parametrize(
    "command",
    [
        b"\x08\x0a" + wire.delimited(18, b"\x0a\x03") + _OVER + _HIDDEN,
        b"\x08\x2d" + wire.delimited(18, b"\x0a\x03") + _OVER + _HIDDEN,
        b"\x08\x2d" + wire.delimited(45, b"") + wire.delimited(18, b"\x0a\x03") + _OVER + _HIDDEN,
        b"\x08\x06" + wire.delimited(6, b"\x08\x02\x10\x01\x4a\x02\xba\x3e\x02\x08\x01"),
        b"\x08\x06" + wire.delimited(6, b"\x08\x02\x10\x01") + b"\x08\x06",
        wire.delimited(10, b"\x08\x01") + b"\x08\x0a",
    ],
    ids=["in ACK", "in an unknown command", "after it", "in a SEND", "after a SEND", "before the type"],
)
def test_a_client_cannot_hide_a_command_in_another(command: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_command(command, 0, len(command), SEND)


def test_a_field_with_a_length_may_end_a_send() -> None:
    command = b"\x08\x06" + wire.delimited(6, b"\x08\x02\x10\x01\x4a\x04\x08\x01\x10\x02")
    assert walked(command, SEND) == (SEND, 2, 1)


@pytest.mark.parametrize("size", [65_536, 65_537])
def test_a_send_is_small_beside_its_entry(size: int) -> None:
    """Else a client could have millions of fields skipped, and read again where a limit refuses."""
    body = b"\x08\x02\x10\x01" + b"\x78\x01" * ((size - 8) // 2)
    command = b"\x08\x06" + wire.delimited(6, body + wire.delimited(100, bytes(size - len(body) - 3)))
    assert len(command) == size + 6
    if size <= 65_536:
        assert walked(command, SEND) == (SEND, 2, 1)
    else:
        with pytest.raises(MalformedFrame, match="beside its entry"):
            walked(command, SEND)


def test_a_command_without_a_body_is_one() -> None:
    assert walked(b"\x08\x12", SEND) == (18, -1, 1)


def test_a_number_of_messages_is_cut_to_32_bits() -> None:
    """Else a SEND of 2**32 + 100 messages would be metered as one."""
    command = b"\x08\x06" + wire.delimited(SEND, b"\x08\x01\x10\x02\x18" + wire.varint(2**32 + 100))
    assert walked(command, SEND) == (SEND, 1, 100)


@given(st.sampled_from(EDGES) | st.integers(0, 2**64 - 1), st.integers(0, 9), st.binary(max_size=4))
def test_a_varint_is_a_signed_number_of_64_bits(number: int, padding: int, rest: bytes) -> None:
    data = wire.varint(number, padding)
    assert varint(data + rest, 0, len(data + rest)) == (signed(number), len(data))


@given(st.sampled_from(EDGES) | st.integers(0, 2**64 - 1), st.integers(0, 9), st.binary(max_size=9))
def test_a_number_is_skipped_as_it_would_be_read(number: int, padding: int, rest: bytes) -> None:
    data = wire.varint(number, padding)
    assert skip(data + rest, 0, len(data), tag=0x10) == len(data)
    for end in range(len(data)):
        with pytest.raises(MalformedFrame, match="no end"):
            skip(data + rest, 0, end, tag=0x10)


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 9 + b"\x82", b"\x80" * 10 + b"\x00", b"\xff" * 99]
)
def test_a_varint_without_an_end_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrame, match="no end"):
        varint(data, 0, len(data))
    with pytest.raises(MalformedFrame, match="no end"):
        skip(data, 0, len(data), tag=0x10)


@pytest.mark.parametrize(("last", "value"), [(0, 0), (1, 2**63), (2, 0), (3, 2**63), (0x7F, 2**63)])
def test_bits_above_64_are_cut_off_as_protobuf_does(last: int, value: int) -> None:
    data = b"\x80" * 9 + bytes([last])
    assert varint(data, 0, len(data)) == (signed(value), len(data))
    assert CommandSend.FromString(b"\x08" + data + b"\x10\x05").producer_id == value


@given(st.binary(max_size=12), st.integers(0, 2**32 - 1), st.data())
def test_nothing_is_read_beyond_the_end(data: bytes, tag: int, cut: st.DataObject) -> None:
    """The bytes after `end` belong to another frame."""
    end = cut.draw(st.integers(0, len(data)))
    try:
        after = skip(data, 0, end, tag)
    except MalformedFrame:
        return
    assert 0 <= after <= end
    assert skip(data[:end], 0, end, tag) == after


@given(st.integers(0, 2**32 - 1), st.binary(max_size=5))
def test_u32_is_big_endian(number: int, before: bytes) -> None:
    assert u32(before + number.to_bytes(4, "big"), len(before)) == number


PRODUCER_TAG = BaseCommand.PRODUCER_FIELD_NUMBER << 3 | 2
SCHEMA_TAG = CommandProducer.SCHEMA_FIELD_NUMBER << 3 | 2


@given(
    sizes=st.lists(st.integers(0, 300), max_size=4),
    beside=st.lists(st.sampled_from([1, 2, 4, 6, 8, 200]), max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_schema_data_is_counted_wherever_its_field_is(sizes: list[int], beside: list[int], order: Any) -> None:
    others = [wire.delimited(number, b"beside") for number in beside]
    schemas = [
        wire.delimited(7, wire.delimited(1, b"name") + wire.delimited(3, bytes(size)) + wire.delimited(5, b"\n\0"))
        for size in sizes
    ]
    fields = others + schemas
    order.shuffle(fields)
    command = b"\x08\x05" + wire.delimited(5, b"".join(fields)) + wire.delimited(99, b"\x3a\x03\x1a\x01x")
    assert schema_data_in(command, 0, len(command), PRODUCER_TAG, SCHEMA_TAG, 10_000) == sum(sizes)


def test_few_bytes_beside_schema_data_are_skipped() -> None:
    schema = wire.delimited(7, wire.delimited(5, b"") * 1000 + wire.delimited(3, bytes(5000)))
    command = wire.delimited(5, schema)
    assert schema_data_in(command, 0, len(command), PRODUCER_TAG, SCHEMA_TAG, 1000) == 0
    assert schema_data_in(command, 0, len(command), PRODUCER_TAG, SCHEMA_TAG, 3000) == 5000
