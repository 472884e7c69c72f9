"""All windows of one table in a batch, put together and as files in memory; without Spark, so in any thread."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa

from compliance.stream.adding import merged
from compliance.stream.parquet import by_day, parquet
from compliance.stream.piece import decoded
from compliance.stream.window_table import WindowTable
from compliance.stream.windows import by_state, late_lines, published

Days = Sequence[tuple[date, bytes]]
"""A Parquet file for each day."""


@dataclass(frozen=True, slots=True)
class WindowFiles:
    """What a batch makes of a table of windows.

    Args:
        table: Which table.
        open: Windows that are still open, to be added to.
        open_days: The same for readers.
        closed_days: Windows that the batch closes.
        late: How many lines came too late, by the width of the window in seconds.
    """

    table: WindowTable
    open: pa.Table
    open_days: Days
    closed_days: Days
    late: Counter[str]


def put_together(
    table: WindowTable, earlier: pa.Table, contents: Sequence[bytes], watermarks_s: tuple[int, int]
) -> WindowFiles:
    """Adds windows of a batch to those that were open, and closes some.

    Args:
        table: Which table.
        earlier: Windows that were open.
        contents: Windows of the batch's parts, as `piece.encoded` gives them.
        watermarks_s: Before the batch and behind it.
    """
    found = by_state(merged(pa.concat_tables([earlier, decoded(contents, table.schema)]), table), watermarks_s)
    return WindowFiles(
        table,
        found.open,
        _days(found.open, table, is_final=False),
        _days(found.closed, table, is_final=True),
        late_lines(found.late),
    )


def _days(windows: pa.Table, table: WindowTable, *, is_final: bool) -> Days:
    told = published(windows, table, is_final=is_final)
    return [(day, parquet(of_day)) for day, of_day in by_day(told.drop_columns("day"), told["day"])]
