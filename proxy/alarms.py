"""The gate's alarm clock: one timer for each limiter that somebody waits on, none for all others."""

import asyncio
from collections.abc import Callable

from limiter.gate import Gate
from limiter.limiter import Limiter
from proxy.observe.counters import Counters


class Alarms:
    """Wakes the gate when a limiter's tokens suffice again.

    Args:
        clock: Monotonic nanoseconds.
        counters: Told how late the timers were.
    """

    def __init__(self, clock: Callable[[], int], counters: Counters) -> None:
        self._clock = clock
        self._counters = counters
        self._timers: dict[Limiter, asyncio.TimerHandle] = {}
        self._gate: Gate | None = None

    def connect(self, gate: Gate) -> None:
        """Set whom to wake."""
        self._gate = gate

    def wake_at(self, limiter: Limiter, at_ns: int) -> None:
        """Call `gate.serve` for `limiter` at that time, and not at the one said before."""
        known = self._timers.pop(limiter, None)
        if known is not None:
            known.cancel()
        delay = max(0, at_ns - self._clock()) / 1e9
        loop = asyncio.get_running_loop()
        self._timers[limiter] = loop.call_later(delay, self._ring, limiter, at_ns)

    def _ring(self, limiter: Limiter, at_ns: int) -> None:
        now = self._clock()
        self._timers.pop(limiter, None)
        self._counters.timer_fired(now - at_ns)
        assert self._gate is not None, "connect() comes first"
        self._gate.serve(limiter, now)
