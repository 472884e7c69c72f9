"""Control commands to frames and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.commands import body_of, command_in, decode, encode, encode_with_payload, read, split, wrap
from protocol.frames import MalformedFrame, ProtocolError
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandFlow,
    CommandPing,
    CommandProducer,
    CommandSeek,
    CommandSend,
)
from tests.protocol import fields as wire
from tests.protocol.streams import frame, u32

COMMANDS = [field for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None]


@pytest.mark.parametrize("field", COMMANDS, ids=[field.name for field in COMMANDS])
def test_every_command_is_wrapped_under_its_own_type(field) -> None:
    body = getattr(BaseCommand(), field.name).__class__()
    envelope = wrap(body)
    assert envelope.type == field.number
    assert envelope.HasField(field.name)
    assert body_of(envelope) == body


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_a_command_comes_back_from_its_frame(consumer_id: int, permits: int) -> None:
    command = CommandFlow(consumer_id=consumer_id, message_permits=permits)
    envelope, rest = split(encode(command))
    assert body_of(envelope) == command
    assert rest == b""


@given(st.binary(max_size=300))
def test_a_payload_comes_back_untouched(payload: bytes) -> None:
    envelope, rest = split(encode_with_payload(CommandSend(producer_id=1, sequence_id=2), payload))
    assert (envelope.send.producer_id, rest) == (1, payload)


@given(payload=st.binary())
def test_a_command_is_cut_out_of_its_frame_as_it_came(payload: bytes) -> None:
    command = CommandSend(producer_id=1, sequence_id=2)
    assert command_in(encode_with_payload(command, payload)) == wrap(command).SerializeToString()


def test_a_frame_is_laid_out_as_pulsar_lays_it_out() -> None:
    assert encode(CommandPing()) == bytes.fromhex("00000009 00000005 0812 920100")
    assert encode_with_payload(CommandSend(producer_id=1, sequence_id=2), b"xy") == bytes.fromhex(
        "0000000e 00000008 0806 3204 0801 1002 7879"
    )


def test_fields_that_this_protocol_file_does_not_know_survive() -> None:
    command = b"\x08\x12" + wire.delimited(18, wire.delimited(77, b"new"))
    assert body_of(decode(command)).SerializeToString() == wire.delimited(77, b"new")


@pytest.mark.parametrize("command", [b"\xff", b"\x08", b"\x2a\x09\x0a", b"\x00\x00"])
def test_bytes_that_are_no_command_are_malformed(command: bytes) -> None:
    with pytest.raises(MalformedFrame, match="cannot be decoded"):
        decode(command)


@pytest.mark.parametrize(
    "command", [b"", b"\x08\x12", b"\x08\x63", b"\x08\x05\x92\x01\x00"], ids=["none", "no body", "unknown", "another's"]
)
def test_an_envelope_without_its_command_is_malformed(command: bytes) -> None:
    with pytest.raises(MalformedFrame, match="is empty"):
        body_of(decode(command))


@pytest.mark.parametrize("size", [6, 2**31, 2**32 - 1])
def test_a_command_longer_than_its_frame_is_malformed(size: int) -> None:
    """Cut off at the frame's end it would decode to another command."""
    ping = encode(CommandPing())
    with pytest.raises(MalformedFrame, match=f"a command of {size} bytes in a frame of 13"):
        split(ping[:4] + u32(size) + ping[8:])


@given(st.binary(max_size=60))
def test_of_any_bytes_only_protocol_errors_come(noise: bytes) -> None:
    for framed in (noise, frame(noise), frame(b"\x08\x05" + wire.delimited(5, noise))):
        try:
            body_of(split(framed)[0])
        except ProtocolError as error:
            assert error.cause == "malformed"  # noqa: PT017  most noise raises, some does not


def test_a_string_that_is_not_utf_8_comes_as_bytes() -> None:
    """Protobuf's doing; whoever reads a name from a command must be ready for it (see parse_topic)."""
    producer = wire.delimited(1, b"t\xff") + b"\x10\x01\x18\x01"
    command = body_of(decode(b"\x08\x05" + wire.delimited(5, producer)))
    assert isinstance(command, CommandProducer)
    assert command.topic == b"t\xff"  # type: ignore[comparison-overlap]  # the stub promises str


def test_a_command_without_a_required_field_is_malformed() -> None:
    whole = CommandSeek(consumer_id=7, request_id=5)
    assert read(encode(whole)[8:]) == whole
    with pytest.raises(MalformedFrame, match="CommandSeek lacks a field"):
        read(b"\x08\x1c\xe2\x01\x02\x08\x07")


def test_many_missing_fields_make_a_short_error() -> None:
    ids = wire.delimited(2, b"") * 10_000
    with pytest.raises(MalformedFrame) as error:
        read(b"\x08\x14" + wire.delimited(20, b"\x08\x07" + ids))
    assert len(str(error.value)) < 100
