"""Scenes in which consumers behind Sluice drain the backlog of a topic."""

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import pulsar

from tests.real.arrivals import Arrival, Watcher
from tests.real.sluice_process import SluiceProcess
from tests.real.traffic import open_sender, payload, quiet_client

LOOK_S = 5
_LOOK_AGAIN_S = 0.05
_NOTED = ("held_messages", "held_bytes")


@dataclass
class Watched:
    """What Sluice says of a topic's consumers, all the time until its block ends.

    Attributes:
        most: The most that was held of all of them together.
        streams: The last look.
    """

    sluice: SluiceProcess
    topic: str
    most: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_NOTED, 0))
    streams: list[dict[str, Any]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def sum_of(self, figure: str) -> int:
        return sum(stream[figure] for stream in self.streams)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_AGAIN_S):
            self.streams = self.sluice.streams(self.topic)
            for figure in _NOTED:
                self.most[figure] = max(self.most[figure], self.sum_of(figure))


@dataclass
class Drained:
    """What became of a backlog in some seconds: arrivals of each consumer, and what Sluice said meanwhile."""

    by_consumer: list[list[Arrival]]
    watched: Watched

    @property
    def arrivals(self) -> list[Arrival]:
        return sorted(arrival for arrivals in self.by_consumer for arrival in arrivals)

    @property
    def entry_bytes(self) -> int:
        """What a message is to a limit in bytes, on the average."""
        return self.watched.sum_of("passed_bytes") // self.watched.sum_of("passed_messages")


@dataclass(frozen=True)
class Backlog:
    """A topic with a backlog, and who will drain it.

    Attributes:
        topic: Full name.
        count: Messages.
        subscriptions: Of each consumer its subscription, a letter.
        queue: Receiver queue size of each consumer.
        size: Bytes of each message.
        look_s: How long it is looked at.
        options: Of the producer.
    """

    topic: str
    count: int
    subscriptions: str = "s"
    queue: int = 1000
    size: int = 100
    look_s: float = LOOK_S
    options: dict[str, Any] = field(default_factory=dict)

    def fill(self, client: pulsar.Client) -> list[str]:
        """Make it, at the broker itself; gives the digest of each message."""
        for name in set(self.subscriptions):
            client.subscribe(self.topic, name, pulsar.ConsumerType.Shared).close()
        return self.publish(client)

    def publish(self, client: pulsar.Client) -> list[str]:
        """Its messages alone, for subscriptions that are there."""
        sender = open_sender(client, self.topic, "p", **self.options)
        sender.send_all([payload("p", index, self.size) for index in range(self.count)])
        sender.producer.close()
        return sender.sent

    def drained(self, sluice: SluiceProcess) -> Drained:
        """Drain it for a while."""
        client = quiet_client(sluice.service_url)
        try:
            with ExitStack() as stack:
                watched = stack.enter_context(Watched(sluice, self.topic))
                # Each receives as soon as it is there: what waited in its queue would seem to come all at once.
                watchers = [stack.enter_context(Watcher(self.consumer(client, name))) for name in self.subscriptions]
                watchers[0].wait_first()
                time.sleep(self.look_s + 0.5)
            return Drained([watcher.arrivals for watcher in watchers], watched)
        finally:
            client.shutdown()

    def consumer(self, client: pulsar.Client, name: str) -> pulsar.Consumer:
        """One more of the subscription."""
        return client.subscribe(self.topic, name, pulsar.ConsumerType.Shared, receiver_queue_size=self.queue)
