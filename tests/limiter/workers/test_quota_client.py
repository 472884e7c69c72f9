"""A worker's scheduler; what must be true of several at any delay, is in test_machine.py."""

from collections.abc import Sequence

import pytest

from limiter.limiter import Entry, Stream, StreamName
from limiter.workers.messages import (
    Asked,
    Batch,
    Closed,
    Confirmed,
    Discarded,
    Granted,
    Lent,
    Named,
    Opened,
    PassedByLease,
    QueuedEntry,
    Recalled,
    Released,
    Spent,
    Wired,
    Withdrawn,
)
from limiter.workers.quota_client import QuotaClient
from limiter.workers.worker_leases import WINDOW
from tests.limiter.workers.together import WHOSE, Bells


def kinds(messages: Sequence[object]) -> list[type]:
    return [type(message) for message in messages]


class Rig:
    """A quota client with one producer, and what has left."""

    def __init__(self) -> None:
        self.quota_client = QuotaClient(Bells())
        self.left: list[Entry] = []
        self.stream = Stream(StreamName("publish", "t", "n", "x", 1), (), self.leave)
        self.quota_client.open(self.stream, "x", WHOSE)
        assert kinds(self.quota_client.take()) == [Opened]

    def leave(self, _stream: Stream, entry: Entry) -> None:
        self.left.append(entry)

    def lent(self, messages: int) -> None:
        self.quota_client.obey(Wired(1, [3], by_queue=False, is_metered=False), 0)
        self.quota_client.obey(Lent(3, messages, None), 0)

    def hold(self, messages: int = 1, size: int = 10) -> Entry:
        entry = Entry(b"x", messages, size, 0, 0)
        self.quota_client.hold(self.stream, entry, 0)
        return entry


def test_until_it_is_known_what_applies_every_entry_is_queued() -> None:
    rig = Rig()
    assert not rig.quota_client.pass_entry(rig.stream, 1, 10, 0)
    rig.hold()
    assert kinds(rig.quota_client.take()) == [QueuedEntry]


def test_without_limits_all_passes_and_is_only_counted() -> None:
    rig = Rig()
    rig.quota_client.obey(Wired(1, [], by_queue=False, is_metered=False), 0)
    assert rig.quota_client.pass_entry(rig.stream, 10**9, 10**12, 0)
    assert rig.quota_client.take() == []
    (passed,) = rig.quota_client.report()
    assert isinstance(passed, PassedByLease)
    assert passed.messages == 10**9


def test_what_passed_is_told_with_the_limits_that_were_known_then() -> None:
    rig = Rig()
    rig.lent(100)
    assert rig.quota_client.pass_entry(rig.stream, 1, 10, 0)
    rig.quota_client.obey(Wired(1, [3, 4], by_queue=False, is_metered=False), 0)
    assert [message.limiters for message in rig.quota_client.report() if isinstance(message, PassedByLease)] == [[3]]


def test_what_was_lent_passes_and_when_half_of_it_is_used_more_is_wanted() -> None:
    rig = Rig()
    rig.lent(10)
    for _ in range(5):
        assert rig.quota_client.pass_entry(rig.stream, 1, 10, 0)
    assert rig.quota_client.take() == []
    assert rig.quota_client.pass_entry(rig.stream, 1, 10, 0)
    (spent,) = rig.quota_client.take()
    assert isinstance(spent, Spent)
    assert (spent.messages, spent.wants_more) == (6, True)
    assert not rig.quota_client.pass_entry(rig.stream, 5, 10, 0)


def test_nothing_overtakes_what_is_held() -> None:
    rig = Rig()
    held = rig.hold()
    rig.lent(10)
    assert not rig.quota_client.admit(rig.stream, 1, 10, 0)
    rig.quota_client.obey(Released(1, 1), 0)
    assert rig.left == [held]
    assert rig.quota_client.admit(rig.stream, 1, 10, 0)
    rig.quota_client.withdraw(rig.stream, 1, 10)
    assert not rig.quota_client.pass_entry(rig.stream, 11, 10, 0)


def test_commands_go_with_the_entry_before_them() -> None:
    rig = Rig()
    first, command, second = rig.hold(), rig.hold(0, 0), rig.hold()
    assert kinds(rig.quota_client.take()) == [QueuedEntry, QueuedEntry]
    rig.quota_client.obey(Released(1, 1), 0)
    assert rig.left == [first, command]
    rig.quota_client.obey(Released(1, 2), 0)
    assert rig.left == [first, command, second]


def test_what_was_dropped_is_not_released_by_what_was_on_its_way() -> None:
    rig = Rig()
    dropped = [rig.hold(), rig.hold()]
    assert rig.quota_client.drop_held(rig.stream, 0) == dropped
    kept = rig.hold()
    assert kinds(rig.quota_client.take()) == [QueuedEntry, QueuedEntry, Withdrawn, QueuedEntry]
    rig.quota_client.obey(Released(1, 2), 0)
    assert rig.left == []
    rig.quota_client.obey(Released(1, 3), 0)
    assert rig.left == [kept]


def test_what_is_done_is_confirmed_behind_it() -> None:
    rig = Rig()
    rig.quota_client.obey(Batch(9), 0)
    (confirmed,) = rig.quota_client.take()
    assert confirmed == Confirmed(9)


def test_a_recall_is_answered_whether_there_is_anything_or_not() -> None:
    rig = Rig()
    rig.lent(10)
    rig.quota_client.obey(Recalled(3), 0)
    rig.quota_client.obey(Recalled(77), 0)
    assert rig.quota_client.take() == [
        Spent(3, 0, 0, 10, 0, wants_more=False, is_answer=True),
        Spent(77, 0, 0, 0, 0, wants_more=False, is_answer=True),
    ]
    assert not rig.quota_client.pass_entry(rig.stream, 1, 1, 0)


def test_what_is_not_used_from_one_report_to_the_next_is_given_back() -> None:
    rig = Rig()
    rig.lent(10)
    assert rig.quota_client.pass_entry(rig.stream, 1, 10, 0)
    assert kinds(rig.quota_client.report()) == [PassedByLease, Spent]
    assert not rig.quota_client.is_at_rest
    assert rig.quota_client.report() == [Spent(3, 0, 0, 9, 0)]
    assert rig.quota_client.is_at_rest
    assert rig.quota_client.report() == []


def test_a_closed_stream_tells_all_before_it_goes_and_what_comes_for_it_does_nothing() -> None:
    rig = Rig()
    rig.lent(10)
    assert rig.quota_client.pass_entry(rig.stream, 1, 10, 0)
    held = rig.hold(100)
    assert rig.quota_client.close(rig.stream, 0) == [held]
    assert kinds(rig.quota_client.take()) == [PassedByLease, QueuedEntry, Withdrawn, Spent, Closed]
    for verdict in (Released(1, 1), Granted(1, 5), Wired(1, [3], by_queue=False, is_metered=False)):
        rig.quota_client.obey(verdict, 0)
    rig.quota_client.obey(Lent(3, 8, None), 0)
    assert rig.quota_client.take() == [Spent(3, 0, 0, 8, 0)]
    rig.quota_client.count_dropped(rig.stream, 1, 1)
    assert kinds(rig.quota_client.take()) == [Discarded]


def test_permits_are_asked_for_and_granted_through_it() -> None:
    quota_client, granted = QuotaClient(Bells()), list[int]()
    stream = Stream(StreamName("dispatch", "t", "n", "x", 1), (), lambda _stream, _entry: None)
    quota_client.open(stream, "x", WHOSE)
    quota_client.meter(stream, granted.append)
    quota_client.take()
    assert quota_client.is_metered(stream)
    quota_client.ask(stream, 100, is_granted=False)
    quota_client.ask_again(stream, 3)
    quota_client.name(stream, "p")
    assert quota_client.take() == [Asked(1, 100, is_granted=False), Withdrawn(1, 3), Named(1, "p")]
    quota_client.obey(Granted(1, 7), 0)
    assert granted == [7]
    quota_client.forgo(stream)
    quota_client.obey(Granted(1, 5), 0)
    assert granted == [7], "it is about to end, and these were on their way"


class Fragile(Rig):
    """Some entries leave badly."""

    def __init__(self, *broken: int) -> None:
        super().__init__()
        self.broken = broken

    def leave(self, _stream: Stream, entry: Entry) -> None:
        self.left.append(entry)
        if len(self.left) in self.broken:
            raise OSError("cannot be written")


def test_whatever_becomes_of_one_entry_those_that_may_go_with_it_do() -> None:
    """Nobody would release them again, and their stream would wait for ever."""
    rig = Fragile(1, 4, 5)
    held = [rig.hold(), rig.hold(0, 0), rig.hold(), rig.hold(), rig.hold(), rig.hold()]
    with pytest.raises(OSError, match="written"):
        rig.quota_client.obey(Released(1, 4), 0)
    assert rig.left == held[:5]
    rig.quota_client.obey(Released(1, 5), 0)
    assert rig.left == held


def test_whatever_becomes_of_one_that_goes_by_what_was_lent_those_behind_it_are_judged() -> None:
    rig = Fragile(WINDOW + 1)
    held = [rig.hold() for _ in range(WINDOW + 3)]
    rig.lent(100)
    rig.quota_client.take()
    with pytest.raises(OSError, match="written"):
        rig.quota_client.obey(Released(1, WINDOW), 0)
    assert kinds(rig.quota_client.take()) == [PassedByLease, QueuedEntry, QueuedEntry]
    rig.quota_client.obey(Released(1, WINDOW + 2), 0)
    assert rig.left == held


def test_what_was_lent_of_a_limit_is_there_for_all_streams_within_until_the_last_has_gone() -> None:
    rig = Rig()
    other = Stream(StreamName("publish", "t", "n", "x", 2), (), rig.leave)
    rig.quota_client.open(other, "x", WHOSE)
    for number in (1, 2):
        rig.quota_client.obey(Wired(number, [3], by_queue=False, is_metered=False), 0)
    rig.quota_client.obey(Lent(3, 10, None), 0)
    rig.quota_client.take()
    rig.quota_client.close(other, 0)
    assert rig.quota_client.take() == [Closed(2)]
    assert rig.quota_client.pass_entry(rig.stream, 2, 10, 0)
    rig.quota_client.obey(Lent(3, 10, None), 0)
    assert rig.quota_client.pass_entry(rig.stream, 18, 10, 0)
    rig.quota_client.close(rig.stream, 0)
    assert rig.quota_client.take()[1:] == [Spent(3, 20, 0, 0, 0), Closed(1)]


def test_what_is_withdrawn_is_there_for_the_next() -> None:
    rig = Rig()
    rig.lent(10)
    for _ in range(3):
        assert rig.quota_client.admit(rig.stream, 10, 10, 0)
        rig.quota_client.withdraw(rig.stream, 10, 10)
    assert rig.quota_client.report() == [Spent(3, 0, 0, 10, 0)]


def test_whoever_is_lent_something_reports_in_time() -> None:
    """Else what nobody uses would never be given back."""
    rang: list[str] = []
    bells = Bells()
    bells.sometime = lambda: rang.append("sometime")  # type: ignore[method-assign]
    quota_client = QuotaClient(bells)
    quota_client.obey(Lent(3, 10, None), 0)
    assert rang == ["sometime"]
