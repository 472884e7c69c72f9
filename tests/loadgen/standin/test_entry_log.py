"""Entries, their log, and the cursor on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.standin.entry_log import (
    EARLIEST_LEDGER,
    ENTRY_OVERHEAD,
    KEY_SLOTS,
    Cursor,
    EntryLog,
    StandinRefusal,
    StoredEntry,
    metadata_of,
)
from protocol.pulsar_pb2 import ServerError
from tests.loadgen.standin.doubles import message_id, payload

CHECKSUM = b"\x0e\x01\x00\x00\x00\x00"


def slot_of(**metadata):
    return StoredEntry(0, 1, payload(**metadata)).slot


def test_metadata_is_found_behind_a_checksum_and_without_one():
    assert metadata_of(payload(publish_time=7)).publish_time == 7
    assert metadata_of(CHECKSUM + payload(publish_time=7)).publish_time == 7


@given(st.binary(max_size=40))
def test_any_bytes_have_a_slot_and_a_publish_time(data):
    entry = StoredEntry(0, 1, data)
    assert 0 <= entry.slot < KEY_SLOTS
    assert entry.publish_time_ms >= 0


def test_the_same_key_falls_into_the_same_slot_whoever_sends_it():
    assert slot_of(partition_key="k", sequence_id=1) == slot_of(partition_key="k", producer_name="other")


def test_the_ordering_key_comes_before_the_partition_key():
    assert slot_of(ordering_key=b"o", partition_key="a") == slot_of(ordering_key=b"o", partition_key="b")


def test_messages_without_a_key_spread_over_the_slots():
    assert len({slot_of(sequence_id=number) for number in range(100)}) > 90


def test_only_a_batch_has_a_batch_size():
    assert StoredEntry(0, 1, payload()).batch_size == 0
    assert StoredEntry(0, 3, payload(num_messages_in_batch=3)).batch_size == 3


LEDGER = 5
ROOM = 1_000_000


def filled(count, **options):
    log = EntryLog(LEDGER, **{"capacity": ROOM, **options})
    for number in range(count):
        log.append(1, payload(publish_time=number * 10))
    return log


def test_entries_are_numbered_in_their_order():
    log = filled(3)
    assert [log.get(number).entry_id for number in range(3)] == [0, 1, 2]
    assert log.get(3) is None


def test_trimming_frees_what_is_before_the_needed_entry():
    log = filled(4)
    log.trim(3)
    assert (log.first_id, log.next_id) == (3, 4)
    assert log.kept_bytes == len(payload(publish_time=30)) + ENTRY_OVERHEAD
    log.trim(4)
    assert log.kept_bytes == 0


def test_retention_keeps_the_newest_of_what_nobody_needs():
    size = len(payload(publish_time=10)) + ENTRY_OVERHEAD
    log = filled(10, retention=3 * size)
    log.trim(10)
    assert log.next_id - log.first_id == 3


def test_a_full_log_refuses_until_half_of_it_is_free():
    size = len(payload(publish_time=10)) + ENTRY_OVERHEAD
    log = filled(4, capacity=4 * size)
    log.check_room()
    with pytest.raises(StandinRefusal) as refused:
        log.append(1, payload())
    assert refused.value.error == ServerError.ProducerBlockedQuotaExceededError
    log.trim(1)
    with pytest.raises(StandinRefusal):
        log.append(1, payload())
    log.trim(2)
    assert log.append(1, payload()).entry_id == 4


@pytest.mark.parametrize(
    ("asked", "position"),
    [
        (message_id(4, LEDGER), 4),
        (message_id(0, LEDGER), 2),
        (message_id(99, LEDGER), 6),
        (message_id(2**64 - 1, EARLIEST_LEDGER), 2),
        (message_id(2**63 - 1, 2**63 - 1), 6),
        (message_id(4, LEDGER - 1), 2),
        (message_id(4, LEDGER + 1), 6),
    ],
)
def test_a_message_id_is_a_position_within_what_is_kept(asked, position):
    log = filled(6)
    log.trim(2)
    assert log.position_of(asked) == position


@pytest.mark.parametrize(("time_ms", "position"), [(0, 2), (30, 3), (31, 4), (1000, 6)])
def test_a_time_is_the_first_entry_published_then_or_later(time_ms, position):
    log = filled(6)
    log.trim(2)
    assert log.position_at(time_ms) == position


def test_the_position_moves_once_the_gap_is_closed():
    cursor = Cursor(0)
    cursor.acknowledge(1)
    cursor.acknowledge(2)
    assert cursor.position == 0
    cursor.acknowledge(0)
    assert cursor.position == 3


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=40))
def test_a_cursor_knows_just_what_was_acknowledged(steps):
    cursor, done = Cursor(0), set()
    for is_cumulative, entry_id in steps:
        if is_cumulative:
            cursor.acknowledge_below(entry_id)
            done |= set(range(entry_id))
        else:
            cursor.acknowledge(entry_id)
            done.add(entry_id)
    assert {entry_id for entry_id in range(25) if cursor.is_acknowledged(entry_id)} == done
    assert cursor.position == min(set(range(25)) - done)


def test_a_batch_is_acknowledged_when_no_message_of_it_is_open():
    cursor = Cursor(0)
    assert not cursor.acknowledge_in_part(0, [0b0111])
    assert not cursor.acknowledge_in_part(0, [0b1101])
    assert cursor.open_in_batch(0) == (0b0101,)
    assert cursor.acknowledge_in_part(0, [0b1010])
    assert cursor.position == 1
    assert cursor.open_in_batch(0) == ()


def test_a_shorter_ack_set_has_nothing_open_behind_its_end():
    cursor = Cursor(0)
    cursor.acknowledge_in_part(0, [-1, 0b1])
    assert not cursor.acknowledge_in_part(0, [0b1])
    assert cursor.open_in_batch(0) == (0b1, 0)


def test_a_reset_forgets_all_acknowledgements():
    cursor = Cursor(0)
    cursor.acknowledge_below(5)
    cursor.acknowledge(7)
    cursor.acknowledge_in_part(8, [1])
    cursor.reset(2)
    assert cursor.position == 2
    assert not any(cursor.is_acknowledged(entry_id) for entry_id in range(2, 10))
    assert cursor.open_in_batch(8) == ()
