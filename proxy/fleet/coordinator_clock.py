"""How far the coordinator's wall clock is ahead of this process', by the grants that answer its reports."""

from typing import Final

from limiter.token_bucket import NANOS_PER_SECOND

MOST_REPORTS: Final = 64
"""Reports whose sending time is kept until they are answered, at most."""
_WINDOW_NS: Final = 30 * NANOS_PER_SECOND
"""Nanoseconds of grants whose bounds `CoordinatorClock` takes together."""
_DAY_NS: Final = 24 * 3600 * NANOS_PER_SECOND
"""A coordinator's wall clock that differs by more is not measured."""


class CoordinatorClock:
    """Measures how far the coordinator's wall clock is ahead of this process', so that members' logs can be compared.

    A grant carries its sending time by the coordinator's clock. The grant was sent after this process had sent the
    report that it answers, and before it arrived here; both by this process' clock. So

        this process     reported ─────────────────────────▶ heard
        coordinator                 ─────▶ sent ──────

        sent - heard ≤ ahead ≤ sent - reported

    Of the grants of the last 30 to 60 s (`_WINDOW_NS`) the greatest lower bound and the least upper one count. If they
    exclude each other, a clock was stepped, and the measurement starts over.
    """

    def __init__(self) -> None:
        self.is_far = False
        """The coordinator's clock differs by more than a day, and is not measured."""
        self._epoch = 0
        self._reported: dict[int, int] = {}
        self._window_at = 0
        self._bounds: tuple[int, int] | None = None
        self._before: tuple[int, int] | None = None

    @property
    def ahead_ns(self) -> tuple[int, int] | None:
        """Nanoseconds by which the coordinator's clock is ahead, and the possible error; None: not known."""
        bounds = self._bounds
        if bounds is None:
            return None
        both = bounds if self._before is None else _common(bounds, self._before) or bounds
        return (both[0] + both[1]) // 2, -((both[0] - both[1]) // 2)

    def reported(self, sequence: int, wall: int) -> None:
        """Note the wall-clock time at which a report is sent."""
        if len(self._reported) == MOST_REPORTS:
            del self._reported[next(iter(self._reported))]
        self._reported[sequence] = wall

    def heard(self, epoch: int, answers: int, sent: int, wall: int) -> None:
        """Take a grant that answers a report of this process.

        Args:
            epoch: The coordinator's epoch.
            answers: The sequence of the report.
            sent: The sending time of the grant, by the coordinator's wall clock.
            wall: The present time, by the wall clock of this process.
        """
        if epoch != self._epoch:
            self._epoch, self._bounds, self._before = epoch, None, None
        reported = self._reported.get(answers)
        self.is_far = abs(sent - wall) > _DAY_NS
        if reported is None or not reported <= wall or self.is_far:
            return
        bounds = sent - wall, sent - reported
        if self._bounds is None or not self._window_at <= wall < self._window_at + _WINDOW_NS:
            is_next = self._window_at <= wall < self._window_at + 2 * _WINDOW_NS
            self._before, self._window_at = self._bounds if is_next else None, wall
            self._bounds = bounds
        else:
            self._bounds = _common(self._bounds, bounds) or bounds
        if self._before is not None and _common(self._bounds, self._before) is None:
            self._before = None


def _common(bounds: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    both = max(bounds[0], other[0]), min(bounds[1], other[1])
    return both if both[0] <= both[1] else None
