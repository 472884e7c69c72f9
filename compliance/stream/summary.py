"""`summary.json` beside the tables: how much was read, how far it is complete, what is missing."""

from datetime import UTC, datetime
from itertools import islice

import msgspec

from compliance.schema import BOOT
from compliance.stream.runs import Span, Spans, complete_up_to, rfc3339
from compliance.stream.seen import Run, Seen
from compliance.stream.state import Totals

MOST_RUNS = 1000
MOST_GAPS = 100


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one proxy."""

    proxy_id: str
    boot_id: str
    first: str
    last: str
    complete_up_to: str | None
    has_ended: bool
    dropped_lines: int
    read: int
    """Lines, copies included."""


class GapSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive lines that are missing."""

    proxy_id: str
    boot_id: str
    after_seq: int
    missing: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything so far."""

    complete_up_to: str | None
    """Every proxy's lines are there up to this moment, but for those that are missing; null: unknown."""
    watermark: str
    """Windows that end by then are closed."""
    lines: int
    rows: int
    malformed: int
    duplicates: int
    late: dict[str, int]
    """Lines too late for their window, by its width in seconds. They are in `rows`."""
    missing: int
    """Lines below the last of their run that are not there, whatever the reason."""
    losses: int
    """How often proxies say that they have lost lines, or may have."""
    lost: int
    """Lines that they say to have lost, where they know how many: those that are missing are most often these."""
    gaps: list[GapSummary]
    runs: list[RunSummary]


def summary(totals: Totals, spans: Spans, seen: Seen, now: datetime) -> Summary:
    """The summary after a batch.

    Args:
        totals: The batch's.
        spans: Of all runs so far.
        seen: Numbers so far.
        now: By the clock of this machine.
    """
    latest = sorted(spans.items(), key=lambda one: (-one[1].last, one[0]))[:MOST_RUNS]
    return Summary(
        complete_up_to=_or_none(complete_up_to(spans, now)),
        watermark=datetime.fromtimestamp(totals.watermark_s, UTC).isoformat(),
        lines=totals.lines,
        rows=totals.rows,
        malformed=totals.malformed,
        duplicates=totals.duplicates,
        late=totals.late,
        missing=totals.missing,
        losses=totals.losses,
        lost=totals.lost,
        gaps=[
            GapSummary(**_whose(gap.run), after_seq=gap.after_seq, missing=gap.missing)
            for gap in islice(seen.gaps(), MOST_GAPS)
        ],
        runs=[_run(run, span) for run, span in latest],
    )


def _run(run: Run, span: Span) -> RunSummary:
    return RunSummary(
        **_whose(run),
        first=rfc3339(span.first),
        last=rfc3339(span.last),
        complete_up_to=_or_none(span.complete_up_to),
        has_ended=span.has_ended,
        dropped_lines=span.dropped_lines,
        read=span.read,
    )


def _whose(run: Run) -> dict[str, str]:
    return dict(zip(BOOT, run, strict=True))


def _or_none(micros: int | None) -> str | None:
    return None if micros is None else rfc3339(micros)
