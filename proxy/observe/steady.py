"""Lines of several intervals: for streams and limiters whose limits neither held nor were reached.

While no stream waits, nothing is refused and a limiter passes no more than its rate allows, no part of that time is the
window in which a promise is broken worst: a line of one interval says more than a verdict needs. So the counts of such
intervals are kept, added up, and written as one line after `access_log.steady_interval`. An interval is steady if

    of a limiter   it passed its rate at most, no bucket is in debt, no stream waited, it refused nothing
    of a stream    nothing was held, dropped or refused, and each of its limiters was steady, too

    boundary ─▶ taken ─▶ steady? ─yes─▶ added to what is kept ──steady_interval over, or all quiet──▶ one line
                            └───no────▶ what was kept has its line, and this interval its own

Other limits, another value and a step of the wall clock end what is kept. So each line has one value, and each interval
in which a stream waited has lines of its own, those of all streams under the limit among them. Limits that a fleet
shares have a line for each interval in any case: the sum over members is judged by lines that lie wholly in a window.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from limiter.limiter import Limiter, Stream
from proxy.observe.counter_snapshot import CounterSnapshot, TakenCounts, TakenLimiter
from proxy.observe.log_lines import LineSpan, Moment, PeriodicLines

_STEP_NS = 10_000_000
"""The wall clock was stepped if it gained or lost this against the monotonic clock within an interval."""


class CountedSpan(NamedTuple):
    """The counts of a stream or limiter from a moment to another."""

    began: Moment
    ended: Moment
    taken: TakenCounts

    @property
    def span(self) -> LineSpan:
        """The times, as lines have them."""
        return LineSpan.between(self.began, self.ended)


class _Kept(NamedTuple):
    """Intervals that have no line yet.

    Args:
        counted: The sum of their counts, all of them in the totals.
        encoded: The fields of the line that are not counts.
        largest: Messages and bytes that no entry of a stream exceeded.
    """

    counted: CountedSpan
    encoded: bytes
    largest: tuple[int, int]


class SteadyLines:
    """The counts of steady streams and limiters, and their lines.

    Bound: one for each stream and limiter.

    Args:
        lines: Makes the lines.
        tally: Has the totals, to which kept counts are added at once.
        longest_ns: Nanoseconds that a line lasts at most, of the wall clock; 0 to keep nothing.
    """

    def __init__(self, lines: PeriodicLines, tally: CounterSnapshot, longest_ns: int) -> None:
        self._lines = lines
        self._tally = tally
        self._longest = longest_ns
        self._kept: dict[Stream | Limiter, _Kept] = {}
        self._unsteady: dict[Limiter, int] = {}
        """The end of the last interval in which a limiter was not steady, by the monotonic clock."""
        self._unsteady_all = -1
        self._is_due = False

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def kept_since(self) -> Moment | None:
        """The begin of the earliest interval that is kept; None if none is."""
        # Later intervals are added to what is kept, so the first entry is the oldest.
        return next((kept.counted.began for kept in self._kept.values()), None)

    @property
    def is_on(self) -> bool:
        """True if anything is ever kept."""
        return self._longest > 0

    def boundary(self, before: Moment, now: Moment) -> bool:
        """Note that an interval ends; return whether all that is kept must have its lines before those of the interval.

        Args:
            before: The boundary before this one.
            now: This boundary.
        """
        if not self._longest:
            return False
        self._is_due = self._is_due or before[0] // self._longest != now[0] // self._longest
        is_stepped = abs(now[0] - before[0] - (now[1] - before[1])) > _STEP_NS
        if is_stepped:
            self._unsteady_all = now[1]
        return is_stepped

    def end(self) -> None:
        """Have all that is kept written with the lines of this interval."""
        self._is_due = True

    def change(self, now: int) -> None:
        """Note that limits change: no line goes on past this moment, and the interval is steady for nothing."""
        self._unsteady_all = now

    def is_unsteady(self, limiter: Limiter, now: int) -> None:
        """Note that a limiter was not steady in the interval that goes on until this moment."""
        if self._longest:
            self._unsteady[limiter] = now

    def keep(self, subject: Stream | Limiter, counted: CountedSpan, interval_began: int) -> bool:
        """Add the counts of an interval to those that are kept; return False if it must have a line of its own.

        Args:
            subject: The stream or limiter.
            counted: Its counts in the interval.
            interval_began: The begin of the interval, by the monotonic clock.
        """
        if not self._longest or counted.began[1] != interval_began:
            return False
        if isinstance(subject, Limiter) and subject.lease is not None:
            return False
        unsteady_at = self._unsteady_at(subject)
        if unsteady_at > interval_began or not counted.taken.is_steady(counted.ended[1] - interval_began):
            return False
        kept = self._kept.get(subject)
        if kept is not None and unsteady_at > kept.counted.began[1]:
            self.release(subject)
            kept = None
        taken = self._tally.count(counted.taken)
        largest = taken.largest_bound()
        if kept is None:
            encoded = self._lines.encoded(subject)
        else:
            counted, encoded = counted._replace(began=kept.counted.began), kept.encoded
            taken = taken.after(kept.counted.taken)
            largest = max(largest[0], kept.largest[0]), max(largest[1], kept.largest[1])
        self._kept[subject] = _Kept(counted._replace(taken=taken), encoded, largest)
        return True

    def release(self, subject: Stream | Limiter) -> None:
        """Write the line of what is kept of a stream or limiter, if anything is."""
        kept = self._kept.pop(subject, None)
        if kept is None:
            return
        span, taken = kept.counted.span, kept.counted.taken
        if isinstance(taken, TakenLimiter):
            self._lines.limit(span, taken.limiter, {**self._tally.of_limiter(taken), "steady": True}, kept.encoded)
            return
        fields: dict[str, Any] = {**self._tally.of_stream(taken), "steady": True}
        for unit, most, bound in zip(("messages", "bytes"), kept.largest, taken.largest_bound(), strict=True):
            if most < bound:
                fields[f"largest_entry_{unit}"] = most
        self._lines.interval(span, taken.stream, fields, kept.encoded)

    def releasing(self) -> Iterator[None]:
        """Write the lines of all that is kept now, one in each step."""
        self._is_due = False
        for subject in list(self._kept):
            self.release(subject)
            yield
        self._unsteady.clear()

    @property
    def is_due(self) -> bool:
        """True if all that is kept must have its lines with those of this interval."""
        return self._is_due

    def _unsteady_at(self, subject: Stream | Limiter) -> int:
        """Return until when something of a stream or limiter was not steady, as far as it is known."""
        unsteady, latest = self._unsteady, self._unsteady_all
        if isinstance(subject, Limiter):
            return max(latest, unsteady.get(subject, -1))
        if unsteady:
            for limiter in subject.chain if subject.observed is None else (*subject.chain, *subject.observed.chain):
                latest = max(latest, unsteady.get(limiter, -1))
        return latest
