"""What the parts of a batch hand to the driver: few and large pieces, which Spark carries without looking into them."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from compliance.stream.runs import Span
from compliance.stream.seen import Run

ROWS = "rows"
"""A Parquet file of rows, all of one day."""
COPIES = "copies"
"""A Parquet file of lines whose number had been seen."""
QUARANTINE = "quarantine"
"""Malformed lines, as JSON lines, compressed: what is no text can be six times as long when it is told."""
FOUND = "found"
"""The last piece of each part: a `Found`."""
WINDOWS = "windows "
"""And the name of a table: its windows of some of the lines, as an Arrow stream."""

Block = tuple[str, int]
"""A file, and where in it a block begins, in bytes."""
SPARK_SCHEMA = "part int, name string, day string, content binary"
_SCHEMA = pa.schema({"part": pa.int32(), "name": pa.string(), "day": pa.string(), "content": pa.binary()})


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece.

    Args:
        part: Whose: the number of a Spark task.
        name: What it is, as above.
        content: Encoded.
        day: Of rows, as in `2026-11-21`; else empty.
    """

    part: int
    name: str
    content: bytes
    day: str = ""

    def batch(self) -> pa.RecordBatch:
        """As Spark gets it."""
        return pa.RecordBatch.from_pylist([{name: getattr(self, name) for name in _SCHEMA.names}], schema=_SCHEMA)


def pieces_of(table: pa.Table) -> list[Piece]:
    """As the driver gets them."""
    return [Piece(**row) for row in table.to_pylist()]


class Found(msgspec.Struct, frozen=True):
    """A part in numbers.

    Args:
        lines: All of them.
        malformed: Of these.
        copies: Of these: lines whose number had been seen.
        losses: Lines that are kept and in which a proxy says that it has lost others, or may have.
        lost: How many it says to have lost, where it knows.
        blocks: Lines of each block of a file, in the order in which they were read.
        spans: What is said of the runs of proxies.
        seen: Of each run the numbers of lines that were new, as ranges.
        newer: How often which fields were there that this version does not know.
    """

    lines: int
    malformed: int
    copies: int
    losses: int
    lost: int
    blocks: list[tuple[Block, int]]
    spans: list[tuple[Run, Span]]
    seen: list[tuple[Run, list[tuple[int, int]]]]
    newer: dict[str, int] = {}

    @property
    def rows(self) -> int:
        """Lines that are kept."""
        return self.lines - self.malformed - self.copies


def encoded(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decoded(contents: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Several such streams of one schema as one table."""
    return pa.concat_tables([schema.empty_table(), *(pa.ipc.open_stream(content).read_all() for content in contents)])
