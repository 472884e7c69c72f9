"""The lines that a report is made from, each kind kept in the form in which the sums want it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.judging.clocks import step_facts, steps_of, with_axis
from compliance.schema import BOOT, defaulted_fields, nullable_fields, required_fields
from compliance.tables import LogTables

_LARGE = ("interval", "limit")
_SMALL = ("change", "heartbeat", "loss", "reject", "standstill", "throttle")
_EVERY = ("kind", *BOOT, "seq", "start", "end", "duration_ms", "file", "line")


@dataclass(frozen=True)
class Logs:
    """What is reported on.

    Args:
        tables: What a job has kept.
        lines: Each line once, of all kinds: what they all have.
        limits: Lines of limiters, on the axis of `clocks.with_axis`.
        intervals: Lines of streams, likewise.
        others: Lines of the other kinds that are counted.
        clock_steps: As `clocks.step_facts`.
    """

    tables: LogTables
    lines: DataFrame
    limits: DataFrame
    intervals: DataFrame
    others: DataFrame
    clock_steps: DataFrame

    def of(self, kind: str) -> DataFrame:
        """The lines of one of the other kinds, without the columns of the rest: plans over them are quicker to make."""
        return self.others.where(F.col("kind") == kind).select(*_columns(kind))


@contextlib.contextmanager
def opened(tables: LogTables) -> Iterator[Logs]:
    """Keeps in memory (or on disk, where it does not fit) what all sections read."""
    rows = tables.rows
    # Nobody waits longer than the line is long. One that says so would owe what nobody was owed.
    waited = F.least("throttled_ms", "duration_ms")
    kept = [
        rows.where(F.col("kind") == kind).select(*_columns(kind)).withColumn("throttled_ms", waited) for kind in _LARGE
    ]
    is_small = F.col("kind").isin(*_SMALL)
    kept.append(rows.where(is_small).select(*dict.fromkeys(name for kind in _SMALL for name in _columns(kind))))
    intervals, limits, others = kept
    frames = [frame.persist() for frame in (intervals, limits, others)]
    try:
        lines = rows.select(*_EVERY)
        beats = others.where(F.col("kind") == "heartbeat").select(*_columns("heartbeat"))
        found = step_facts(beats, tables.gaps)
        steps = steps_of(found)
        yield Logs(
            tables,
            lines,
            with_axis(limits, steps),
            with_axis(intervals, steps),
            others,
            found.drop("to_seq", "since_us", "until_us"),
        )
    finally:
        for frame in frames:
            frame.unpersist()


def _columns(kind: str) -> dict[str, None]:
    fields = (*required_fields(kind), *nullable_fields(kind), *defaulted_fields(kind))
    return dict.fromkeys(("kind", "file", "line", "day", *fields))
