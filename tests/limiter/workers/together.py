"""Several workers and their quota servers, with a time made by hand and messages that wait to be delivered."""

from collections import deque
from collections.abc import Callable
from typing import Any

from limiter.levels import Client, Setting
from limiter.limiter import Entry, Limiter, Stream, StreamName
from limiter.permits import RULES, DispatchRules
from limiter.policies import Value
from limiter.registry import Registry
from limiter.sharing import SharedLimits
from limiter.token_bucket import Direction, Limit
from limiter.workers.messages import Batch, Opened
from limiter.workers.quota_client import QuotaClient
from limiter.workers.quota_server import DeferredRejections, QuotaServer, hear
from protocol.topic_name import parse_topic
from tests.limiter.world import Governed, Telling

DIRECTIONS: tuple[Direction, ...] = ("publish", "dispatch")
WHOSE = (0, "127.0.0.1:1", "", "", False)


class Bells:
    """Who is to be asked for what there is to tell."""

    def soon(self) -> None:
        """Asked anyway."""

    def sometime(self) -> None:
        """Asked anyway."""


class Witness(Telling):
    """Sees what is refused: only what is over a limit that refuses, and of which nobody can give anything back."""

    def __init__(self, world: "Workers") -> None:
        super().__init__(lambda *_passed: None, world.alarms.wake_at, world.journal)
        self._world = world

    def count_rejected(self, stream: Stream, limiter: Limiter, messages: int, size: int) -> None:
        super().count_rejected(stream, limiter, messages, size)
        assert limiter in stream.chain
        assert limiter.is_rejecting
        assert not stream.held
        assert limiter.waiters or not limiter.is_open(self._world.clock.now)
        assert not any(limiter in worker.quota_server.lending.loans for worker in self._world.workers)


class Ear:
    """Hears what the clients of one worker's producers are told, and that each error has a place among the receipts.

    No client would give up an entry whose frame begins with a minus sign.

    Args:
        refused: Called with each entry that is.
    """

    def __init__(self, refused: Callable[[Stream, Entry, str], None]) -> None:
        self._refused = refused
        self._announced: Entry | None = None
        self._unheard: set[Stream] = set()

    def may_refuse(self, entry: Entry) -> bool:
        return not entry.frame.startswith(b"-")

    def accepted(self, stream: Stream, entry: Entry) -> None:
        self._announced = entry

    def refused(self, stream: Stream, entry: Entry, reason: str) -> None:
        assert self.may_refuse(entry)
        assert stream not in self._unheard, "what passed last is known: the error goes behind its receipt"
        self._refused(stream, entry, reason)

    def left(self, stream: Stream, entry: Entry | None) -> None:
        """Something passes; None: by what was lent."""
        if entry is not None and entry is self._announced:
            self._unheard.discard(stream)
        else:
            self._unheard.add(stream)
        self._announced = None


class Worker:
    """One process: its scheduler, its quota server, and what is on its way between them."""

    def __init__(self, world: "Workers") -> None:
        self.world = world
        self.quota_client = QuotaClient(Bells(), tells_all=world.rules.spares_caught_up)
        self.quota_server = QuotaServer(world.registry, world.scheduler, lambda: None, world.deferred)
        self.up: deque[Any] = deque()
        self.down: deque[Any] = deque()
        self.streams: list[Stream] = []
        self.ear = Ear(world.refused)

    def open(
        self,
        topic: str,
        release: Callable[[Stream, Entry], None],
        direction: Direction = "publish",
        *,
        by_entry: bool = False,
    ) -> Stream:
        name = StreamName(direction, "t", "n", topic, len(self.streams))

        def leave(stream: Stream, entry: Entry) -> None:
            self.ear.left(stream, entry)
            release(stream, entry)

        stream = Stream(name, (), leave, by_entry=by_entry)
        self.quota_client.open(stream, topic, WHOSE)
        if direction == "publish":
            self.quota_client.answer(stream, self.ear)
        self.streams.append(stream)
        return stream

    def post(self) -> None:
        """What either side has to tell is on its way."""
        self.up.extend(self.quota_client.take())
        self.down.extend(self.quota_server.take())

    def hear_one(self) -> bool:
        """The quota server's next message from this worker arrives; False if there is none."""
        self.post()
        if not self.up:
            return False
        message, now = self.up.popleft(), self.world.clock.now
        if isinstance(message, Opened):
            direction: Direction = "publish" if message.direction == "publish" else "dispatch"
            name = StreamName(direction, "t", "n", message.topic, message.stream)
            remote = Stream(name, (), lambda _stream, _entry: None, by_entry=self.streams[message.stream - 1].by_entry)
            self.quota_server.open(message.stream, remote, parse_topic(f"t/n/{message.topic}"), Client(), now)
        else:
            hear(self.quota_server, message, now)
        return True

    def obey_one(self) -> bool:
        """The next one from the quota server arrives."""
        self.post()
        if not self.down:
            return False
        self.quota_client.obey(self.down.popleft(), self.world.clock.now)
        return True

    @property
    def unconfirmed(self) -> int:
        return sum(isinstance(message, Batch) for message in self.down)


class Workers(Governed):
    """A world with workers.

    Args:
        count: How many.
        refused: Called with each entry of which its client hears that it is refused, and why.
        rules: How deliveries are counted and asked for.
        shared: The limits that are shared with other processes.
    """

    def __init__(
        self,
        count: int = 2,
        refused: Callable[[Stream, Entry, str], None] = lambda *_refused: None,
        rules: DispatchRules = RULES,
        shared: SharedLimits | None = None,
    ) -> None:
        super().__init__()
        self.refused = refused
        self.rules = rules
        self.scheduler = Witness(self)
        self.registry = Registry(self.policies, self.scheduler, self.observer, rules, self.clock, shared=shared)
        self.registry.report_to(self.wired, self.tuned)
        self.deferred = DeferredRejections(self.scheduler, self.recall)
        self.workers = [Worker(self) for _ in range(count)]

    def limit(self, setting: Setting, name: str, limit: Limit | None) -> None:
        for direction in DIRECTIONS:
            self.policies.put(direction, setting, name, Value(limit, "rest") if limit is not None else None)

    def recall(self, limiter: Limiter) -> None:
        for worker in self.workers:
            worker.quota_server.recall(limiter)

    def tuned(self, limiter: Limiter, now: int) -> None:
        for worker in self.workers:
            worker.quota_server.tuned(limiter, now)

    def wired(self, stream: Stream, now: int) -> None:
        for worker in self.workers:
            worker.quota_server.wired(stream, now)

    def kill(self, index: int) -> Worker:
        """A worker is no more, and another one is in its place."""
        old = self.workers[index]
        old.quota_server.lose(self.clock.now)
        self.workers[index] = Worker(self)
        return old

    def deliver_all(self) -> None:
        """Everything that is on its way arrives."""
        is_moving = True
        while is_moving:
            is_moving = False
            for worker in self.workers:
                is_moving |= worker.hear_one() or worker.obey_one()

    def offer(  # type: ignore[override]
        self, worker: Worker, stream: Stream, messages: int, size: int, frame: bytes = b""
    ) -> bool:
        """One entry, as the relay offers it. Returns whether it passed at once."""
        now = self.clock.now
        worker.quota_client.count_offered(stream, 1, messages, size)
        if worker.quota_client.pass_entry(stream, messages, size, now):
            worker.ear.left(stream, None)
            return True
        entry = Entry(frame, messages, size, size, now, charged=stream.charged(1, messages))
        worker.quota_client.hold(stream, entry, now)
        return False
