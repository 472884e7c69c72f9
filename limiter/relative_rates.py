"""Dispatch limits that are relative to their topic's publish rate, and the measurement of that rate.

Rates are measured once a second, and only for topics that have such a limit and a consumer, and were published to in
the last ten seconds. When a topic's rate has changed, the caller puts the returned limits in force. A topic is
forgotten with its last consumer: at once if its limits equal the configured ones, else at the next measurement, as a
limit changes only then.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from limiter.limiter import Scope, Stream
from limiter.token_bucket import NANOS_PER_SECOND, NOTHING_PUBLISHED, PUBLISH_WINDOW_NS, Limit, Published, Rate, rate

_KEPT_FOR_PERCENT = 1
_SHORTEST_NS = NANOS_PER_SECOND
"""Shortest time that a mean divides by: one message in a topic's first millisecond is no rate of 1000/s."""

_WOKEN: Final = 200
"""Streams whose topics are looked up in one step of `RelativeLimits.measuring`."""
_CHANGED: Final = 10
"""Scopes of a topic whose limits one step changes."""
Total = tuple[int, int]
"""Messages and bytes published so far."""


class MeasuredPublishRate:
    """The publish rate of one topic: the mean of the last ten seconds, from totals that are read once a second.

        counts so far   ┌──────────────● now
                     ┌──●              │
              ●──────●                 │ published in the window
              │   ▲ begin of the window
              └ sampled once a second

    Source: DispatchRate.relativeToPublishRate, which adds the topic's average publish rate to the configured one.

    Args:
        total: Messages and bytes published before; they do not count.
        now: Monotonic nanoseconds.
    """

    def __init__(self, total: Total, now: int) -> None:
        self._samples = deque([(now, total)])

    @property
    def total(self) -> Total:
        """The total that was read last."""
        return self._samples[-1][1]

    def sample(self, total: Total, now: int) -> None:
        """Add a reading of the total; between two readings it is taken to have grown evenly."""
        samples = self._samples
        samples.append((now, total))
        while len(samples) > 2 and samples[1][0] <= now - PUBLISH_WINDOW_NS:
            samples.popleft()

    def rested(self, until: int) -> None:
        """Record that nothing was published between the last reading and `until`."""
        if until > self._samples[-1][0]:
            self.sample(self.total, until)

    def mean(self) -> Published:
        """Return the mean up to the last reading, over ten seconds, or fewer for a topic that is known for less."""
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


def kept(present: Published, mean: Published) -> Published:
    """Return the publish rate to put in force: `present`, if it is the mean or up to 1 % more; else the mean.

    So a steady rate does not change a limit each second, and a consumer that is catching up is never held below the
    publish rate.
    """
    return Published(_kept(present.messages, mean.messages), _kept(present.size, mean.size))


def _kept(present: int, mean: int) -> int:
    return present if mean <= present and present * 100 <= mean * (100 + _KEPT_FOR_PERCENT) else mean


def relative_to(limit: Limit, published: Published) -> Limit:
    """Return a configured limit with the topic's publish rate added to each of its rates.

    A rate that is not configured stays unlimited. The burst is the configured one, or the default of `rate` if that is
    larger.
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
    """Return the sum of a rate and the publish rate; its longer period lets it count in tenths of tokens if needed."""
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
        rate: The topic's publish rate.
        ended: Published by producers that have ended since the topic has such limits.
        published: The publish rate that its limits include now.
        configured: Its relative limits, as configured.
    """

    rate: MeasuredPublishRate
    ended: Total = (0, 0)
    published: Published = NOTHING_PUBLISHED
    configured: dict[Scope, Limit] = field(default_factory=dict)


class RelativeLimits:
    """Measures publish rates and returns the relative limits to put in force.

    Args:
        by_entry: Limits of messages count an entry as one message, so the publish rate counts entries.
        on_first: Called when the first relative limit appears.
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
        """Scopes of all relative limits."""
        return list(self._topic_of)

    @property
    def is_empty(self) -> bool:
        """True if there is no relative limit."""
        return not self._topic_of

    @property
    def is_moving(self) -> bool:
        """True if some publish rate may change though nothing is published any more."""
        return bool(self._moving)

    def opened(self, stream: Stream) -> None:
        """Note that a producer or consumer has opened."""
        name = stream.name.topic
        if stream.name.direction == "publish":
            self._producers.setdefault(name, set()).add(stream)
        else:
            self._consumers[name] += 1
            self._deserted.discard(name)

    def closed(self, stream: Stream) -> None:
        """Note that a producer or consumer has ended; a producer's messages still count."""
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
        """Return the limit to put in force for a configured one, which may be relative."""
        if configured.published is None:
            self.forget(scope)
            return configured
        measured = self._topics.get(topic)
        if measured is None:
            measured = self._topics[topic] = _Topic(MeasuredPublishRate(self._total(topic, (0, 0)), now))
        is_first = not self._topic_of
        measured.configured[scope] = configured
        self._topic_of[scope] = topic
        if is_first:
            self._on_first()
        return relative_to(configured, measured.published)

    def forget(self, scope: Scope) -> None:
        """Forget a scope: its limit was removed, or is no longer relative."""
        name = self._topic_of.pop(scope, None)
        if name is None:
            return
        topic = self._topics[name]
        del topic.configured[scope]
        if not topic.configured:
            del self._topics[name]
            self._moving.discard(name)
            self._deserted.discard(name)

    def measuring(self, active: Sequence[Stream], clock: Callable[[], int]) -> Iterator[dict[Scope, Limit]]:
        """Measure publish rates, once a second. Each step yields the limits to put in force where a rate changed.

        A step looks at `_WOKEN` streams, measures one topic, or yields the limits of `_CHANGED` scopes.

        Args:
            active: Every stream that passed entries since the last call; others may be among them.
            clock: Monotonic nanoseconds.
        """
        for name in list(self._deserted):
            if name in self._deserted:
                yield self._forget_topic(name)
        for first in range(0, len(active), _WOKEN):
            self.wake(active[first : first + _WOKEN], clock())
            yield {}
        for name in list(self._moving):
            topic = self._measured(name, clock()) if name in self._moving else None
            if topic is None:
                yield {}
                continue
            scopes = list(topic.configured)
            for first in range(0, len(scopes), _CHANGED):
                yield {
                    scope: relative_to(topic.configured[scope], topic.published)
                    for scope in scopes[first : first + _CHANGED]
                    if scope in topic.configured
                }

    def _forget_topic(self, name: str) -> dict[Scope, Limit]:
        """Forget a topic without consumers, and return its limits as configured."""
        configured = dict(self._topics[name].configured)
        for scope in configured:
            self.forget(scope)
        return configured

    def wake(self, active: Iterable[Stream], now: int) -> None:
        """Have the topics of `active` producers measured next time, whether or not that call names them.

        Args:
            active: As for `measuring`.
            now: Monotonic nanoseconds.
        """
        names = {stream.name.topic for stream in active if stream.name.direction == "publish"}
        for name in (names - self._moving) & self._topics.keys():
            self._topics[name].rate.rested(now - NANOS_PER_SECOND)
            self._moving.add(name)

    def _measured(self, name: str, now: int) -> _Topic | None:
        """Measure one topic, and return it if its limits change."""
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
