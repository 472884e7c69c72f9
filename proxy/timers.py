"""Timers of the event loop: those that wake limiters, the heartbeat while the loop has work, and how late they fire.

a limiter's tokens suffice ──▶ TimedScheduler ─┐
an interval of the access log is over ─────────┼─▶ Lateness ──▶ counters, standstills, the work that held the loop
5 ms after the last beat ──▶ Heartbeat ────────┘
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from mypy_extensions import i64

from limiter.activity import ActivityNotes
from limiter.limiter import Limiter
from limiter.scheduler import Scheduler
from proxy.counters import LATENESS_NS, Counters

STANDSTILL_NS: Final = 500_000_000
"""Lateness of a timer, in nanoseconds, from which on the process counts as having stood still."""
LATE_NS: Final = 10_000_000
"""Lateness of a timer from which on the work is named that held the loop."""
_TURNS: Final = 20
"""Turns of waiting streams (`Scheduler.serve`) that take the time of a wake-up."""
BEAT_S: Final = 0.005
"""Seconds between two beats."""
READS_AT_REST: Final[i64] = 32
"""Reads after which a heartbeat at rest begins to beat. Fewer do not hold the loop, and a client that sends seldom
must not pay for a timer with each message."""
_NEVER: Final[i64] = 1 << 62


class Lateness:
    """Counts how late the loop comes to its timers.

    Args:
        counters: Get the counts.
        held_by: Returns the kind of work to which a lateness in nanoseconds is due.
        on_standstill: Called with the lateness of a timer, in nanoseconds, if that is a standstill.
    """

    def __init__(self, counters: Counters, held_by: Callable[[int], str], on_standstill: Callable[[int], None]) -> None:
        self._counters = counters
        self._held_by = held_by
        self._on_standstill = on_standstill

    def timer_fired(self, late_ns: int) -> None:
        """Count a timer of a limit, or of the access log, that fired `late_ns` nanoseconds late."""
        late_ns = max(0, late_ns)
        if late_ns >= STANDSTILL_NS:
            self._on_standstill(late_ns)
        counters = self._counters
        counters.timers_fired += 1
        counters.loop_lag_ns += late_ns
        counters.timers_by_lateness[bisect_left(LATENESS_NS, late_ns)] += 1
        self._loop_was_late(late_ns)

    def beat_fired(self, late_ns: int) -> None:
        """Count a beat that came `late_ns` nanoseconds late. A message that came then waited as long to be read."""
        counters = self._counters
        counters.beat_lag_ns += late_ns
        counters.beats_by_lateness[bisect_left(LATENESS_NS, late_ns)] += 1
        self._loop_was_late(late_ns)

    def _loop_was_late(self, late_ns: int) -> None:
        counters = self._counters
        if late_ns >= LATE_NS:
            counters.late_timers[self._held_by(late_ns)] += 1
        counters.loop_lag_max_ns = max(counters.loop_lag_max_ns, late_ns)


class TimedScheduler(Scheduler):
    """A scheduler whose limiters are woken by timers of the loop, when their tokens suffice again.

    Args:
        clock: Monotonic nanoseconds.
        lateness: Counts how late the timers fire.
        release: Does the units of a release: as many in this turn of the loop as it has room for.
        journal: As for `Scheduler`.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        lateness: Lateness,
        release: Callable[[Iterator[None]], None],
        journal: ActivityNotes,
    ) -> None:
        super().__init__(self.wake_at, journal)
        self._clock = clock
        self._lateness = lateness
        self._in_slices = release
        self._timers: dict[Limiter, asyncio.TimerHandle] = {}

    def wake_at(self, limiter: Limiter, at_ns: int) -> None:
        """Serve `limiter` at that time; replaces the time set before."""
        timer = self._timers.pop(limiter, None)
        if timer is not None:
            timer.cancel()
        delay = max(0, at_ns - self._clock()) / 1e9
        loop = asyncio.get_running_loop()
        self._timers[limiter] = loop.call_later(delay, self._ring, limiter, at_ns)

    def _ring(self, limiter: Limiter, at_ns: int) -> None:
        now = self._clock()
        self._timers.pop(limiter, None)
        self._lateness.timer_fired(now - at_ns)
        self._in_slices(self._serving(limiter))

    def _serving(self, limiter: Limiter) -> Iterator[None]:
        for _ in range(self.serve(limiter, self._clock()) // _TURNS):
            yield


LARGE_READ: Final = 4096
"""Bytes of a read from which on its time counts, and its transport may keep it. To take fewer bytes is no dearer than
to keep them, unless many of their entries are over a limit: see `DataPath`."""
_SLOW_NS: Final[i64] = 1
"""Nanoseconds for a byte from which on a read is slow. Messages of 100 B take half of that, acknowledgements twice."""
TURN_NS: Final[i64] = 2_000_000
"""Nanoseconds that slow reads may take in one turn of the loop before the next ones wait."""
MOST_KEPT: Final = 16 * 1024 * 1024
"""Bytes of reads that wait for another turn at which further ones are taken at once."""


class SlowReads:
    """The time that slow reads of all connections have taken in this turn of the loop.

    The loop reads all connections that can be read before it does anything else. Thirty that have sent 256 KiB of
    acknowledgements each make a turn of 30 ms, as each frame is looked at. So:

        slow reads have taken TURN_NS ─▶ further large reads are kept, and go on by turns, one in each turn of the loop
                                     └─▶ so do shorter ones whose entries are cut, and wait in their data path

    Args:
        clock: Monotonic nanoseconds.
        most_kept: Bytes of reads that wait for another turn at which further ones are taken at once.

    Attributes:
        is_over: Whether the time of this turn is used up.
        is_tight: Whether that of this turn, or of the one before, is used up.
        kept: Bytes of reads that wait for another turn.
    """

    def __init__(self, clock: Callable[[], int], most_kept: int = MOST_KEPT) -> None:
        self.is_over = False
        self.is_tight = False
        self._most_kept = most_kept
        self.kept = 0
        self._clock = clock
        self._spent: i64 = 0
        self._spent_before: i64 = 0
        self._is_awaited = False

    def begin(self) -> i64:
        """Return the time at which a large read begins, for `end`."""
        return self._clock()

    def end(self, began: i64, size: i64) -> bool:
        """Count a read of `size` bytes if it was slow, and return whether it was."""
        took: i64 = self._clock() - began
        if took < size * _SLOW_NS:
            return False
        self._spent += took
        if not self._is_awaited:
            self._await_end()
        if self._spent >= TURN_NS:
            self.is_over = self.is_tight = True
        return True

    @property
    def has_room(self) -> bool:
        """True if a further read may be kept."""
        return self.kept < self._most_kept

    def lately(self) -> int:
        """Return the nanoseconds that slow reads have taken in this turn and in the one before."""
        return self._spent + self._spent_before

    def _await_end(self) -> None:
        self._is_awaited = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_awaited = False
        self.is_tight, self.is_over = self.is_over, False
        self._spent_before, self._spent = self._spent, 0
        if self._spent_before:
            self._await_end()


class Heartbeat:
    """Notes how late the loop is, by a timer that fires each 5 ms while the loop has work, whichever that is.

    A turn of the loop is noted up to 5 ms shorter than it is. A loop that rests has no timer: the last beat finds that
    nothing was done since the one before.

        resting ──32 reads, or `note`──▶ beating ──a beat, and no work since the last one──▶ resting

    Args:
        was_late: Called at each beat with its lateness in nanoseconds.
        clock: Monotonic nanoseconds.

    Attributes:
        reads_left: The number of reads after which `note` is called. The transport of a connection counts it down.
    """

    def __init__(self, was_late: Callable[[int], None], clock: Callable[[], int]) -> None:
        self._was_late = was_late
        self._clock = clock
        self._is_started = False
        self._has_work = False
        self.reads_left: i64 = _NEVER
        self._due = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to take note of work."""
        self._is_started = True
        self.reads_left = READS_AT_REST

    def stop(self) -> None:
        """Take no more notes."""
        self._is_started = self._has_work = False
        self.reads_left = _NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reads(self) -> int:
        """Return the number of reads since the last beat, and of lost connections; 0 of a heartbeat at rest."""
        return _NEVER - self.reads_left if self._has_work else 0

    def note(self) -> None:
        """Take note that the loop has work."""
        if self._has_work or not self._is_started:
            return
        self._has_work = True
        self.reads_left = _NEVER
        if self._timer is None:
            self._beat_again()

    def _beat_again(self) -> None:
        self._due = self._clock() + round(BEAT_S * 1e9)
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        self._was_late(max(0, self._clock() - self._due))
        if self._has_work:
            self._has_work = False
            self.reads_left = 1
            self._beat_again()
        else:
            self._timer = None
            self.reads_left = READS_AT_REST
