import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.payload import HEADER_BYTES, DamagedError, NotOursError, Stamp, make_payload, read_payload

STAMPS = st.builds(
    Stamp,
    run=st.binary(min_size=8, max_size=8),
    producer=st.integers(0, 2**32 - 1),
    sequence=st.integers(0, 2**64 - 1),
)
SIZES = st.integers(HEADER_BYTES, 300)


@given(stamp=STAMPS, size=SIZES)
def test_what_is_stamped_is_read_and_the_size_is_kept(stamp: Stamp, size: int) -> None:
    payload = make_payload(stamp, size)
    assert (len(payload), read_payload(payload)) == (size, stamp)


@given(stamp=STAMPS, size=SIZES, data=st.data())
def test_any_changed_byte_is_seen(stamp: Stamp, size: int, data: st.DataObject) -> None:
    payload = bytearray(make_payload(stamp, size))
    payload[data.draw(st.integers(0, size - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises((DamagedError, NotOursError)):
        read_payload(bytes(payload))


@given(stamp=STAMPS, size=SIZES, data=st.data())
def test_a_shortened_payload_is_seen(stamp: Stamp, size: int, data: st.DataObject) -> None:
    shorter = make_payload(stamp, size)[: data.draw(st.integers(0, size - 1))]
    with pytest.raises((DamagedError, NotOursError)):
        read_payload(shorter)


def test_another_programs_payload_is_not_ours() -> None:
    with pytest.raises(NotOursError):
        read_payload(b"hello")
