"""Windows of a batch as readers get them: those that were closed before, those that it closes, those that stay open."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from compliance.schema import TIME
from compliance.stream.window_table import WindowTable

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class ByState:
    """Windows of one table; each is in one of the three.

    Args:
        late: Closed before the batch: its lines came too late for them.
        closed: Closed by the batch.
        open: Still open.
    """

    late: pa.Table
    closed: pa.Table
    open: pa.Table


def by_state(windows: pa.Table, watermarks_s: tuple[int, int]) -> ByState:
    """Tells windows apart.

    Args:
        windows: As `adding.merged` gives them.
        watermarks_s: Before the batch and behind it: windows that end by then are closed.
    """
    end = windows["window_s"].to_numpy() + windows["width_s"].to_numpy()
    was_closed, is_closed = (end <= watermark for watermark in watermarks_s)
    masks = was_closed, is_closed & ~was_closed, ~is_closed
    return ByState(*(windows.filter(pa.array(mask)) for mask in masks))


def late_lines(late: pa.Table) -> Counter[str]:
    """How many lines came too late, by the width of the window in seconds."""
    of_width = late.group_by("width_s", use_threads=False).aggregate([("lines", "sum")]).to_pylist()
    return Counter({str(row["width_s"]): row["lines_sum"] for row in of_width})


def published(windows: pa.Table, table: WindowTable, *, is_final: bool) -> pa.Table:
    """As readers get them, with the day.

    Args:
        windows: As `adding.merged` gives them.
        table: Which table.
        is_final: Whether they are closed.
    """
    begin = windows["window_s"].to_numpy()
    times = {"start": begin, "end": begin + windows["width_s"].to_numpy()}
    found = {"width_s": windows["width_s"]}
    found |= {name: pa.array(seconds * _SECOND, TIME) for name, seconds in times.items()}
    found |= {name: windows[name] for name in _told(table)}
    found["is_final"] = pa.array(np.full(len(windows), is_final))
    found["day"] = found["start"].cast(pa.date32())
    return pa.table(found)


def _told(table: WindowTable) -> tuple[str, ...]:
    """What of windows is published as it is, in order."""
    return (*table.key, "lines", *table.sums, *table.largest, *table.histograms, "as_of", *table.last)
