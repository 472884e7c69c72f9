"""What `GET /sluice/streams` says: open streams, what they offered and passed, and why they wait.

Rates are for the reader to make: counts of two answers, over the difference of their `monotonic_ms`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from limiter.limiter import Limiter
from limiter.observed import Observed
from limiter.rates import Rate
from limiter.stream import Stream
from proxy.admin.stream_shape import Obstacle, ShownObserved, ShownStream, ShownStreamLimit, Totals
from proxy.observe.connection import Connection
from proxy.observe.reasons import per_second, published_per_second, withholding


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which streams somebody wants to see.

    Args:
        held: Only those of which something is held.
        topic: Full name, of a partitioned topic with or without partition; empty for all.
        tenant: Empty for all.
        most: How many.
    """

    held: bool
    topic: str
    tenant: str
    most: int

    def has(self, stream: Stream) -> bool:
        """Whether `stream` is one of them."""
        name = stream.name
        if self.held and not stream.held:
            return False
        if self.tenant and name.tenant != self.tenant:
            return False
        return not self.topic or name.topic == self.topic or name.topic.startswith(f"{self.topic}-partition-")


class Choice:
    """Picks what to show, some streams at a time: who holds most first, or would hold most, then the others.

    Args:
        wanted: What somebody wants to see.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._holding: list[tuple[int, int, int, Stream]] = []
        self._others: list[Stream] = []
        self._numbers = count(0, -1)
        self.totals: Totals = {"streams": 0, "held_streams": 0, "held_messages": 0, "held_bytes": 0}
        """Sums over all that are wanted, shown or not."""

    def look_at(self, streams: Iterable[Stream]) -> None:
        """Take more streams into account."""
        most = self._wanted.most
        for stream in filter(self._wanted.has, streams):
            self.totals["streams"] += 1
            if stream.holds:
                self._count_held(stream)
            elif len(self._others) < most:
                self._others.append(stream)
        if len(self._holding) > 2 * most:
            self._holding.sort(reverse=True)
            del self._holding[most:]

    def shown(self) -> list[Stream]:
        """What is shown of all that were looked at."""
        self._holding.sort(reverse=True)
        return [*(stream for *_, stream in self._holding), *self._others][: self._wanted.most]

    def _count_held(self, stream: Stream) -> None:
        messages = stream.usage.held_messages
        would = stream.observed.usage.held_messages if stream.observed else 0
        self._holding.append((messages, would, next(self._numbers), stream))
        if stream.held:
            self.totals["held_streams"] += 1
            self.totals["held_messages"] += messages
            self.totals["held_bytes"] += stream.usage.held_size


def view(stream: Stream, now: int) -> ShownStream:
    """One stream; counts are since it was opened."""
    name, usage, connection = stream.name, stream.usage, stream.connection
    assert isinstance(connection, Connection), "streams of the proxy belong to its connections"
    observed, permits, withheld_by = stream.observed, stream.permits, withholding(stream)
    return {
        "direction": name.direction,
        "topic": name.topic,
        "connection_id": connection.connection_id,
        "client_address": connection.client_address,
        "client_role": connection.client_role,
        "stream_id": name.stream_id,
        "producer_name": name.producer_name,
        "subscription": name.subscription,
        "consumer_name": name.consumer_name,
        "offered_messages": usage.offered_messages,
        "offered_bytes": usage.offered_size,
        "passed_messages": usage.passed_messages,
        "passed_bytes": usage.passed_size,
        "rejected_messages": usage.rejected_messages,
        "rejected_bytes": usage.rejected_size,
        "dropped_messages": usage.dropped_messages,
        "throttled_ms": usage.throttled.read(now) / 1e6,
        "held_messages": usage.held_messages,
        "held_bytes": usage.held_size,
        "held_for_ms": usage.throttled.running_ns(now) / 1e6 if stream.held else None,
        "oldest_held_ms": (now - stream.held[0].since) / 1e6 if stream.held else None,
        "permits_asked": usage.permits_asked,
        "permits_granted": usage.permits_granted,
        "permits_withheld": permits.asked if permits else 0,
        "permits_at_broker": permits.at_broker if permits else 0,
        "permits_wait_on": _obstacle(withheld_by, usage.withheld.running_ns(now)) if withheld_by else None,
        "waits_on": _obstacle(stream.waits_on, now - stream.waits_since) if stream.waits_on else None,
        "limits": [_limit(limiter) for limiter in (*stream.chain, *(observed.chain if observed else ()))],
        "observed": _observed(observed, now) if observed else None,
    }


def _obstacle(limiter: Limiter, wait_ns: int) -> Obstacle:
    published_messages, published_bytes = published_per_second(limiter.limit)
    return {
        "level": limiter.scope.level,
        "name": limiter.scope.name,
        "source": limiter.source,
        "messages_per_s": per_second(limiter.limit.messages),
        "bytes_per_s": per_second(limiter.limit.size),
        "published_messages_per_s": published_messages,
        "published_bytes_per_s": published_bytes,
        "for_ms": wait_ns / 1e6,
    }


def _observed(observed: Observed, now: int) -> ShownObserved:
    usage = observed.usage
    return {
        "held_messages": usage.held_messages,
        "held_bytes": usage.held_size,
        "held_for_ms": usage.throttled.running_ns(now) / 1e6 if observed.is_holding else None,
        "throttled_ms": usage.throttled.read(now) / 1e6,
        "exceeded_messages": usage.dropped_messages,
    }


def _limit(limiter: Limiter) -> ShownStreamLimit:
    limit = limiter.limit
    published_messages, published_bytes = published_per_second(limit)
    return {
        "level": limiter.scope.level,
        "name": limiter.scope.name,
        "source": limiter.source,
        "mode": limit.mode,
        "messages_per_s": per_second(limit.messages),
        "bytes_per_s": per_second(limit.size),
        "burst_messages": _burst(limit.messages),
        "burst_bytes": _burst(limit.size),
        "peak_messages_per_s": per_second(limit.peak_messages),
        "peak_bytes_per_s": per_second(limit.peak_size),
        "relative_to_publish_rate": limit.published is not None,
        "published_messages_per_s": published_messages,
        "published_bytes_per_s": published_bytes,
    }


def _burst(rate: Rate | None) -> int | None:
    return None if rate is None else rate.burst
