"""Several workers and their judges, with a time made by hand and letters that wait until somebody delivers them."""

from collections import deque
from collections.abc import Callable
from typing import Any

from limiter.levels import Client, Setting
from limiter.limiter import Limiter
from limiter.policies import Value
from limiter.rates import Direction, Limit
from limiter.stream import Entry, Stream, StreamName
from limiter.workers.deputy import Deputy
from limiter.workers.hearing import hear
from limiter.workers.judge import Judge
from limiter.workers.letters import Batch, Opened
from protocol.topic_name import parse_topic
from tests.limiter.world import Governed

DIRECTIONS: tuple[Direction, ...] = ("publish", "dispatch")
WHOSE = (0, "127.0.0.1:1", "", "")


class Bells:
    """Who is to be asked for what there is to tell."""

    def soon(self) -> None:
        """Asked anyway."""

    def sometime(self) -> None:
        """Asked anyway."""


class Worker:
    """One process: its gate, its judge, and what is on its way between them."""

    def __init__(self, world: "Workers") -> None:
        self.world = world
        self.deputy = Deputy(Bells())
        self.judge = Judge(world.registry, world.gate, lambda: None, world.recall)
        self.up: deque[Any] = deque()
        self.down: deque[Any] = deque()
        self.streams: list[Stream] = []

    def open(
        self,
        topic: str,
        release: Callable[[Stream, Entry], None],
        direction: Direction = "publish",
        *,
        by_entry: bool = False,
    ) -> Stream:
        name = StreamName(direction, "t", "n", topic, len(self.streams))
        stream = Stream(name, (), lambda entry: release(stream, entry), by_entry=by_entry)
        self.deputy.open(stream, topic, WHOSE)
        self.streams.append(stream)
        return stream

    def post(self) -> None:
        """What either side has to tell is on its way."""
        self.up.extend(self.deputy.take())
        self.down.extend(self.judge.take())

    def hear_one(self) -> bool:
        """The judge's next letter from this worker arrives; False if there is none."""
        self.post()
        if not self.up:
            return False
        letter, now = self.up.popleft(), self.world.clock.now
        if isinstance(letter, Opened):
            direction: Direction = "publish" if letter.direction == "publish" else "dispatch"
            name = StreamName(direction, "t", "n", letter.topic, letter.stream)
            mirror = Stream(name, (), lambda entry: None, by_entry=self.streams[letter.stream - 1].by_entry)
            self.judge.open(letter.stream, mirror, parse_topic(f"t/n/{letter.topic}"), Client(), now)
        else:
            hear(self.judge, letter, now)
        return True

    def obey_one(self) -> bool:
        """The next one from the judge arrives."""
        self.post()
        if not self.down:
            return False
        self.deputy.obey(self.down.popleft(), self.world.clock.now)
        return True

    @property
    def unconfirmed(self) -> int:
        return sum(isinstance(letter, Batch) for letter in self.down)


class Workers(Governed):
    """A world with workers."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.registry.tuned = self.recall
        self.registry.wired = self.wired
        self.workers = [Worker(self) for _ in range(count)]

    def limit(self, setting: Setting, name: str, limit: Limit | None) -> None:
        for direction in DIRECTIONS:
            self.policies.put(direction, setting, name, Value(limit, "rest") if limit is not None else None)

    def recall(self, limiter: Limiter) -> None:
        for worker in self.workers:
            worker.judge.recall(limiter)

    def wired(self, stream: Stream) -> None:
        for worker in self.workers:
            worker.judge.wired(stream)

    def kill(self, index: int) -> Worker:
        """A worker is no more, and another one is in its place."""
        old = self.workers[index]
        old.judge.lose(self.clock.now)
        self.workers[index] = Worker(self)
        return old

    def deliver_all(self) -> None:
        """Everything that is on its way arrives."""
        is_moving = True
        while is_moving:
            is_moving = False
            for worker in self.workers:
                is_moving |= worker.hear_one() or worker.obey_one()

    def offer(self, worker: Worker, stream: Stream, messages: int, size: int) -> bool:  # type: ignore[override]
        """One entry, as the relay offers it. Returns whether it passed at once."""
        now = self.clock.now
        worker.deputy.count_offered(stream, 1, messages, size)
        if worker.deputy.pass_entry(stream, messages, size, now):
            return True
        entry = Entry(b"", messages, size, size, now, charged=stream.charged(1, messages))
        worker.deputy.hold(stream, entry, now)
        return False
