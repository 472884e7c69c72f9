"""Error budgets: which pairs of windows rang, which ring now."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from compliance.figures.facts import BurnFacts

Bell = Literal["rings", "rang", "quiet"]


class Burn(Struct, frozen=True, kw_only=True):
    """One tenant, one promise, one pair of windows."""

    tenant: str
    """Empty for limits that span tenants."""
    promise: str
    long_s: int
    short_s: int
    threshold: float
    worst: float
    worst_at: datetime
    last: float
    bell: Bell
    """`rings` at the end of the log, `rang` before, or `quiet`."""
    spent: float
    """Share of the error budget of the judged time that is spent; over 1 the objective is missed."""
    is_whole: bool
    """The log is as long as the long window; else the rates are over what there is."""


def burns(facts: list[BurnFacts], objective: float, span_s: float) -> list[Burn]:
    """What burned most first.

    Args:
        facts: One for each tenant, promise and pair.
        objective: Share of time in which promises are to be kept.
        span_s: How long the log is.
    """
    order: dict[Bell, int] = {"rings": 0, "rang": 1, "quiet": 2}
    rows = [_burn(row, objective, span_s) for row in facts]
    return sorted(rows, key=lambda row: (order[row.bell], -row.spent, row.tenant, row.promise, row.long_s))


def _burn(row: BurnFacts, objective: float, span_s: float) -> Burn:
    bell: Bell = "rings" if row.last >= row.threshold else "rang" if row.worst >= row.threshold else "quiet"
    return Burn(
        tenant=row.tenant,
        promise=row.promise,
        long_s=row.long_s,
        short_s=row.short_s,
        threshold=row.threshold,
        worst=row.worst,
        worst_at=row.worst_at,
        last=row.last,
        bell=bell,
        spent=row.bad_s / row.judged_s / (1 - objective) if row.judged_s else 0.0,
        is_whole=span_s >= row.long_s,
    )
