"""Limits of deliveries that are relative to their topic's publish rate, and who publishes there.

Rates are measured once a second, and only those of topics with such a limit and a consumer, where something is
published, or was in the last ten seconds. Whose rate changed, its limits are to be put in force anew. A topic is
forgotten with its last consumer: at once if its limits are what is configured, else when it is measured next, as a
limit changes only then.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from limiter.limiter import Scope
from limiter.publish_rates import PublishRate, Total, kept, relative_to
from limiter.rates import NANOS_PER_SECOND, NOTHING_PUBLISHED, Limit, Published
from limiter.stream import Stream


@dataclass(slots=True)
class _Topic:
    """A topic with relative limits.

    Attributes:
        rate: Its publish rate.
        ended: What producers published that have ended since the topic has such limits.
        published: What its limits go on with.
        configured: Its relative limits, as configured.
    """

    rate: PublishRate
    ended: Total = (0, 0)
    published: Published = NOTHING_PUBLISHED
    configured: dict[Scope, Limit] = field(default_factory=dict)


class RelativeLimits:
    """Knows what is configured, measures, and says what is to be in force.

    Args:
        by_entry: Limits of messages count an entry as one, so the publish rate does.

    Attributes:
        on_first: Called when there is such a limit while there was none.
    """

    def __init__(self, *, by_entry: bool = False) -> None:
        self.on_first: Callable[[], None] = lambda: None
        self._by_entry = by_entry
        self._producers: dict[str, set[Stream]] = {}
        self._consumers: Counter[str] = Counter()
        self._topics: dict[str, _Topic] = {}
        self._topic_of: dict[Scope, str] = {}
        self._moving: set[str] = set()
        self._deserted: set[str] = set()

    @property
    def scopes(self) -> list[Scope]:
        """What has such a limit."""
        return list(self._topic_of)

    @property
    def is_empty(self) -> bool:
        """Whether there is no such limit."""
        return not self._topic_of

    @property
    def is_moving(self) -> bool:
        """Whether some publish rate may change though nothing is published any more."""
        return bool(self._moving)

    def opened(self, stream: Stream) -> None:
        """A producer or consumer begins."""
        name = stream.name.topic
        if stream.name.direction == "publish":
            self._producers.setdefault(name, set()).add(stream)
        else:
            self._consumers[name] += 1
            self._deserted.discard(name)

    def closed(self, stream: Stream) -> None:
        """One that began ends; what a producer published still counts."""
        name = stream.name.topic
        if stream.name.direction == "publish":
            self._without_producer(name, stream)
            return
        self._consumers[name] -= 1
        if self._consumers[name] == 0:
            del self._consumers[name]
            self._without_consumers(name)

    def _without_producer(self, name: str, stream: Stream) -> None:
        self._producers[name].remove(stream)
        if not self._producers[name]:
            del self._producers[name]
        topic = self._topics.get(name)
        if topic is not None:
            topic.ended = self._plus(topic.ended, stream)

    def _without_consumers(self, name: str) -> None:
        topic = self._topics.get(name)
        if topic is None:
            return
        if topic.published == NOTHING_PUBLISHED:
            self._forget_topic(name)
        else:
            self._deserted.add(name)

    def in_force(self, scope: Scope, configured: Limit, topic: str, now: int) -> Limit:
        """The limit to put in force in the place of one that may be relative."""
        if configured.published is None:
            self.forget(scope)
            return configured
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = _Topic(PublishRate(self._total(topic, (0, 0)), now))
        is_first = not self._topic_of
        known.configured[scope] = configured
        self._topic_of[scope] = topic
        if is_first:
            self.on_first()
        return relative_to(configured, known.published)

    def forget(self, scope: Scope) -> None:
        """The limit is gone, or not relative any more."""
        name = self._topic_of.pop(scope, None)
        if name is None:
            return
        topic = self._topics[name]
        del topic.configured[scope]
        if not topic.configured:
            del self._topics[name]
            self._moving.discard(name)
            self._deserted.discard(name)

    def measure(self, active: Iterable[Stream], now: int) -> dict[Scope, Limit]:
        """A second has passed: the limits to put in force, where publish rates changed.

        Args:
            active: Every stream that passed something since the last time; others may be among them.
            now: Monotonic nanoseconds.
        """
        limits = {scope: limit for name in list(self._deserted) for scope, limit in self._forget_topic(name).items()}
        self.wake(active, now)
        changed = [topic for name in list(self._moving) if (topic := self._measured(name, now)) is not None]
        return limits | {
            scope: relative_to(limit, topic.published) for topic in changed for scope, limit in topic.configured.items()
        }

    def _forget_topic(self, name: str) -> dict[Scope, Limit]:
        """Nobody is within its limits. Returns them as configured."""
        configured = dict(self._topics[name].configured)
        for scope in configured:
            self.forget(scope)
        return configured

    def wake(self, active: Iterable[Stream], now: int) -> None:
        """Look at the topics where these publish when it is measured next, whether they are told of then or not.

        Args:
            active: As for `measure`.
            now: Monotonic nanoseconds.
        """
        names = {stream.name.topic for stream in active if stream.name.direction == "publish"}
        for name in (names - self._moving) & self._topics.keys():
            self._topics[name].rate.rested(now - NANOS_PER_SECOND)
            self._moving.add(name)

    def _measured(self, name: str, now: int) -> _Topic | None:
        """Look at one topic. Returns it if its limits change."""
        topic = self._topics[name]
        topic.rate.sample(self._total(name, topic.ended), now)
        published = kept(topic.published, topic.rate.mean())
        if published == NOTHING_PUBLISHED:
            self._moving.discard(name)
        if published == topic.published:
            return None
        topic.published = published
        return topic

    def _total(self, name: str, ended: Total) -> Total:
        total = ended
        for stream in self._producers.get(name, ()):
            total = self._plus(total, stream)
        return total

    def _plus(self, total: Total, stream: Stream) -> Total:
        usage = stream.usage
        messages = usage.passed_entries if self._by_entry else usage.passed_messages
        return total[0] + messages, total[1] + usage.passed_size
