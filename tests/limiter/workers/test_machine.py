"""Anything may happen between workers and their quota servers, at any delay: what must be true of all together."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from limiter.levels import Setting
from limiter.limiter import Entry, Scope, Stream
from limiter.policies import Change
from limiter.token_bucket import NANOS_PER_SECOND, Limit, Mode, Rate, rate
from tests.limiter.ledger import capacity, grain
from tests.limiter.long_run import Counted, long_run
from tests.limiter.workers.together import Worker, Workers

COUNTS = [rate(tokens, burst=burst) for tokens in (7, 100, 1000) for burst in (1, 40, 40, 100)]
WEIGHTS = [rate(10**7, burst=20_000)]
LIMITS = st.builds(
    Limit,
    st.sampled_from([None, *COUNTS, *COUNTS]),
    st.sampled_from([None, None, None, *WEIGHTS]),
    mode=st.sampled_from(["enforce", "enforce", "reject"]),
)
ENTRIES = st.tuples(st.sampled_from((1, 1, 2, 7, 40, 1000)), st.sampled_from((1, 1, 99, 4000, 100_000)))
WHICH = st.integers(0, 7)
SPANS = st.integers(0, 5_000_000) | st.integers(0, 3 * NANOS_PER_SECOND)
PLACES = (
    (Setting.NAMESPACE, "t/n"),
    (Setting.TOPIC_OF_NAMESPACE, "t/n"),
    (Setting.TOPIC, "persistent://t/n/x"),
)
Going = tuple[int, int, int]


class Apart(Counted):
    """Workers whose messages arrive when it pleases hypothesis; some are killed.

    Proves: P2 for each limit over every interval, by the moments at which entries leave their workers, whatever is
    on its way and whoever dies. No bucket ever holds and has lent more than its capacity. Each stream's entries leave
    or are refused in order, nothing twice; only by limits that refuse, and of which nothing is lent (`Witness`); each
    error has its place behind a message whose receipt is known (`Ear`). What a client hears of is counted once, at its
    stream and at the limit. When all messages arrive, all that is held leaves; and in the end nothing is lent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = Workers(3, self.refused)
        self.live: list[tuple[Worker, Stream]] = []
        self.left: dict[Scope, list[Going]] = {}
        self.values: dict[Scope, Limit] = {}
        self.waiting: dict[Stream, list[Entry]] = {}
        self.heard: dict[Stream, list[int]] = {}
        self.dropped: set[Stream] = set()

    @initialize(
        values=st.tuples(LIMITS, LIMITS, LIMITS), topic=st.lists(st.sampled_from("xxy"), min_size=3, max_size=6)
    )
    def begin(self, values: tuple[Limit, ...], topic: list[str]) -> None:
        self.limits(values)
        for which, name in enumerate(topic):
            self.open(which, name)
        self.world.deliver_all()

    @precondition(lambda self: self.world.clock.now > 10 * NANOS_PER_SECOND)
    @rule(values=st.tuples(LIMITS, LIMITS, LIMITS))
    def limits(self, values: tuple[Limit, ...]) -> None:
        """With nothing on its way: what a changed limit means for that, is another question."""
        self.settle()
        self.check()
        self.left.clear()
        for place, limit in zip(PLACES, values, strict=True):
            self.world.limit(*place, limit or None)
        self.world.apply()
        self.world.deliver_all()

    @rule(place=st.sampled_from(PLACES), only_tunes=st.booleans())
    def other_mode(self, place: tuple[Setting, str], only_tunes: bool) -> None:  # noqa: FBT001 - as hypothesis passes it
        """Whatever is on its way; the values stay."""
        known = self.world.policies.get("publish", *place)
        if known is not None:
            mode: Mode = "enforce" if known.limit.mode == "reject" else "reject"
            self.world.limit(*place, replace(known.limit, mode=mode))
            self.world.registry.change([Change("publish", *place, only_tunes=only_tunes)], self.world.clock.now)

    @precondition(lambda self: len(self.live) < 8)
    @rule(which=WHICH, topic=st.sampled_from("xxy"))
    def open(self, which: int, topic: str) -> None:
        worker = self.world.workers[which % 3]
        self.live.append((worker, worker.open(topic, self.released)))

    @precondition(lambda self: self.live)
    @rule(which=WHICH, entries=st.lists(ENTRIES, min_size=1, max_size=4))
    def offer(self, which: int, entries: list[tuple[int, int]]) -> None:
        worker, stream = self.live[which % len(self.live)]
        for messages, size in entries:
            if self.world.offer(worker, stream, messages, size):
                assert not self.waiting.get(stream)
                self.leaves(worker, stream, messages, size)
            else:
                self.waiting.setdefault(stream, []).append(stream.held[-1])

    @precondition(lambda self: self.live)
    @rule(which=WHICH, messages=st.integers(1, 200), size=st.integers(1, 20_000))
    def chunk(self, which: int, messages: int, size: int) -> None:
        worker, stream = self.live[which % len(self.live)]
        if worker.quota_client.admit(stream, messages, size, self.world.clock.now):
            assert not stream.held
            worker.ear.left(stream, None)
            worker.quota_client.count_admitted(stream, (1, messages, size), (messages, size))
            self.leaves(worker, stream, messages, size)

    @rule(which=WHICH, most=st.integers(1, 20))
    def letters_arrive_at_the_quota_server(self, which: int, most: int) -> None:
        for _ in range(most):
            self.world.workers[which % 3].hear_one()

    @rule(which=WHICH, most=st.integers(1, 20))
    def letters_arrive_at_a_worker(self, which: int, most: int) -> None:
        for _ in range(most):
            self.world.workers[which % 3].obey_one()

    @precondition(lambda self: self.live)
    @rule(which=WHICH, entries=st.sampled_from((5, 20, 100)), messages=st.sampled_from((1, 3)), is_heard=st.booleans())
    def work(self, which: int, entries: int, messages: int, is_heard: bool) -> None:  # noqa: FBT001 - as hypothesis passes it
        """A stream is busy until it is stopped; its worker and the quota server hear of each other, or only later."""
        worker, stream = self.live[which % len(self.live)]
        for _ in range(entries):
            self.offer(which, [(messages, 100)])
            while is_heard and (worker.hear_one() or worker.obey_one()):
                pass
            if stream.held:
                return

    @rule()
    def all_arrive(self) -> None:
        self.world.deliver_all()

    @rule(which=WHICH)
    def report(self, which: int) -> None:
        worker = self.world.workers[which % 3]
        worker.up.extend(worker.quota_client.report())

    @rule(span=SPANS)
    def pass_time(self, span: int) -> None:
        self.world.run_until(self.world.clock.now + span)

    @rule(span=st.sampled_from((0, 1_000_000, 400_000_000, 3 * NANOS_PER_SECOND)))
    def calm(self, span: int) -> None:
        """Nothing waits and nothing is on its way any more; then time passes."""
        self.settle()
        self.world.run_until(self.world.clock.now + span)

    @precondition(lambda self: self.live)
    @rule(which=WHICH)
    def drop(self, which: int) -> None:
        worker, stream = self.live[which % len(self.live)]
        dropped = worker.quota_client.drop_held(stream, self.world.clock.now)
        assert dropped == self.waiting.pop(stream, [])
        self.dropped.add(stream)

    @precondition(lambda self: len(self.live) > 4)
    @rule(which=WHICH)
    def close(self, which: int) -> None:
        worker, stream = self.live.pop(which % len(self.live))
        worker.quota_client.close(stream, self.world.clock.now)
        self.waiting.pop(stream, None)

    @precondition(lambda self: len(self.live) > 4)
    @rule(which=WHICH)
    def kill(self, which: int) -> None:
        old = self.world.kill(which % 3)
        for _, stream in [one for one in self.live if one[0] is old]:
            self.waiting.pop(stream, None)
        self.live = [one for one in self.live if one[0] is not old]

    @invariant()
    def what_is_there_and_what_is_lent_fill_no_bucket_beyond_its_capacity(self) -> None:
        for limiter in self.world.registry.limiters.values():
            for bucket in limiter._buckets:
                if bucket is not None:
                    assert bucket.lent >= 0
                    assert bucket._balance * grain(bucket.rate) + bucket.lent <= capacity(bucket.rate)

    @invariant()
    def it_is_known_who_has_been_lent_something(self) -> None:
        for limiter in self.world.registry.limiters.values():
            borrowers = [worker for worker in self.world.workers if limiter in worker.quota_server.lending.loans]
            assert limiter.borrowers == len(borrowers)

    @invariant()
    def where_somebody_waits_or_has_a_claim_all_that_was_lent_is_wanted_back(self) -> None:
        for limiter in self.world.registry.limiters.values():
            if limiter.waiters or limiter.claimant is not None:
                loans = [worker.quota_server.lending.loans.get(limiter) for worker in self.world.workers]
                assert all(loan.is_recalled for loan in loans if loan is not None), "nobody overtakes"

    def teardown(self) -> None:
        self.settle()
        assert not any(self.waiting.values()), "nobody waits for ever"
        for _ in range(2):
            for worker in self.world.workers:
                worker.up.extend(worker.quota_client.report())
            self.world.deliver_all()
        for limiter in self.world.registry.limiters.values():
            assert all(bucket.lent == 0 for bucket in limiter._buckets if bucket is not None)
            assert limiter.ahead_messages == limiter.ahead_size == 0, "all that passed is counted"
        for worker, stream in self.live:
            remote = worker.quota_server.stream(worker.quota_client._accounts[stream].number)
            assert remote is not None
            told, usage = self.heard.get(stream, [0, 0]), remote.usage
            if stream not in self.dropped:
                assert [usage.rejected_messages, usage.rejected_size] == told
                assert usage.dropped_messages == usage.held_messages == 0
            every = usage.passed_messages + usage.rejected_messages + usage.dropped_messages + usage.held_messages
            assert usage.offered_messages == every
        for worker in self.world.workers:
            assert worker.quota_client.is_at_rest
            assert not worker.quota_server.lending.loans
        self.check()

    def settle(self) -> None:
        """All messages arrive, and time passes until nothing waits."""
        self.world.deliver_all()
        for _ in range(20_000):
            if not any(self.waiting.values()):
                return
            self.world.run_until(max(int(self.world.alarms.soonest()), self.world.clock.now + 1_000_000))
            self.world.deliver_all()

    def refused(self, stream: Stream, entry: Entry, reason: str) -> None:
        assert self.waiting[stream].pop(0) is entry, "in order, nothing twice, nothing lost"
        assert reason.startswith("over the publish limit of ")
        told = self.heard.setdefault(stream, [0, 0])
        told[0] += entry.messages
        told[1] += entry.size

    def released(self, stream: Stream, entry: Entry) -> None:
        assert self.waiting[stream].pop(0) is entry, "in order, nothing twice, nothing lost"
        worker = next(worker for worker, one in self.live if one is stream)
        self.leaves(worker, stream, entry.messages, entry.size)

    def leaves(self, worker: Worker, stream: Stream, messages: int, size: int) -> None:
        """By what the quota server has the stream within; what it has not heard of yet can be within nothing."""
        number = worker.quota_client._accounts[stream].number
        remote = worker.quota_server.stream(number)
        assert remote is not None
        for limiter in remote.chain:
            self.values[limiter.scope] = limiter.limit
            self.left.setdefault(limiter.scope, []).append((self.world.clock.now, messages, size))

    def check(self) -> None:
        for scope, left in self.left.items():
            limit = self.values[scope]
            if limit.messages is not None:
                within_promise(limit.messages, [(at, messages) for at, messages, _ in left])
            if limit.size is not None:
                within_promise(limit.size, [(at, size) for at, _, size in left])


def within_promise(rate: Rate, left: list[tuple[int, int]]) -> None:
    """P2 as it is written: burst + rate · time + one entry. Of long stories, every interval of up to 200 departures."""
    for first, (since, _) in enumerate(left):
        total = largest = 0
        for at, tokens in left[first : first + 200]:
            total, largest = total + tokens, max(largest, tokens)
            allowed = (rate.burst + largest) * rate.period_ns + rate.tokens * (at - since)
            assert total * rate.period_ns <= allowed, f"{rate}: {total} from {since} to {at}"


test_workers = long_run(Apart, at_least=3_000)
