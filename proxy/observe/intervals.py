"""Reads what streams and limiters counted, interval by interval, for the access log and the metrics.

The timer is set by the first activity, for the next boundary of the wall clock; a proxy at rest has none but the
heartbeat's.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from limiter.journal import Journal
from limiter.limiter import Limiter
from limiter.stream import Stream
from limiter.usage import LimiterUsage, StreamUsage
from proxy.observe.access_log import AccessLog, Span
from proxy.observe.counters import Counters
from proxy.observe.totals import NamespaceTotals

HEARTBEAT_S = 30.0
"""Longest time without a line while nothing happens."""

_STREAM_COUNTS = (
    ("offered_entries", "offered_entries"),
    ("offered_messages", "offered_messages"),
    ("offered_bytes", "offered_size"),
    ("passed_entries", "passed_entries"),
    ("passed_messages", "passed_messages"),
    ("passed_bytes", "passed_size"),
    ("dropped_messages", "dropped_messages"),
    ("dropped_bytes", "dropped_size"),
    ("permits_asked", "permits_asked"),
    ("permits_granted", "permits_granted"),
)
_LIMITER_COUNTS = (("passed_entries", "entries"), ("passed_messages", "messages"), ("passed_bytes", "size"))


class Intervals:
    """Turns counts into lines and totals.

    Args:
        log: Gets the lines.
        totals: Gets the sums by namespace.
        counters: Told how late the timer was.
        interval_s: Seconds between lines.
        clocks: Monotonic nanoseconds, and nanoseconds since 1970.
    """

    def __init__(
        self,
        log: AccessLog,
        totals: NamespaceTotals,
        counters: Counters,
        interval_s: float,
        clocks: tuple[Callable[[], int], Callable[[], int]] = (time.monotonic_ns, time.time_ns),
    ) -> None:
        self._log = log
        self._totals = totals
        self._counters = counters
        self._interval = round(interval_s * 1e9)
        self._clock, self._wall = clocks
        self._journal: Journal | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0
        self._ended = (self._wall(), self._clock())
        self._beaten = self._ended
        self._heart: asyncio.TimerHandle | None = None

    def start(self, journal: Journal) -> None:
        """Begin; the loop runs."""
        self._journal = journal
        self._beat(last=False)

    def activity(self) -> None:
        """Something happened: there will be a line at the next boundary."""
        if self._timer is None:
            wall, now = self._wall(), self._clock()
            since_boundary = wall % self._interval
            to_boundary = self._interval - since_boundary
            if to_boundary < self._interval // 10:  # a timer that fired early must not make a splinter
                to_boundary += self._interval
            since_boundary = min(since_boundary, now - self._ended[1])
            self._ended = (wall - since_boundary, now - since_boundary)
            self._due = now + to_boundary
            self._timer = asyncio.get_running_loop().call_later(to_boundary / 1e9, self._tick)

    def flush(self) -> None:
        """End the running interval now, because a value is about to change or somebody wants to see."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._report()

    def stop(self) -> None:
        """Write everything, and the last heartbeat."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heart is not None:
            self._heart.cancel()
        self._beat_now(last=True)

    def span_since(self, started_at: int) -> Span:
        """From a monotonic moment until now."""
        wall, now = self._wall(), self._clock()
        return Span(wall - (now - started_at), wall, now - started_at)

    def _tick(self) -> None:
        self._timer = None
        self._counters.timer_fired(self._clock() - self._due)
        self._report()

    def _report(self) -> None:
        assert self._journal is not None, "start() comes first"
        wall, now = self._wall(), self._clock()
        span = Span(self._ended[0], wall, now - self._ended[1])
        self._ended = (wall, now)
        streams, limiters = self._journal.empty()
        for stream in streams:
            self._report_stream(stream, span, now)
        for limiter in limiters:
            self._report_limiter(limiter, span, now)
        self._beat(last=False)
        if self._journal.streams or self._journal.limiters:
            self.activity()

    def _report_stream(self, stream: Stream, span: Span, now: int) -> None:
        usage = stream.usage
        changes = _changes(usage, _STREAM_COUNTS, now)
        throttled_ns = changes.pop("throttled_ns")
        changes |= {"throttled_ms": throttled_ns / 1e6, "delay_max_ms": usage.delay_max_ns / 1e6}
        changes["reason"] = stream.last_reason if throttled_ns or stream.held else ""
        usage.delay_max_ns = 0
        self._log.interval(span, stream, changes)
        totals = self._totals.of(stream.name.tenant, stream.name.namespace, stream.name.direction)
        totals.received_messages += changes["offered_messages"]
        totals.received_bytes += changes["offered_bytes"]
        totals.passed_messages += changes["passed_messages"]
        totals.passed_bytes += changes["passed_bytes"]
        totals.dropped_messages += changes["dropped_messages"]
        totals.throttled_ns += throttled_ns

    def _report_limiter(self, limiter: Limiter, span: Span, now: int) -> None:
        usage = limiter.usage
        changes = _changes(usage, _LIMITER_COUNTS, now)
        changes["throttled_ms"] = changes.pop("throttled_ns") / 1e6
        changes |= {"largest_entry_messages": usage.largest_messages, "largest_entry_bytes": usage.largest_size}
        usage.largest_messages = usage.largest_size = 0
        self._log.limit(span, limiter, changes)

    def _beat(self, *, last: bool) -> None:
        """A sign of life, and the next one if nothing happens till then."""
        self._beat_now(last=last)
        if self._heart is not None:
            self._heart.cancel()
        self._heart = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat_idle)

    def _beat_idle(self) -> None:
        self._heart = None
        self._beat(last=False)

    def _beat_now(self, *, last: bool) -> None:
        wall, now = self._wall(), self._clock()
        self._log.heartbeat(Span(self._beaten[0], wall, now - self._beaten[1]), last=last)
        self._beaten = (wall, now)


def _changes(usage: StreamUsage | LimiterUsage, counts: tuple[tuple[str, str], ...], now: int) -> dict[str, Any]:
    """What was counted since the last line of the same stream or limiter."""
    values = (*(getattr(usage, attribute) for _, attribute in counts), usage.throttled.read(now))
    before = usage.reported or (0,) * len(values)
    usage.reported = values
    names = (*(field for field, _ in counts), "throttled_ns")
    return {name: value - old for name, value, old in zip(names, values, before, strict=True)}
