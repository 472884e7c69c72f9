"""What is counted of workers' streams and limits adds up at every moment, whatever is on its way."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.levels import Setting
from limiter.limiter import Limiter, Stream
from limiter.token_bucket import NANOS_PER_SECOND, Limit, Rate, rate
from tests.limiter.long_run import examples
from tests.limiter.workers.together import Worker, Workers

LIMITS = (
    None,
    Limit(rate(50)),
    Limit(rate(1000, burst=200)),
    Limit(rate(20), rate(100_000)),
    Limit(None, rate(10**6)),
    Limit(rate(50, burst=400), None, rate(300)),
    Limit(rate(100, burst=50), mode="reject"),
)
PLACES = (
    (Setting.NAMESPACE, "t/n"),
    (Setting.TOPIC_OF_NAMESPACE, "t/n"),
    (Setting.TOPIC, "persistent://t/n/x"),
)
Told = tuple[int, Rate, float, int]
"""When, at which rate, tokens then, and what had passed in all."""


class Books:
    """Looks at all counts whenever it is asked, and compares them with those of before."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.world = Workers(2)
        self.live: list[tuple[Worker, Stream]] = []
        self.told: dict[tuple[Limiter, int], Told] = {}

    def open(self) -> None:
        worker = self.chance.choice(self.world.workers)
        self.live.append((worker, worker.open(self.chance.choice("xy"), lambda _stream, _entry: None)))

    def step(self) -> None:  # noqa: C901 - one line for each
        what, chance = self.chance.random(), self.chance
        if what < 0.05 and len(self.live) < 8:
            self.open()
        elif what < 0.07 and self.live:
            worker, stream = self.live.pop(chance.randrange(len(self.live)))
            worker.quota_client.close(stream, self.world.clock.now)
        elif what < 0.09 and self.live:
            worker, stream = chance.choice(self.live)
            worker.quota_client.drop_held(stream, self.world.clock.now)
        elif what < 0.13:
            self.change()
        elif what < 0.6 and self.live:
            self.send(*chance.choice(self.live))
        elif what < 0.7:
            self.report(chance.choice(self.world.workers))
        elif what < 0.9:
            self.deliver(chance.choice(self.world.workers))
        elif what < 0.905:
            self.kill(chance.randrange(2))
        else:
            self.world.run_until(self.world.clock.now + chance.choice((10**5, 10**7, 3 * 10**8, 10**9)))

    def change(self) -> None:
        """Tokens are carried over as buckets say; the books begin anew."""
        self.world.limit(*self.chance.choice(PLACES), self.chance.choice(LIMITS))
        self.world.apply()
        self.told.clear()

    def send(self, worker: Worker, stream: Stream) -> None:
        messages = self.chance.choice((1, 1, 1, 10, 100))
        for _ in range(self.chance.choice((1, 5, 50, 400))):
            self.world.offer(worker, stream, messages, 10 * messages)

    def report(self, worker: Worker) -> None:
        worker.up.extend(worker.quota_client.report())

    def deliver(self, worker: Worker) -> None:
        for _ in range(self.chance.choice((1, 5, 100))):
            worker.hear_one()
            self.check()
            worker.obey_one()

    def kill(self, index: int) -> None:
        """What it was lent counts as used, and is counted nowhere."""
        old = self.world.kill(index)
        self.live = [one for one in self.live if one[0] is not old]

    def check(self) -> None:
        for worker in self.world.workers:
            for remote in worker.quota_server._remote_streams.values():
                usage = remote.stream.usage
                gone = usage.passed_messages + usage.rejected_messages + usage.dropped_messages
                assert usage.offered_messages == gone + usage.held_messages
                gone = usage.passed_size + usage.rejected_size + usage.dropped_size
                assert usage.offered_size == gone + usage.held_size
                assert min(usage.held_messages, usage.held_size) >= 0
        for limiter in self.world.registry.limiters.values():
            self.check_limiter(limiter)

    def check_limiter(self, limiter: Limiter) -> None:
        now, usage = self.world.clock.now, limiter.usage
        if not limiter.streams:  # what passed before its workers heard that it is nobody's, is counted nowhere
            self.told = {key: told for key, told in self.told.items() if key[0] is not limiter}
            return
        for place, balance in enumerate(limiter.balances(now)):
            bucket = limiter._buckets[place]
            if bucket is None or balance is None:
                continue
            held, overflow, lost, unforeseen = balance
            passed = usage.messages if place < 2 else usage.size
            before = self.told.get((limiter, place))
            if before is not None and before[1] == bucket.rate:
                at, _, tokens, passed_then = before
                earned = (now - at) * bucket.rate.per_second / NANOS_PER_SECOND
                taken = passed - passed_then - unforeseen
                assert tokens + earned - overflow - lost - taken == pytest.approx(held, abs=1e-3)
            self.told[limiter, place] = now, bucket.rate, held, passed


@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_counts_add_up_at_every_moment(seed: int) -> None:
    books = Books(Random(seed))
    for _ in range(3):
        books.open()
    for _ in range(120):
        books.step()
        books.check()
    for _ in range(2):
        for worker in books.world.workers:
            books.report(worker)
        books.world.deliver_all()
        books.check()
    for worker, stream in books.live:
        remote = worker.quota_server.stream(worker.quota_client._accounts[stream].number)
        assert remote is not None
        held = sum(entry.messages for entry in stream.held), sum(entry.size for entry in stream.held)
        assert (remote.usage.held_messages, remote.usage.held_size) == held
