from limiter.workers.messages import PassedByLease
from limiter.workers.worker_leases import StreamAccount, WorkerLease


def test_all_leases_pay_or_none() -> None:
    account, rich, poor = StreamAccount(1), WorkerLease(1), WorkerLease(2)
    rich.lend(10, None)
    poor.lend(3, None)
    account.leases = (rich, poor)
    assert not account.take(4, 1, 0)
    assert rich.empty() == (10, 0)
    assert poor.take_used() == (0, 0)


def test_what_passed_is_told_once() -> None:
    account = StreamAccount(7)
    account.count(2, 5, 300, (4, 200))
    account.count(1, 1, 900, (1, 900))
    told = account.take_passed()
    assert (told.stream, told.entries, told.messages, told.size) == (7, 3, 6, 1200)
    assert (told.largest_messages, told.largest_size) == (4, 900)
    assert account.take_passed() == PassedByLease(7, 0, 0, 0, 0, 0, [])
