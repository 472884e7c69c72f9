"""What is told of a run: summaries of batches, progress, and lines that came too late for their windows."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from types import TracebackType
from typing import Any, Self

import msgspec
from pyspark.sql import SparkSession
from rich.console import Console

from compliance.schema import BOOT
from compliance.stream.options import Job
from compliance.stream.runs import Run, Seen, Span, Spans, complete_up_to, rfc3339
from compliance.stream.state import State, Totals

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


Late = Mapping[str, int]
"""Lines by the width of their window in seconds."""
_ORDER = (
    "files are read in the order in which they were last modified, so a copy of the log should keep these times "
    "(cp -p, rsync -t); "
)


def late_so_far(spark: SparkSession, job: Job) -> Late:
    """What earlier runs with this `out` have counted.

    Raises:
        JobError: If another version of the job wrote it.
    """
    state = State(spark, job.work)
    return state.totals(state.newest()).late


def late_words(before: Late, after: Late, job: Job) -> str:
    """What is said of a run; nothing if none of its lines was late.

    Args:
        before: Before the run.
        after: Behind it.
        job: What the run was told.
    """
    new = {int(width): lines - before.get(width, 0) for width, lines in after.items() if lines > before.get(width, 0)}
    if not new:
        return ""
    counted = ", ".join(f"{new[width]:,} for windows of {width} s" for width in sorted(new))
    order = _ORDER if job.source.kind == "files" else ""
    return (
        f"late lines: {counted}: they are in rows, but not in these windows, which later lines had closed; {order}"
        f"a --late-after of more than {job.late_after_s} keeps windows open longer; those that are closed come right "
        "only with another --out, and there with such a --late-after, or a --batch-mib that holds all of the log"
    )


class Progress:
    """One line that changes; where standard error is no terminal, nothing.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._status = console.status("looking for new lines")
        self._summary: Summary | None = None
        self._batches = 0
        self._rate = 0.0

    def __enter__(self) -> Self:
        """Begins to draw."""
        self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stops drawing."""
        self._status.stop()

    def on_summary(self, summary: Summary) -> None:
        """After each batch."""
        self._summary = summary
        self._batches += 1
        self._draw()

    def on_look(self, progress: Any) -> None:
        """Now and then; `progress` is Spark's own of the last batch, or None."""
        if progress is not None:
            self._rate = progress.processedRowsPerSecond or self._rate
        self._draw()

    @property
    def late(self) -> Late:
        """As the last batch has it; nothing without a batch."""
        return self._summary.late if self._summary else {}

    def last_words(self, out: str) -> str:
        """What is printed at the end."""
        if self._summary is None:
            return f"nothing new; {out}/summary.json says what there is"
        return f"{_words(self._summary)}\n{out}/summary.json"

    def _draw(self) -> None:
        if self._summary is not None:
            self._status.update(f"{_words(self._summary)}; {self._rate:,.0f} lines/s, batch {self._batches}")


def _words(summary: Summary) -> str:
    late = max(summary.late.values(), default=0)
    counted = {"malformed": summary.malformed, "twice": summary.duplicates, "missing": summary.missing}
    counted |= {"declared lost": summary.lost, "late": late}
    troubles = "".join(f", {number:,} {what}" for what, number in counted.items() if number)
    return f"{summary.lines:,} lines{troubles}; complete up to {summary.complete_up_to or 'no heartbeat yet'}"
