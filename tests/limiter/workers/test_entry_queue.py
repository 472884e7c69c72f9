"""What a worker holds of one stream beyond the queued entries that the quota server may have of it at one time."""

from limiter.limiter import Entry
from limiter.workers.messages import Behind, Lent, PassedByLease, QueuedEntry, Released, Spent, Wired
from limiter.workers.quota_client import LONGEST_NS
from limiter.workers.worker_leases import WINDOW
from tests.limiter.workers.test_quota_client import Rig, kinds


def test_what_is_behind_is_not_queued_before_those_that_were_there_first() -> None:
    rig = Rig()
    for messages in range(1, WINDOW + 3):
        rig.hold(messages)
    rig.quota_client.take()
    rig.quota_client.obey(Released(1, 10), 0)
    rig.hold(WINDOW + 3)
    assert rig.quota_client.take() == []
    rig.quota_client.obey(Released(1, WINDOW), 0)
    assert [message.messages for message in rig.quota_client.take() if isinstance(message, QueuedEntry)] == [
        WINDOW + 1,
        WINDOW + 2,
        WINDOW + 3,
    ]


def test_what_is_behind_goes_by_what_was_lent_only_when_all_queued_entries_have_gone() -> None:
    rig = Rig()
    held = [rig.hold() for _ in range(WINDOW + 3)]
    rig.lent(10)
    rig.quota_client.take()
    rig.quota_client.obey(Released(1, WINDOW - 1), 0)
    assert rig.left == held[: WINDOW - 1]
    assert rig.quota_client.take() == []
    rig.quota_client.obey(Released(1, WINDOW), 0)
    assert rig.left == held
    assert kinds(rig.quota_client.report()) == [PassedByLease, Behind, Spent]


def test_where_one_of_several_limits_has_nothing_lent_what_is_behind_is_queued_early() -> None:
    """Somebody waits there, and it would wait a round trip longer than others."""
    rig = Rig()
    for _ in range(WINDOW + 3):
        rig.hold()
    rig.quota_client.obey(Wired(1, [3, 4], by_queue=False, is_metered=False), 0)
    rig.quota_client.obey(Lent(3, 10, None), 0)
    rig.quota_client.take()
    rig.quota_client.obey(Released(1, WINDOW // 2 + 1), 0)
    assert kinds(rig.quota_client.take()) == [QueuedEntry] * 3


def test_the_quota_server_never_has_more_queued_entries_than_the_window_of_one_stream() -> None:
    rig = Rig()
    for _ in range(3 * WINDOW):
        rig.hold()
    assert len(rig.quota_client.take()) == WINDOW
    rig.quota_client.obey(Released(1, WINDOW - 20), 0)
    assert len(rig.quota_client.take()) == WINDOW - 20


def test_what_has_waited_for_a_second_goes_by_the_queue_to_the_end() -> None:
    rig = Rig()
    for _ in range(WINDOW + 2):
        rig.hold()
    rig.lent(10)
    rig.quota_client.take()
    rig.quota_client.obey(Released(1, WINDOW), LONGEST_NS + 1)
    assert kinds(rig.quota_client.take()) == [QueuedEntry, QueuedEntry]


def test_where_an_entry_counts_as_one_that_is_what_is_taken_of_a_loan() -> None:
    rig = Rig()
    rig.stream.by_entry = True
    for _ in range(WINDOW + 2):
        rig.quota_client.hold(rig.stream, Entry(b"x", 50, 10, 0, 0, charged=1), 0)
    rig.lent(5)
    rig.quota_client.obey(Released(1, WINDOW), 0)
    assert len(rig.left) == WINDOW + 2
    assert rig.quota_client.pass_entry(rig.stream, 50, 10, 0)
    *_, spent = rig.quota_client.report()
    assert spent == Spent(3, 3, 0, 0, 0, wants_more=True)


def test_where_a_limit_refuses_all_that_waits_is_queued() -> None:
    rig = Rig()
    for _ in range(WINDOW + 10):
        rig.hold()
    assert len(rig.quota_client.take()) == WINDOW
    rig.quota_client.obey(Wired(1, [3], by_queue=True, is_metered=False, is_rejected=True), 0)
    assert kinds(rig.quota_client.take()) == [QueuedEntry] * 10
    for _ in range(WINDOW):
        rig.hold()
    assert kinds(rig.quota_client.take()) == [QueuedEntry] * WINDOW
