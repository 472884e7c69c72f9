"""Busy workers and messages at random delays: P2 over all of them, fairness among all of them, and nothing unused."""

from random import Random

import pytest

from limiter.levels import Setting
from limiter.limiter import Entry, Stream
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from tests.limiter.workers.test_machine import within_promise
from tests.limiter.workers.together import Worker, Workers
from tests.limiter.world import jain


class Busy:
    """Workers with streams of one topic, and when what left."""

    def __init__(self, limit: Limit, count: int, streams: int) -> None:
        self.world = Workers(count)
        self.world.limit(Setting.TOPIC_OF_NAMESPACE, "t/n", limit)
        self.world.apply()
        self.left: list[tuple[int, int]] = []
        self.by_stream: dict[Stream, int] = {}
        self.streams: list[tuple[Worker, Stream]] = []
        for number in range(streams):
            self.open(self.world.workers[number % count])
        self.world.deliver_all()

    def open(self, worker: Worker) -> None:
        self.streams.append((worker, worker.open("x", self.released)))

    def released(self, stream: Stream, entry: Entry) -> None:
        self.leaves(stream, entry.messages)

    def leaves(self, stream: Stream, messages: int) -> None:
        self.left.append((self.world.clock.now, messages))
        self.by_stream[stream] = self.by_stream.get(stream, 0) + messages

    def offer(self, which: int, messages: int) -> None:
        worker, stream = self.streams[which]
        if self.world.offer(worker, stream, messages, 100):
            self.leaves(stream, messages)

    def drain(self, which: int, messages: int) -> None:
        """Offer until something is held; messages arrive at once."""
        for _ in range(200):
            self.offer(which, messages)
            self.world.deliver_all()
            if self.streams[which][1].held:
                return


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("value", [rate(100, burst=40), rate(1000, burst=100), rate(10, burst=1)], ids=str)
def test_no_interval_sees_more_than_the_limit_whatever_is_on_its_way(value, seed: int) -> None:  # noqa: C901 - all that happens
    random = Random(seed)
    busy = Busy(Limit(value), 2, 3)
    world = busy.world
    for _ in range(150):
        match random.randrange(10):
            case 0 | 1:
                busy.drain(random.randrange(3), random.choice((1, 1, 3, 60)))
            case 2:
                busy.offer(random.randrange(3), random.choice((1, 7)))
            case 3:
                for _ in range(random.randrange(20)):
                    random.choice([random.choice(world.workers).hear_one, random.choice(world.workers).obey_one])()
            case 4:
                worker = random.choice(world.workers)
                worker.up.extend(worker.quota_client.report())
            case 5:
                world.deliver_all()
            case 6 | 8 | 9:
                world.run_until(world.clock.now + random.choice((1_000, 1_000_000, 300_000_000, NANOS_PER_SECOND)))
            case 7 if random.random() < 0.2:
                old = world.kill(random.randrange(2))
                for place, (worker, _) in enumerate(busy.streams):
                    if worker is old:
                        new = world.workers[place % 2]
                        busy.streams[place] = new, new.open("x", busy.released)
                world.deliver_all()
    assert busy.left
    within_promise(value, busy.left)


def run(busy: Busy, seconds: float, delay_ns: int = 200_000) -> None:
    """Messages are under way for so long, each time."""
    end = busy.world.clock.now + round(seconds * NANOS_PER_SECOND)
    while busy.world.clock.now < end:
        for worker in busy.world.workers:
            worker.post()
            for _ in range(len(worker.up)):
                worker.hear_one()
            for _ in range(len(worker.down)):
                worker.obey_one()
        busy.world.run_until(min(end, busy.world.clock.now + delay_ns))


def greedy(busy: Busy, batches: tuple[int, ...]) -> None:
    """Every stream always has two entries waiting or offered."""

    def again(stream: Stream, entry: Entry) -> None:
        busy.leaves(stream, entry.messages)
        place = next(place for place, (_, one) in enumerate(busy.streams) if one is stream)
        busy.offer(place, batches[place % len(batches)])

    for place, (_, stream) in enumerate(busy.streams):
        stream.release = again
        while len(stream.held) < 2:
            busy.offer(place, batches[place % len(batches)])


@pytest.mark.parametrize("batches", [(1,), (1, 2, 7, 50)])
def test_streams_of_one_topic_share_it_equally_wherever_they_are(batches) -> None:
    busy = Busy(Limit(rate(1000)), 2, 4)
    busy.streams[3] = (busy.streams[0][0], busy.streams[0][0].open("x", busy.released))  # three at one, one at another
    busy.world.deliver_all()
    greedy(busy, batches)
    run(busy, 10)
    assert jain([float(busy.by_stream[stream]) for _, stream in busy.streams]) >= 0.99
    assert sum(busy.by_stream.values()) >= 0.99 * 1000 * 10
    within_promise(rate(1000), busy.left)


def test_what_is_not_over_a_limit_needs_no_quota_server() -> None:
    """Of a stream at a third of its limit nearly nothing is a queued entry."""
    busy = Busy(Limit(rate(10_000)), 2, 2)
    for _ in range(3000):
        busy.offer(0, 1)
        run(busy, 0.0003)
    assert sum(busy.by_stream.values()) == 3000
    account = busy.streams[0][0].quota_client._accounts[busy.streams[0][1]]
    assert account.queued < 30
