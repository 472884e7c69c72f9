"""Sums over lines, in columns: each Spark task sums up its own lines, and the driver adds up the tasks' sums.

A sum has as many rows as there are streams, clients or minutes, however many lines there are.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compliance.excerpt import only
from compliance.log_lines import LINES, KeptLines, Work
from compliance.schema import BOOT

Values = Any
"""A column of Arrow, in one piece or several."""


def with_columns(table: pa.Table, **columns: Values) -> pa.Table:
    """Add columns, or put others in their place."""
    return pa.table({name: table[name] for name in table.column_names} | columns)


def with_zeros(table: pa.Table, *names: str) -> pa.Table:
    """Put 0 where a column has nothing: a field is left out where it is 0."""
    return with_columns(table, **{name: pc.fill_null(table[name], 0) for name in names})


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values, each text once: several times as fast as `to_pylist`."""
    if pa.types.is_string(column.type):
        encoded = column.combine_chunks().dictionary_encode()
        texts = [*encoded.dictionary.to_pylist(), None]
        return [texts[place] for place in encoded.indices.fill_null(-1).to_numpy().tolist()]
    if column.null_count == len(column):
        return [None] * len(column)
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    values: list[Any] = column.to_numpy().tolist() if is_number and not column.null_count else column.to_pylist()
    return values


def ones(rows: pa.Table) -> pa.Array:
    """Return 1 for each row, to be counted."""
    return pa.array(np.ones(len(rows), np.int64))


def seconds(milliseconds: Values) -> Values:
    """Return milliseconds as seconds."""
    return pc.divide(milliseconds, 1e3)


def waits(lines: pa.Table) -> Values:
    """Return each line's wait, bounded by its length: a longer one would owe more than was due."""
    return pc.min_element_wise(lines["throttled_ms"], lines["duration_ms"])


class Latest(NamedTuple):
    """Columns of the row that comes last; rows without a value in the order's first column come before all others.

    Args:
        order: Columns, the first counts most.
        names: Further columns of that row.
    """

    order: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grouping:
    """One row for each key. Sums of parts can be summed up again, and are then the sums of the whole.

    Args:
        keys: Columns.
        sums: Columns to add up.
        least: Columns of which the least value counts.
        most: Columns of which the greatest value counts.
        latest: Columns of the last row.
    """

    keys: tuple[str, ...]
    sums: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    most: tuple[str, ...] = ()
    latest: tuple[Latest, ...] = ()

    def of(self, rows: pa.Table) -> pa.Table:
        """Return a row for each key, in the order of their first rows; sums of nulls alone are null."""
        kinds = {"sum": self.sums, "min": self.least, "max": self.most}
        steps = [(name, kind) for kind, names in kinds.items() for name in names]
        ranked, orders = rows, []
        for number, latest in enumerate(self.latest):
            sort_keys = [(name, "ascending", "at_start") for name in latest.order]
            orders.append(order := pc.sort_indices(rows, sort_keys=sort_keys))
            rank = np.empty(len(order), np.int64)
            rank[order.to_numpy()] = np.arange(len(order))
            ranked = ranked.append_column(f"rank {number}", pa.array(rank))
            steps.append((f"rank {number}", "max"))
        grouped = ranked.group_by(list(self.keys), use_threads=False).aggregate(steps)
        columns = {name: grouped[name] for name in self.keys}
        columns |= {name: grouped[f"{name}_{kind}"] for name, kind in steps if not name.startswith("rank ")}
        for number, (latest, order) in enumerate(zip(self.latest, orders, strict=True)):
            last = order.take(grouped[f"rank {number}_max"])
            columns |= {name: rows[name].take(last) for name in (*latest.order, *latest.names)}
        return pa.table(columns)

    def again(self, sums: pa.Table) -> pa.Table:
        """Sum up sums of parts, unless no two have a key in common: to find that out takes a fifth of the time."""
        keys = sums.group_by(list(self.keys), use_threads=False).aggregate([])
        return sums if len(keys) == len(sums) else self.of(sums)

    def by(self, *keys: str) -> "Grouping":
        """Return the same sums by other keys."""
        return replace(self, keys=keys)


@dataclass(frozen=True)
class Sum:
    """A sum over lines.

    Args:
        columns: Those of lines that it needs.
        prepared: Makes the rows of lines that are to be grouped.
        grouping: The keys and the sums.
        kinds: The kinds of lines that count; all where there is none.
    """

    columns: Collection[str]
    prepared: Callable[[pa.Table], pa.Table]
    grouping: Grouping
    kinds: tuple[str, ...] = ()

    def of(self, *parts: pa.Table) -> pa.Table:
        """Sum up lines, each part alone and then all together."""
        return self.together([self._of_lines(part) for part in parts])

    def _of_lines(self, lines: pa.Table) -> pa.Table:
        own = lines.select(list(self.columns))
        if self.kinds:
            own = only(own, pc.is_in(lines["kind"], pa.array(self.kinds)))
        return self.together([self.prepared(own)])

    def together(self, sums: list[pa.Table]) -> pa.Table:
        """Add up sums."""
        return self.grouping.of(pa.concat_tables(sums))


def itself(lines: pa.Table) -> pa.Table:
    """Return lines as they are."""
    return lines


def listed(kind: str, *columns: str) -> Sum:
    """Return all lines of a kind that has few, with some of their columns."""
    own = (*BOOT, "seq", *columns)
    return Sum(own, itself, Grouping(own), (kind,))


def summed(lines: KeptLines | None, sums: Mapping[str, Sum], like: pa.Schema = LINES) -> dict[str, pa.Table]:
    """Sum up lines: one query for all sums.

    Args:
        lines: Of all kinds; None for no line.
        sums: By their names.
        like: The columns of the lines.
    """
    parts = _parts(lines, sums, by_day=False) if lines is not None else ()
    return all_together(({name: table} for _, name, table in parts), sums, like)


def summed_by_day(lines: KeptLines, sums: Mapping[str, Sum]) -> dict[str, dict[str, pa.Table]]:
    """Sum up the lines of each day, as in `2026-11-21`: one query for all sums and days."""
    of: dict[str, list[dict[str, pa.Table]]] = {}
    for day, name, table in _parts(lines, sums, by_day=True):
        of.setdefault(day, []).append({name: table})
    return {day: all_together(parts, sums) for day, parts in of.items()}


def all_together(
    parts: Iterable[Mapping[str, pa.Table]], sums: Mapping[str, Sum], like: pa.Schema = LINES
) -> dict[str, pa.Table]:
    """Add up the sums of parts of the lines."""
    of = {name: [sum_.of(like.empty_table())] for name, sum_ in sums.items()}
    for part in parts:
        for name, table in part.items():
            of[name].append(table)
    return {name: sum_.together(of[name]) for name, sum_ in sums.items()}


def _parts(lines: KeptLines, sums: Mapping[str, Sum], *, by_day: bool) -> Iterator[tuple[str, str, pa.Table]]:
    needed = (("kind", *sum_.columns) if sum_.kinds else sum_.columns for sum_ in sums.values())
    columns = dict.fromkeys((*(("day",) if by_day else ()), *chain(*needed)))
    parts = lines.done(_worker(dict(sums), by_day=by_day), columns, (), "day string, name string, part binary")
    for part in parts.toArrow().to_pylist():
        yield part["day"], part["name"], decoded(part["part"])


def _worker(sums: dict[str, Sum], *, by_day: bool) -> Work:
    def work(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        of: dict[tuple[str, str], list[pa.Table]] = {}
        for lines in tables:
            for day, own in _days(lines) if by_day else (("", lines),):
                for name, sum_ in sums.items():
                    of.setdefault((day, name), []).append(sum_.of(own))
        parts = [encoded(sums[name].together(own)) for (_, name), own in of.items()]
        columns = [pa.array([key[at] for key in of], pa.string()) for at in range(2)]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(parts, pa.binary())], ["day", "name", "part"])

    return work


def _days(lines: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    days = pc.unique(lines["day"])
    for day in days:
        yield day.as_py().isoformat(), only(lines, pc.equal(lines["day"], day))


def encoded(table: pa.Table) -> bytes:
    """Return a table as bytes; packed, as lines of one limit are much alike, and Java has to move them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def decoded(part: bytes) -> pa.Table:
    """Return a table that was `encoded`."""
    return pa.ipc.open_stream(part).read_all()
