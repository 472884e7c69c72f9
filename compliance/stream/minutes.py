"""Usage of some rows by minute, as the task that has them in memory adds it up: little is left to add up over files."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from accesslog.record import BUCKETS
from compliance.line_reader import ROWS
from compliance.schema import LARGEST, TIME

KEY = ("tenant", "namespace", "topic", "direction")
SUMS = (
    *("offered_messages", "offered_bytes", "passed_messages", "passed_bytes"),
    *("dropped_messages", "dropped_bytes", "rejected_messages", "rejected_bytes"),
    *("throttled_ms", "delay_sum_ms"),
)
LIMITS = ("limit_messages", "limit_bytes")
"""Those of the line that ends last; `as_of` is its end."""
MINUTES = pa.schema(
    [
        pa.field("start", TIME),
        *(ROWS.field(name) for name in KEY),
        pa.field("lines", pa.int64()),
        *(ROWS.field(name) for name in (*SUMS, "delay_max_ms", "delay_hist")),
        pa.field("as_of", TIME),
        *(ROWS.field(name) for name in LIMITS),
    ]
)
"""The sums of some lines of one minute; other lines of the minute may be in further rows."""
_MINUTE = 60_000_000
_LINE = ("start", "end", *KEY, *SUMS, "delay_max_ms", "delay_hist", *LIMITS)

Longs = npt.NDArray[np.int64]


def by_minute(rows: pa.Table) -> pa.Table:
    """Add up rows.

    Args:
        rows: With the columns of `line_reader.ROWS`.
    """
    lines = rows.select(_LINE).filter(pc.equal(rows["kind"], "interval")).combine_chunks()
    if not lines:
        return MINUTES.empty_table()
    amounts = {name: lines[name].fill_null(0).to_numpy() for name in SUMS}
    waits = lines["delay_hist"].combine_chunks()
    counts = pc.list_flatten(waits).to_numpy()
    start, end = (lines[name].cast(pa.int64()).to_numpy() for name in ("start", "end"))
    keys = [start // _MINUTE, *(_codes(lines[name]) for name in KEY)]
    wholes = [amount for amount in (*amounts.values(), counts) if amount.dtype == np.int64 and len(amount)]
    if max(int(amount.max()) for amount in wholes) > LARGEST // len(lines):
        # Sums might not fit in 64 bits. Spark fails then, and names the reason: it gets each line.
        keys = [np.arange(len(lines))]
    order = np.lexsort((end, *keys))
    changes = np.logical_or.reduce([np.diff(key[order], prepend=key[order[:1]] - 1) != 0 for key in keys])
    begins = np.flatnonzero(changes)
    ends = np.append(begins[1:], len(order))
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(changes) - 1
    last = lines.select([*KEY, *LIMITS]).take(pa.array(order[ends - 1]))
    columns = {
        "start": pa.array(start[order[begins]] // _MINUTE * _MINUTE).cast(TIME),
        "lines": pa.array(ends - begins),
        **{name: pa.array(np.add.reduceat(amount[order], begins)) for name, amount in amounts.items()},
        "delay_max_ms": pa.array(np.maximum.reduceat(lines["delay_max_ms"].to_numpy()[order], begins)),
        "delay_hist": _histograms(waits, counts, group, len(begins)),
        "as_of": pa.array(end[order[ends - 1]]).cast(TIME),
        **{name: last[name] for name in last.column_names},
    }
    return pa.Table.from_arrays([columns[name] for name in MINUTES.names], schema=MINUTES)


def _codes(texts: pa.ChunkedArray) -> Longs:
    codes = texts.combine_chunks().dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes.to_numpy(), np.int64)


def _histograms(waits: pa.ListArray, counts: Longs, group: Longs, groups: int) -> pa.ListArray:
    """Add up histograms place by place, without the zeros at their ends."""
    lengths = pc.list_value_length(waits).fill_null(0).to_numpy()
    line = np.repeat(np.arange(len(lengths)), lengths)
    bucket = np.arange(len(counts)) - (np.cumsum(lengths) - lengths)[line]
    sums = np.zeros((groups, BUCKETS), np.int64)
    np.add.at(sums, (group[line], bucket), counts)
    buckets = np.arange(1, BUCKETS + 1)
    widths = np.where(sums != 0, buckets, 0).max(axis=1)
    offsets = np.append(0, np.cumsum(widths)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(sums[buckets <= widths[:, None]]))
