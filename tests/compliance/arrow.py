"""Planted lines as Arrow's columns, without Spark."""

import msgspec
import pyarrow as pa

from compliance.line_reader import LineReader
from compliance.stream.ledger import Runs, facts_of, gap_table, joined, run_table


def rows_of(*logs):
    """All lines as the job's rows."""
    lines = [msgspec.json.encode(line) for log in logs for line in log.lines]
    block = LineReader("a.jsonl").read_each(lines, pa.array(range(1, len(lines) + 1), pa.int64()))
    assert not block.malformed
    return block.rows


def runs_of(*logs) -> Runs:
    """The facts of the logs' runs."""
    return joined(day.by_run() for log in logs for day in facts_of(rows_of(log)).values())


def kept_of(spark, *logs):
    """The job's tables of runs and of gaps of these lines."""
    runs = runs_of(*logs)
    missing = {run: told.missing for run, told in runs.items()}
    return tuple(spark.createDataFrame(table) for table in (run_table(runs, missing), gap_table(runs)))
