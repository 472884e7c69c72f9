from hypothesis import given
from hypothesis import strategies as st

from loadgen.standin.entry import KEY_SLOTS, Entry, metadata_of
from tests.loadgen.standin.doubles import payload

CHECKSUM = b"\x0e\x01\x00\x00\x00\x00"


def slot_of(**metadata):
    return Entry(0, 1, payload(**metadata)).slot


def test_metadata_is_found_behind_a_checksum_and_without_one():
    assert metadata_of(payload(publish_time=7)).publish_time == 7
    assert metadata_of(CHECKSUM + payload(publish_time=7)).publish_time == 7


@given(st.binary(max_size=40))
def test_any_bytes_have_a_slot_and_a_publish_time(data):
    entry = Entry(0, 1, data)
    assert 0 <= entry.slot < KEY_SLOTS
    assert entry.publish_time_ms >= 0


def test_the_same_key_falls_into_the_same_slot_whoever_sends_it():
    assert slot_of(partition_key="k", sequence_id=1) == slot_of(partition_key="k", producer_name="other")


def test_the_ordering_key_comes_before_the_partition_key():
    assert slot_of(ordering_key=b"o", partition_key="a") == slot_of(ordering_key=b"o", partition_key="b")


def test_messages_without_a_key_spread_over_the_slots():
    assert len({slot_of(sequence_id=number) for number in range(100)}) > 90


def test_only_a_batch_has_a_batch_size():
    assert Entry(0, 1, payload()).batch_size == 0
    assert Entry(0, 3, payload(num_messages_in_batch=3)).batch_size == 3
