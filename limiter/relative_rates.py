"""Limits of deliveries that are relative to their topic's publish rate, and who publishes there.

Rates are measured once a second, and only those of topics with such a limit and a consumer, where something is
published, or was in the last ten seconds. Whose rate changed, its limits are to be put in force anew. A topic is
forgotten with its last consumer: at once if its limits are what is configured, else when it is measured next, as a
limit changes only then.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from limiter.limiter import Scope, Stream
from limiter.rates import NANOS_PER_SECOND, NOTHING_PUBLISHED, PUBLISH_WINDOW_NS, Limit, Published, Rate, rate

_KEPT_FOR_PERCENT = 1
_SHORTEST_NS = NANOS_PER_SECOND
"""A topic that is known for less counts as known for this: the first message after a millisecond is no 1000/s."""

Total = tuple[int, int]
"""Messages and bytes published so far."""


class MeasuredPublishRate:
    """One topic's publish rate, the mean of the last ten seconds, from totals that are read once a second.

        counts so far   ┌──────────────● now
                     ┌──●              │
              ●──────●                 │ published in the window
              │   ▲ begin of the window
              └ sampled once a second

    Source: DispatchRate.relativeToPublishRate, which adds the topic's average publish rate to the configured one.

    Args:
        total: What was published before; it is not counted.
        now: Monotonic nanoseconds.
    """

    def __init__(self, total: Total, now: int) -> None:
        self._samples = deque([(now, total)])

    @property
    def total(self) -> Total:
        """The last one that was read."""
        return self._samples[-1][1]

    def sample(self, total: Total, now: int) -> None:
        """The total is this now; between two samples it is taken to have grown evenly."""
        samples = self._samples
        samples.append((now, total))
        while len(samples) > 2 and samples[1][0] <= now - PUBLISH_WINDOW_NS:
            samples.popleft()

    def rested(self, until: int) -> None:
        """Nothing was published since the last sample, up to this moment."""
        if until > self._samples[-1][0]:
            self.sample(self.total, until)

    def mean(self) -> Published:
        """As of the last sample: over the last ten seconds, or fewer if the topic is not known for so long."""
        (since, (messages, size)), (now, (all_messages, all_size)) = self._samples[0], self._samples[-1]
        begin = max(since, now - PUBLISH_WINDOW_NS)
        if begin > since:
            until, (then_messages, then_size) = self._samples[1]
            elapsed, part = until - since, begin - since
        else:
            (then_messages, then_size), elapsed, part = (messages, size), 1, 0
        in_window = max(now - begin, _SHORTEST_NS) * elapsed
        return Published(
            _per_window((all_messages - messages) * elapsed - (then_messages - messages) * part, in_window),
            _per_window((all_size - size) * elapsed - (then_size - size) * part, in_window),
        )


def _per_window(amount: int, time_ns: int) -> int:
    return -(-amount * PUBLISH_WINDOW_NS // time_ns)


def kept(known: Published, mean: Published) -> Published:
    """What a limit goes on with: what is known, while that is no less than the mean and at most 1 % more.

    So a steady rate does not change a limit each second, and who is to catch up is never held below what is published.
    """
    return Published(_kept(known.messages, mean.messages), _kept(known.size, mean.size))


def _kept(known: int, mean: int) -> int:
    return known if mean <= known and known * 100 <= mean * (100 + _KEPT_FOR_PERCENT) else mean


def relative_to(limit: Limit, published: Published) -> Limit:
    """The limit in force of one that is configured: each of its rates, and the topic's publish rate on top.

    What is not configured stays unlimited. A burst is what is configured, or what `rate` makes it if that is more.
    """
    return replace(
        limit,
        messages=_on_top(limit.messages, published.messages),
        peak_messages=_on_top(limit.peak_messages, published.messages),
        size=_on_top(limit.size, published.size),
        peak_size=_on_top(limit.peak_size, published.size),
        published=published,
    )


def _on_top(own: Rate | None, published: int) -> Rate | None:
    """A rate that counts in tenths of tokens, if need be: that is what its longer period is for."""
    if own is None or published == 0:
        return own
    times = PUBLISH_WINDOW_NS // NANOS_PER_SECOND
    tokens = times * own.tokens - (-published * own.period_ns // NANOS_PER_SECOND)
    usual = rate(-(-tokens // times), own.period_ns).burst
    return Rate(tokens, times * own.period_ns, max(own.burst, usual))


@dataclass(slots=True)
class _Topic:
    """A topic with relative limits.

    Attributes:
        rate: Its publish rate.
        ended: What producers published that have ended since the topic has such limits.
        published: What its limits go on with.
        configured: Its relative limits, as configured.
    """

    rate: MeasuredPublishRate
    ended: Total = (0, 0)
    published: Published = NOTHING_PUBLISHED
    configured: dict[Scope, Limit] = field(default_factory=dict)


class RelativeLimits:
    """Knows what is configured, measures, and says what is to be in force.

    Args:
        by_entry: Limits of messages count an entry as one, so the publish rate does.
        on_first: Called when there is such a limit while there was none.
    """

    def __init__(self, *, by_entry: bool = False, on_first: Callable[[], None] = lambda: None) -> None:
        self._on_first = on_first
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
            known = self._topics[topic] = _Topic(MeasuredPublishRate(self._total(topic, (0, 0)), now))
        is_first = not self._topic_of
        known.configured[scope] = configured
        self._topic_of[scope] = topic
        if is_first:
            self._on_first()
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
