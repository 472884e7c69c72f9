"""Reads what streams and limiters counted, interval by interval, for the access log and the metrics.

The timer is set by the first activity, for the next boundary of the wall clock; a proxy at rest has none but the
heartbeat's.
"""

import asyncio
import time
from collections.abc import Callable

from limiter.journal import Journal
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
        """End the running interval now, because a value is about to change."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._report()

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
            self._log.limit(span, limiter, self._tally.of_limiter(limiter, now))
        self._tally.end()
        self._beat(last=False)
        if self._journal.streams or self._journal.limiters:
            self.activity()

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
