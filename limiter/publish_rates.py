"""How fast a topic's producers publish: the mean of the last ten seconds; and what a limit relative to that is.

    counts so far   ┌──────────────● now
                 ┌──●              │
          ●──────●                 │ published in the window
          │   ▲ begin of the window
          └ sampled once a second

Source: DispatchRate.relativeToPublishRate, which adds the topic's average publish rate to the configured one.
"""

from collections import deque
from dataclasses import replace

from limiter.rates import NANOS_PER_SECOND, PUBLISH_WINDOW_NS, Limit, Published, Rate, rate

_KEPT_FOR_PERCENT = 1
_SHORTEST_NS = NANOS_PER_SECOND
"""A topic that is known for less counts as known for this: the first message after a millisecond is no 1000/s."""

Total = tuple[int, int]
"""Messages and bytes published so far."""


class PublishRate:
    """One topic's publish rate, from totals that somebody reads once a second.

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
