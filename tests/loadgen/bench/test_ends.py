import pytest

from loadgen.bench.ends import Load, send_frame
from protocol.commands import split


@pytest.mark.parametrize("size", [100, 1024, 16384])
def test_a_frame_has_the_size_asked_for(size):
    frame = send_frame(size)
    assert abs(len(frame) - size) <= 4
    envelope, _ = split(frame)
    assert (envelope.send.producer_id, envelope.send.num_messages) == (1, 1)


def test_a_load_knows_its_bytes():
    assert Load(b"x" * 7, 3).size == 21
