"""Degraded states, in which a proxy serves and part of its configuration is not in force, with reasons and remedies.

    FleetService, PolicyTopic, Reloader … ─degraded─▶ DegradedStates ─▶ /readyz?verbose, `top`, `explain`, metrics, log

Each part of the proxy yields its states now. `DegradedStates` remembers since when each lasts, and logs. It looks at
parts that change by themselves once a second; a part that changes on a request alone announces it, and costs an idle
process no timer.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, get_args

import structlog

from proxy.config.sections import DegradedCause

LOOK_S: Final = 1.0
"""Seconds between two looks at parts that change by themselves."""
LOG_AGAIN_S: Final = (60.0, 600.0)
"""Seconds until a state that lasts is logged a second time, and from then on each time."""
CAUSES: Final[tuple[DegradedCause, ...]] = get_args(DegradedCause)


class Degraded(NamedTuple):
    """A state in which part of the configuration is not in force.

    Its texts name brokers, but no tenants, topics or files of the configuration, which may be named after tenants:
    probes and tenants may read them.

    Attributes:
        cause: The state's name, one of a few.
        reason: The state in words, with its reason.
        remedy: The operator's remedy.
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


class _LastingState:
    """The beginning of a state by both clocks, and the time at which it is logged next."""

    __slots__ = ("at", "log_at", "since_ns", "times")

    def __init__(self, at: float, since_ns: int) -> None:
        self.at, self.since_ns = at, since_ns
        self.log_at, self.times = at, 0


class DegradedStates:
    """The degraded states of a proxy.

    Args:
        watched: Functions that return the states of a part that changes by itself, at most one of each cause.
        announced: The same of parts whose changes are announced by `look`.
        clock: Monotonic seconds.
        wall: Nanoseconds since 1970.
    """

    def __init__(
        self,
        watched: Iterable[Callable[[], Iterable[Degraded]]] = (),
        announced: Iterable[Callable[[], Iterable[Degraded]]] = (),
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._watched = tuple(watched)
        self._parts = (*self._watched, *announced)
        self._clock, self._wall = clock, wall
        self._lasting: dict[DegradedCause, _LastingState] = {}
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Look at all parts now, and again when one may have changed or a state that lasts is logged again."""
        self.stop()
        self.now()
        pause = self._pause()
        if pause is not None:
            self._timer = asyncio.get_running_loop().call_later(pause, self.look)

    def stop(self) -> None:
        """Look no more, until `look`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pause(self) -> float | None:
        """Seconds until the next look; None where no part changes by itself and no state lasts."""
        if self._watched:
            return LOOK_S
        return min((lasting.log_at - self._clock() for lasting in self._lasting.values()), default=None)

    @property
    def causes(self) -> frozenset[DegradedCause]:
        """The states at the last look."""
        return frozenset(self._lasting)

    def now(self) -> list[DegradedSince]:
        """Return the states now, and log those that are new, last, or have ended."""
        now, states = self._clock(), {state.cause: state for part in self._parts for state in part()}
        for cause in [cause for cause in self._lasting if cause not in states]:
            ended = self._lasting.pop(cause)
            structlog.get_logger().info("degraded no more", state=cause, after_s=round(now - ended.at, 1))
        return [self._since(state, now) for state in states.values()]

    def _since(self, state: Degraded, now: float) -> DegradedSince:
        lasting = self._lasting.get(state.cause)
        if lasting is None:
            lasting = self._lasting[state.cause] = _LastingState(now, self._wall())
        for_s = now - lasting.at
        if now >= lasting.log_at:
            lasting.log_at = now + LOG_AGAIN_S[min(lasting.times, 1)]
            lasting.times += 1
            structlog.get_logger().warning(
                "degraded", state=state.cause, reason=state.reason, for_s=round(for_s, 1), remedy=state.remedy
            )
        return DegradedSince(state, lasting.since_ns, for_s)
