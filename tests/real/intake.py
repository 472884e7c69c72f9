"""What consumers take of a backlog, when, and what they do with it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Self

import pulsar

from tests.real.arrivals import Arrival
from tests.real.stages import Stage
from tests.real.traffic import QUIET_MS, digest, open_sender, payload
from tests.waiting import wait_for

FINISH_S = 90
SUBSCRIPTION = "s"
Treat = Callable[[pulsar.Consumer, pulsar.Message], None]
"""What a consumer does with a message."""


@dataclass(frozen=True)
class Taken:
    """A message, by which consumer it was received and when."""

    at: float
    message: pulsar.Message
    by: str

    @cached_property
    def mark(self) -> str:
        return digest(self.message.data())


def acknowledge(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
    """What most do."""
    consumer.acknowledge(message)


class Intake:
    """A thread that receives as soon as it can, until its block ends or its consumer is closed.

    Args:
        consumer: Whose messages.
        log: Where they are noted.
        treat: What becomes of each.
    """

    def __init__(self, consumer: pulsar.Consumer, log: list[Taken], treat: Treat = acknowledge) -> None:
        self._consumer = consumer
        self._name = consumer.consumer_name()
        self._log = log
        self._treat = treat
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(pulsar.AlreadyClosed):
            while not self._ended.is_set():
                try:
                    message = self._consumer.receive(100)
                except pulsar.Timeout:
                    continue
                self._log.append(Taken(time.monotonic(), message, self._name))
                self._treat(self._consumer, message)


@dataclass
class Act:
    """A topic with a backlog, consumers behind Sluice, and all that they took.

    Attributes:
        stage: Where.
        topic: Full name.
        sent: The digest of each message, in order.
        log: What was taken, by all of them.
        confirmed: How many had been taken at a moment, and how many the broker knew to be acknowledged then.
        backlog: What the broker counts as not acknowledged, at the end.
        entry_bytes: What a message is to a limit in bytes, on the average.
        parts: The same of each topic, where there are several.
        streams: What Sluice said of its consumers at the end.
    """

    stage: Stage
    topic: str
    sent: list[str] = field(default_factory=list)
    log: list[Taken] = field(default_factory=list)
    confirmed: list[tuple[int, int]] = field(default_factory=list)
    backlog: int = -1
    entry_bytes: int = 0
    parts: list["Act"] = field(default_factory=list)
    streams: list[dict[str, Any]] = field(default_factory=list)

    def fill(self, count: int, keys: int = 0, size: int = 100, **options: Any) -> Self:
        """Add to the backlog, at the broker itself; each message has the next one of so many keys, if there are any."""
        at_broker = self.stage.at_broker
        if not self.sent:  # else nobody would want it, and it could be gone
            for subscription in ("keep", SUBSCRIPTION):
                at_broker.subscribe(self.topic, subscription, pulsar.ConsumerType.Shared).close()
        name = f"{self.topic.rpartition('/')[2]}.{len(self.sent)}"
        sender = open_sender(at_broker, self.topic, name, **options)
        for index in range(count):
            of_key = {"partition_key": f"key-{index % keys}"} if keys else {}
            sender.send_async(payload(sender.name, index, size), **of_key)
        sender.producer.flush()
        sender.producer.close()
        assert len(sender.sent) == count, sender.errors
        self.sent += sender.sent
        size, messages = self.stage.counters(self.topic)
        self.entry_bytes = size // messages
        return self

    def consumer(self, client: pulsar.Client | None = None, **options: Any) -> pulsar.Consumer:
        """One more, of the subscription; of a connection of its own unless told which."""
        earliest = pulsar.InitialPosition.Earliest
        client = client or self.stage.client()
        return client.subscribe(self.topic, SUBSCRIPTION, initial_position=earliest, **options)

    def taking(self, consumer: pulsar.Consumer, treat: Treat = acknowledge) -> Intake:
        """Take what comes in the background."""
        return Intake(consumer, self.log, treat)

    def wait(self, count: int) -> None:
        """Until so many are taken."""
        wait_for(
            lambda: len(self.log) >= count,
            FINISH_S,
            lambda: f"{len(self.log)} of {count} taken, last {self.indexes[-10:]}; {self._where_it_stands()}",
            pause_s=0.005,
        )

    def _where_it_stands(self) -> str:
        """What Sluice and the broker say of the subscription: which of them has permits, and which messages."""
        at_broker = self.stage.rest.stats(self.topic)["subscriptions"][SUBSCRIPTION]
        return f"Sluice: {self.stage.sluice.streams(self.topic)}; broker: {at_broker}"

    def count_confirmed(self) -> int:
        """How many messages the broker knows to be acknowledged."""
        subscription: dict[str, int] = self.stage.rest.stats(self.topic)["subscriptions"][SUBSCRIPTION]
        return len(self.sent) - subscription["msgBacklog"]

    def note_confirmed(self, least: int) -> None:
        """Note how many messages the broker knows to be acknowledged, once they are so many."""
        wait_for(lambda: self.count_confirmed() >= least, evidence=lambda: f"{self.count_confirmed()} acknowledged")
        confirmed = self.count_confirmed()
        self.confirmed.append((len(self.log), confirmed))

    def finish(self, is_over: Callable[[], bool] | None = None) -> Self:
        """Until `is_over`, or else each is taken at least once; and a while longer, for what comes too much."""
        wait_for(
            is_over or (lambda: len(set(self.indexes)) == len(self.sent)),
            FINISH_S,
            lambda: (
                f"{len(self.log)} taken, missing {sorted(set(range(len(self.sent))) - set(self.indexes))}; "
                f"{self._where_it_stands()}"
            ),
            pause_s=0.05,
        )
        time.sleep(QUIET_MS / 1000)
        self.streams = self.stage.sluice.streams(self.topic)
        self.backlog = len(self.sent) - self.count_confirmed()
        return self

    def finish_again(self, first: int) -> Self:
        """Until the message with this index has come again, and all that follow it; see `finish`.

        It may have come before whoever asked for it was answered: it is counted from the beginning.
        """
        last = len(self.sent) - 1
        return self.finish(lambda: self.indexes.count(first) > 1 and self.indexes[-1] == last)

    def index(self, message: pulsar.Message) -> int:
        """Which one of the backlog it is, byte for byte."""
        return self.sent.index(digest(message.data()))

    @property
    def indexes(self) -> list[int]:
        """Which ones were taken, in order of time."""
        places = {mark: index for index, mark in enumerate(self.sent)}
        return [places[taken.mark] for taken in self.log]

    @property
    def by(self) -> list[str]:
        """Who took them, in the same order."""
        return [taken.by for taken in self.log]

    @property
    def arrivals(self) -> list[Arrival]:
        return sorted((taken.at, 1) for taken in self.log)

    def assert_each_once_in_order(self) -> None:
        """What an Exclusive subscription promises to whom does not ask again."""
        assert self.indexes == list(range(len(self.sent)))

    def assert_confirmed_come_once(self, early: int = 0) -> None:
        """What the broker knew to be acknowledged does not come again; acknowledgements were `early` by no more."""
        assert self.confirmed
        for taken, confirmed in self.confirmed:
            assert min(self.indexes[taken:]) >= confirmed - early

    def assert_each_once(self) -> None:
        assert sorted(self.indexes) == list(range(len(self.sent)))


def first_times(indexes: list[int]) -> list[int]:
    """Without what came again."""
    return list(dict.fromkeys(indexes))


def overtaking(indexes: list[int]) -> list[int]:
    """Which come before a smaller one."""
    least_behind = list(accumulate(reversed(indexes), min))[::-1]
    return [index for index, least in zip(indexes, least_behind, strict=True) if index > least]


def runs(indexes: list[int]) -> list[tuple[int, int]]:
    """The first and the last of each unbroken sequence."""
    ends = [place for place, (index, other) in enumerate(pairwise(indexes)) if other != index + 1]
    begins = [0, *(end + 1 for end in ends)]
    return [(indexes[begin], indexes[end]) for begin, end in zip(begins, [*ends, len(indexes) - 1], strict=True)]
