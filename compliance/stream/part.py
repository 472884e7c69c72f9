"""One part of a batch, in a Spark task: lines in; rows, windows, malformed lines and what is to be known of them out.

All in one pass and in Arrow's columns, and handed on as a few large pieces: what Java has to do for a row this wide
costs more than parsing it does.
"""

import gzip
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa

from compliance.columns import Columns
from compliance.fault import LONGEST_QUARANTINED, fault
from compliance.schema import BOOT
from compliance.stream import runs
from compliance.stream.adding import codes_of, windows_of
from compliance.stream.known import Known
from compliance.stream.numbering import Numbering
from compliance.stream.parquet import by_day, parquet
from compliance.stream.piece import COPIES, FOUND, QUARANTINE, ROWS, WINDOWS, Found, Piece, encoded
from compliance.stream.seen import Seen
from compliance.stream.window_table import WindowTable

MOST_LINES = 100_000
"""So many lines are kept before they are handed on; about a kilobyte each."""
MOST_TEXT = 64 * 2**20
"""The same of malformed lines, in bytes."""


class Part:
    """Reads one part.

    Args:
        number: Which part.
        known: What is known of all.
        tables: Tables of windows to make.
    """

    def __init__(self, number: int, known: Known, tables: Sequence[WindowTable]) -> None:
        self._number = number
        self._tables = tables
        self._columns = Columns()
        self._numbering = Numbering(known.above)
        self._seen = known.before(number)
        self._own = Seen()
        self._spans: runs.Spans = {}
        self._lines = self._malformed = self._copies = self._losses = self._lost = 0
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._doubled: list[pa.RecordBatch] = []
        self._kept_lines = 0
        self._quarantine = bytearray()

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        """All of the part: `value`, `file` and `block` or `line` in."""
        for batch in batches:
            self._add(batch)
            doubled = sum(copies.num_rows for copies in self._doubled)
            if self._kept_lines + doubled >= MOST_LINES or len(self._quarantine) >= MOST_TEXT:
                yield from self._flushed()
        yield from self._flushed()
        yield Piece(self._number, FOUND, msgspec.msgpack.encode(self._found()))

    def _add(self, batch: pa.RecordBatch) -> None:
        lines: list[bytes] = batch["value"].to_pylist()
        place = pa.record_batch([_files(batch), self._numbering.numbers(batch)], names=["file", "line"])
        found, malformed = self._columns.decoded(lines)
        self._lines += len(lines)
        self._malformed += len(malformed)
        for one in malformed:
            self._quarantine += _told(lines[one], place.slice(one, 1))
        rows = {kind: _beside(of_kind, place, places) for kind, places, of_kind in self._columns.batches(found)}
        for kind, kept in self._new(rows).items():
            self._rows.setdefault(kind, []).append(kept)
            self._kept_lines += kept.num_rows
            if kind == "loss":
                self._losses += kept.num_rows
                self._lost += sum(filter(None, kept["lost_lines"].to_pylist()))

    def _new(self, rows: dict[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
        """Without lines whose number has been seen."""
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
        numbers, whose = heads["seq"].to_numpy(), codes_of(heads, BOOT)
        is_new = np.zeros(len(numbers), np.bool_)
        in_order = np.argsort(whose, kind="stable")
        for of_run in np.split(in_order, np.flatnonzero(np.diff(whose[in_order])) + 1):
            run = heads["proxy_id"][of_run[0]].as_py(), heads["boot_id"][of_run[0]].as_py()
            is_new[of_run] = self._seen.added(run, numbers[of_run])
            self._own.added(run, numbers[of_run][is_new[of_run]])
        return is_new

    def _flushed(self) -> Iterator[Piece]:
        of_kind = {kind: pa.Table.from_batches(batches) for kind, batches in self._rows.items()}
        for table in self._tables:
            if table.kind in of_kind:
                windows = windows_of(of_kind[table.kind].select(table.fields), table)
                yield Piece(self._number, WINDOWS + table.name, encoded(windows))
        if of_kind:
            yield from self._files(pa.concat_tables(of_kind.values()))
        if self._doubled:
            yield Piece(self._number, COPIES, parquet(pa.Table.from_batches(self._doubled)))
        if self._quarantine:
            yield Piece(self._number, QUARANTINE, gzip.compress(self._quarantine, 1))
        self._rows, self._doubled, self._kept_lines, self._quarantine = {}, [], 0, bytearray()

    def _files(self, rows: pa.Table) -> Iterator[Piece]:
        for day, of_day in by_day(rows, rows["start"].cast(pa.date32())):
            yield Piece(self._number, ROWS, parquet(of_day), day.isoformat())

    def _found(self) -> Found:
        return Found(
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
    """Where lines are from: of files the names that they have, which Spark writes as in a URI."""
    if "block" not in batch.schema.names:
        return batch["file"]
    encoded = batch["file"].dictionary_encode()
    return pa.array(map(unquote, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _beside(rows: pa.RecordBatch, place: pa.RecordBatch, places: list[int]) -> pa.RecordBatch:
    own = place.take(pa.array(places))
    return pa.RecordBatch.from_arrays([*rows.columns, *own.columns], names=[*rows.schema.names, *own.schema.names])


def _told(line: bytes, place: pa.RecordBatch) -> bytes:
    (where,) = place.to_pylist()
    # A character takes four bytes at most.
    text = line[: 4 * LONGEST_QUARANTINED].decode(errors="replace")[:LONGEST_QUARANTINED]
    return msgspec.json.encode({**where, "text": text, "reason": fault(line)}) + b"\n"
