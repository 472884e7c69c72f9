"""Tables as Parquet files in memory, as Spark reads them."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq


def parquet(table: pa.Table) -> bytes:
    """A table as one file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def table_of(files: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Several files of one schema as one table."""
    return pa.concat_tables(
        [schema.empty_table(), *(pq.read_table(pa.BufferReader(file), schema=schema) for file in files)]
    )
