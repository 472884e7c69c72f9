"""Near-limit and headroom: what is left, and when the daily peak would reach the limit, as far as that can be told."""

from datetime import datetime
from typing import Literal

from compliance.figures.facts import HeadroomFacts, LimitKey

LEAST_DAYS = 7
"""A week has its own rhythm: of less, nothing is said."""
_FARTHEST_DAYS = 365.0
# Student's t, two-sided 95 %, for 1, 2, 3 … degrees of freedom.
_T = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
    2.09,
)
_T_OF_MANY = 2.05

Outlook = Literal["too little data", "at the limit", "rising", "no clear trend", "falling"]


class Headroom(LimitKey, frozen=True, kw_only=True):
    """One limit and what is left of it."""

    near_s: float
    """Time with at least 80 % of it in use."""
    active_s: float
    """Time with any line."""
    peak: float
    """Share in use in the fullest ten seconds."""
    peak_at: datetime
    typical: float
    """Share in use in the middle one of all ten seconds with any line."""
    left: float
    """What the fullest ten seconds left, 0 to 1."""
    days: int
    outlook: Outlook
    per_day: float | None
    """Change of the daily peak per day, in shares of the limit."""
    per_day_low: float | None
    """Its 95 % interval, if the days scatter independently around a line."""
    per_day_high: float | None
    days_left: float | None
    """Until the daily peak is at the limit, by that line; null if there is no clear rise."""
    days_left_low: float | None
    days_left_high: float | None
    """Null if the interval has no end within a year."""


def headrooms(facts: list[HeadroomFacts]) -> list[Headroom]:
    """The fullest first."""
    return sorted((_headroom(row) for row in facts), key=lambda row: (-row.near_s, -row.peak, row.name))


def t_of_95(freedom: int) -> float:
    """Student's t for a two-sided interval of 95 %."""
    return _T[freedom - 1] if freedom <= len(_T) else _T_OF_MANY


def days_until(now: float, slope: float) -> float | None:
    """Days until a share that changes so much a day is 1; None if not within a year."""
    if now >= 1:
        return 0.0
    if slope <= 0 or (days := (1 - now) / slope) > _FARTHEST_DAYS:
        return None
    return days


def _headroom(row: HeadroomFacts) -> Headroom:
    low, high = _interval(row)
    now, slope = row.now or 0.0, row.slope or 0.0
    outlook = _outlook(row, low, high)
    is_rising = outlook == "rising"
    return Headroom(
        proxy_id=row.proxy_id,
        direction=row.direction,
        level=row.level,
        name=row.name,
        near_s=row.near_steps * 10.0,
        active_s=row.steps * 10.0,
        peak=row.peak,
        peak_at=row.peak_at,
        typical=row.typical,
        left=max(0.0, 1 - row.peak),
        days=row.days,
        outlook=outlook,
        per_day=row.slope if low is not None else None,
        per_day_low=low,
        per_day_high=high,
        days_left=days_until(now, slope) if is_rising else None,
        days_left_low=days_until(now, high or 0.0) if is_rising else None,
        days_left_high=days_until(now, low or 0.0) if is_rising else None,
    )


def _interval(row: HeadroomFacts) -> tuple[float | None, float | None]:
    if row.days < LEAST_DAYS or row.slope is None or row.slope_error is None:
        return None, None
    half = t_of_95(row.days - 2) * row.slope_error
    return row.slope - half, row.slope + half


def _outlook(row: HeadroomFacts, low: float | None, high: float | None) -> Outlook:
    if low is None or high is None:
        return "too little data"
    if (row.now or 0.0) >= 1:
        return "at the limit"
    if low > 0:
        return "rising"
    return "falling" if high < 0 else "no clear trend"
