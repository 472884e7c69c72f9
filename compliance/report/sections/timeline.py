"""One time axis for all that changes what the rates mean: limits, reloads, starts, ends, losses of the log."""

from datetime import datetime

from msgspec import Struct

from compliance.figures.facts import ChangeFacts, LossFacts
from compliance.judging.facts import GapFacts, RunFacts
from compliance.latest import SILENT, end_of_log

MOST_EVENTS = 5_000


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened."""

    at: datetime
    kind: str
    """`set`, `reload`, `limit`, `start`, `restart`, `end`, `silence` or `loss`."""
    proxy_id: str
    text: str
    """What, in words."""


def timeline(
    changes: list[ChangeFacts],
    runs: list[RunFacts],
    losses: list[LossFacts],
    gaps: list[GapFacts],
    horizon: datetime,
) -> list[Event]:
    """In the order of time.

    Args:
        changes: What was set or changed.
        runs: All runs of proxies.
        losses: What proxies say is lost.
        gaps: What is missing.
        horizon: No clock that is about right says more.
    """
    end = end_of_log([run.end for run in runs], horizon)
    events = [_change(row) for row in changes]
    events += [event for run in runs for event in _run(run, runs, end)]
    events += [_loss(row) for row in losses]
    events += [_gap(row) for row in gaps]
    return sorted(events, key=lambda event: (event.at, event.kind, event.text))[:MOST_EVENTS]


def _change(row: ChangeFacts) -> Event:
    who = f", by {row.who}" if row.who else ""
    was = f" (before: {row.before})" if row.before else ""
    named = " ".join(part for part in (row.what, row.name) if part)
    value = f": {row.after}" if row.after else ": removed" if row.kind != "reload" else ""
    return Event(at=row.at, kind=row.kind, proxy_id=row.proxy_id, text=f"{named}{value}{was}{who}")


def _run(run: RunFacts, runs: list[RunFacts], end: datetime | None) -> list[Event]:
    is_again = any(one.proxy_id == run.proxy_id and one.first < run.first for one in runs)
    events = [_event(run.first, "restart" if is_again else "start", run, f"run {run.boot_id} begins")]
    if run.ended:
        return [*events, _event(run.last, "end", run, f"run {run.boot_id} ends in order")]
    if (end and end - run.last >= SILENT) or any(one.first >= run.last for one in runs if one is not run):
        events.append(_event(run.last, "silence", run, f"run {run.boot_id}: last line, and no orderly end"))
    return events


def _event(at: datetime, kind: str, run: RunFacts, text: str) -> Event:
    return Event(at=at, kind=kind, proxy_id=run.proxy_id, text=text)


def _loss(row: LossFacts) -> Event:
    lines = "an unknown number of lines" if row.lost_lines is None else f"{row.lost_lines} lines"
    cause = f"{row.cause}: {row.detail}" if row.detail else row.cause
    text = f"the proxy says that {lines} of run {row.of_boot} are lost ({cause}) until {row.lost_until:%H:%M:%S}"
    return Event(at=row.lost_from, kind="loss", proxy_id=row.proxy_id, text=text)


def _gap(row: GapFacts) -> Event:
    text = f"{row.missing} lines of run {row.boot_id} are missing after number {row.after_seq}"
    return Event(at=row.until, kind="loss", proxy_id=row.proxy_id, text=text)
