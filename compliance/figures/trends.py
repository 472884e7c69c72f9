"""Changes that operators made, and the burn of error budgets."""

from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compliance.excerpt import Excerpt
from compliance.figures.facts import BurnFacts, ChangeFacts
from compliance.figures.sums import listed
from compliance.schema import BEGIN_OF_1970

_SHOWN = 500


CHANGES = listed(
    "change", "start", "mono_us", "duration_ms", "what", "setting", "name", "before", "after", "who", "address"
)


def set_facts(changes: pa.Table, excerpt: Excerpt) -> list[ChangeFacts]:
    """List settings made, and files reloaded; of a tenant, what is set for it alone.

    Args:
        changes: As `CHANGES`.
        excerpt: The part of the log that is asked about.
    """
    return [
        ChangeFacts(
            at=row["start"],
            kind="reload" if row["what"] == "file" else "set",
            proxy_id=row["proxy_id"],
            what=" of ".join(filter(None, (row["what"], row["setting"]))),
            name=row["name"],
            before=(row["before"] or "")[:_SHOWN],
            after=(row["after"] or "")[:_SHOWN],
            who=" from ".join(filter(None, (row["who"], row["address"]))),
        )
        for row in changes.to_pylist()
        if excerpt.has_setting(row["setting"] or "", row["name"] or "")
    ]


MINUTE_S = 60


class Pair(NamedTuple):
    """Two windows and the burn rate at which they ring."""

    threshold: float
    long_s: int
    short_s: int


PAIRS = (Pair(14.4, 3600, 300), Pair(6.0, 6 * 3600, 1800), Pair(1.0, 3 * 86400, 6 * 3600))
"""Page, page, ticket: 2 % of a month's budget in an hour, 5 % in six hours, 10 % in three days."""


def burn_facts(minutes: pa.Table, objective: float) -> list[BurnFacts]:
    """Return the burn rates of each tenant, promise and pair of windows.

    Args:
        minutes: Sums of each tenant's minutes, as `judging.judge.MINUTES`; limits that span tenants have no tenant.
        objective: Share of time in which promises should be kept, below 1.
    """
    ordered = minutes.sort_by([("tenant", "ascending"), ("minute", "ascending")])
    tenants = ordered["tenant"].to_pylist()
    promises = {"containment": ("judged_s", "over_s"), "entitlement": ("waited_s", "short_s")}
    burns, place = [], 0
    for tenant, of_tenant in groupby(tenants):
        own = ordered.slice(place, sum(1 for _ in of_tenant))
        place += len(own)
        at = own["minute"].to_numpy()
        for promise, names in promises.items():
            judged_s, bad_s = (own[name].to_numpy() for name in names)
            if judged_s.sum() > 0:
                burns += [_burn(tenant, promise, pair, 1 - objective, (at, judged_s, bad_s)) for pair in PAIRS]
    return burns


_Minutes = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Minutes since 1970, and the seconds of each that were judged, and that were bad."""


def _burn(tenant: str, promise: str, pair: Pair, budget: float, minutes: _Minutes) -> BurnFacts:
    at, judged_s, bad_s = minutes
    rates = [_rates(minutes, window_s) / budget for window_s in (pair.long_s, pair.short_s)]
    burn = np.nan_to_num(np.fmin(*rates), nan=0.0)
    # Of equal ones the first.
    worst = int(np.argmax(np.round(burn, 9)))
    return BurnFacts(
        tenant=tenant,
        promise=promise,
        long_s=pair.long_s,
        short_s=pair.short_s,
        threshold=pair.threshold,
        judged_s=float(judged_s.sum()),
        bad_s=float(bad_s.sum()),
        worst=float(burn.max()),
        worst_at=BEGIN_OF_1970 + timedelta(minutes=int(at[worst]) + 1),
        last=float(burn[-1]),
    )


def _rates(minutes: _Minutes, window_s: int) -> npt.NDArray[np.float64]:
    """Return, for each minute, the share of bad time in the window that ends with it; NaN where none was judged."""
    at, *times = minutes
    first = np.searchsorted(at, at - window_s // MINUTE_S + 1)
    judged_s, bad_s = (np.cumsum(time) - np.concatenate([[0.0], np.cumsum(time)])[first] for time in times)
    is_due = judged_s > 0
    return np.where(is_due, bad_s / np.where(is_due, judged_s, 1.0), np.nan)
