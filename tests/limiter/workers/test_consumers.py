"""Consumers of several workers: their permits are the quota server's, whatever is on its way; and counts add up."""

from random import Random

import pytest

from limiter.backlogs import CALM_NS
from limiter.levels import Setting
from limiter.limiter import Entry, Stream
from limiter.permits import DispatchRules, Permits
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from tests.limiter.workers.test_machine import within_promise
from tests.limiter.workers.together import Worker, Workers


class Consumer:
    """A consumer, and the broker behind it, which delivers by the permits that reach it."""

    def __init__(self, worker: Worker, left: list[tuple[int, int]], *, by_entry: bool) -> None:
        self.worker = worker
        self.at_broker = self.asked = self.received = self.dropped = self.offered = 0
        """Permits at the broker, asked for in all; messages."""
        self.is_leaving = False
        self._left = left
        self.stream = worker.open("x", self._released, "dispatch", by_entry=by_entry)
        self.stream.permits = Permits(
            self.stream.usage, self._granted, lambda: None
        )  # for the scheduler: it is a consumer's
        worker.quota_client.meter(self.stream, self._granted)

    def ask(self, permits: int) -> None:
        """The client's FLOW, as the session treats it."""
        self.asked += permits
        is_metered = self.worker.quota_client.is_metered(self.stream)
        self.worker.quota_client.ask(self.stream, permits, is_granted=not is_metered)
        if not is_metered:
            self.at_broker += permits

    def deliver(self, messages: int) -> None:
        """One entry arrives."""
        self.at_broker -= messages
        self.offered += messages
        if self.worker.world.offer(self.worker, self.stream, messages, 10 * messages):
            self._receive(messages)

    def overdraw(self, permits: int) -> None:
        """The broker took more for what it delivered than limits count."""
        self.at_broker -= permits
        self.worker.quota_client.overdraw(self.stream, permits)

    def redeliver(self) -> None:
        """What is held is dropped, and will come again; the client still counts on it."""
        messages = self._drop()
        if messages:
            self.asked += messages
            self.worker.quota_client.ask_again(self.stream, messages)

    def check(self) -> None:
        """What the quota server knows, when it has been told all and nothing is held."""
        permits, usage = self.remote.permits, self.remote.usage
        assert permits is not None
        assert permits.at_broker == self.at_broker
        assert permits.asked + usage.permits_granted == self.asked
        under_way = permits._under_way
        assert (under_way._held_entries, under_way._held_messages, under_way._held_size) == (0, 0, 0)
        assert usage.offered_messages == self.offered == self.received + self.dropped
        assert usage.passed[1] + usage.dropped_messages == self.offered
        assert usage.passed[1] >= self.received, "what was released may have been dropped before it heard of it"
        assert usage.held_messages == 0

    def leave(self) -> None:
        self.worker.quota_client.forgo(self.stream)
        self._drop()
        self.is_leaving = True

    @property
    def remote(self) -> Stream:
        stream = self.worker.quota_server.stream(self.worker.quota_client._accounts[self.stream].number)
        assert stream is not None
        return stream

    def _drop(self) -> int:
        messages = sum(
            entry.messages for entry in self.worker.quota_client.drop_held(self.stream, self.worker.world.clock.now)
        )
        self.dropped += messages
        return messages

    def _granted(self, permits: int) -> None:
        assert not self.is_leaving
        assert permits > 0
        self.at_broker += permits

    def _released(self, _stream: Stream, entry: Entry) -> None:
        self._receive(entry.messages)

    def _receive(self, messages: int) -> None:
        self.received += messages
        self._left.append((self.worker.world.clock.now, 1 if self.stream.by_entry else messages))


class Busy:
    """Two workers with consumers of one topic."""

    def __init__(self, limit: Limit | None, seed: int, *, by_entry: bool = False) -> None:
        self.random = Random(seed)
        self.world = Workers(2)
        self.world.limit(Setting.TOPIC_OF_NAMESPACE, "t/n", limit)
        self.world.apply()
        self.left: list[tuple[int, int]] = []
        self.consumers = [Consumer(self.world.workers[place % 2], self.left, by_entry=by_entry) for place in range(3)]

    def step(self) -> None:  # noqa: C901 - all that happens
        random, world, consumer = (self.random, self.world, self.random.choice(self.consumers))
        match random.randrange(9):
            case 0:
                consumer.ask(random.choice((1, 100, 1000)))
            case 1 | 2 | 3:
                for _ in range(random.randrange(30)):
                    if consumer.at_broker > 0 and not consumer.is_leaving:
                        consumer.deliver(random.choice((1, 1, 5)))
                if random.random() < 0.1 and not consumer.is_leaving:
                    consumer.overdraw(random.randrange(1, 50))
            case 4:
                for _ in range(random.randrange(20)):
                    worker = random.choice(world.workers)
                    random.choice([worker.hear_one, worker.obey_one])()
            case 5:
                world.deliver_all()
            case 6:
                world.run_until(world.clock.now + random.choice((1_000_000, 100_000_000, NANOS_PER_SECOND)))
            case 7:
                worker = random.choice(world.workers)
                worker.up.extend(worker.quota_client.report())
            case 8 if random.random() < 0.3:
                consumer.redeliver()

    def settle(self) -> None:
        """All messages arrive and all counts are told; nothing is held any more."""
        for _ in range(2000):
            for worker in self.world.workers:
                worker.up.extend(worker.quota_client.report())
            self.world.deliver_all()
            if not any(consumer.stream.held for consumer in self.consumers):
                return
            self.world.run_until(self.world.clock.now + 100_000_000)
        raise AssertionError("somebody waits for ever")


LIMITS = [Limit(rate(100, burst=40)), Limit(rate(2000, burst=200)), Limit(rate(10, burst=1)), None]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", LIMITS, ids=["100", "2000", "10", "none"])
def test_when_all_is_told_the_quota_server_knows_what_is_at_the_broker_and_what_became_of_all(limit, seed: int) -> None:
    busy = Busy(limit, seed)
    for _ in range(200):
        busy.step()
    busy.settle()
    for consumer in busy.consumers:
        consumer.check()
    if limit is not None:
        within_promise(limit.messages, busy.left)


@pytest.mark.parametrize("seed", range(4))
def test_who_asked_for_permits_gets_them_as_what_is_delivered_leaves(seed: int) -> None:
    busy = Busy(Limit(rate(2000, burst=200)), seed)
    for _ in range(100):
        busy.step()
    for _ in range(200):
        busy.settle()
        for consumer in busy.consumers:
            while consumer.at_broker > 0:
                consumer.deliver(1)
        if all(consumer.remote.permits.asked == 0 for consumer in busy.consumers):  # type: ignore[union-attr]
            return
    raise AssertionError("somebody waits for permits for ever")


@pytest.mark.parametrize("seed", range(4))
def test_where_an_entry_counts_as_one_it_does_in_every_worker(seed: int) -> None:
    """20 entries a second of 5 messages each pass a limit of 20 messages a second, and no more."""
    limit = rate(20, burst=10)
    busy = Busy(Limit(limit), seed, by_entry=True)
    for consumer in busy.consumers:
        consumer.at_broker = 10**9
        for _ in range(40):
            consumer.deliver(5)
    started = busy.world.clock.now
    busy.settle()
    assert busy.world.clock.now - started < 7 * NANOS_PER_SECOND
    within_promise(limit, busy.left)


def test_of_more_than_the_quota_server_has_queued_entries_of_all_is_dropped_and_asked_for_again() -> None:
    busy = Busy(Limit(rate(10, burst=1)), 0)
    busy.world.deliver_all()
    for consumer in busy.consumers:
        for _ in range(600):
            consumer.deliver(1)
    busy.world.deliver_all()
    for consumer in busy.consumers:
        consumer.redeliver()
    busy.settle()
    for consumer in busy.consumers:
        assert consumer.dropped > 500
        consumer.check()


def test_what_was_on_its_way_to_who_leaves_is_not_granted() -> None:
    busy = Busy(Limit(rate(100, burst=40)), 0)
    busy.world.deliver_all()
    consumer = busy.consumers[0]
    consumer.ask(1000)
    while consumer.worker.hear_one():
        pass
    assert consumer.worker.down or consumer.worker.quota_server.take()
    consumer.leave()
    busy.settle()


def test_what_a_consumer_is_to_get_again_is_limited_where_who_is_caught_up_is_not() -> None:
    world = Workers(2, rules=DispatchRules(spares_caught_up=True))
    world.limit(Setting.TOPIC_OF_NAMESPACE, "t/n", Limit(rate(10)))
    world.apply()
    left: list[tuple[int, int]] = []
    consumer = Consumer(world.workers[0], left, by_entry=False)
    consumer.ask(2**30)
    for _ in range(2):
        world.deliver_all()
        consumer.deliver(1)
        world.deliver_all()
        world.run(2 * CALM_NS / NANOS_PER_SECOND)
    assert consumer.remote.chain == ()
    for _ in range(30):
        world.workers[0].quota_client.rewound(consumer.stream)
        world.deliver_all()
        for _ in range(100):
            consumer.deliver(1)
        for _ in range(10):
            world.deliver_all()
            world.run(0.05)
    assert consumer.remote.chain
    assert 140 <= consumer.received <= 2 + 10 * 15 + 11
