"""Reads what streams and limiters counted, interval by interval, for the access log and the metrics.

The timer is set by the first activity, for the next boundary of the wall clock; a proxy at rest has none but the
heartbeat's. Limits that are relative to publish rates change here, between two spans: no line mixes two values. While
there are any, the timer fires once a second at least, and goes on until the publish rates have come to rest.
"""

import asyncio
import time
from collections.abc import Callable

from limiter.journal import Journal
from limiter.rates import NANOS_PER_SECOND
from limiter.registry import Registry
from limiter.stream import Stream
from proxy.observe.access_log import AccessLog, Span
from proxy.observe.counters import Counters
from proxy.observe.tally import Tally
from proxy.observe.totals import NamespaceTotals

HEARTBEAT_S = 30.0
"""Longest time without a line while nothing happens."""


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
        self._tally = Tally(totals)
        self._counters = counters
        self._interval = round(interval_s * 1e9)
        self._clock, self._wall = clocks
        self._journal: Journal | None = None
        self._registry: Registry | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0
        self._due = 0
        self._ended = (self._wall(), self._clock())
        self._beaten = self._ended
        self._heart: asyncio.TimerHandle | None = None

    def start(self, journal: Journal, registry: Registry) -> None:
        """Begin; the loop runs."""
        self._journal, self._registry = journal, registry
        registry.relative.on_first = self._hasten
        self._beat(last=False)

    def activity(self) -> None:
        """Something happened: there will be a line at the next boundary."""
        if self._timer is None:
            wall, now = self._wall(), self._clock()
            since_boundary = min(wall % self._interval, now - self._ended[1])
            self._ended = (wall - since_boundary, now - since_boundary)
            self._due = now + _to_boundary(wall, self._interval)
            self._sleep()

    def flush(self) -> None:
        """End the running interval now, because a value is about to change."""
        if self._timer is None:
            self._ended = (self._wall(), self._clock())  # what comes has the new value: no line may begin before it
            return
        assert self._journal is not None, "start() comes first"
        assert self._registry is not None, "start() comes first"
        self._timer.cancel()
        self._timer = None
        self._registry.published(self._journal.streams, self._clock())
        self._report()
        self._go_on()

    def settle(self) -> None:
        """Bring the totals up to now, because somebody wants to see them; the running interval goes on."""
        assert self._journal is not None, "start() comes first"
        self._tally.settle(self._journal, self._clock())

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

    def moment(self) -> Span:
        """Now."""
        wall = self._wall()
        return Span(wall, wall, 0)

    def _sleep(self) -> None:
        """Until the boundary; while limits follow publish rates, for about a second at most."""
        assert self._registry is not None, "start() comes first"
        now, self._wakes_at = self._clock(), self._due
        if not self._registry.relative.is_empty:
            self._wakes_at = min(self._due, now + _to_boundary(self._wall(), NANOS_PER_SECOND))
        self._timer = asyncio.get_running_loop().call_later((self._wakes_at - now) / 1e9, self._tick)

    def _hasten(self) -> None:
        """Limits follow publish rates from now on."""
        if self._timer is not None:
            self._timer.cancel()
            self._sleep()

    def _tick(self) -> None:
        assert self._journal is not None, "start() comes first"
        assert self._registry is not None, "start() comes first"
        self._timer = None
        now = self._clock()
        self._counters.timer_fired(now - self._wakes_at)
        limits = self._registry.measure(self._journal.streams, now)
        if not limits and now < self._due - self._interval // 10:
            self._sleep()
            return
        if self._is_quiet:
            self._ended = (self._wall(), self._clock())
        else:
            self._report()
        self._registry.retune(limits, self._ended[1])
        self._go_on()

    def _go_on(self) -> None:
        assert self._registry is not None, "start() comes first"
        if not self._is_quiet or self._registry.relative.is_moving:
            self.activity()

    @property
    def _is_quiet(self) -> bool:
        """Whether nobody has anything to report."""
        assert self._journal is not None, "start() comes first"
        return not self._journal.streams and not self._journal.limiters

    def _report(self) -> None:
        assert self._journal is not None, "start() comes first"
        wall, now = self._wall(), self._clock()
        span = Span(self._ended[0], wall, now - self._ended[1])
        self._ended = (wall, now)
        streams, limiters = self._journal.empty()
        for stream in streams:
            self._report_stream(stream, span, now)
        for limiter in limiters:
            self._log.limit(span, limiter, self._tally.of_limiter(limiter, now))
        self._tally.end()
        self._beat(last=False)

    def _report_stream(self, stream: Stream, span: Span, now: int) -> None:
        fields = self._tally.of_stream(stream, now)
        if stream.held:
            fields["held_since"] = span.before_end(stream.usage.throttled.running_ns(now))
        self._log.interval(span, stream, fields)

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


def _to_boundary(wall: int, interval: int) -> int:
    """Nanoseconds to the next one; a timer that fired early must not make a splinter."""
    left = interval - wall % interval
    return left if left >= interval // 10 else left + interval
