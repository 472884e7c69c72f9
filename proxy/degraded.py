"""The states in which a proxy serves, and not all that is configured holds: one list, with reasons and remedies.

    FleetService, PolicyTopic, Reloader … ─degraded─▶ DegradedStates ─▶ /readyz?verbose, `top`, `explain`, metrics, log

Each part of the proxy says what is so now. `DegradedStates` remembers since when, and logs.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, get_args

import structlog

from proxy.config.sections import DegradedCause

LOOK_S: Final = 1.0
"""Seconds between two looks at all parts."""
LOG_AGAIN_S: Final = (60.0, 600.0)
"""Seconds until a state that lasts is logged a second time, and from then on each time."""
CAUSES: Final[tuple[DegradedCause, ...]] = get_args(DegradedCause)


class Degraded(NamedTuple):
    """A state in which not all that is configured holds. No text of it names a tenant: probes may read it.

    Attributes:
        cause: The state, one of a few words.
        reason: What is so, and why.
        remedy: What to do about it.
    """

    cause: DegradedCause
    reason: str
    remedy: str


class DegradedSince(NamedTuple):
    """A degraded state, and since when it lasts.

    Attributes:
        state: The state.
        since_ns: Nanoseconds since 1970.
        for_s: Seconds.
    """

    state: Degraded
    since_ns: int
    for_s: float


class _Known:
    """A state that lasts: since when by both clocks, and when it is logged next."""

    __slots__ = ("at", "log_at", "since_ns", "times")

    def __init__(self, at: float, since_ns: int) -> None:
        self.at, self.since_ns = at, since_ns
        self.log_at, self.times = at, 0


class DegradedStates:
    """The degraded states of a proxy.

    Args:
        sources: Functions that return the states of a part now, at most one of each cause.
        clock: Monotonic seconds.
        wall: Nanoseconds since 1970.
    """

    def __init__(
        self,
        sources: Iterable[Callable[[], Iterable[Degraded]]] = (),
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._sources = tuple(sources)
        self._clock, self._wall = clock, wall
        self._known: dict[DegradedCause, _Known] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at all parts once a second, from now on."""
        if self._sources:
            self.now()
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def causes(self) -> frozenset[DegradedCause]:
        """The states at the last look."""
        return frozenset(self._known)

    def now(self) -> list[DegradedSince]:
        """Return the states now, and log those that are new, last, or are over."""
        now, found = self._clock(), {state.cause: state for source in self._sources for state in source()}
        for cause in [cause for cause in self._known if cause not in found]:
            ended = self._known.pop(cause)
            structlog.get_logger().info("degraded no more", state=cause, after_s=round(now - ended.at, 1))
        return [self._since(state, now) for state in found.values()]

    def _since(self, state: Degraded, now: float) -> DegradedSince:
        known = self._known.get(state.cause)
        if known is None:
            known = self._known[state.cause] = _Known(now, self._wall())
        for_s = now - known.at
        if now >= known.log_at:
            known.log_at = now + LOG_AGAIN_S[min(known.times, 1)]
            known.times += 1
            structlog.get_logger().warning(
                f"degraded: {state.reason}", state=state.cause, for_s=round(for_s, 1), remedy=state.remedy
            )
        return DegradedSince(state, known.since_ns, for_s)
