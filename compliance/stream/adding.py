"""Adds up lines to windows, and windows to windows: sorted once by whose they are and when they begin, then run by run.

Windows of each length are added up from the next shorter ones, which stand in the same order.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from accesslog.delays import BUCKETS
from compliance.stream.window_table import WIDTHS_S, WindowTable

Longs = npt.NDArray[np.int64]
Numbers = dict[str, Any]
_SECOND = 1_000_000
_LATEST = " latest"
"""Of what is added up, the place among all rows of the one that ends last."""


def windows_of(lines: pa.Table, table: WindowTable) -> pa.Table:
    """Windows of all widths, of these lines alone.

    Args:
        lines: Columns `start`, `end` and the table's own, as in the log's rows.
        table: Which table; its columns come out, with `width_s`, `window_s`, `lines` and `as_of`.
    """
    if not lines:
        return table.schema.empty_table()
    # Rounded down, also before 1970.
    begin = np.floor_divide(_micros(lines["start"]), _SECOND)
    one = pa.array(np.ones(len(lines), np.int64))
    rows = _Rows(lines.rename_columns({"end": "as_of"}).append_column("lines", one), table)
    whose = codes_of(lines, table.key)
    row = np.lexsort((begin, whose))
    added, whose, begin, found = rows.numbers(row), whose[row], begin[row], []
    for width in WIDTHS_S:
        # Not in place: Arrow keeps what the windows before were given.
        begin = begin - np.mod(begin, width)
        starts = _starts(whose, begin)
        row, whose, begin, added = row[starts], whose[starts], begin[starts], rows.added(added, starts)
        found.append(rows.windows(row, added, np.full(len(row), width, np.int32), begin))
    return pa.concat_tables(found)


def merged(windows: pa.Table, table: WindowTable) -> pa.Table:
    """Windows of the same length, begin and key become one."""
    if not windows:
        return table.schema.empty_table()
    rows = _Rows(windows, table)
    whose, width, begin = codes_of(windows, table.key), windows["width_s"].to_numpy(), windows["window_s"].to_numpy()
    order = np.lexsort((begin, width, whose))
    starts = _starts(whose[order], width[order], begin[order])
    row = order[starts]
    return rows.windows(row, rows.added(rows.numbers(order), starts), width[row], begin[row])


class _Rows:
    """Lines or windows that are added up, with `as_of` and `lines`."""

    def __init__(self, rows: pa.Table, table: WindowTable) -> None:
        self._rows = rows
        self._table = table
        self._rank, self._by_rank = _ranked(rows, table)

    def numbers(self, order: Longs) -> Numbers:
        """What is added up, or of which the largest is kept, in that order of rows."""
        rows, table = self._rows, self._table
        found = {name: pc.fill_null(rows[name], 0).to_numpy() for name in ("lines", *table.sums)}
        # Less than any that a line may say: a window has none if no line has one.
        found |= {name: pc.fill_null(rows[name], -1).to_numpy() for name in table.largest}
        found |= {name: _dense(rows[name].combine_chunks()) for name in table.histograms}
        return {name: column[order] for name, column in (found | {_LATEST: self._rank}).items()}

    def added(self, numbers: Numbers, starts: Longs) -> Numbers:
        """The same of each run of rows; runs begin at `starts`."""
        largest = {*self._table.largest, _LATEST}
        return {
            name: (np.maximum if name in largest else np.add).reduceat(column, starts, axis=0)
            for name, column in numbers.items()
        }

    def windows(self, row: Longs, added: Numbers, width: npt.NDArray[np.int32], begin: Longs) -> pa.Table:
        """Windows out of what was added up, each with the key of one of its rows."""
        table = self._table
        whose = self._rows.select(table.key).take(pa.array(row))
        latest = self._rows.select(["as_of", *table.last]).take(pa.array(self._by_rank[added[_LATEST]]))
        found: dict[str, object] = {"width_s": width, "window_s": begin}
        found |= {name: part[name] for part in (whose, latest) for name in part.column_names}
        found |= {name: added[name] for name in ("lines", *table.sums)}
        found |= {name: pa.array(added[name], mask=np.less(added[name], 0)) for name in table.largest}
        found |= {name: _lists(added[name]) for name in table.histograms}
        return pa.table({name: found[name] for name in table.schema.names}, schema=table.schema)


def codes_of(rows: pa.Table, key: tuple[str, ...]) -> Longs:
    """A number for each row, the same for rows that have the same key."""
    codes = np.zeros(len(rows), np.int64)
    for name in key:
        encoded = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        both = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        # Anew after each column: so many different ones there are at most, and no product overflows.
        codes = pa.array(both).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _starts(*columns: Longs) -> Longs:
    """Where rows begin that differ from the one before."""
    differs = np.zeros(len(columns[0]), np.bool_)
    differs[0] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _ranked(rows: pa.Table, table: WindowTable) -> tuple[Longs, Longs]:
    """Of each row its place among all, from the one that ends first to the last; and the rows in that order.

    Of those that end at once the values decide, so that the order in which rows come does not.
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
