"""Reads a batch in parts; some of them a second time, now that the others are known."""

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.stream import numbering
from compliance.stream.known import Known
from compliance.stream.part import Part
from compliance.stream.piece import FOUND, SPARK_SCHEMA, Found, Piece, pieces_of
from compliance.stream.seen import Seen
from compliance.stream.window_table import WindowTable


class SourceChangedError(Exception):
    """What was read a second time was not what it was before."""


@dataclass(frozen=True, slots=True)
class Batch:
    """All of a batch.

    Args:
        pieces: What its parts made.
        parts: What is to be known of each.
    """

    pieces: Sequence[Piece]
    parts: Mapping[int, Found]

    def of(self, name: str) -> Iterator[Piece]:
        """Pieces of one name."""
        return (piece for piece in self.pieces if piece.name == name)

    def seen(self) -> dict[int, Seen]:
        """Of each part the numbers of the lines that it has."""
        return {number: _seen(found) for number, found in self.parts.items()}


def read(lines: DataFrame, seen: Seen, tables: Sequence[WindowTable]) -> Batch:
    """Reads lines; each whose number is new once.

    Args:
        lines: `value`, `file` and `block` or `line`.
        seen: Numbers of earlier batches.
        tables: Tables of windows to make.

    Raises:
        SourceChangedError: If the source gives other lines when it is asked again.
    """
    first = _read(lines, Known(seen), tables)
    above = numbering.above(block for found in first.parts.values() for block in found.blocks)
    again = _doubled(first) | {
        number for number, found in first.parts.items() if any(above[at] for at, _ in found.blocks)
    }
    if not again:
        return first
    known, before = Known(seen, first.seen(), above, frozenset(again)), _lines(first)
    # Before the others come: what is read again need not be kept twice.
    kept = Batch([piece for piece in first.pieces if piece.part not in again], first.parts)
    del first
    second = _read(lines, known, tables)
    for number, after in _lines(second).items():
        if after != before[number]:
            raise SourceChangedError(f"task {number} was given other lines when the source was read again")
    return Batch([*kept.pieces, *second.pieces], {**kept.parts, **second.parts})


def _read(lines: DataFrame, known: Known, tables: Sequence[WindowTable]) -> Batch:
    names = [name for name in lines.columns if name != "value"]
    # What is no text must reach the workers all the same.
    raw = lines.select(F.col("value").cast("binary").alias("value"), *names)
    pieces = pieces_of(raw.mapInArrow(_worker(known, tuple(tables)), SPARK_SCHEMA).toArrow())
    founds = {piece.part: msgspec.msgpack.decode(piece.content, type=Found) for piece in pieces if piece.name == FOUND}
    return Batch(pieces, founds)


def _worker(
    known: Known, tables: tuple[WindowTable, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        if known.wants(number):
            with _no_collector():
                for piece in Part(number, known, tables).read(batches):
                    yield piece.batch()

    return work


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Reading makes tuples by the ten thousand and no cycles: looking for such is a fifth of the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _doubled(batch: Batch) -> set[int]:
    """Parts that have numbers of earlier ones."""
    found, all_ = set(), Seen()
    for number, seen in sorted(batch.seen().items()):
        together = all_.union(seen)
        if together.there() != all_.there() + seen.there():
            found.add(number)
        all_ = together
    return found


def _lines(batch: Batch) -> dict[int, object]:
    """Of each part what must be the same however often it is read."""
    return {number: (found.lines, found.malformed, sorted(found.spans)) for number, found in batch.parts.items()}


def _seen(found: Found) -> Seen:
    return Seen({run: np.array(ranges, np.int64).reshape(-1, 2) for run, ranges in found.seen})
