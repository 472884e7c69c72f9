"""Tables as Parquet files in memory, as Spark reads them."""

from collections.abc import Iterable, Iterator
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def parquet(table: pa.Table) -> bytes:
    """A table as one file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def by_day(rows: pa.Table, days: pa.ChunkedArray) -> Iterator[tuple[date, pa.Table]]:
    """The rows of each day; most often all are of one."""
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
