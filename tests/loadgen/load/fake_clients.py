"""A broker in a few lines: what is sent is receipted and received at once, unless the test says otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from loadgen.load.clients import Record
from loadgen.load.offering import Settle


@dataclass
class FakeBroker:
    """Stands in for clients and broker; `clients` is what `Surroundings` wants."""

    per_tick: dict[str, int] = field(default_factory=dict)
    """Messages of a topic that are let through on each `tick`; a topic that is not named is not held at all."""
    records: Mapping[str, Record] = field(default_factory=dict)
    connections: dict[str, set[str]] = field(default_factory=dict)
    """Topics by connection."""
    urls: list[str] = field(default_factory=list)
    loses: str = ""
    """A topic whose messages get receipts and do not arrive."""
    waiting: list[tuple[str, bytes, Settle]] = field(default_factory=list)

    def clients(self, service_url: str) -> "FakeBroker":
        self.urls.append(service_url)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def sender(self, connection: str, topic: str, pending: int) -> "FakeSender":
        self.connections.setdefault(connection, set()).add(topic)
        return FakeSender(self, topic)

    def subscribe(self, records: Mapping[str, Record]) -> None:
        self.records = records

    def tick(self) -> None:
        """Let through what may go."""
        left = dict(self.per_tick)
        kept = []
        for topic, payload, settle in self.waiting:
            if left.get(topic, 1) > 0:
                left[topic] = left.get(topic, 2) - 1
                self.deliver(topic, payload, settle)
            else:
                kept.append((topic, payload, settle))
        self.waiting = kept

    def deliver(self, topic: str, payload: bytes, settle: Settle) -> None:
        if topic in self.records and topic != self.loses:
            self.records[topic](payload)
        settle("")


@dataclass
class FakeSender:
    broker: FakeBroker
    topic: str

    def send(self, payload: bytes, settle: Settle) -> None:
        if self.topic in self.broker.per_tick:
            self.broker.waiting.append((self.topic, payload, settle))
        else:
            self.broker.deliver(self.topic, payload, settle)


class FakeTime:
    """A clock that only `sleep` moves; each sleep lets the broker work."""

    def __init__(self, each_sleep: Callable[[], None]) -> None:
        self.now = 1000.0
        self._each_sleep = each_sleep

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._each_sleep()
