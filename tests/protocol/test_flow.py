"""FLOW read and written by hand is what protobuf reads and writes."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.commands import command_in, encode
from protocol.flow import MOST_PERMITS, flow_frame, read_flow
from protocol.pulsar_pb2 import BaseCommand, CommandAck, CommandFlow

CONSUMERS = st.integers(0, 2**64 - 1) | st.integers(0, 300)
PERMITS = st.integers(0, 2**32 - 1) | st.integers(0, 300)
NOT_READ = (-1, 0)


def command(consumer: int, permits: int) -> bytes:
    return command_in(encode(CommandFlow(consumer_id=consumer, message_permits=permits)))


@given(CONSUMERS, PERMITS)
def test_a_flow_that_clients_write_is_read(consumer: int, permits: int) -> None:
    read = read_flow(command(consumer, permits))
    assert read == ((consumer, permits) if consumer < 2**63 else NOT_READ)


@given(CONSUMERS, st.integers(1, MOST_PERMITS))
def test_a_flow_frame_is_written_as_protobuf_writes_it(consumer: int, permits: int) -> None:
    assert flow_frame(consumer, permits) == encode(CommandFlow(consumer_id=consumer, message_permits=permits))


@given(
    CONSUMERS,
    PERMITS,
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), min_size=1, max_size=3),
    st.integers(-4, 3),
)
@example(1, 2, [(7, 0x80)], 1)  # a number that does not end
@example(1, 2, [(3, 0xFF)], 0)  # a length of 127
@example(1, 2, [], 2)  # more after it
def test_every_flow_that_is_read_protobuf_reads_alike(
    consumer: int, permits: int, changes: list[tuple[int, int]], more: int
) -> None:
    changed = bytearray(command(consumer, permits))
    for at, byte in changes:
        changed[at % len(changed)] = byte
    changed = changed + bytes(more) if more >= 0 else changed[:more]
    read = read_flow(bytes(changed))
    if read == NOT_READ:
        return
    try:
        flow = BaseCommand.FromString(bytes(changed))
    except DecodeError:
        pytest.fail(f"{changed.hex()} was read as {read}, and is none")
    assert flow.type == BaseCommand.FLOW
    assert (flow.flow.consumer_id, flow.flow.message_permits) == read


@pytest.mark.parametrize(
    "unusual",
    [
        b"",
        b"\x08\x0b",
        command_in(encode(CommandAck(consumer_id=1, ack_type=CommandAck.Individual))),
        b"\x5a\x04\x08\x01\x10\x05\x08\x0b",  # the type after it
        b"\x08\x0b\x5a\x04\x10\x05\x08\x01",  # the permits first
        b"\x08\x0b\x5a\x06\x08\x01\x10\x05\x10\x07",  # permits twice, of which the last ones count
        b"\x08\x0b\x5a\x08\x08\x01\x10\x85\x80\x80\x80\x10",  # permits of more than 32 bits, which are cut
        b"\x08\x0b\x5a\x04\x08\x01\x10\x05\x08\x0b",  # the type again
        b"\x08\x0b\x5a\x04\x08\x01\x18\x05",  # another field
        b"\x08\x0b\x5a\x04\x08\x80\x80\x01",  # no permits
        b"\x08\x0b\x5a\x0d\x08\x01\x10" + b"\xff" * 9 + b"\x01",  # fewer than none
        b"\x08\x0b\x5a\x17\x08\x01\x10\x05" + b"\x18\x00" * 10,  # more bytes after them than two numbers take
    ],
)
def test_other_forms_are_left_to_protobuf(unusual: bytes) -> None:
    assert read_flow(unusual) == NOT_READ
