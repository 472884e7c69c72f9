"""Planted lines as Arrow's columns, without Spark."""

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from compliance.figures.sums import waits, with_columns
from compliance.judging.clocks import placed
from compliance.line_reader import LineReader
from compliance.log_lines import LINES
from compliance.stream.ledger import Runs, facts_of, gap_table, joined, run_table
from tests.compliance.planted import ROW_NAMES, row_of


def rows_of(*logs):
    """All lines as the job's rows."""
    lines = [msgspec.json.encode(line) for log in logs for line in log.lines]
    block = LineReader("a.jsonl").read_each(lines, pa.array(range(1, len(lines) + 1), pa.int64()))
    assert not block.malformed
    return block.rows


def lines_of(logs, **columns):
    """The lines as Spark hands them over, made without the reader; columns in place of the lines' own."""
    rows = [row_of(line) for log in logs for line in log.lines]
    made = [dict(zip(ROW_NAMES, row, strict=True)) | columns for row in rows]
    placed = [row | {"day": row["start"].date(), "file": "a.jsonl", "line": row["seq"] + 1} for row in made]
    return pa.Table.from_pylist(placed, LINES)


def runs_of(*logs) -> Runs:
    """The facts of the logs' runs."""
    return joined(day.by_run() for log in logs for day in facts_of(rows_of(log)).values())


def limits_of(*logs):
    """The lines of limiters as the judging has them: on the axis, each wait bounded by its line's length."""
    lines = lines_of(logs)
    own = lines.filter(pc.equal(lines["kind"], "limit"))
    return placed(with_columns(own, throttled_ms=waits(own)), {})


def summed_of(sum_, *logs, **columns):
    """A sum over the lines, as of two tasks: the second one has the second half."""
    lines = lines_of(logs, **columns)
    return sum_.of(lines.slice(0, len(lines) // 2), lines.slice(len(lines) // 2))


def kept_of(*logs):
    """The job's tables of runs and of gaps of these lines."""
    runs = runs_of(*logs)
    return run_table(runs, {run: span.missing for run, span in runs.items()}), gap_table(runs)
