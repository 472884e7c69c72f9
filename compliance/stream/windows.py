"""Event-time windows without Spark: their tables, how they are added up, and how readers get them, as Parquet.

Lengths divide each other. A line counts in the windows in which it starts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from accesslog.record import BUCKETS
from compliance.schema import TIME, arrow_schema

WIDTHS_S = (1, 10, 60, 300, 3600)


@dataclass(frozen=True, slots=True)
class WindowTable:
    """One table of windows.

    Args:
        name: Of the table.
        kind: Of the lines that it is made from.
        key: Columns whose values have one row in each window.
        sums: Fields that are added up; absent is nothing.
        largest: Fields whose largest value is kept.
        last: Fields whose value is that of the line that ends last.
        histograms: Fields that are added up place by place.
    """

    name: str
    kind: str
    key: tuple[str, ...]
    sums: tuple[str, ...]
    largest: tuple[str, ...]
    last: tuple[str, ...]
    histograms: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a line that the table needs."""
        return ("start", "end", *self.key, *self._values)

    @property
    def schema(self) -> pa.Schema:
        """The schema of windows on their way.

        `window_s` is their begin, seconds since 1970; `as_of` is the time of `last`.
        """
        own = arrow_schema()
        names = (*self.key, *self._values)
        head = {"width_s": pa.int32(), "window_s": pa.int64(), "lines": pa.int64(), "as_of": own.field("end").type}
        return pa.schema(head | {name: own.field(name).type for name in names})

    @property
    def _values(self) -> tuple[str, ...]:
        return (*self.sums, *self.largest, *self.histograms, *self.last)


TABLES = (
    WindowTable(
        name="topic_windows",
        kind="interval",
        key=("tenant", "namespace", "topic", "direction"),
        sums=(
            *("offered_messages", "offered_bytes", "passed_messages", "passed_bytes"),
            *("dropped_messages", "dropped_bytes", "rejected_messages", "rejected_bytes", "throttled_ms"),
            "delay_sum_ms",
        ),
        largest=("delay_max_ms",),
        last=("limit_level", "limit_messages", "limit_bytes"),
        histograms=("delay_hist",),
    ),
    WindowTable(
        name="limiter_windows",
        kind="limit",
        key=("proxy_id", "direction", "level", "name", "tenant", "namespace"),
        sums=("passed_messages", "passed_bytes", "rejected_messages", "rejected_bytes", "throttled_ms"),
        largest=("largest_entry_messages", "largest_entry_bytes"),
        last=("source", "mode", "limit_messages", "limit_bytes", "burst_messages", "burst_bytes"),
    ),
)


Longs = npt.NDArray[np.int64]
Numbers = dict[str, Any]
_SECOND = 1_000_000
_LATEST = " latest"
"""Name of a column: for a sum of rows, the place among all rows of the one that ends last."""


def windows_of(lines: pa.Table, table: WindowTable) -> pa.Table:
    """Make windows of all widths from these lines alone.

    Args:
        lines: Columns `start`, `end` and the table's own, as in the log's rows.
        table: Which table; its columns come out, with `width_s`, `window_s`, `lines` and `as_of`.
    """
    if not lines:
        return table.schema.empty_table()
    # Rounded down, also before 1970.
    begin = np.floor_divide(_micros(lines["start"]), _SECOND)
    ones = pa.array(np.ones(len(lines), np.int64))
    rows = _Rows(lines.rename_columns({"end": "as_of"}).append_column("lines", ones), table)
    keys = codes_of(lines, table.key)
    row = np.lexsort((begin, keys))
    added, keys, begin, tables = rows.numbers(row), keys[row], begin[row], []
    for width in WIDTHS_S:
        # Not in place: Arrow keeps what the windows before were given.
        begin = begin - np.mod(begin, width)
        starts = _starts(keys, begin)
        row, keys, begin, added = row[starts], keys[starts], begin[starts], rows.added(added, starts)
        tables.append(rows.windows(row, added, np.full(len(row), width, np.int32), begin))
    return pa.concat_tables(tables)


def merged(windows: pa.Table, table: WindowTable) -> pa.Table:
    """Windows of the same length, begin and key become one."""
    if not windows:
        return table.schema.empty_table()
    rows = _Rows(windows, table)
    keys, width, begin = codes_of(windows, table.key), windows["width_s"].to_numpy(), windows["window_s"].to_numpy()
    order = np.lexsort((begin, width, keys))
    starts = _starts(keys[order], width[order], begin[order])
    row = order[starts]
    return rows.windows(row, rows.added(rows.numbers(order), starts), width[row], begin[row])


class _Rows:
    """Lines or windows that are added up, with `as_of` and `lines`."""

    def __init__(self, rows: pa.Table, table: WindowTable) -> None:
        self._rows = rows
        self._table = table
        self._rank, self._by_rank = _ranked(rows, table)

    def numbers(self, order: Longs) -> Numbers:
        """Return the fields that are summed or have their largest value kept, in the order of rows."""
        rows, table = self._rows, self._table
        columns = {name: pc.fill_null(rows[name], 0).to_numpy() for name in ("lines", *table.sums)}
        # Less than any that a line may say: a window has none if no line has one.
        columns |= {name: pc.fill_null(rows[name], -1).to_numpy() for name in table.largest}
        columns |= {name: _dense(rows[name].combine_chunks()) for name in table.histograms}
        return {name: column[order] for name, column in (columns | {_LATEST: self._rank}).items()}

    def added(self, numbers: Numbers, starts: Longs) -> Numbers:
        """Add up each run of rows; runs begin at `starts`."""
        largest = {*self._table.largest, _LATEST}
        return {
            name: (np.maximum if name in largest else np.add).reduceat(column, starts, axis=0)
            for name, column in numbers.items()
        }

    def windows(self, row: Longs, added: Numbers, width: npt.NDArray[np.int32], begin: Longs) -> pa.Table:
        """Make windows from sums, each with the key of one of its rows."""
        table = self._table
        keys = self._rows.select(table.key).take(pa.array(row))
        latest = self._rows.select(["as_of", *table.last]).take(pa.array(self._by_rank[added[_LATEST]]))
        columns: dict[str, object] = {"width_s": width, "window_s": begin}
        columns |= {name: part[name] for part in (keys, latest) for name in part.column_names}
        columns |= {name: added[name] for name in ("lines", *table.sums)}
        columns |= {name: pa.array(added[name], mask=np.less(added[name], 0)) for name in table.largest}
        columns |= {name: _lists(added[name]) for name in table.histograms}
        return pa.table({name: columns[name] for name in table.schema.names}, schema=table.schema)


def codes_of(rows: pa.Table, key: tuple[str, ...]) -> Longs:
    """Return a number for each row, the same for rows that have the same key."""
    codes = np.zeros(len(rows), np.int64)
    for name in key:
        encoded = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        both = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        # Encoded again after each column: codes stay below the number of rows, and no product overflows.
        codes = pa.array(both).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _starts(*columns: Longs) -> Longs:
    """Return the places of rows that differ from the row before; the first row is one."""
    differs = np.zeros(len(columns[0]), np.bool_)
    differs[0] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _ranked(rows: pa.Table, table: WindowTable) -> tuple[Longs, Longs]:
    """Return each row's place among all, from the one that ends first to the last; and the rows in that order.

    Of rows that end at once the values decide, so that the order in which rows come does not.
    """
    codes = [_code(rows[name].combine_chunks()) for name in table.last]
    order = np.lexsort((*reversed(codes), _micros(rows["as_of"])))
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
    result: Longs = codes[encoded.indices.to_numpy()]
    return result


def _micros(times: pa.ChunkedArray) -> Longs:
    micros: Longs = times.cast(pa.int64()).to_numpy()
    return micros


def _dense(lists: pa.Array) -> Longs:
    """A row of counts for each list, null too, as long as the longest."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    dense = np.zeros((len(lists), min(BUCKETS, int(lengths.max(initial=0)))), np.int64)
    owner = np.repeat(np.arange(len(lists)), lengths)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    dense[owner, place] = pc.list_flatten(lists).to_numpy()
    return dense


def _lists(dense: Longs) -> pa.Array:
    """Return the list again, without zeros at the end."""
    places = np.arange(1, dense.shape[1] + 1)
    lengths = np.max(np.where(dense > 0, places, 0), axis=1, initial=0)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, dense[places <= lengths[:, None]])


_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class ByState:
    """Windows of one table, by their state.

    Args:
        late: Windows that were closed before the batch; its lines came too late for them.
        closed: Windows that the batch closes.
        open: Windows that are still open.
    """

    late: pa.Table
    closed: pa.Table
    open: pa.Table


def by_state(windows: pa.Table, watermarks_s: tuple[int, int]) -> ByState:
    """Sort windows by their state.

    Args:
        windows: As `adding.merged` gives them.
        watermarks_s: Before the batch and after it: windows that end by then are closed.
    """
    end = windows["window_s"].to_numpy() + windows["width_s"].to_numpy()
    was_closed, is_closed = (end <= watermark for watermark in watermarks_s)
    masks = was_closed, is_closed & ~was_closed, ~is_closed
    return ByState(*(windows.filter(pa.array(mask)) for mask in masks))


def late_lines(late: pa.Table) -> Counter[str]:
    """Return the number of lines that came too late, by the width of the window in seconds."""
    of_width = late.group_by("width_s", use_threads=False).aggregate([("lines", "sum")]).to_pylist()
    return Counter({str(row["width_s"]): row["lines_sum"] for row in of_width})


def published(windows: pa.Table, table: WindowTable, *, is_final: bool) -> pa.Table:
    """Return the windows as readers get them, with the day.

    Args:
        windows: As `adding.merged` gives them.
        table: Which table.
        is_final: Whether they are closed.
    """
    begin = windows["window_s"].to_numpy()
    times = {"start": begin, "end": begin + windows["width_s"].to_numpy()}
    columns = {"width_s": windows["width_s"]}
    columns |= {name: pa.array(seconds * _SECOND, TIME) for name, seconds in times.items()}
    columns |= {name: windows[name] for name in _published_columns(table)}
    columns["is_final"] = pa.array(np.full(len(windows), is_final))
    columns["day"] = columns["start"].cast(pa.date32())
    return pa.table(columns)


def _published_columns(table: WindowTable) -> tuple[str, ...]:
    """Return the columns of windows that are published as they are, in order."""
    return (*table.key, "lines", *table.sums, *table.largest, *table.histograms, "as_of", *table.last)


def parquet(table: pa.Table) -> bytes:
    """Return a table as one file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def by_day(rows: pa.Table, days: pa.ChunkedArray) -> Iterator[tuple[date, pa.Table]]:
    """Yield the rows of each day; most often all are of one."""
    counts = pc.value_counts(days.combine_chunks().sort()).to_pylist()
    in_order = rows if len(counts) < 2 else rows.take(pc.sort_indices(days))
    begin = 0
    for day in counts:
        yield day["values"], in_order.slice(begin, day["counts"])
        begin += day["counts"]


def table_of(files: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Several files of one schema as one table."""
    return pa.concat_tables(
        [schema.empty_table(), *(pq.read_table(pa.BufferReader(file), schema=schema) for file in files)]
    )
