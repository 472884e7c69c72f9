"""The parts of a batch, as tasks of Spark read them: lines to rows, quarantine, copies and windows; and their union.

A block's lines come one after the other to the task that reads it. The number of lines above a block is known only when
all blocks are read. So each block that is not its file's first is read a second time. Blocks are larger than the files
of the proxy.
"""

import contextlib
import gc
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import unquote

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.schema import BOOT, LONGEST_QUARANTINED, Columns, fault
from compliance.stream import runs
from compliance.stream.runs import RunId, Seen, Span
from compliance.stream.windows import WindowTable, by_day, codes_of, parquet, windows_of

ROWS = "rows"
"""A Parquet file of rows, all of one day."""
COPIES = "copies"
"""A Parquet file of lines whose number had been seen."""
QUARANTINE = "quarantine"
"""Malformed lines, as JSON lines, compressed: bytes that are no text can be six times as long when escaped."""
FOUND = "found"
"""The last piece of each part: a `PartNumbers`."""
WINDOWS = "windows "
"""The beginning of a piece's name, before that of a table: the table's windows of some lines, as an Arrow stream."""

FileBlock = tuple[str, int]
"""A file, and where in it a block begins, in bytes."""
SPARK_SCHEMA = "part int, name string, day string, content binary"
_PIECE_SCHEMA = pa.schema({"part": pa.int32(), "name": pa.string(), "day": pa.string(), "content": pa.binary()})


@dataclass(frozen=True, slots=True)
class PartitionPiece:
    """One piece of a part's result, encoded.

    Args:
        part: The number of the Spark task.
        name: The kind of piece, as above.
        content: The encoded content.
        day: The day of rows, as in `2026-11-21`; else empty.
    """

    part: int
    name: str
    content: bytes
    day: str = ""

    def batch(self) -> pa.RecordBatch:
        """Encode the pieces as Spark takes them."""
        return pa.RecordBatch.from_pylist(
            [{name: getattr(self, name) for name in _PIECE_SCHEMA.names}], schema=_PIECE_SCHEMA
        )


def pieces_of(table: pa.Table) -> list[PartitionPiece]:
    """Decode the pieces that the driver gets from Spark."""
    return [PartitionPiece(**row) for row in table.to_pylist()]


class PartNumbers(msgspec.Struct, frozen=True):
    """A part in numbers.

    Args:
        lines: Lines of the part.
        malformed: Malformed lines among them.
        copies: Lines among them whose number had been seen.
        losses: Kept lines in which a proxy reports that it has lost others, or may have.
        lost: Lines that the proxy reports as lost, where it knows their number.
        blocks: Lines of each block of a file, in the order in which they were read.
        spans: Facts of the runs of proxies.
        seen: For each run, the numbers of new lines, as ranges.
        newer: Fields that this version does not know, with their number.
    """

    lines: int
    malformed: int
    copies: int
    losses: int
    lost: int
    blocks: list[tuple[FileBlock, int]]
    spans: list[tuple[RunId, Span]]
    seen: list[tuple[RunId, list[tuple[int, int]]]]
    newer: dict[str, int] = {}

    @property
    def rows(self) -> int:
        """Lines that are kept."""
        return self.lines - self.malformed - self.copies


def encoded(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decoded(contents: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Several such streams of one schema as one table."""
    return pa.concat_tables([schema.empty_table(), *(pa.ipc.open_stream(content).read_all() for content in contents)])


@dataclass(frozen=True, slots=True)
class KnownBatch:
    """The state of a batch while its parts are read.

    Args:
        seen: Numbers of earlier batches.
        parts: Numbers of the parts; a line that several parts have belongs to the first part.
        above: For blocks of files, the number of lines above them.
        again: Parts to read; None for all.
    """

    seen: Seen = field(default_factory=Seen)
    parts: Mapping[int, Seen] = field(default_factory=dict)
    above: Mapping[FileBlock, int] = field(default_factory=dict)
    again: frozenset[int] | None = None

    def before(self, part: int) -> Seen:
        """Numbers that are copies in a part."""
        return self.seen.union(*(seen for number, seen in self.parts.items() if number < part))

    def wants(self, part: int) -> bool:
        """Return whether a part must be read."""
        return self.again is None or part in self.again


class Numbering:
    """The numbering of lines, from 1, as they come.

    Args:
        above: For blocks, the number of lines above them; 0 for blocks that are left out.

    Attributes:
        lines: For each block, the number of lines that have come.
    """

    def __init__(self, above: Mapping[FileBlock, int]) -> None:
        self._above = above
        self.lines: dict[FileBlock, int] = {}

    def numbers(self, batch: pa.RecordBatch) -> pa.Array:
        """Number lines that have `file` and `block`; lines with a number of their own (`line`) keep it."""
        if "line" in batch.schema.names:
            return batch["line"]
        numbers = np.empty(batch.num_rows, np.int64)
        for first, end in _runs(batch):
            block = batch["file"][first].as_py(), batch["block"][first].as_py()
            before = self.lines.get(block, 0)
            self.lines[block] = before + end - first
            numbers[first:end] = np.arange(end - first) + (self._above.get(block, 0) + before + 1)
        return pa.array(numbers)


def above_each(blocks: Iterable[tuple[FileBlock, int]]) -> dict[FileBlock, int]:
    """Return the number of lines above each block, from the number of lines in each."""
    above, last, lines_above = {}, "", 0
    for (file, begin), lines in sorted(blocks):
        if file != last:
            last, lines_above = file, 0
        above[file, begin] = lines_above
        lines_above += lines
    return above


def _runs(batch: pa.RecordBatch) -> Iterable[tuple[int, int]]:
    """Yield first place and end of each run of neighbouring lines from one block."""
    file: npt.NDArray[np.int32] = batch["file"].dictionary_encode().indices.to_numpy()
    block = batch["block"].to_numpy()
    begins = np.flatnonzero((np.diff(file) != 0) | (np.diff(block) != 0)) + 1
    bounds = [0, *begins.tolist(), batch.num_rows] if batch.num_rows else []
    return pairwise(bounds)


MOST_LINES = 100_000
"""The number of lines that are kept before they are handed on; about a kilobyte each."""
MOST_TEXT = 64 * 2**20
"""Bytes of malformed lines that are kept before they are handed on."""


class PartReader:
    """The reader of one part.

    Args:
        number: The part's number.
        known: Facts about the batch that the driver has found.
        tables: Tables of windows to make.
    """

    def __init__(self, number: int, known: KnownBatch, tables: Sequence[WindowTable]) -> None:
        self._number = number
        self._tables = tables
        self._columns = Columns()
        self._numbering = Numbering(known.above)
        self._seen = known.before(number)
        self._own = Seen()
        self._spans: runs.RunSpans = {}
        self._lines = self._malformed = self._copies = self._losses = self._lost = 0
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._doubled: list[pa.RecordBatch] = []
        self._kept_lines = 0
        self._quarantine = bytearray()

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[PartitionPiece]:
        """Read the whole part; its columns are `value`, `file`, and `block` or `line`."""
        for batch in batches:
            self._add(batch)
            doubled = sum(copies.num_rows for copies in self._doubled)
            if self._kept_lines + doubled >= MOST_LINES or len(self._quarantine) >= MOST_TEXT:
                yield from self._flushed()
        yield from self._flushed()
        yield PartitionPiece(self._number, FOUND, msgspec.msgpack.encode(self._found()))

    def _add(self, batch: pa.RecordBatch) -> None:
        lines: list[bytes] = batch["value"].to_pylist()
        place = pa.record_batch([_files(batch), self._numbering.numbers(batch)], names=["file", "line"])
        records, malformed = self._columns.decoded(lines)
        self._lines += len(lines)
        self._malformed += len(malformed)
        for at in malformed:
            self._quarantine += _quarantined(lines[at], place.slice(at, 1))
        rows = {kind: _beside(of_kind, place, places) for kind, places, of_kind in self._columns.batches(records)}
        for kind, kept in self._new(rows).items():
            self._rows.setdefault(kind, []).append(kept)
            self._kept_lines += kept.num_rows
            if kind == "loss":
                self._losses += kept.num_rows
                self._lost += sum(filter(None, kept["lost_lines"].to_pylist()))

    def _new(self, rows: dict[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
        """Return the rows without those of lines whose number has been seen."""
        if not rows:
            return {}
        heads = pa.Table.from_batches([batch.select(["seq", *runs.FIELDS]) for batch in rows.values()])
        self._spans = runs.merged([self._spans, runs.spans_of(heads)])
        is_new = self._are_new(heads)
        copies = len(is_new) - int(is_new.sum())
        if not copies:
            return rows
        self._copies += copies
        bounds = np.cumsum([batch.num_rows for batch in rows.values()])[:-1]
        masked = list(zip(rows.items(), np.split(is_new, bounds), strict=True))
        self._doubled += [batch.filter(pa.array(~mask)) for (_, batch), mask in masked if not mask.all()]
        return {kind: batch.filter(pa.array(mask)) for (kind, batch), mask in masked}

    def _are_new(self, heads: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        numbers, run_codes = heads["seq"].to_numpy(), codes_of(heads, BOOT)
        is_new = np.zeros(len(numbers), np.bool_)
        in_order = np.argsort(run_codes, kind="stable")
        for of_run in np.split(in_order, np.flatnonzero(np.diff(run_codes[in_order])) + 1):
            run = heads["proxy_id"][of_run[0]].as_py(), heads["boot_id"][of_run[0]].as_py()
            is_new[of_run] = self._seen.added(run, numbers[of_run])
            self._own.added(run, numbers[of_run][is_new[of_run]])
        return is_new

    def _flushed(self) -> Iterator[PartitionPiece]:
        of_kind = {kind: pa.Table.from_batches(batches) for kind, batches in self._rows.items()}
        for table in self._tables:
            if table.kind in of_kind:
                windows = windows_of(of_kind[table.kind].select(table.fields), table)
                yield PartitionPiece(self._number, WINDOWS + table.name, encoded(windows))
        if of_kind:
            yield from self._files(pa.concat_tables(of_kind.values()))
        if self._doubled:
            yield PartitionPiece(self._number, COPIES, parquet(pa.Table.from_batches(self._doubled)))
        if self._quarantine:
            yield PartitionPiece(self._number, QUARANTINE, gzip.compress(self._quarantine, 1))
        self._rows, self._doubled, self._kept_lines, self._quarantine = {}, [], 0, bytearray()

    def _files(self, rows: pa.Table) -> Iterator[PartitionPiece]:
        for day, of_day in by_day(rows, rows["start"].cast(pa.date32())):
            yield PartitionPiece(self._number, ROWS, parquet(of_day), day.isoformat())

    def _found(self) -> PartNumbers:
        return PartNumbers(
            lines=self._lines,
            malformed=self._malformed,
            copies=self._copies,
            losses=self._losses,
            lost=self._lost,
            blocks=list(self._numbering.lines.items()),
            spans=list(self._spans.items()),
            seen=[(run, ranges.tolist()) for run, ranges in self._own.ranges.items()],
            newer=dict(self._columns.newer),
        )


def _files(batch: pa.RecordBatch) -> pa.Array:
    """Return the file or the block of each line; Spark writes the names of files as in a URI."""
    if "block" not in batch.schema.names:
        return batch["file"]
    encoded = batch["file"].dictionary_encode()
    return pa.array(map(unquote, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _beside(rows: pa.RecordBatch, place: pa.RecordBatch, places: list[int]) -> pa.RecordBatch:
    own = place.take(pa.array(places))
    return pa.RecordBatch.from_arrays([*rows.columns, *own.columns], names=[*rows.schema.names, *own.schema.names])


def _quarantined(line: bytes, place: pa.RecordBatch) -> bytes:
    (where,) = place.to_pylist()
    # A character takes four bytes at most.
    text = line[: 4 * LONGEST_QUARANTINED].decode(errors="replace")[:LONGEST_QUARANTINED]
    return msgspec.json.encode({**where, "text": text, "reason": fault(line)}) + b"\n"


class SourceChangedError(Exception):
    """The source gave other lines when it was read a second time."""


@dataclass(frozen=True, slots=True)
class PartitionBatch:
    """The result of all parts of a batch.

    Args:
        pieces: The pieces of all parts.
        parts: The numbers of each part.
    """

    pieces: Sequence[PartitionPiece]
    parts: Mapping[int, PartNumbers]

    def of(self, name: str) -> Iterator[PartitionPiece]:
        """Pieces of one name."""
        return (piece for piece in self.pieces if piece.name == name)

    def seen(self) -> dict[int, Seen]:
        """Return the numbers of each part's lines."""
        return {number: _seen(part) for number, part in self.parts.items()}


def read(lines: DataFrame, seen: Seen, tables: Sequence[WindowTable]) -> PartitionBatch:
    """Read lines; a line with a new number is read once.

    Args:
        lines: `value`, `file` and `block` or `line`.
        seen: Numbers of earlier batches.
        tables: Tables of windows to make.

    Raises:
        SourceChangedError: If the source gives other lines when it is asked again.
    """
    first = _read(lines, KnownBatch(seen), tables)
    above = above_each(block for part in first.parts.values() for block in part.blocks)
    again = _doubled(first) | {
        number for number, part in first.parts.items() if any(above[at] for at, _ in part.blocks)
    }
    if not again:
        return first
    known, before = KnownBatch(seen, first.seen(), above, frozenset(again)), _lines(first)
    # Before the others come: parts that are read again need not be kept twice.
    kept = PartitionBatch([piece for piece in first.pieces if piece.part not in again], first.parts)
    del first
    second = _read(lines, known, tables)
    for number, after in _lines(second).items():
        if after != before[number]:
            raise SourceChangedError(f"task {number} was given other lines when the source was read again")
    return PartitionBatch([*kept.pieces, *second.pieces], {**kept.parts, **second.parts})


def _read(lines: DataFrame, known: KnownBatch, tables: Sequence[WindowTable]) -> PartitionBatch:
    names = [name for name in lines.columns if name != "value"]
    # Bytes that are no text must also reach the workers.
    raw = lines.select(F.col("value").cast("binary").alias("value"), *names)
    pieces = pieces_of(raw.mapInArrow(_worker(known, tuple(tables)), SPARK_SCHEMA).toArrow())
    parts = {
        piece.part: msgspec.msgpack.decode(piece.content, type=PartNumbers) for piece in pieces if piece.name == FOUND
    }
    return PartitionBatch(pieces, parts)


def _worker(
    known: KnownBatch, tables: tuple[WindowTable, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        if known.wants(number):
            with _no_collector():
                for piece in PartReader(number, known, tables).read(batches):
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


def _doubled(batch: PartitionBatch) -> set[int]:
    """Parts that have numbers of earlier ones."""
    parts, so_far = set(), Seen()
    for number, seen in sorted(batch.seen().items()):
        together = so_far.union(seen)
        if together.there() != so_far.there() + seen.there():
            parts.add(number)
        so_far = together
    return parts


def _lines(batch: PartitionBatch) -> dict[int, object]:
    """Return, by the number of each part, what must be the same however often the part is read."""
    return {number: (part.lines, part.malformed, sorted(part.spans)) for number, part in batch.parts.items()}


def _seen(part: PartNumbers) -> Seen:
    return Seen({run: np.array(ranges, np.int64).reshape(-1, 2) for run, ranges in part.seen})
