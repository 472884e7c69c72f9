"""Intervals of the access log: read the counts of streams and limiters at each boundary, for lines and metrics.

The timer is set by the first activity, for the next boundary of the wall clock. A proxy at rest has no timer but the
heartbeat's. Limits that are relative to publish rates change here, between two spans: no line mixes two values. While
there are such limits, the timer fires once a second at least, and goes on until the publish rates have come to rest.

A change of limits ends the lines that it concerns at the change's moment: those of limiters with another value, and
those of streams that come within other limits. All other lines go on. Where many limits change, some get their values
later: their lines end then.

All counts are those of the boundary. The boundary itself costs the same for one stream and for 20,000. Counts are taken
in slices, or before they change, whichever comes first:

    boundary ─▶ all are pending ─┬─ a slice ──────────────────────────▶ taken ─▶ line
                                 └─ a stream is about to do something ─▶ taken, with its limiters

Lines are also made in slices, so that nothing waits for a thousand lines. An interval ends when the lines of the one
before are all made: if they take longer than an interval, the next one is longer. So no stream or limiter ever has two
lines that wait, and nothing that a client does makes a line at once. A limiter that gets another value before its line
is made has its line at once. Streams' lines still have the value of the boundary.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from limiter.activity import ActivityJournal, ActivityReader
from limiter.limiter import Limiter, Scope, Stream
from limiter.registry import Registry
from limiter.token_bucket import NANOS_PER_SECOND
from proxy.observe.access_log import AccessLog
from proxy.observe.connection import Refusals
from proxy.observe.counter_snapshot import CounterSnapshot, TakenLimiter
from proxy.observe.log_lines import LineSpan, Moment
from proxy.observe.steady import CountedSpan, SteadyLines
from proxy.observe.totals import NamespaceTotals
from proxy.slices import Slices, Work, letting_go

HEARTBEAT_S = 30.0
"""Longest time without a line while nothing happens."""
_TAKEN = 2
"""Counts that are taken in the time in which a line is made."""
TAKEN_EARLY = 5
"""Streams in a read that take as long as to take counts does."""


class _Boundary(NamedTuple):
    """The end of an interval, at which counts are taken.

    Args:
        cut_at: Streams and scopes that got other values within the interval, and when.
        began: The begin of the interval.
        end: Its end.
    """

    cut_at: "dict[Stream | Scope, Moment]"
    began: Moment
    end: Moment


class Observed(Protocol):
    """The streams and limiters that lines report on; implemented by `Engine`."""

    journal: ActivityJournal
    registry: Registry
    refusals: Refusals
    slices: Slices


class Intervals:
    """Turns counts into lines and totals.

    Args:
        log: Gets the lines.
        totals: Gets the sums by namespace.
        observed: The streams and limiters whose counts these are.
        interval_s: Seconds between lines.
        steady_s: Seconds between the lines of steady streams and limiters.
        clock: Monotonic nanoseconds.
        wall: Nanoseconds since 1970.
    """

    def __init__(
        self,
        log: AccessLog,
        totals: NamespaceTotals,
        observed: Observed,
        *,
        interval_s: float,
        steady_s: float,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._log = log
        self._lines = log.periodic(observed.registry)
        self._tally = CounterSnapshot(totals)
        self._interval = round(interval_s * 1e9)
        longest_ns = round(steady_s * 1e9) if steady_s > interval_s and log.files is not None else 0
        self._steady = SteadyLines(self._lines, self._tally, longest_ns)
        self._clock, self._wall = clock, wall
        self._journal = observed.journal
        self._registry = observed.registry
        self._refusals = observed.refusals
        self._slices = observed.slices
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0
        self._due = 0
        self._ended = (self._wall(), self._clock())
        self._beaten = self._ended
        self._cut_at: dict[Stream | Scope, Moment] = {}
        """Streams and scopes that got other values within the interval: their next line begins there."""
        self._pending_streams: OrderedDict[Stream, None] = OrderedDict()
        self._pending_limiters: OrderedDict[Limiter, None] = OrderedDict()
        """Those whose counts are those of the boundary, and are still to be taken."""
        self._boundary = _Boundary({}, self._ended, self._ended)
        """The boundary whose counts these are."""
        self._unwritten: OrderedDict[Stream | Limiter, tuple[CountedSpan, int]] = OrderedDict()
        """Counts that have no line yet, and the begin of their interval by the monotonic clock."""
        self._is_releasing = False
        """All that is kept must have its lines before those of the interval."""
        self._is_writing = False
        self._is_measuring = False
        self._heart: asyncio.TimerHandle | None = None
        self._stood_until = 0

        self._journal.read_by(
            ActivityReader(
                on_first=self.activity,
                on_early=self._write_early,
                on_cut=self._cut,
                on_take=self._take_early,
                on_relative=self._hasten,
                on_standstill=self._stood_still,
            )
        )

    def start(self) -> None:
        """Write the first heartbeat, once the loop runs."""
        self._beat(last=False)

    def activity(self) -> None:
        """Begin an interval after a rest: its line comes at the next boundary, and begins at the last one."""
        if self._timer is None:
            if not self._pending:
                self._let_go(self._tally.end())
            wall, now = self._wall(), self._clock()
            since_boundary = wall % self._interval
            if since_boundary < now - self._ended[1]:
                self._ended = (wall - since_boundary, now - since_boundary)
            self._wait_for_boundary()

    async def lines_written(self) -> None:
        """Return when the lines are made that wait to be made now: a change that comes then has its line after them."""
        if self._steady:
            self._steady.end()
        if self._is_unwritten or self._steady:
            await self._slices.done(Work.LINES, self._writing())

    def change(self) -> Moment:
        """Return this moment, at which values are about to change; the reader's `cut` ends the lines concerned."""
        moment = self._wall(), self._clock()
        self._steady.change(moment[1])
        if self._timer is None:
            self._ended = moment  # later counts have the new value: no line may begin before it
        return moment

    def flush(self) -> Moment:
        """End the running interval now, and make all lines; return the moment at which it ended."""
        self._steady.end()
        self._write_all()
        if self._timer is None:
            self._ended = (self._wall(), self._clock())  # later counts have the new value: no line may begin before it
            return self._ended
        self._timer.cancel()
        self._timer = None
        self._registry.published(self._journal.streams, self._clock())
        self._report()
        self._steady.end()
        ended = self._ended
        self._write_all()
        self._go_on()
        return ended

    def settling(self) -> Iterator[None]:
        """Bring the totals up to now, before they are read: a unit of work in each step."""
        yield from self._writing()
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
        return LineSpan.between((wall - (now - started_at), started_at), (wall, now))

    def _sleep(self) -> None:
        """Set the timer for the boundary; while limits follow publish rates, for about a second at most."""
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
        self._timer = None
        now = self._clock()
        self._slices.lateness.timer_fired(now - self._wakes_at)
        relative = self._registry.relative
        active = [] if relative.is_empty else list(self._journal.streams)
        if now < self._due - self._interval // 10:
            self._sleep()
        else:
            if not self._is_unwritten:
                if self._is_quiet and not self._steady:
                    self._ended = (self._wall(), self._clock())
                else:
                    self._report()
            self._go_on()
        if self._is_measuring:  # for longer than a second: the next round measures these
            self._registry.published(active, now)
        elif not relative.is_empty:
            self._is_measuring = True
            self._slices.run(Work.POLICIES, self._measuring(active))

    def _measuring(self, active: list[Stream]) -> Iterator[None]:
        """Measure publish rates; relative limits whose value changes have a line that ends then."""
        try:
            yield from self._registry.measuring(active, self._clock)
        finally:
            self._is_measuring = False
        if self._registry.relative.is_moving:
            self.activity()

    def _go_on(self) -> None:
        """Go on after an interval: streams that still wait have the next one, which begins at its end.

        Whether any waits is known when all are taken.
        """
        may_keep = self._steady or (self._unwritten and self._steady.is_on)
        if self._pending or may_keep or not self._is_quiet:
            self._wait_for_boundary()
        elif self._registry.relative.is_moving:
            self.activity()

    def _wait_for_boundary(self) -> None:
        self._due = self._clock() + _to_boundary(self._wall(), self._interval)
        self._sleep()

    @property
    def _is_quiet(self) -> bool:
        """True if no stream or limiter has anything to report."""
        return not self._journal.streams and not self._journal.limiters

    def _report(self) -> None:
        end = self._wall(), self._clock()
        self._is_releasing = self._steady.boundary(self._ended, end) or self._is_releasing
        if self._is_quiet:
            self._steady.end()
        self._pending_streams, self._pending_limiters = self._journal.end_period()
        self._let_go(self._boundary.cut_at)
        self._boundary = _Boundary(self._cut_at, self._ended, end)
        self._cut_at, self._ended = {}, end
        if not self._is_writing:
            self._is_writing = True
            self._slices.run(Work.LINES, self._writing_all(), self._all_written)

    @property
    def _pending(self) -> int:
        """The number of streams and limiters whose counts are still to be taken."""
        return len(self._pending_streams) + len(self._pending_limiters)

    @property
    def _is_unwritten(self) -> bool:
        """True while lines of the last interval are still to be made."""
        return bool(self._unwritten or self._pending)

    def _take_early(self, subject: Stream | Limiter) -> None:
        """Take the counts of the boundary before their slice, if they are still to be taken: they are about to change.

        That takes time of the work by which they change, mostly of a read.
        """
        if subject in (self._pending_streams if isinstance(subject, Stream) else self._pending_limiters):
            self._take(subject)
            self._slices.charge(Work.ENTRIES, TAKEN_EARLY)

    def _take(self, subject: Stream | Limiter) -> None:
        """Take the counts of the boundary of a stream or limiter, which are still to be taken."""
        if isinstance(subject, Stream):
            del self._pending_streams[subject]
        else:
            del self._pending_limiters[subject]
        cut_at, interval_began, end = self._boundary
        counted = self._taken(subject, end, self._began(subject, cut_at, interval_began, end[1]))
        if isinstance(counted.taken, TakenLimiter) and not counted.taken.is_steady(end[1] - counted.began[1]):
            self._steady.is_unsteady(counted.taken.limiter, end[1])
        self._unwritten[subject] = counted, interval_began[1]
        self._journal.taken(subject)

    def _take_next(self) -> None:
        """Take the counts of a stream that is still to be taken, or of a limiter if no stream is left."""
        if self._pending_streams:
            self._take(next(iter(self._pending_streams)))
        else:
            self._take(next(iter(self._pending_limiters)))

    def _writing_all(self) -> Iterator[None]:
        """Make the lines of each interval that ends meanwhile, as well."""
        while self._is_unwritten or self._steady.is_due:
            yield from self._writing()

    def _writing(self) -> Iterator[None]:
        """Take all pending counts, then make all lines that wait, one in each step."""
        while self._pending:
            for _ in range(min(_TAKEN, self._pending)):
                self._take_next()
            yield
        if self._is_releasing:
            self._is_releasing = False
            yield from self._steady.releasing()
        while self._unwritten:
            self._write_line_of(next(iter(self._unwritten)))
            yield
        if self._steady.is_due:
            yield from self._steady.releasing()

    def _write_line_of(self, subject: Stream | Limiter) -> None:
        counted, interval_began = self._unwritten.pop(subject)
        if not self._steady.keep(subject, counted, interval_began):
            self._write(subject, counted)
        if not self._is_unwritten:
            self._let_go(self._lines.forget_values())

    def _all_written(self) -> None:
        """Write the heartbeat that follows the lines of an interval."""
        self._is_writing = False
        self._beat(last=False, at=self._ended)

    def _stood_still(self, late_ns: int) -> None:
        """Write a standstill for the first late timer; other timers that were due by then are part of it."""
        now = self._clock()
        if now - late_ns >= self._stood_until:
            self._log.standstill(self.span_since(now - late_ns))
        self._stood_until = now

    def _write_early(self, over: Stream | Limiter) -> None:
        """Write the line of a stream or limiter that is over now, because the journal is full."""
        self._write_last_interval(over)
        end = self._wall(), self._clock()
        self._end_steady(over, end[1])
        self._write_now(over, self._taken(over, end, self._began(over, self._cut_at, self._ended, end[1])))

    def _end_steady(self, subject: Stream | Limiter, now: int) -> None:
        """End what is kept of a stream or limiter, as its line ends within an interval."""
        self._steady.release(subject)
        if isinstance(subject, Limiter):
            self._steady.is_unsteady(subject, now)

    def _write_last_interval(self, subject: Stream | Limiter) -> None:
        """Make the line of the last interval, if it is still to be made."""
        self._take_early(subject)
        if subject in self._unwritten:
            self._slices.take(Work.LINES)
            self._write_line_of(subject)

    def _cut(self, subject: Stream | Limiter, now: int) -> None:
        """End the line of a stream or limiter now, if it has one: other values hold from now on."""
        self._write_last_interval(subject)
        if (self._unwritten or self._pending) and isinstance(subject, Limiter):
            self._lines.keep_value(subject)
        end = self._wall() - (self._clock() - now), now
        is_noted = (
            subject in self._journal.streams if isinstance(subject, Stream) else subject in self._journal.limiters
        )
        began = self._began(subject, self._cut_at, self._ended, self._clock())
        self._end_steady(subject, now)
        if is_noted and now > began[1]:
            self._write_now(subject, self._taken(subject, end, began))
        if now > self._ended[1]:
            self._cut_at[_key_of(subject)] = end

    @staticmethod
    def _began(subject: Stream | Limiter, cut_at: dict[Stream | Scope, Moment], ended: Moment, now: int) -> Moment:
        """Return when a line of a stream or limiter began; that of a limiter not before it was made.

        A limiter may replace one that was forgotten, and its bucket does not know the time before.
        """
        cut = cut_at.get(_key_of(subject), ended)
        began = cut if cut[1] > ended[1] else ended
        if isinstance(subject, Limiter) and began[1] < subject.made_at < now:
            return began[0] + subject.made_at - began[1], subject.made_at
        return began

    def _taken(self, subject: Stream | Limiter, end: Moment, began: Moment) -> CountedSpan:
        """Return the counts of a stream or limiter up to a moment, and their span."""
        now = end[1]
        take = (
            self._tally.take_stream(subject, now)
            if isinstance(subject, Stream)
            else self._tally.take_limiter(subject, now)
        )
        return CountedSpan(began, end, take)

    def _write_all(self) -> None:
        """Make all pending lines, before the totals are read or the process ends."""
        for _ in self._writing():
            pass
        if self._is_writing:
            self._slices.finish(Work.LINES)

    def _write_now(self, subject: Stream | Limiter, counted: CountedSpan) -> None:
        """Make a line before the end of its interval; it takes time of the work that ends it."""
        self._slices.take(Work.LINES)
        self._write(subject, counted)

    def _write(self, subject: Stream | Limiter, counted: CountedSpan) -> None:
        self._steady.release(subject)
        span, taken = counted.span, counted.taken
        if isinstance(taken, TakenLimiter):
            self._lines.limit(span, taken.limiter, self._tally.of_limiter(taken))
            return
        fields = self._tally.of_stream(taken)
        if taken.waiting_ns is not None:
            fields["held_since"] = span.before_end(taken.waiting_ns)
        self._lines.interval(span, taken.stream, fields)

    def _beat(self, *, last: bool, at: Moment | None = None) -> None:
        """Write a heartbeat, and schedule the next one in case nothing happens until then.

        A heartbeat after the lines of an interval has the moment at which the interval ended. If the wall clock is
        stepped while the lines are made, all lines have the old time.
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

    def _beat_now(self, *, last: bool, at: Moment | None = None) -> None:
        now = (self._wall(), self._clock()) if at is None or at[1] < self._beaten[1] else at
        span = LineSpan.between(self._beaten, now)
        for refused in self._refusals.take():
            self._log.reject(span, refused)
        unmade = (counted.began for counted, _ in self._unwritten.values())
        begun = [self._steady.kept_since, next(unmade, None), self._boundary.began if self._pending else None]
        until = min((moment[0] for moment in begun if moment is not None), default=None)
        self._log.heartbeat(span, last=last, until=until)
        self._let_go(*self._lines.turn())
        self._beaten = now

    def _let_go(self, *forgotten: dict[Any, Any]) -> None:
        """Free forgotten objects in slices."""
        if any(forgotten):
            self._slices.run(Work.MEMORY, letting_go(*forgotten))


def _key_of(subject: Stream | Limiter) -> Stream | Scope:
    """Return the key of lines that follow each other: a limiter may be replaced by another one."""
    return subject if isinstance(subject, Stream) else subject.scope


def _to_boundary(wall: int, interval: int) -> int:
    """Return the nanoseconds to the next boundary; a timer that fired early must not make a splinter."""
    left = interval - wall % interval
    return left if left >= interval // 10 else left + interval
