"""A world in which limits of deliveries follow the publish rate, measured by a second hand."""

from limiter.levels import Client, Setting
from limiter.limiter import Stream, StreamName
from limiter.permits import DispatchRules
from limiter.policies import Policies, Value
from limiter.registry import Registry
from limiter.token_bucket import NOTHING_PUBLISHED, Direction, Limit, rate
from protocol.topic_name import parse_topic
from tests.limiter.emptied import emptied
from tests.limiter.world import World

TEN_MORE = Limit(rate(10), published=NOTHING_PUBLISHED)


class Place(World):
    """Producers and consumers of the topics of t/n, and a second hand that measures."""

    def __init__(self, limit: Limit = TEN_MORE, setting: Setting = Setting.TOPIC_OF_NAMESPACE, **rules: bool) -> None:
        super().__init__()
        self.policies = Policies()
        self.put(limit, setting)
        self.registry = Registry(self.policies, self.scheduler, self.observer, DispatchRules(**rules))

    def put(self, limit: Limit | None, setting: Setting = Setting.TOPIC_OF_NAMESPACE) -> None:
        value = None if limit is None else Value(limit, "file")
        self.policies.put("dispatch", setting, "t/n", value)

    def apply(self) -> None:
        self.registry.apply(self.clock.now)

    def producer(self, topic: str = "x") -> Stream:
        return self._open("publish", topic)

    def consumer(self, topic: str = "x", subscription: str = "s") -> Stream:
        return self._open("dispatch", topic, subscription)

    def close(self, stream: Stream) -> None:
        self.registry.close(stream, self.clock.now)

    def second(self) -> int:
        """A second passes. Returns how many limits changed."""
        self.run(1)
        before = {scope: self.registry.limiters[scope].limit for scope in self.registry.relative.scopes}
        active = list(self.journal.streams)
        emptied(self.journal)
        for _ in self.registry.measuring(active, lambda: self.clock.now):
            pass
        return sum(self.registry.limiters[scope].limit != limit for scope, limit in before.items())

    def seconds(self, number: int, producer: Stream, messages: int = 100, size: int = 200) -> list[int]:
        """So many, with so much published at the begin of each."""
        changes = []
        for _ in range(number):
            for _ in range(messages):
                self.offer(producer, 1, size)
            changes.append(self.second())
        return changes

    def _open(self, direction: Direction, topic: str, subscription: str = "") -> Stream:
        name = parse_topic(f"t/n/{topic}")
        stream = self.stream()
        stream.name = StreamName(direction, "t", "n", name.full, 1, subscription=subscription)
        self.registry.open(stream, name, self.clock.now, Client(subscription=subscription))
        if direction == "dispatch":
            self.registry.meter(stream, lambda _permits: None)
        return stream


def in_force(consumer: Stream) -> tuple[float | None, float | None]:
    """Messages and bytes per second."""
    (limiter,) = consumer.chain
    messages, size = limiter.limit.messages, limiter.limit.size
    return messages.per_second if messages else None, size.per_second if size else None
