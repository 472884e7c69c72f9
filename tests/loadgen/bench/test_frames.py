import pytest

from loadgen.bench import frames
from protocol.commands import split
from protocol.pulsar_pb2 import MessageMetadata


@pytest.mark.parametrize("size", [100, 1024, 16384])
def test_a_send_has_the_size_asked_for(size):
    frame = frames.send_frame(size, producer_id=3).frame
    envelope, _ = split(frame)
    assert abs(len(frame) - size) <= 4
    assert (envelope.send.producer_id, envelope.send.num_messages) == (3, 1)


@pytest.mark.parametrize("numbered", [frames.send_frame(100), frames.receipt()])
def test_another_sequence_id_fits_where_the_first_one_stands(numbered):
    at, (last,) = numbered.sequence_at, (frames.FIRST_SEQUENCE * 2 - 1,)
    other = bytes([(last >> shift & 0x7F) | 0x80 for shift in (0, 7, 14, 21)] + [last >> 28])
    envelope, _ = split(numbered.frame[:at] + other + numbered.frame[at + 5 :])
    command = envelope.send if envelope.HasField("send") else envelope.send_receipt
    assert command.sequence_id == last


def test_a_message_has_metadata_that_can_be_read():
    frame = frames.message_frame(1024)
    envelope, behind = split(frame)
    size = int.from_bytes(behind[6:10], "big")
    assert abs(len(frame) - 1024) <= 4
    assert envelope.message.consumer_id == frames.CONSUMER_ID
    assert MessageMetadata.FromString(behind[10 : 10 + size]).producer_name == "bench"


def test_a_flow_says_its_permits():
    assert split(frames.flow(500))[0].flow.message_permits == 500


def test_many_are_whole_frames():
    frame = frames.send_frame(16384).frame
    assert frames.many(frame) == frame * (len(frames.many(frame)) // len(frame))
