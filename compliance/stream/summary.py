"""`summary.json` beside the tables: how much was read, how far it is complete, what is missing."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.clock import rfc3339
from compliance.schema import BOOT
from compliance.stream.runs import complete_up_to
from compliance.stream.sequence import gaps
from compliance.stream.state import Totals

MOST_RUNS = 1000
MOST_GAPS = 100


class Run(msgspec.Struct, frozen=True, kw_only=True):
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


class Gap(msgspec.Struct, frozen=True, kw_only=True):
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
    gaps: list[Gap]
    runs: list[Run]


def summary(totals: Totals, runs: DataFrame, seen: DataFrame) -> Summary:
    """The summary after a batch.

    Args:
        totals: The batch's.
        runs: As `runs.merged` gives them.
        seen: Ranges of numbers.
    """
    holes = gaps(seen).orderBy(*BOOT, "after_seq").limit(MOST_GAPS)
    times = {name: rfc3339(F.col(name)) for name in ("first", "last", "complete_up_to")}
    latest = runs.orderBy(F.desc("last"), "proxy_id").limit(MOST_RUNS).withColumns(times)
    return Summary(
        complete_up_to=_one(complete_up_to(runs).select(rfc3339(F.col("complete_up_to")))),
        watermark=datetime.fromtimestamp(totals.watermark_s, UTC).isoformat(),
        lines=totals.lines,
        rows=totals.rows,
        malformed=totals.malformed,
        duplicates=totals.duplicates,
        late=totals.late,
        missing=totals.missing,
        gaps=[Gap(**row.asDict()) for row in holes.collect()] if totals.missing else [],
        runs=[Run(**row.asDict()) for row in latest.collect()],
    )


def _one(frame: DataFrame) -> Any:
    return frame.collect()[0][0]
