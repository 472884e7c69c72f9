"""One limit over several processes: leased buckets, shares, and the demands of each process."""

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from limiter.activity import ActivityJournal
from limiter.limiter import Entry, Limiter, Scope, Stream, StreamName
from limiter.policies import Policies
from limiter.registry import Registry
from limiter.scheduler import Scheduler
from limiter.shadow import ShadowLimiter
from limiter.sharing import RAISE_NS, UNBOUNDED, UNITS, SharedLimits, UnitKey, key_of
from limiter.token_bucket import NEVER_NS, WHOLE, Lease, Limit, Rate, TokenBucket, rate
from tests.manual_clock import ManualClock

SECOND = 10**9
FOR_EVER = 10**18
RATES = st.builds(
    lambda tokens, period, burst: Rate(tokens, period, max(1, burst * tokens // 100)),
    st.sampled_from([1, 3, 7, 97, 1000, 99_991, 10**6 + 3, 10**10]),
    st.sampled_from([SECOND, 60 * SECOND, 7 * SECOND // 3]),
    st.integers(1, 300),
)


def leased(of: Rate, ppm: int, *, until: int = FOR_EVER) -> tuple[TokenBucket, Lease]:
    lease = Lease(0, until)
    bucket = TokenBucket(of, 0, lease)
    bucket.share(ppm, 0)
    return bucket, lease


def test_a_new_leased_bucket_holds_one_token_and_earns_nothing_without_a_share() -> None:
    bucket = TokenBucket(rate(100), 0, Lease(0, FOR_EVER))
    assert (bucket.tokens(0), bucket.tokens(60 * SECOND), bucket.wait_ns(1, 60 * SECOND)) == (1, 1, 0)
    bucket.take(1, 60 * SECOND)
    assert bucket.wait_ns(1, 61 * SECOND) == NEVER_NS
    bucket.share(WHOLE // 10, 61 * SECOND)
    assert bucket.wait_ns(1, 61 * SECOND) == SECOND // 10


@pytest.mark.parametrize("look", ["take", "tokens"])
def test_nothing_is_earned_outside_the_lease(look: str) -> None:
    bucket, lease = leased(Rate(10, SECOND, 100), WHOLE, until=2 * SECOND)
    bucket.take(1, 0)

    def looked(now: int) -> int:
        if look == "take":
            bucket.take(0, now)
        return bucket.tokens(now)

    assert looked(SECOND) == 10
    assert looked(2 * SECOND) == 20
    assert looked(90 * SECOND) == 1  # another process may have the burst now
    bucket.take(1, 90 * SECOND)
    assert bucket.wait_ns(1, 90 * SECOND) == NEVER_NS
    assert lease.renew(100 * SECOND, 91 * SECOND)
    assert looked(91 * SECOND) == 0
    assert not lease.renew(101 * SECOND, 92 * SECOND)
    assert looked(92 * SECOND) == 10


def test_a_gap_between_leases_costs_the_burst() -> None:
    bucket, lease = leased(Rate(10, SECOND, 100), WHOLE, until=9 * SECOND)
    assert bucket.tokens(8 * SECOND) == 81
    assert lease.renew(30 * SECOND, 20 * SECOND)
    assert bucket.tokens(20 * SECOND) == 1
    assert bucket.tokens(21 * SECOND) == 11


def test_a_renewal_may_shorten_or_end_the_lease() -> None:
    bucket, lease = leased(Rate(10, SECOND, 100), WHOLE, until=2**63 - 1)
    assert bucket.tokens(SECOND) == 11
    assert not lease.renew(3 * SECOND, SECOND)
    assert bucket.tokens(3 * SECOND) == 31
    assert bucket.wait_ns(40, 3 * SECOND) == NEVER_NS
    assert lease.renew(2 * SECOND, 3 * SECOND)
    assert bucket.tokens(4 * SECOND) == 1


def test_a_renewal_as_the_lease_ends_costs_nothing() -> None:
    bucket, lease = leased(Rate(10, SECOND, 100), WHOLE, until=3 * SECOND)
    assert bucket.wait_ns(40, 3 * SECOND) == NEVER_NS
    assert lease.renew(9 * SECOND, 3 * SECOND), "who waits is to look again"
    assert bucket.tokens(4 * SECOND) == 41


def test_a_filling_limiter_wants_next_to_nothing_once() -> None:
    process = Process(Limit(messages=rate(1000)))
    process.offer(process.stream())
    process.clock.advance(0.25)
    assert process.shared.demands(process.clock.now)[0][process.messages].used == 4000
    process.clock.advance(0.25)
    demand = process.shared.demands(process.clock.now)[0][process.messages]
    assert (demand.used, demand.wanted, demand.streams) == (0, 1, 1)
    process.clock.advance(0.25)
    assert process.shared.demands(process.clock.now) == ({}, [])
    process.shared.assign(process.messages, WHOLE // 2, None, process.clock.now)
    process.shared.renew(process.clock.now + SECOND, process.clock.now)
    assert not process.limiter.is_full(process.clock.now)
    process.clock.advance(0.5)
    assert process.limiter.is_full(process.clock.now)
    demand = process.shared.demands(process.clock.now)[0][process.messages]
    assert (demand.used, demand.wanted, demand.streams) == (0, 0, 0)
    assert process.shared.demands(process.clock.now) == ({}, [])


def test_a_limiter_used_while_filling_is_not_reported_as_full() -> None:
    used, forgotten = Process(Limit(messages=rate(1000))), Process(Limit(messages=rate(1000)))
    for process in used, forgotten:
        process.offer(process.stream())
        for _ in range(2):
            process.clock.advance(0.25)
            process.shared.demands(process.clock.now)
        process.shared.assign(process.messages, WHOLE, None, process.clock.now)
        process.shared.renew(process.clock.now + SECOND, process.clock.now)
    used.clock.advance(0.01)
    used.offer(used.stream(2))
    used.clock.advance(0.5)
    assert used.limiter.is_full(used.clock.now)
    assert used.shared.demands(used.clock.now)[0][used.messages].used == 2000
    forgotten.shared.forgotten(forgotten.limiter)
    forgotten.clock.advance(0.5)
    assert forgotten.shared.demands(forgotten.clock.now) == ({}, [forgotten.messages])


def test_a_limiter_without_streams_wants_nothing() -> None:
    process = Process(Limit(messages=rate(1000)))
    process.shared.assign(process.messages, WHOLE, None, 0)
    stream = process.stream()
    process.offer(stream)
    process.clock.advance(0.25)
    assert process.shared.demands(process.clock.now)[0][process.messages].used == 4000
    for _ in range(200):
        process.offer(stream)
    process.clock.advance(0.05)
    asked = process.asked
    process.scheduler.leave(stream, process.clock.now)
    process.shared.left(process.limiter)
    assert process.asked == asked + 1
    demand = process.shared.demands(process.clock.now)[0][process.messages]
    assert (demand.used, demand.wanted, demand.streams) == (0, 1, 1)  # it is not full
    process.shared.left(process.limiter)
    assert (process.asked, process.shared.demands(process.clock.now)) == (asked + 1, ({}, []))
    process.offer(process.stream(2))
    assert process.asked == asked + 2
    process.clock.advance(0.25)
    assert process.shared.demands(process.clock.now)[0][process.messages].used > 0


def test_a_limiter_that_one_stream_has_left_for_another_one_is_in_use() -> None:
    process = Process(Limit(messages=rate(1000)))
    process.shared.assign(process.messages, WHOLE, None, 0)
    first = process.stream()
    process.offer(first)
    process.clock.advance(0.25)
    process.shared.demands(process.clock.now)
    process.offer(first)
    process.scheduler.leave(first, process.clock.now)
    process.shared.left(process.limiter)
    process.stream(2)
    process.clock.advance(0.25)
    assert process.shared.demands(process.clock.now)[0][process.messages].used == 4000


def test_a_raise_adds_no_tokens_and_a_lowering_takes_those_without_room() -> None:
    bucket, _ = leased(Rate(100, SECOND, 100), WHOLE)
    assert bucket.tokens(10 * SECOND) == 100
    bucket.share(WHOLE // 4, 10 * SECOND)
    assert 25 <= bucket.tokens(10 * SECOND) <= 26
    bucket.share(WHOLE, 10 * SECOND)
    assert 25 <= bucket.tokens(10 * SECOND) <= 26


def test_a_debt_keeps_its_tokens_at_another_share() -> None:
    bucket, _ = leased(Rate(100, SECOND, 10), WHOLE)
    bucket.take(101, 0)
    assert bucket.tokens(0) == -100
    for ppm in (0, 1, WHOLE // 3, WHOLE):
        bucket.share(ppm, 0)
    assert -104 <= bucket.tokens(0) <= -100


@given(
    of=RATES,
    steps=st.lists(
        st.tuples(
            st.integers(0, 3 * SECOND),  # time
            st.lists(st.integers(0, WHOLE), min_size=5, max_size=5),  # shares, in proportion
            st.integers(0, 4),  # whose turn it is
            st.integers(1, 10**6),  # an entry
            st.booleans(),  # whether its lease is renewed
        ),
        max_size=40,
    ),
    members=st.integers(1, 5),
)
@example(Rate(10**10, SECOND, 10**9), [(SECOND, [1] * 5, 0, 10**6, True)] * 20, 3)
def test_several_pass_together_what_one_bucket_would_and_an_entry_each(
    of: Rate, steps: list[tuple[int, list[int], int, int, bool]], members: int
) -> None:
    leases = [Lease(0, SECOND) for _ in range(members)]
    buckets = [TokenBucket(of, 0, lease) for lease in leases]
    now, total, passed = 0, 0, [(0, 0)]
    largest = [0] * members
    for elapsed, parts, turn, entry, renews in steps:
        now += elapsed
        shares = [WHOLE * part // max(1, sum(parts[:members])) for part in parts[:members]]
        for bucket, ppm in sorted(zip(buckets, shares, strict=True), key=lambda pair: pair[1] - pair[0].ppm):
            bucket.share(ppm, now)
        assert sum(bucket.ppm for bucket in buckets) <= WHOLE
        member = turn % members
        if renews:
            leases[member].renew(now + SECOND, now)
        while buckets[member].holds(1, now) and total < 10**15 and len(passed) < 2000:
            buckets[member].take(entry, now)
            total += entry
            largest[member] = max(largest[member], entry)
            passed.append((now, total))
        for index, (since, before) in enumerate(passed[:-1]):
            start = passed[index + 1][0] if index else since
            bound = of.burst + of.tokens * (now - start) / of.period_ns + sum(largest)
            assert passed[-1][1] - before <= bound + 1


@given(of=RATES, ppm=st.integers(WHOLE // 5, WHOLE), late_ns=st.integers(0, 20_000_000))
@example(of=Rate(97, SECOND, 1), ppm=WHOLE // 5, late_ns=10_872_851)
def test_constant_share_is_used_to_99_percent_by_late_timers(of: Rate, ppm: int, late_ns: int) -> None:
    """No later than the burst lasts: of more than its share of that, and a token, no member has room."""
    late_ns = min(late_ns, of.burst * of.period_ns // of.tokens)
    bucket, lease = leased(of, ppm)
    now, passed = 0, 0
    entry = max(1, of.tokens * SECOND // of.period_ns // 1000)
    for _ in range(3000):
        while bucket.holds(1, now):
            bucket.take(entry, now)
            passed += entry
        now += bucket.wait_ns(1, now) + late_ns
    bucket.take(0, now)
    assert lease.until == FOR_EVER
    earned = of.tokens * ppm * now // (of.period_ns * WHOLE)
    assert passed >= 0.99 * earned - entry - 1


def limiter_of(shared: SharedLimits, scope: Scope, limit: Limit) -> Limiter:
    return Limiter(scope, limit, "", 0, shared.lease, shared.on_activity)


class Process:
    """A registry of a single process of several, with one producer's limit per topic."""

    def __init__(self, limit: Limit) -> None:
        self.clock = ManualClock()
        self.alarms: dict[Limiter, int] = {}
        self.asked = 0
        self.raised: list[tuple[UnitKey, int, int]] = []
        self.shared = SharedLimits(
            Lease(0, 2 * SECOND),
            clock=self.clock,
            on_urgent=self._asked,
            on_raise=lambda *raised: self.raised.append(raised),
        )
        journal = ActivityJournal()
        self.scheduler = Scheduler(self.alarms.__setitem__, journal)
        shadow = ShadowLimiter(partial(Scheduler, self.alarms.__setitem__), journal, 1 << 30, 0)
        self.policies = Policies()
        self.registry = Registry(self.policies, self.scheduler, shadow, shared=self.shared)
        self.limiter = limiter_of(self.shared, Scope("publish", "topic", "t", "", ""), limit)
        self.shared.made(self.limiter, 0)
        self.messages, self.size = (key_of(self.limiter.scope, unit) for unit in UNITS)
        self.released: list[int] = []

    def _asked(self) -> None:
        self.asked += 1

    def stream(self, number: int = 1) -> Stream:
        name = StreamName("publish", "public", "public/default", "t", number)
        stream = Stream(name, (self.limiter,), lambda _stream, _entry: self.released.append(self.clock.now))
        self.scheduler.join(stream)
        return stream

    def waiting(self, streams: int) -> list[Stream]:
        """Open streams that wait, each with two entries."""
        opened = [self.stream(number) for number in range(streams)]
        for stream in opened:
            for _ in range(2):
                self.offer(stream)
        return opened

    def offer(self, stream: Stream, size: int = 10) -> None:
        if not self.scheduler.pass_entry(stream, 1, size, self.clock.now):
            self.scheduler.hold(stream, Entry(b"", 1, size, 0, self.clock.now), self.clock.now)


def test_a_stream_without_a_share_is_served_with_share_and_lease() -> None:
    process = Process(Limit(messages=rate(100)))
    stream = process.stream()
    for _ in range(3):
        process.offer(stream)
    assert process.alarms[process.limiter] == NEVER_NS
    process.clock.advance(1)
    assert process.shared.assign(process.messages, WHOLE, None, process.clock.now)
    assert process.alarms[process.limiter] <= SECOND + SECOND // 50
    process.clock.advance(9)
    process.scheduler.serve(process.limiter, process.clock.now)  # the lease ended long ago: of its burst one is left
    assert len(process.released) == 1
    for _ in range(20):
        process.offer(stream)
    idle_ns = process.limiter.usage.idle_ns  # of the alarm that rang so late
    held = len(stream.held)
    assert held > 0
    assert process.alarms[process.limiter] >= process.clock.now + NEVER_NS
    process.clock.advance(1)
    process.shared.renew(process.clock.now + 2 * SECOND, process.clock.now)
    assert process.alarms[process.limiter] <= process.clock.now + SECOND // 10
    process.limiter.count_idle(process.clock.now)
    assert process.limiter.usage.idle_ns == idle_ns


def test_demands_report_use_and_the_refusing_unit_then_rest_once() -> None:
    process = Process(Limit(messages=rate(1000), size=rate(10_000)))
    assert process.shared.demands(0) == ({}, [])
    process.shared.assign(process.messages, WHOLE, None, 0)
    process.shared.assign(process.size, WHOLE, None, 0)
    stream = process.stream()
    process.offer(stream, 100_000)
    process.offer(stream, 100_000)
    assert process.asked == 2
    process.clock.advance(0.25)
    demanded, gone = process.shared.demands(process.clock.now)
    messages, size = demanded[process.messages], demanded[process.size]
    assert gone == []
    assert (messages.used, messages.quota) == (4000, (1000, SECOND, 100, None))
    assert (size.wanted, size.streams) == (UNBOUNDED, 1)
    assert messages.wanted != UNBOUNDED
    process.scheduler.leave(stream, process.clock.now)
    process.clock.advance(0.25)
    assert len(process.shared.demands(process.clock.now)[0]) == 2
    process.clock.advance(0.25)
    assert process.shared.demands(process.clock.now) == ({}, [])
    process.shared.forgotten(process.limiter)
    assert process.shared.demands(process.clock.now) == ({}, [process.messages, process.size])


@pytest.mark.parametrize(("before", "then", "falls"), [(100, 49, 1), (100, 51, 0), (31, 1, 0), (32, 15, 1)])
def test_less_than_half_of_what_was_used_is_to_be_looked_at_again(before: int, then: int, falls: int) -> None:
    process = Process(Limit(messages=rate(10_000)))
    process.shared.assign(process.messages, WHOLE, None, 0)
    stream, mixed = process.stream(), []
    for messages in (before, then, then):
        for _ in range(messages):
            process.offer(stream)
            process.clock.advance(0.25 / messages)
        process.shared.demands(process.clock.now)
        mixed.append(process.shared.is_mixed)
    assert mixed == [False, falls == 1, False]


def test_streams_that_begin_or_cease_to_wait_are_looked_at_again_once() -> None:
    process = Process(Limit(messages=rate(1000)))
    process.shared.assign(process.messages, WHOLE // 10, None, 0)
    stream, states = process.stream(), []
    for offered in (1, 20, 20, 0, 0):
        process.clock.advance(0.15)
        if offered == 0:
            process.shared.assign(process.messages, WHOLE, None, process.clock.now)
            process.clock.advance(0.05)
            process.scheduler.serve(process.limiter, process.clock.now)
        for _ in range(offered):
            process.offer(stream)
        process.clock.advance(0.1)
        demanded, _ = process.shared.demands(process.clock.now)
        states.append((process.shared.is_mixed, demanded[process.messages].wanted == UNBOUNDED))
    assert states == [(False, False), (True, False), (False, True), (True, False), (False, False)]


def test_who_has_a_token_for_each_message_wants_a_hundredth_more() -> None:
    process = Process(Limit(messages=rate(10_000)))
    process.shared.assign(process.messages, WHOLE, None, 0)
    stream = process.stream()
    for _ in range(100):
        process.offer(stream)
        process.clock.advance(0.0025)
    demand = process.shared.demands(process.clock.now)[0][process.messages]
    assert (demand.used, demand.wanted) == (400_000, 404_000)


def test_streams_that_waited_count_while_a_share_is_large_enough() -> None:
    """Half as many after each five seconds, and never more than there are."""
    process = Process(Limit(messages=rate(100)))
    streams = process.waiting(8)
    process.clock.advance(1)

    def claim() -> int:
        process.offer(streams[0])
        demand = process.shared.demands(process.clock.now)[0][process.messages]
        assert demand.wanted != 0
        return demand.streams

    assert claim() == 8
    process.shared.assign(process.messages, WHOLE, None, process.clock.now)
    process.shared.renew(process.clock.now + 60 * SECOND, process.clock.now)
    for _ in range(4):
        process.clock.advance(1)
        process.scheduler.serve(process.limiter, process.clock.now)
    assert not process.limiter.waiters
    process.clock.advance(1)
    assert claim() == 4
    process.clock.advance(5)
    assert claim() == 2
    process.clock.advance(5)
    assert claim() == 1
    process.clock.advance(50)
    assert claim() == 1


def test_many_streams_that_wait_no_more_count_for_a_shorter_time() -> None:
    process = Process(Limit(messages=rate(100, burst=50)))
    streams = [process.stream(number) for number in range(41)]
    for stream in streams:
        process.offer(stream)
    process.clock.advance(0.25)
    claims = [process.shared.demands(process.clock.now)[0][process.messages].streams]
    process.shared.assign(process.messages, WHOLE, None, process.clock.now)
    process.shared.renew(process.clock.now + 60 * SECOND, process.clock.now)
    for _ in range(5):
        process.clock.advance(2)
        process.scheduler.serve(process.limiter, process.clock.now)
        process.offer(streams[0])
        claims.append(process.shared.demands(process.clock.now)[0][process.messages].streams)
    assert claims == [40, 20, 10, 5, 4, 3]


def test_streams_that_have_left_do_not_count_any_more() -> None:
    process = Process(Limit(messages=rate(100)))
    streams = process.waiting(3)
    process.clock.advance(1)
    assert process.shared.demands(process.clock.now)[0][process.messages].streams == 3
    for stream in streams[1:]:
        process.scheduler.leave(stream, process.clock.now)
    process.clock.advance(1)
    assert process.shared.demands(process.clock.now)[0][process.messages].streams == 1


def test_a_raised_limit_holds_after_the_deciders_answer() -> None:
    process = Process(Limit(messages=rate(100)))
    process.shared.assign(process.messages, WHOLE, None, 0)
    for own, holds in ((5000, 100), (50, 50)):
        in_force = process.limiter.rates()
        process.limiter.retune(Limit(messages=rate(own)), "", process.clock.now)
        process.shared.retuned(process.limiter, in_force, process.clock.now)
        assert process.limiter.rates()[0] == rate(holds)
    in_force = process.limiter.rates()
    process.limiter.retune(Limit(messages=rate(5000)), "", process.clock.now)
    process.shared.retuned(process.limiter, in_force, process.clock.now)
    process.clock.advance(0.25)
    demand = process.shared.demands(process.clock.now)[0][process.messages]
    assert demand.quota == (5000, SECOND, 500, None)  # its own, though another one holds
    process.shared.assign(process.messages, WHOLE, None, process.clock.now)
    assert process.limiter.rates()[0] == rate(5000)


def test_a_lower_quota_holds_and_goes_again() -> None:
    process = Process(Limit(messages=rate(1000), peak_messages=rate(2000)))
    process.shared.assign(process.messages, WHOLE // 2, (100, SECOND, 10, (200, SECOND, 5)), 0)
    assert process.limiter.rates()[:2] == (Rate(100, SECOND, 10), Rate(200, SECOND, 5))
    assert [process.shared.share_in_force(key) for key in (process.messages, process.size)] == [WHOLE // 2, 0]
    process.shared.assign(process.messages, WHOLE // 2, None, 0)
    assert process.limiter.rates()[:2] == (rate(1000), rate(2000))
    assert not process.shared.assign(("publish topic", "other", "messages"), 1, None, 0)
    with pytest.raises(ValueError, match="0 to 1000000"):
        process.shared.assign(process.messages, WHOLE + 1, None, 0)


def test_a_limiter_that_takes_the_place_of_another_goes_on_with_its_share() -> None:
    process = Process(Limit(messages=rate(1000)))
    process.shared.assign(process.messages, WHOLE // 2, None, 0)
    process.limiter.charge(51, 0, 0)
    observed = limiter_of(process.shared, process.limiter.scope, Limit(messages=rate(1000), mode="observe"))
    process.shared.made(observed, 0)
    observed.inherit(process.limiter, 0)
    assert observed.shares == (WHOLE // 2, 0)
    assert not observed.is_idle(0)
    assert observed.wait_ns(0) == 51 * 2_000_000


def test_a_raise_without_waiting_streams_is_delayed() -> None:
    process = Process(Limit(messages=rate(1000)))
    raises = process.raised

    def assigned(ppm: int) -> int | None:
        assert process.shared.assign(process.messages, ppm, None, process.clock.now)
        return process.shared.share_in_force(process.messages)

    process.shared.renew(60 * SECOND, 0)
    process.offer(process.stream())
    assert assigned(200_000) == 200_000  # from nothing
    assert assigned(390_000) == 200_000
    assert assigned(250_000) == 200_000
    assert assigned(150_000) == 150_000
    process.clock.advance(RAISE_NS / SECOND)
    process.shared.demands(process.clock.now)
    assert (raises, assigned(150_000)) == ([], 150_000)
    assert assigned(400_000) == 400_000  # more than the double: the burst would be small
    assert assigned(500_000) == 400_000
    process.clock.advance(RAISE_NS / SECOND - 0.1)
    process.shared.demands(process.clock.now)
    assert assigned(600_000) == 400_000  # it is as old as the first one
    process.clock.advance(0.1)
    process.shared.demands(process.clock.now)
    assert raises == [(process.messages, 400_000, 600_000)]
    assert assigned(600_000) == 600_000
    assert assigned(900_000) == 600_000
    process.shared.forgotten(process.limiter)
    process.clock.advance(RAISE_NS / SECOND)
    process.shared.demands(process.clock.now)
    assert len(raises) == 1


def test_a_raise_is_in_force_at_once_if_a_stream_waits() -> None:
    process = Process(Limit(messages=rate(1000, burst=10)))
    raises = process.raised
    process.shared.renew(60 * SECOND, 0)
    process.shared.assign(process.messages, WHOLE // 2, None, 0)
    stream = process.stream()
    process.clock.advance(0.2)
    process.shared.assign(process.messages, WHOLE, None, process.clock.now)
    process.shared.demands(process.clock.now)
    assert process.limiter.shares[0] == WHOLE // 2
    asked = process.asked
    for _ in range(7):
        process.offer(stream)
    assert len(stream.held) >= 1
    assert process.asked > asked  # who reports then puts it in force:
    process.shared.demands(process.clock.now)
    assert raises == [(process.messages, WHOLE // 2, WHOLE)]
    process.shared.assign(process.messages, WHOLE // 2, None, process.clock.now)
    process.shared.assign(process.messages, WHOLE, None, process.clock.now)
    assert process.limiter.shares[0] == WHOLE


def test_a_raise_is_in_force_at_once_where_a_stream_has_waited() -> None:
    process = Process(Limit(messages=rate(1000, burst=10)))
    process.shared.renew(60 * SECOND, 0)
    process.shared.assign(process.messages, WHOLE // 5, None, 0)
    stream = process.stream()
    for _ in range(10):
        process.offer(stream)
    assert stream.held
    for _ in range(25):
        process.clock.advance(0.01)
        process.scheduler.serve(process.limiter, process.clock.now)
    demand = process.shared.demands(process.clock.now)[0][process.messages]
    assert not stream.held
    assert 2 * demand.used < 1000 * 200
    process.shared.assign(process.messages, 2 * WHOLE // 5, None, process.clock.now)
    assert process.limiter.shares[0] == 2 * WHOLE // 5


def test_a_limit_that_refuses_has_its_share_at_once() -> None:
    process = Process(Limit(messages=rate(1000), mode="reject"))
    for ppm in (200_000, 300_000):
        process.shared.assign(process.messages, ppm, None, 0)
        assert process.limiter.shares[0] == ppm
