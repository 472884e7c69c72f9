"""The heartbeat: how late the event loop is. In a module of its own, as it is compiled: each read counts down in it."""

import asyncio
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

BEAT_S: Final = 0.005
"""Seconds between two beats."""
READS_AT_REST: Final[i64] = 32
"""Reads after which a heartbeat at rest begins to beat. Fewer do not hold the loop, and a client that sends seldom
must not pay for a timer with each message."""
_NEVER: Final[i64] = 1 << 62


class Heartbeat:
    """Notes how late the loop is, by a timer that fires each 5 ms while the loop has work, whichever that is.

    A turn of the loop is noted up to 5 ms shorter than it is. A loop that rests has no timer: the last beat finds that
    nothing was done since the one before.

        resting ──32 reads, or `note`──▶ beating ──a beat, and no work since the last one──▶ resting

    Args:
        was_late: Called at each beat with its lateness in nanoseconds.
        clock: Monotonic nanoseconds.

    Attributes:
        reads_left: The number of reads after which `note` is called. The reader of a connection counts it down.
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
        self._is_started = False
        self.reads_left = _NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self) -> None:
        """Take note that the loop has work."""
        if not self._is_started:
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
