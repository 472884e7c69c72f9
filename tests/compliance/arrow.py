"""Planted lines as Arrow's columns, without Spark."""

import msgspec
import numpy as np
import pyarrow as pa

from compliance.schema import Columns
from compliance.stream import runs
from compliance.stream.runs import Seen, gap_table


def lines_of(*logs):
    """All lines as the job's rows."""
    columns = Columns()
    found, malformed = columns.decoded([msgspec.json.encode(line) for log in logs for line in log.lines])
    assert not malformed
    return pa.Table.from_batches([batch for _, _, batch in columns.batches(found)], schema=columns.schema)


def seen_of(*logs):
    """The numbers of the lines."""
    seen = Seen()
    for log in logs:
        seen.added((log.proxy_id, log.boot_id), np.array([line.seq for line in log.lines], np.int64))
    return seen


def kept_of(spark, *logs):
    """What the job would have kept of these lines besides rows: its tables of runs and of gaps."""
    seen = seen_of(*logs)
    spans = runs.spans_of(lines_of(*logs))
    return tuple(spark.createDataFrame(table) for table in (runs.table(spans, seen), gap_table(seen)))
