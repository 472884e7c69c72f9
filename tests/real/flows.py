"""Scenes with publishers behind Sluice and receivers at the broker itself: many at once, judged when all are over."""

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pulsar

from tests.real.arrivals import Arrival, Watcher
from tests.real.stages import Stage
from tests.real.traffic import Sender, digests, payload, sent_by
from tests.waiting import wait_for

ARRIVE_S = 60
_APART_S = 0.1
Scene = TypeVar("Scene")


@dataclass(frozen=True)
class Load:
    """What is sent: by each of `clients` clients to each of the topics `count` messages, at once.

    Attributes:
        pending: Most messages without receipt of each producer; all at once would take this process some tenths of a
            second, in which it measures nothing.
        consumers: Of a Shared subscription to each topic; one is Exclusive.
        producer: Name of the producers; None: the broker gives them names.
        options: Of the producers.
        client_options: Of the clients.
    """

    topics: tuple[str, ...]
    count: int
    size: int = 100
    clients: int = 1
    pending: int = 100
    consumers: int = 1
    producer: str | None = "{topic}.{client}"
    options: Mapping[str, Any] = field(default_factory=dict)
    client_options: Mapping[str, Any] = field(default_factory=dict)


class Flow:
    """One load on its way. Opens everything: what counts is what happens in `run`.

    Args:
        stage: Where.
        load: What.
    """

    def __init__(self, stage: Stage, load: Load) -> None:
        self._stage = stage
        self._load = load
        for topic in load.topics:
            stage.warm_up(topic)
        self._before: dict[str, tuple[int, int]] = {}
        kind = pulsar.ConsumerType.Shared if load.consumers > 1 else pulsar.ConsumerType.Exclusive
        self._watchers = [
            Watcher(stage.at_broker.subscribe(topic, "watch", kind))
            for topic in load.topics
            for _ in range(load.consumers)
        ]
        self.begun = 0.0
        self.then_at = 0.0
        clients = [stage.client(**load.client_options) for _ in range(load.clients)]
        self.senders = [sender for number, client in enumerate(clients) for sender in self._open(client, number)]
        # To make them takes this process, and with it all that is measured.
        self._contents = {sender.name: self._contents_of(sender) for sender in self.senders}

    def played(self) -> "Flow":
        """The same after its run: a scene."""
        self.run()
        return self

    def run(self, then: Callable[[], object] | None = None, after_s: float = 0) -> None:
        """Send everything and receive everything; `then` is done `after_s` seconds after the first arrival."""
        self.begun = time.monotonic()
        threads = [threading.Thread(target=self._send, args=(sender,)) for sender in self.senders]
        with ExitStack() as watching:
            for watcher in self._watchers:
                watching.enter_context(watcher)
            for thread in threads:
                thread.start()
            if then is not None:
                first = self._wait_for(1)
                time.sleep(max(0.0, first + after_s - time.monotonic()))
                self.then_at = time.monotonic()
                then()
            self._wait_for(self._load.count * len(self.senders))
        for thread in threads:
            thread.join()

    @property
    def topics(self) -> tuple[str, ...]:
        """Of its messages."""
        return self._load.topics

    @property
    def arrivals(self) -> list[Arrival]:
        """All, in order of time."""
        return sorted(arrival for watcher in self._watchers for arrival in watcher.arrivals)

    def arrivals_on(self, *topics: str) -> list[Arrival]:
        """Those on some of the topics."""
        watchers = [watcher for watcher in self._watchers if watcher.messages[0].topic_name() in topics]
        return sorted(arrival for watcher in watchers for arrival in watcher.arrivals)

    def before_and_after(self) -> tuple[list[Arrival], list[Arrival]]:
        """Those before `then` was done, and the others."""
        before = [arrival for arrival in self.arrivals if arrival[0] < self.then_at]
        return before, self.arrivals[len(before) :]

    def metered(self) -> "Flow":
        """The same, of which `entry_bytes` will be asked."""
        self._before = {topic: self._stage.counters(topic) for topic in self._load.topics}
        return self

    def entry_bytes(self, topic: str) -> int:
        """What each message of a topic is to a limit in bytes: what the broker counts."""
        size, messages = self._stage.counters(topic)
        size_before, messages_before = self._before[topic]
        entry, rest = divmod(size - size_before, messages - messages_before)
        assert rest == 0, "they are not all alike: fewer than 128 keep the sequence id in one byte"
        return entry

    def assert_whole(self) -> None:
        """Each message has its receipt and arrived once; and in order, where one consumer got all."""
        marks = digests([message for watcher in self._watchers for message in watcher.messages])
        assert not sum((sender.errors for sender in self.senders), Counter[str]())
        expected = sent_by(*self.senders)
        if self._load.consumers > 1:
            marks, expected = (
                {name: sorted(by_producer[name]) for name in by_producer} for by_producer in (marks, expected)
            )
        assert marks == expected
        assert all(len(sent) == self._load.count for sent in expected.values())

    def _open(self, client: pulsar.Client, number: int) -> list[Sender]:
        options = {"max_pending_messages": 10_000, "send_timeout_millis": 0, **self._load.options}
        senders = []
        for topic in self._load.topics:
            known_as = f"{topic}.{number}"
            name = self._load.producer and self._load.producer.format(topic=topic.partition("://")[2], client=number)
            senders.append(Sender(client.create_producer(topic, producer_name=name, **options), known_as))
        return senders

    def _contents_of(self, sender: Sender) -> list[bytes]:
        size = self._load.size
        return [payload(sender.name, index, size)[-size:] for index in range(self._load.count)]

    def _send(self, sender: Sender) -> None:
        for index, content in enumerate(self._contents[sender.name]):
            while index - len(sender.sent) - len(sender.failed) >= self._load.pending:
                time.sleep(0.005)
            sender.send_async(content)
        sender.producer.flush()

    def _wait_for(self, count: int) -> float:
        wait_for(
            lambda: sum(len(watcher.arrivals) for watcher in self._watchers) >= count,
            ARRIVE_S,
            lambda: f"{len(self.arrivals)} of {count} messages",
        )
        return self.arrivals[0][0]


class Receipts:
    """A producer of single messages, when each was sent and when its receipt came.

    Args:
        producer: Behind Sluice; without a send timeout.
    """

    def __init__(self, producer: pulsar.Producer) -> None:
        self.producer = producer
        self.sent: list[float] = []
        self.came: list[float] = []
        self.errors: list[pulsar.Result] = []

    def send(self, content: bytes, wait_s: float = 0) -> None:
        """Send one more; wait so long for all receipts."""
        self.sent.append(time.monotonic())
        self.producer.send_async(content, self._settled)
        while len(self.came) < len(self.sent) and time.monotonic() < self.sent[-1] + wait_s:
            time.sleep(0.002)

    @property
    def latencies(self) -> list[float]:
        """Of those that have a receipt."""
        return [came - sent for sent, came in zip(self.sent, self.came, strict=False)]

    def _settled(self, result: pulsar.Result, _: object) -> None:
        if result == pulsar.Result.Ok:
            self.came.append(time.monotonic())
        else:
            self.errors.append(result)


class Played(Generic[Scene]):
    """Scenes that went on at once, each in a thread of its own.

    Attributes:
        begun: When each began, by its name.

    Args:
        scenes: Each is opened already; called, it plays.
    """

    def __init__(self, scenes: Mapping[str, Callable[[], Scene]]) -> None:
        self._ends: dict[str, Future[Scene]] = {}
        self.begun: dict[str, float] = {}
        with _no_collections(), ThreadPoolExecutor(len(scenes)) as pool:
            for name, play in scenes.items():
                self._ends[name] = pool.submit(self._play, name, play)
                # All at the same instant would be a standstill of this process.
                time.sleep(_APART_S)

    def _play(self, name: str, play: Callable[[], Scene]) -> Scene:
        self.begun[name] = time.monotonic()
        return play()

    def __getitem__(self, name: str) -> Scene:
        """What the scene made, or its error."""
        return self._ends[name].result()


@contextmanager
def _no_collections() -> Iterator[None]:
    """A full collection stops all threads, the clients' callbacks too, for 20 ms and more."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
