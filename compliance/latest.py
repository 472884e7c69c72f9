"""The reach of the proxies' logs: the latest run of each proxy decides, even where clocks were wrong.

Runs of one proxy follow each other, so the one whose lines end last is the latest. A clock that was far ahead would
make any run that: it would hide the live one behind it until that time has come, and everybody else would seem silent.
So a run whose lines end later than a reader's own clock allows comes before all others. What is ahead by less is
overtaken by itself within the hour.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

AHEAD = timedelta(hours=1)
"""The time by which a proxy's clock may differ from the reader's."""
SILENT = timedelta(seconds=60)
"""A run without an orderly end that stops so long before the log does has fallen silent."""
Moment = TypeVar("Moment", int, datetime)


class RunEnd(NamedTuple, Generic[Moment]):
    """The end of a run, as far as its lines are there.

    Args:
        proxy_id: Whose.
        boot_id: Which run of that proxy.
        last: End of its latest line.
        complete_up_to: End of its last heartbeat; None: there is none.
        has_ended: Whether it came to an orderly end.
    """

    proxy_id: str
    boot_id: str
    last: Moment
    complete_up_to: Moment | None
    has_ended: bool


def latest_runs(runs: Iterable[RunEnd[Moment]], horizon: Moment) -> list[RunEnd[Moment]]:
    """Return the latest run of each proxy, that which ends last behind the others.

    Args:
        runs: All of them.
        horizon: The reader's now, and `AHEAD`.
    """
    in_order = sorted(runs, key=lambda run: (run.last <= horizon, run.last, not run.has_ended, run.boot_id))
    latest: dict[str, RunEnd[Moment]] = {}
    for run in in_order:
        latest.pop(run.proxy_id, None)
        latest[run.proxy_id] = run
    return list(latest.values())


def complete_up_to(runs: Iterable[RunEnd[Moment]], horizon: Moment) -> Moment | None:
    """Return the earliest of the last heartbeats of all proxies' latest runs; None without any, or if one has none.

    A proxy that has come to an orderly end holds nobody back, as long as there is another.
    """
    latest = latest_runs(runs, horizon)
    ends = [run.complete_up_to for run in latest if not run.has_ended]
    known = [end for end in ends if end is not None]
    if ends:
        return min(known) if len(known) == len(ends) else None
    return max((run.complete_up_to for run in latest if run.complete_up_to is not None), default=None)


def cut_off(runs: Iterable[RunEnd[datetime]], horizon: datetime) -> set[tuple[str, str]]:
    """Proxy and boot of the runs without an orderly end behind which the log goes on.

    Lines behind their last one may have been written and lost: no number is missing then. The latest run of a proxy may
    still be going on, unless it is silent.
    """
    ends = list(runs)
    going_on = set(latest_runs(ends, horizon)) - set(silent_runs(ends, horizon))
    return {(run.proxy_id, run.boot_id) for run in ends if not run.has_ended and run not in going_on}


def silent_runs(runs: Iterable[RunEnd[datetime]], horizon: datetime) -> list[RunEnd[datetime]]:
    """Return the latest runs of proxies that stop `SILENT` or more before the log does, without an orderly end."""
    latest = latest_runs(runs, horizon)
    return [run for run in latest if not run.has_ended and latest[-1].last - run.last >= SILENT]


def end_of_log(runs: Iterable[RunEnd[Moment]], horizon: Moment) -> Moment | None:
    """Return the end of the run that ends last of all; None without any."""
    latest = latest_runs(runs, horizon)
    return latest[-1].last if latest else None
