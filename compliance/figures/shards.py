"""Figures for which all lines of a limit have to come together, of all proxies."""

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from compliance.figures.scopes import each
from compliance.figures.sums import decoded, encoded
from compliance.log_lines import LINES, KeptLines, Work

Tables = Mapping[str, pa.Table]
PartsOf = Callable[[pa.Table], Tables]
"""Makes tables with `direction`, `level` and `name` of some lines."""
FiguresOf = Callable[[Tables], Tables]
"""Makes figures of all rows of some limits in such tables."""
_LIMIT = ("direction", "level", "name")


def figures_by_limit(
    lines: KeptLines, columns: Collection[str], parts_of: PartsOf, figures_of: FiguresOf, shards: int
) -> dict[str, pa.Table]:
    """Make figures by limit: one query for all of them.

    Args:
        lines: Of all kinds.
        columns: Those that are needed.
        parts_of: Makes of some lines what is needed of them.
        figures_of: Makes figures of what is needed of all lines of some limits.
        shards: The number of parts, each with the limits of some names.
    """
    kinds = ("interval", "limit")
    parts = lines.done(_sharing(parts_of, shards), columns, kinds, "shard int, name string, part binary")
    together = parts.coalesce(1) if shards == 1 else parts.repartitionById(shards, "shard")
    none = parts_of(LINES.empty_table())
    figures = together.mapInArrow(_figuring(none, figures_of), "name string, part binary").toArrow()
    of = {name: [table] for name, table in figures_of(none).items()}
    for name, part in zip(figures["name"].to_pylist(), figures["part"], strict=True):
        of[name].append(decoded(part.as_py()))
    return {name: pa.concat_tables(tables) for name, tables in of.items()}


def _sharing(parts_of: PartsOf, number: int) -> Work:
    def work(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        for lines in tables:
            for name, table in parts_of(lines).items():
                shard = _shard(table, number)
                rows = [(at, name, encoded(table.filter(pc.equal(shard, at)))) for at in pc.unique(shard).to_pylist()]
                columns = zip(*rows, strict=True) if rows else ((), (), ())
                types = (pa.int32(), pa.string(), pa.binary())
                arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, ["shard", "name", "part"])

    return work


def _shard(table: pa.Table, number: int) -> pa.Array:
    """Return the part in which each row's limit is."""
    names = pc.binary_join_element_wise(*(table[name] for name in _LIMIT), "\n")
    return each(
        names, lambda limits: pa.array([zlib.crc32(name.encode()) % number for name in limits.to_pylist()], pa.int32())
    )


def _figuring(none: Tables, figures_of: FiguresOf) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shards: dict[int, dict[str, list[pa.Table]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                parts = shards.setdefault(row["shard"], {name: [table] for name, table in none.items()})
                parts[row["name"]].append(decoded(row["part"]))
        while shards:
            _, parts = shards.popitem()
            figures = figures_of({name: pa.concat_tables(tables).combine_chunks() for name, tables in parts.items()})
            values = [pa.array(figures.keys()), pa.array(map(encoded, figures.values()), pa.binary())]
            yield pa.RecordBatch.from_arrays(values, ["name", "part"])

    return work
