from limiter.workers.worker_leases import WorkerLease


def test_nothing_passes_before_something_is_lent() -> None:
    assert not WorkerLease(1).fits(1, 1, 0)


def test_what_was_lent_passes_and_no_more_and_what_is_not_limited_does_not_count() -> None:
    lease = WorkerLease(1)
    lease.lend(10, None)
    assert lease.fits(10, 10**12, 0)
    assert not lease.fits(11, 1, 0)
    lease.charge(10, 500)
    assert not lease.fits(1, 1, 0)
    assert lease.take_used() == (10, 0)
    by_size = WorkerLease(2)
    by_size.lend(None, 100)
    assert by_size.fits(10**9, 100, 0)
    assert not by_size.fits(1, 101, 0)


def test_it_is_low_when_half_of_what_there_was_is_used() -> None:
    lease = WorkerLease(1)
    lease.lend(10, 1000)
    lease.charge(5, 100)
    assert not lease.is_low
    lease.charge(1, 100)
    assert lease.is_low
    assert lease.take_used() == (6, 200)
    assert not lease.is_low
    lease.charge(1, 401)
    assert lease.is_low


def test_a_refund_undoes_a_charge() -> None:
    lease = WorkerLease(1)
    lease.lend(10, 1000)
    lease.charge(7, 700)
    lease.refund(7, 700)
    assert lease.take_used() == (0, 0)
    assert lease.empty() == (10, 1000)


def test_an_empty_one_is_closed_until_something_is_lent_again() -> None:
    lease = WorkerLease(1)
    lease.lend(10, None)
    assert lease.empty() == (10, 0)
    assert not lease.is_open
    lease.lend(4, None)
    assert lease.fits(4, 1, 0)
    assert not lease.fits(5, 1, 0)
