"""Intervals of the access log: read the counts of streams and limiters at each boundary, for lines and metrics.

The timer is set by the first activity, for the next boundary of the wall clock. A proxy at rest has no timer but the
heartbeat's. Limits that are relative to publish rates change here, between two spans: no line mixes two values. While
there are such limits, the timer fires once a second at least, and goes on until the publish rates have come to rest.

A change of limits ends all lines at one moment, which is the change's, too. Where many limits change, some get their
values later: their lines, and those of their streams, end once more then.

All counts are taken at the boundary. Lines are made of them in slices, so that nothing waits for a thousand lines.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

from limiter.activity import ActivityReader, ActivitySet
from limiter.limiter import Limiter, Scope, Stream
from limiter.registry import Registry
from limiter.token_bucket import NANOS_PER_SECOND
from proxy.observe.access_log import AccessLog
from proxy.observe.counter_snapshot import CounterSnapshot, TakenLimiter, TakenStream
from proxy.observe.counters import Counters, NamespaceTotals, Refusals
from proxy.observe.log_lines import LineSpan

HEARTBEAT_S = 30.0
"""Longest time without a line while nothing happens."""
SLICE = 50
"""Most lines that are made in one go: about a millisecond's work."""
Moment = tuple[int, int]
"""Nanoseconds since 1970, and of the monotonic clock."""


class Intervals:
    """Turns counts into lines and totals.

    Args:
        log: Gets the lines.
        totals: Gets the sums by namespace.
        counters: Count how late the timer fired.
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
        self._tally = CounterSnapshot(totals)
        self._counters = counters
        self._interval = round(interval_s * 1e9)
        self._clock, self._wall = clocks
        self._journal: ActivitySet | None = None
        self._registry: Registry | None = None
        self._refusals = Refusals()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0
        self._due = 0
        self._ended = (self._wall(), self._clock())
        self._beaten = self._ended
        self._cut_at: dict[Stream | Scope, Moment] = {}
        """Streams and scopes that got other values within the interval: their next line begins there."""
        self._untold: deque[tuple[LineSpan, TakenStream | TakenLimiter]] = deque()
        self._telling: asyncio.Handle | None = None
        self._heart: asyncio.TimerHandle | None = None
        self._stood_until = 0

    def start(self, journal: ActivitySet, registry: Registry, refusals: Refusals) -> None:
        """Begin, once the loop runs."""
        self._journal, self._registry, self._refusals = journal, registry, refusals
        self._log.levels_by(registry)
        self._counters.stood_still = self._stood_still
        self._beat(last=False)

    @property
    def reader(self) -> ActivityReader:
        """The reader through which an engine tells of its streams and limiters."""
        return ActivityReader(self.activity, self._tell_early, self._cut, self._hasten)

    def activity(self) -> None:
        """Begin an interval after a rest: its line comes at the next boundary, and begins at the last one."""
        if self._timer is None:
            wall, now = self._wall(), self._clock()
            since_boundary = wall % self._interval
            if since_boundary < now - self._ended[1]:
                self._ended = (wall - since_boundary, now - since_boundary)
            self._wait_for_boundary()

    def flush(self) -> Moment:
        """End the running interval now, because values are about to change; return the moment at which it ended."""
        self._tell_all()
        if self._timer is None:
            self._ended = (self._wall(), self._clock())  # what comes has the new value: no line may begin before it
            return self._ended
        assert self._journal is not None, "start() comes first"
        assert self._registry is not None, "start() comes first"
        self._timer.cancel()
        self._timer = None
        self._registry.published(self._journal.streams, self._clock())
        self._report()
        ended = self._ended
        self._tell_all()
        self._go_on()
        return ended

    def settling(self) -> Iterator[None]:
        """Bring the totals up to now, because they are to be read: a unit of work in each step."""
        assert self._journal is not None, "start() comes first"
        for _ in range(len(self._untold)):
            if self._untold:
                self._tell(*self._untold.popleft())
                yield
        yield from self._tally.settling(self._journal, self._clock)

    def stop(self) -> None:
        """Write all lines, and the last heartbeat."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heart is not None:
            self._heart.cancel()
        self._beat_now(last=True)

    def span_since(self, started_at: int) -> LineSpan:
        """Return the span from a monotonic moment until now."""
        wall, now = self._wall(), self._clock()
        return LineSpan(wall - (now - started_at), wall, now - started_at)

    def _sleep(self) -> None:
        """Set the timer for the boundary; while limits follow publish rates, for about a second at most."""
        assert self._registry is not None, "start() comes first"
        now, self._wakes_at = self._clock(), self._due
        if not self._registry.relative.is_empty:
            self._wakes_at = min(self._due, now + _to_boundary(self._wall(), NANOS_PER_SECOND))
        self._timer = asyncio.get_running_loop().call_later((self._wakes_at - now) / 1e9, self._tick)

    def _hasten(self) -> None:
        """Shorten the timer: limits follow publish rates from now on."""
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
        if limits:
            self._tell_all()
            self._registry.retune(limits, self._ended[1])
        self._go_on()

    def _go_on(self) -> None:
        """Go on after an interval: streams that still wait have the next one, which begins at its end."""
        assert self._registry is not None, "start() comes first"
        if not self._is_quiet:
            self._wait_for_boundary()
        elif self._registry.relative.is_moving:
            self.activity()

    def _wait_for_boundary(self) -> None:
        self._due = self._clock() + _to_boundary(self._wall(), self._interval)
        self._sleep()

    @property
    def _is_quiet(self) -> bool:
        """True if no stream or limiter has anything to report."""
        assert self._journal is not None, "start() comes first"
        return not self._journal.streams and not self._journal.limiters

    def _report(self) -> None:
        assert self._journal is not None, "start() comes first"
        end = self._wall(), self._clock()
        streams, limiters = self._journal.empty()
        self._untold += [self._taken(stream, end) for stream in streams]
        self._untold += [self._taken(limiter, end) for limiter in limiters]
        self._ended = end
        self._cut_at.clear()
        self._tally.end()
        self._tell_some()

    def _tell_some(self) -> None:
        """Make some of the lines and schedule the rest; the heartbeat follows the last one."""
        for _ in range(min(SLICE, len(self._untold))):
            self._tell(*self._untold.popleft())
        if self._untold:
            self._telling = asyncio.get_running_loop().call_soon(self._tell_some)
        else:
            self._telling = None
            self._beat(last=False, at=self._ended)

    def _stood_still(self, late_ns: int) -> None:
        """Write a standstill for the first late timer; the others that were due meanwhile tell nothing new."""
        now = self._clock()
        if now - late_ns >= self._stood_until:
            self._log.standstill(self.span_since(now - late_ns))
        self._stood_until = now

    def _tell_early(self, over: Stream | Limiter) -> None:
        """Write the line of a stream or limiter that is over now, because the journal cannot keep more of them."""
        self._tell(*self._taken(over, (self._wall(), self._clock())))

    def _cut(self, one: Stream | Limiter, now: int) -> None:
        """End the line of a stream or limiter now, if it has one: other values hold from now on."""
        assert self._journal is not None, "start() comes first"
        self._tell_all()
        end = self._wall() - (self._clock() - now), now
        is_noted = one in self._journal.streams if isinstance(one, Stream) else one in self._journal.limiters
        if is_noted and now > self._began(one)[1]:
            self._tell(*self._taken(one, end))
        if now > self._ended[1]:
            self._cut_at[_whose(one)] = end

    def _began(self, one: Stream | Limiter) -> Moment:
        """Return when the present line of a stream or limiter began; that of a limiter not before it was made.

        A limiter may replace one that was forgotten, and its bucket does not know the time before.
        """
        cut_at = self._cut_at.get(_whose(one), self._ended)
        began = cut_at if cut_at[1] > self._ended[1] else self._ended
        if isinstance(one, Limiter) and began[1] < one.made_at < self._clock():
            return began[0] + one.made_at - began[1], one.made_at
        return began

    def _taken(self, one: Stream | Limiter, end: Moment) -> tuple[LineSpan, TakenStream | TakenLimiter]:
        """Return the counts of a stream or limiter up to a moment, and their span."""
        (began_wall, began), (wall, now) = self._began(one), end
        take = self._tally.take_stream(one, now) if isinstance(one, Stream) else self._tally.take_limiter(one, now)
        return LineSpan(began_wall, wall, now - began), take

    def _tell_all(self) -> None:
        """Make the lines still to come: a value is about to change, or the totals are to be read."""
        while self._telling is not None:
            self._telling.cancel()
            self._tell_some()

    def _tell(self, span: LineSpan, taken: TakenStream | TakenLimiter) -> None:
        if isinstance(taken, TakenLimiter):
            self._log.limit(span, taken.limiter, self._tally.of_limiter(taken))
            return
        fields = self._tally.of_stream(taken)
        if taken.waiting_ns is not None:
            fields["held_since"] = span.before_end(taken.waiting_ns)
        self._log.interval(span, taken.stream, fields)

    def _beat(self, *, last: bool, at: tuple[int, int] | None = None) -> None:
        """Write a heartbeat, and schedule the next one for the case that nothing happens till then.

        A heartbeat behind the lines of an interval has the moment at which the interval ended. If the wall clock is
        stepped while the lines are made, all of them have the old time.
        """
        self._beat_now(last=last, at=at)
        if self._heart is not None:
            self._heart.cancel()
        self._heart = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat_idle)

    def _beat_idle(self) -> None:
        self._heart = None
        self._beat(last=False)
        if self._timer is None:
            self._log.rest(HEARTBEAT_S)

    def _beat_now(self, *, last: bool, at: tuple[int, int] | None = None) -> None:
        wall, now = (self._wall(), self._clock()) if at is None or at[1] < self._beaten[1] else at
        span = LineSpan(self._beaten[0], wall, now - self._beaten[1])
        for refused in self._refusals.take():
            self._log.reject(span, refused)
        self._log.heartbeat(span, last=last)
        self._beaten = (wall, now)


def _whose(one: Stream | Limiter) -> Stream | Scope:
    """Return the key of lines that follow each other: a limiter may be replaced by another one."""
    return one if isinstance(one, Stream) else one.scope


def _to_boundary(wall: int, interval: int) -> int:
    """Return the nanoseconds to the next boundary; a timer that fired early must not make a splinter."""
    left = interval - wall % interval
    return left if left >= interval // 10 else left + interval
