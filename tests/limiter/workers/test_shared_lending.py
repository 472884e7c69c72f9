"""Workers of hosts that share one limit: what they were lent of a share that is lowered, or whose lease ends."""

from typing import Literal

from hypothesis import example, given
from hypothesis import strategies as st

from limiter.levels import Setting
from limiter.limiter import Entry, Limiter, Stream
from limiter.sharing import LOAN_NS, SharedLimits, key_of
from limiter.token_bucket import NANOS_PER_SECOND, WHOLE, Lease, Limit, rate
from limiter.workers.messages import Lent
from tests.limiter.workers.together import Workers
from tests.manual_clock import ManualClock

SECOND = NANOS_PER_SECOND
RATE, BURST = 1000, 400
LEASE_NS = 2 * SECOND


class Host:
    """One member of the fleet, with one worker whose client sends."""

    def __init__(self, clock: ManualClock) -> None:
        self.shared = SharedLimits(Lease(0, LEASE_NS), clock=clock)
        self.world = Workers(1, shared=self.shared)
        self.world.clock = clock
        self.passed = 0
        self.world.limit(Setting.TOPIC, "persistent://t/n/x", Limit(rate(RATE, burst=BURST)))
        self.world.apply()
        self.worker = self.world.workers[0]
        self.stream = self.worker.open("x", self._released)
        self.world.deliver_all()
        self.limiter: Limiter = next(iter(self.world.registry.limiters.values()))

    def _released(self, _stream: Stream, _entry: Entry) -> None:
        self.passed += 1

    def share(self, ppm: int) -> None:
        self.shared.assign(key_of(self.limiter.scope, "messages"), ppm, None, self.world.clock.now)

    def offer(self, entries: int) -> int:
        """Offer so many of one message; return how many passed at once, by what was lent."""
        passed = sum(self.world.offer(self.worker, self.stream, 1, 10) for _ in range(entries))
        self.passed += passed
        return passed

    def borrow(self) -> int:
        """Have the worker lent a quarter of the burst; return how much of that it has."""
        self.offer(1)
        self.world.deliver_all()
        (lease,) = self.worker.quota_client._leases._by_number.values()
        return lease.messages


def test_a_lowered_share_is_exceeded_until_the_worker_has_given_back_what_it_was_lent() -> None:
    host = Host(ManualClock())
    host.share(WHOLE)
    host.world.clock.advance(1)
    assert host.borrow() > BURST // 5
    assert not host.shared.exceeds_shares(host.world.clock.now)
    host.share(WHOLE // 20)
    assert host.shared.exceeds_shares(host.world.clock.now)
    host.world.deliver_all()
    assert not host.shared.exceeds_shares(host.world.clock.now)
    assert host.offer(BURST) == 0


def test_a_worker_that_stands_still_has_nothing_of_its_loan_when_the_share_counts_as_lowered() -> None:
    host = Host(ManualClock())
    host.share(WHOLE)
    host.world.clock.advance(1)
    lent = host.borrow()
    host.share(WHOLE // 20)
    host.world.clock.now += LOAN_NS - 1
    assert host.shared.exceeds_shares(host.world.clock.now)
    assert host.offer(lent // 2) == lent // 2
    host.world.clock.now += 1
    assert not host.shared.exceeds_shares(host.world.clock.now)
    assert host.offer(lent) == 0


def test_an_entry_that_was_released_exceeds_a_lowered_share_until_it_has_left() -> None:
    host = Host(ManualClock())
    host.share(WHOLE)
    host.world.clock.advance(1)
    host.limiter.charge(BURST, 0, host.world.clock.now)
    host.limiter.release(BURST, 0)
    host.share(WHOLE // 20)
    host.world.clock.advance(8)
    assert host.shared.exceeds_shares(host.world.clock.now)
    host.limiter.gone(BURST, 0, host.world.clock.now)
    assert not host.shared.exceeds_shares(host.world.clock.now)


def test_what_was_lent_before_the_lease_ended_is_lost_and_recalled_when_there_is_another_lease() -> None:
    host = Host(ManualClock())
    host.share(WHOLE)
    host.world.clock.advance(1)
    assert host.borrow() > BURST // 5
    host.world.clock.advance(4)
    host.shared.renew(host.world.clock.now + LEASE_NS, host.world.clock.now)
    assert host.offer(1) == 0
    host.world.deliver_all()
    assert host.limiter.borrowers == 0
    assert host.passed == 2  # the first one of all, and that one
    assert [bucket.tokens(host.world.clock.now) for bucket in host.limiter._counting] == [0]


def test_a_loan_that_has_ended_costs_one_round_trip_and_lasts_again() -> None:
    host = Host(ManualClock())
    host.share(WHOLE)
    host.world.clock.advance(1)
    issuer, lent = host.worker.quota_server.lending, host.borrow()
    while issuer.lend(host.limiter, host.world.clock.now):
        """Until as much is lent as may be."""
    host.world.clock.advance(0.4)
    assert issuer.lend(host.limiter, host.world.clock.now) is None
    host.world.clock.advance(0.6)
    host.shared.renew(host.world.clock.now + LEASE_NS, host.world.clock.now)
    assert host.offer(1) == 0
    host.worker.hear_one()
    host.worker.post()
    (told,) = [message for message in host.worker.down if isinstance(message, Lent)]
    assert (told.messages, told.size, told.until) == (0, None, host.world.clock.now + LOAN_NS)
    host.world.deliver_all()
    assert host.offer(lent + 1) == lent


Step = tuple[Literal["offer", "deliver", "share", "wait", "wait alone"], int, int]
HOST = st.integers(0, 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), HOST, st.sampled_from([1, 30, 600])),
        st.tuples(st.just("deliver"), HOST, st.just(0)),
        st.tuples(st.just("share"), HOST, st.sampled_from([WHOLE // 2, WHOLE - WHOLE // 50, WHOLE])),
        st.tuples(st.just("wait"), HOST, st.sampled_from([1, 300, 900, 1500])),
        st.tuples(st.just("wait alone"), HOST, st.sampled_from([300, 900, 2100])),
    ),
    max_size=30,
)
ALL_THAT_GOES: list[Step] = [("offer", 0, 600), ("offer", 1, 600), ("deliver", 1, 0)]
BORROWED: list[Step] = [("wait", 0, 900), ("offer", 0, 1), ("deliver", 0, 0), ("deliver", 1, 0), ("share", 1, WHOLE)]


class Books:
    """What whoever decides knows of two hosts: he gives to one only what the other one certainly does not use."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.hosts = [Host(self.clock) for _ in range(2)]
        self.wanted = [WHOLE // 2, WHOLE // 2]
        self.in_use = [0, 0]
        self._excess, self._at, self._before = 0.0, 0, 0
        self.settle()

    def excess(self) -> float:
        """Return the most that passed by now over any interval beyond the rate."""
        passed = sum(host.passed for host in self.hosts)
        earned = RATE * (self.clock.now - self._at) / SECOND
        self._excess = max(0.0, self._excess - earned) + passed - self._before
        self._at, self._before = self.clock.now, passed
        return self._excess

    def settle(self) -> None:
        """Lower first; raise by what is free."""
        for index, host in enumerate(self.hosts):
            wanted, before = self.wanted[index], host.limiter.shares[0]
            if wanted < before:
                host.share(wanted)
            if host.shared.lease.until <= self.clock.now or not host.shared.exceeds_shares(self.clock.now):
                self.in_use[index] = host.limiter.shares[0] if host.shared.lease.until > self.clock.now else 0
        for index, host in enumerate(self.hosts):
            free = WHOLE - sum(self.in_use)
            raised = min(self.wanted[index], self.in_use[index] + free)
            if raised > self.in_use[index] and host.shared.lease.until > self.clock.now:
                host.share(raised)
                self.in_use[index] = raised

    def renew(self, index: int) -> None:
        """The lease goes on; one that has ended begins without a share."""
        host = self.hosts[index]
        if host.shared.lease.until <= self.clock.now:
            host.share(0)
        host.shared.renew(self.clock.now + LEASE_NS, self.clock.now)


@given(STEPS)
@example([*BORROWED, ("wait", 0, 900)])  # stands still with a loan of a share that is the other one's
@example([*BORROWED, ("wait", 0, 900), ("wait", 0, 300), ("wait", 0, 300)])
@example([*BORROWED, *[("wait alone", 1, 900)] * 4])  # nor has it a lease
@example([*BORROWED, *[("wait alone", 1, 900)] * 4, ("wait", 0, 300), ("deliver", 0, 0)])
def test_workers_of_all_hosts_pass_together_what_one_bucket_would_and_an_entry_for_each_host(steps: list[Step]) -> None:
    books = Books()
    for kind, index, amount in [*steps, *ALL_THAT_GOES]:
        host = books.hosts[index]
        if kind == "offer":
            host.offer(amount)
        elif kind == "deliver":
            host.world.deliver_all()
        elif kind == "share":
            books.wanted[index], books.wanted[1 - index] = amount, WHOLE - amount
        else:
            for each in books.hosts:
                if each.limiter.is_releasing:  # a worker may stand still with what it was lent, not with more
                    each.world.deliver_all()
            assert books.excess() <= BURST + len(books.hosts)
            for renewed in (0, 1) if kind == "wait" else (index,):
                books.renew(renewed)
            books.clock.now += amount * 1_000_000
        books.settle()
        assert books.excess() <= BURST + len(books.hosts)
