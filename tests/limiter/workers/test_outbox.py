"""What a worker tells, and in which order."""

from limiter.limiter import Entry
from limiter.workers.messages import Asked, Behind, Closed, PassedByLease, Rewound, Spent
from limiter.workers.quota_client import WorkerOutbox
from limiter.workers.worker_leases import StreamAccount, WorkerLease


class Bell:
    def __init__(self) -> None:
        self.rang: list[str] = []

    def soon(self) -> None:
        self.rang.append("soon")

    def sometime(self) -> None:
        self.rang.append("sometime")


def account(messages: int) -> StreamAccount:
    one = StreamAccount(4)
    one.is_metered = False
    one.count(1, messages, 10, (messages, 10))
    return one


def test_messages_are_told_soon_and_what_counts_sometime_and_each_is_asked_for_once() -> None:
    bell = Bell()
    outbox, one = WorkerOutbox(bell, tells_all=False), account(3)
    outbox.count(one, is_consumer=False)
    outbox.count(one, is_consumer=False)
    assert bell.rang == ["sometime"]
    assert outbox.has_counts
    assert outbox.take() == []
    outbox.tell(Closed(1))
    outbox.tell(Closed(2))
    assert bell.rang == ["sometime", "soon"]
    assert outbox.take() == [Closed(1), Closed(2)]
    outbox.settle_all()
    assert outbox.take() == [PassedByLease(4, 1, 3, 10, 3, 10, [])]
    assert not outbox.has_counts


def test_what_metered_consumers_pass_is_told_soon() -> None:
    bell = Bell()
    outbox, one = WorkerOutbox(bell, tells_all=False), account(3)
    one.is_metered = True
    outbox.count(one, is_consumer=True)
    assert bell.rang[0] == "soon"
    assert outbox.take() == [PassedByLease(4, 1, 3, 10, 3, 10, [])]
    unmetered = account(1)
    outbox.count(unmetered, is_consumer=True)
    assert outbox.take() == []
    everything = WorkerOutbox(Bell(), tells_all=True)
    everything.count(unmetered, is_consumer=True)
    assert len(everything.take()) == 1


def test_what_passed_is_told_before_what_is_said_behind_it() -> None:
    outbox, one = WorkerOutbox(Bell(), tells_all=False), account(3)
    outbox.count(one, is_consumer=False)
    outbox.settle(one)
    outbox.tell(Closed(4))
    assert outbox.take() == [PassedByLease(4, 1, 3, 10, 3, 10, []), Closed(4)]


def test_a_lease_that_is_low_is_told_of_once_and_a_closed_one_not_at_all() -> None:
    bell, one, lease = Bell(), account(3), WorkerLease(9)
    outbox = WorkerOutbox(bell, tells_all=False)
    lease.lend(10, None)
    one.leases = (lease,)
    assert one.take(6, 0, 0)
    outbox.count(one, is_consumer=False)
    outbox.count(one, is_consumer=False)
    assert bell.rang == ["sometime", "soon"]
    assert outbox.take() == [Spent(9, 6, 0, 0, 0, wants_more=True)]
    assert one.take(3, 0, 0)
    outbox.count(one, is_consumer=False)
    lease.empty()
    assert outbox.take() == []


def test_what_waits_unqueued_is_told_until_nothing_does() -> None:
    outbox, one = WorkerOutbox(Bell(), tells_all=False), StreamAccount(4)
    one.behind.append(Entry(b"x", 2, 10, 0, 0))
    outbox.wait(one)
    outbox.settle_all()
    assert outbox.take() == [Behind(4, 1, 2, 10)]
    assert outbox.has_counts
    one.behind.clear()
    outbox.settle_all()
    assert outbox.take() == [Behind(4, 0, 0, 0)]
    assert not outbox.has_counts
    outbox.wait(one)
    outbox.forget(one)
    assert not outbox.has_counts


def test_what_a_consumer_asks_for_in_one_turn_is_one_message_however_often_it_asks() -> None:
    """A client sends FLOW and REDELIVER as fast as it can write; the supervisor hears all workers."""
    bell = Bell()
    outbox = WorkerOutbox(bell, tells_all=True)
    for number in range(1000):
        outbox.ask(number % 2, 5, is_granted=False)
        outbox.ask(0, 1, is_granted=True)
        if number >= 500:
            outbox.rewind(0)
    assert bell.rang == ["soon"]
    assert outbox.take() == [
        Asked(0, 1255, is_granted=False),
        Asked(0, 501, is_granted=True),
        Asked(1, 2500, is_granted=False),
        Rewound(0),
        Asked(0, 499, is_granted=True),
        Asked(0, 1245, is_granted=False),
    ]
    outbox.ask(0, 1, is_granted=False)
    outbox.rewind(0)
    assert outbox.take() == [Asked(0, 1, is_granted=False), Rewound(0)]


def test_it_asks_anew_behind_anything_else_that_is_told() -> None:
    outbox = WorkerOutbox(Bell(), tells_all=True)
    outbox.ask(1, 5, is_granted=False)
    outbox.tell(Closed(2))
    outbox.ask(1, 6, is_granted=False)
    assert outbox.take() == [Asked(1, 5, is_granted=False), Closed(2), Asked(1, 6, is_granted=False)]
