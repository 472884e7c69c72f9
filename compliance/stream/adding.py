"""Adds up lines to windows, and windows to windows, in Arrow's columns.

In Spark's Python workers: its own aggregation sorts where the last value is asked for (it keeps no text while it
hashes), and takes five times as long.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from accesslog.delays import BUCKETS
from compliance.stream.window_table import WIDTHS_S, WindowTable

Longs = npt.NDArray[np.int64]
_SECOND = 1_000_000


def windows_of(lines: pa.Table, table: WindowTable) -> pa.Table:
    """Windows of all widths, of these lines alone.

    Args:
        lines: Columns `start`, `end` and the table's own, as in the log's rows.
        table: Which table; its columns come out, with `width_s`, `window_s`, `lines` and `as_of`.
    """
    if not lines:
        return table.schema.empty_table()
    # Rounded down, also before 1970.
    second = np.floor_divide(_micros(lines["start"]), _SECOND)
    own = {name: lines[name] for name in (*table.key, *table.largest, *table.last)}
    own |= {name: pc.fill_null(lines[name], 0) for name in table.sums}
    own |= {name: lines[name] for name in table.histograms}
    own |= {"lines": np.ones(len(lines), np.int64), "as_of": lines["end"]}
    seconds = merged(_table(table, _of_width(own, second, 1)), table)
    begins, columns = seconds["window_s"].to_numpy(), dict(zip(seconds.column_names, seconds.columns, strict=True))
    longer = [merged(_table(table, _of_width(columns, begins, width)), table) for width in WIDTHS_S[1:]]
    return pa.concat_tables([seconds, *longer])


def merged(windows: pa.Table, table: WindowTable) -> pa.Table:
    """Windows of the same length, begin and key become one."""
    rank, order = _ranked(windows, table)
    counts = {name: _dense(windows[name].combine_chunks()) for name in table.histograms}
    narrow = windows.select([*table.window, "lines", *table.sums, *table.largest]).append_column("rank", pa.array(rank))
    for name, dense in counts.items():
        for bucket, column in enumerate(dense.T):
            narrow = narrow.append_column(f"{name}.{bucket}", pa.array(np.ascontiguousarray(column)))
    added = ["lines", *table.sums, *(f"{name}.{at}" for name, dense in counts.items() for at in range(dense.shape[1]))]
    grouped = narrow.group_by(list(table.window), use_threads=False).aggregate(
        [*((name, "sum") for name in added), *((name, "max") for name in (*table.largest, "rank"))]
    )
    found = {name: grouped[name] for name in table.window}
    found |= {name: grouped[f"{name}_sum"] for name in ("lines", *table.sums)}
    found |= {name: grouped[f"{name}_max"] for name in table.largest}
    latest = windows.select(["as_of", *table.last]).take(pa.array(order[grouped["rank_max"].to_numpy()]))
    found |= {name: latest[name] for name in latest.column_names}
    for name, dense in counts.items():
        sums = [grouped[f"{name}.{at}_sum"].to_numpy() for at in range(dense.shape[1])]
        found[name] = _lists(np.stack(sums, axis=1) if sums else np.zeros((len(grouped), 0), np.int64))
    return _table(table, found)


def _of_width(columns: dict[str, object], begins: Longs, width: int) -> dict[str, object]:
    """The columns in windows of that width."""
    widths = np.full(len(begins), width, np.int32)
    return columns | {"width_s": widths, "window_s": begins - np.mod(begins, width)}


def _table(table: WindowTable, columns: dict[str, object]) -> pa.Table:
    return pa.table({name: columns[name] for name in table.schema.names}, schema=table.schema)


def _ranked(windows: pa.Table, table: WindowTable) -> tuple[Longs, Longs]:
    """Of each row its place among all, from the one that ends first to the last; and the rows in that order.

    Of those that end at once the values decide, so that the order in which rows come does not.
    """
    codes = [_code(windows[name].combine_chunks()) for name in table.last]
    order = np.lexsort((*reversed(codes), _micros(windows["as_of"])))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank, order


def _code(values: pa.Array) -> Longs:
    """Numbers in the order of the values, null first."""
    encoded = values.dictionary_encode(null_encoding="encode")
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    codes = np.empty(len(order), np.int64)
    codes[order] = np.arange(len(order))
    codes[encoded.dictionary.is_null().to_numpy(zero_copy_only=False)] = -1
    found: Longs = codes[encoded.indices.to_numpy()]
    return found


def _micros(times: pa.ChunkedArray) -> Longs:
    found: Longs = times.cast(pa.int64()).to_numpy()
    return found


def _dense(lists: pa.Array) -> Longs:
    """A row of counts for each list, null too, as long as the longest."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    dense = np.zeros((len(lists), min(BUCKETS, int(lengths.max(initial=0)))), np.int64)
    owner = np.repeat(np.arange(len(lists)), lengths)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    dense[owner, place] = pc.list_flatten(lists).to_numpy()
    return dense


def _lists(dense: Longs) -> pa.Array:
    """The same back, zeros at the end left out."""
    places = np.arange(1, dense.shape[1] + 1)
    lengths = np.max(np.where(dense > 0, places, 0), axis=1, initial=0)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, dense[places <= lengths[:, None]])
