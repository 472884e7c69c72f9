"""What a worker holds of one stream beyond the tickets that the judge may have of it at one time."""

from limiter.limiter import Entry
from limiter.workers.messages import Behind, Lent, PassedByLease, QueuedEntry, Released, Spent, Wired
from limiter.workers.quota_client import LONGEST_NS
from limiter.workers.worker_leases import WINDOW
from tests.limiter.workers.test_deputy import Rig, kinds


def test_what_is_behind_has_no_ticket_before_those_that_were_there_first() -> None:
    rig = Rig()
    for messages in range(1, WINDOW + 3):
        rig.hold(messages)
    rig.deputy.take()
    rig.deputy.obey(Released(1, 10), 0)
    rig.hold(WINDOW + 3)
    assert rig.deputy.take() == []
    rig.deputy.obey(Released(1, WINDOW), 0)
    assert [letter.messages for letter in rig.deputy.take() if isinstance(letter, QueuedEntry)] == [
        WINDOW + 1,
        WINDOW + 2,
        WINDOW + 3,
    ]


def test_what_is_behind_goes_by_what_was_lent_only_when_all_tickets_have_gone() -> None:
    rig = Rig()
    held = [rig.hold() for _ in range(WINDOW + 3)]
    rig.lent(10)
    rig.deputy.take()
    rig.deputy.obey(Released(1, WINDOW - 1), 0)
    assert rig.left == held[: WINDOW - 1]
    assert rig.deputy.take() == []
    rig.deputy.obey(Released(1, WINDOW), 0)
    assert rig.left == held
    assert kinds(rig.deputy.report()) == [PassedByLease, Behind, Spent]


def test_where_one_of_several_limits_has_nothing_lent_what_is_behind_gets_tickets_early() -> None:
    """Somebody waits there, and it would wait a round trip longer than others."""
    rig = Rig()
    for _ in range(WINDOW + 3):
        rig.hold()
    rig.deputy.obey(Wired(1, [3, 4], by_ticket=False, is_metered=False), 0)
    rig.deputy.obey(Lent(3, 10, None), 0)
    rig.deputy.take()
    rig.deputy.obey(Released(1, WINDOW // 2 + 1), 0)
    assert kinds(rig.deputy.take()) == [QueuedEntry] * 3


def test_the_judge_never_has_more_tickets_than_the_window_of_one_stream() -> None:
    rig = Rig()
    for _ in range(3 * WINDOW):
        rig.hold()
    assert len(rig.deputy.take()) == WINDOW
    rig.deputy.obey(Released(1, WINDOW - 20), 0)
    assert len(rig.deputy.take()) == WINDOW - 20


def test_what_has_waited_for_a_second_goes_by_ticket_to_the_end() -> None:
    rig = Rig()
    for _ in range(WINDOW + 2):
        rig.hold()
    rig.lent(10)
    rig.deputy.take()
    rig.deputy.obey(Released(1, WINDOW), LONGEST_NS + 1)
    assert kinds(rig.deputy.take()) == [QueuedEntry, QueuedEntry]


def test_where_an_entry_counts_as_one_that_is_what_is_taken_of_a_loan() -> None:
    rig = Rig()
    rig.stream.by_entry = True
    for _ in range(WINDOW + 2):
        rig.deputy.hold(rig.stream, Entry(b"x", 50, 10, 0, 0, charged=1), 0)
    rig.lent(5)
    rig.deputy.obey(Released(1, WINDOW), 0)
    assert len(rig.left) == WINDOW + 2
    assert rig.deputy.pass_entry(rig.stream, 50, 10, 0)
    *_, spent = rig.deputy.report()
    assert spent == Spent(3, 3, 0, 0, 0, wants_more=True)


def test_where_a_limit_refuses_all_that_waits_has_its_ticket() -> None:
    rig = Rig()
    for _ in range(WINDOW + 10):
        rig.hold()
    assert len(rig.deputy.take()) == WINDOW
    rig.deputy.obey(Wired(1, [3], by_ticket=True, is_metered=False, is_rejected=True), 0)
    assert kinds(rig.deputy.take()) == [QueuedEntry] * 10
    for _ in range(WINDOW):
        rig.hold()
    assert kinds(rig.deputy.take()) == [QueuedEntry] * WINDOW
