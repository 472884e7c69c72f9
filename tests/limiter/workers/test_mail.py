"""What a worker tells, and in which order."""

from limiter.limiter import Entry
from limiter.workers.messages import Asked, Behind, Closed, PassedByLease, Rewound, Spent
from limiter.workers.quota_client import Outbox
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


def test_letters_are_told_soon_and_what_counts_sometime_and_each_is_asked_for_once() -> None:
    bell = Bell()
    mail, one = Outbox(bell, tells_all=False), account(3)
    mail.count(one, is_consumer=False)
    mail.count(one, is_consumer=False)
    assert bell.rang == ["sometime"]
    assert mail.has_counts
    assert mail.take() == []
    mail.tell(Closed(1))
    mail.tell(Closed(2))
    assert bell.rang == ["sometime", "soon"]
    assert mail.take() == [Closed(1), Closed(2)]
    mail.settle_all()
    assert mail.take() == [PassedByLease(4, 1, 3, 10, 3, 10, [])]
    assert not mail.has_counts


def test_what_metered_consumers_pass_is_told_soon() -> None:
    bell = Bell()
    mail, one = Outbox(bell, tells_all=False), account(3)
    one.is_metered = True
    mail.count(one, is_consumer=True)
    assert bell.rang[0] == "soon"
    assert mail.take() == [PassedByLease(4, 1, 3, 10, 3, 10, [])]
    unmetered = account(1)
    mail.count(unmetered, is_consumer=True)
    assert mail.take() == []
    everything = Outbox(Bell(), tells_all=True)
    everything.count(unmetered, is_consumer=True)
    assert len(everything.take()) == 1


def test_what_passed_is_told_before_what_is_said_behind_it() -> None:
    mail, one = Outbox(Bell(), tells_all=False), account(3)
    mail.count(one, is_consumer=False)
    mail.settle(one)
    mail.tell(Closed(4))
    assert mail.take() == [PassedByLease(4, 1, 3, 10, 3, 10, []), Closed(4)]


def test_a_purse_that_is_low_is_told_of_once_and_a_closed_one_not_at_all() -> None:
    bell, one, purse = Bell(), account(3), WorkerLease(9)
    mail = Outbox(bell, tells_all=False)
    purse.lend(10, None)
    one.purses = (purse,)
    assert one.take(6, 0)
    mail.count(one, is_consumer=False)
    mail.count(one, is_consumer=False)
    assert bell.rang == ["sometime", "soon"]
    assert mail.take() == [Spent(9, 6, 0, 0, 0, wants_more=True)]
    assert one.take(3, 0)
    mail.count(one, is_consumer=False)
    purse.empty()
    assert mail.take() == []


def test_what_waits_without_a_ticket_is_told_until_nothing_does() -> None:
    mail, one = Outbox(Bell(), tells_all=False), StreamAccount(4)
    one.behind.append(Entry(b"x", 2, 10, 0, 0))
    mail.wait(one)
    mail.settle_all()
    assert mail.take() == [Behind(4, 1, 2, 10)]
    assert mail.has_counts
    one.behind.clear()
    mail.settle_all()
    assert mail.take() == [Behind(4, 0, 0, 0)]
    assert not mail.has_counts
    mail.wait(one)
    mail.forget(one)
    assert not mail.has_counts


def test_what_a_consumer_asks_for_in_one_turn_is_one_letter_however_often_it_asks() -> None:
    """A client sends FLOW and REDELIVER as fast as it can write; the supervisor hears all workers."""
    bell = Bell()
    mail = Outbox(bell, tells_all=True)
    for number in range(1000):
        mail.ask(number % 2, 5, is_granted=False)
        mail.ask(0, 1, is_granted=True)
        if number >= 500:
            mail.rewind(0)
    assert bell.rang == ["soon"]
    assert mail.take() == [
        Asked(0, 1255, is_granted=False),
        Asked(0, 501, is_granted=True),
        Asked(1, 2500, is_granted=False),
        Rewound(0),
        Asked(0, 499, is_granted=True),
        Asked(0, 1245, is_granted=False),
    ]
    mail.ask(0, 1, is_granted=False)
    mail.rewind(0)
    assert mail.take() == [Asked(0, 1, is_granted=False), Rewound(0)]


def test_it_asks_anew_behind_anything_else_that_is_told() -> None:
    mail = Outbox(Bell(), tells_all=True)
    mail.ask(1, 5, is_granted=False)
    mail.tell(Closed(2))
    mail.ask(1, 6, is_granted=False)
    assert mail.take() == [Asked(1, 5, is_granted=False), Closed(2), Asked(1, 6, is_granted=False)]
