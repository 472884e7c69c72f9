import pytest

from loadgen.standin.entry_log import EARLIEST_LEDGER, ENTRY_OVERHEAD, LATEST_LEDGER, EntryLog
from loadgen.standin.refusal import Refused
from protocol.pulsar_pb2 import ServerError
from tests.loadgen.standin.doubles import message_id, payload

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
    with pytest.raises(Refused) as refused:
        log.append(1, payload())
    assert refused.value.error == ServerError.ProducerBlockedQuotaExceededError
    log.trim(1)
    with pytest.raises(Refused):
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
        (message_id(2**63 - 1, LATEST_LEDGER), 6),
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
