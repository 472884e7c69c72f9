"""A task of the job: one closed file of the log becomes Parquet files of the same name, one for each day of its lines.

    rows/day=D/NAME.parquet          lines that are records
    malformed/day=D/NAME.parquet     all others, with the first day of the file
    _work/minutes/day=D/NAME.parquet usage by minute; Spark adds that of all files up
    _work/files/NAME.json            what is in them; written last, so a file that has it has been read

Reading a file again writes the same. So it does not matter when a task is ended, or how often it is done.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from accesslog.file_names import SUFFIXES, Compression, compression_of
from compliance import storage
from compliance.line_reader import MALFORMED, ROWS, LineBlock, LineReader
from compliance.stream.ledger import DayFacts, FileFacts, facts_of
from compliance.stream.minutes import MINUTES, by_minute

BLOCK_BYTES = 4 * 2**20
"""Bytes of lines that are read at once."""
ROWS_AT_ONCE = 128 * 1024
"""Rows that are kept before they are written, about a kilobyte each."""
_FEW_ROWS = 4096
NO_DAY = "1970-01-01"
"""The day of the malformed lines of a file without a record."""
_UNSAFE = re.compile(rb"[^A-Za-z0-9._=-]")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """The places of a job's folder.

    Args:
        out: The folder.
    """

    out: str

    @property
    def work(self) -> str:
        """State of the job; readers of tables pass over names with an underscore."""
        return f"{self.out}/_work"

    @property
    def judged(self) -> str:
        """Sums and verdicts of closed days, as reports load them: `kept_days`."""
        return f"{self.work}/judged"

    @property
    def files(self) -> str:
        """The folder of the files' facts."""
        return f"{self.work}/files"

    @property
    def orders(self) -> str:
        """The folder of orders to read files."""
        return f"{self.work}/orders"

    def facts(self, name: str) -> str:
        """The facts of a file."""
        return f"{self.files}/{name}.json"

    def table(self, table: str) -> str:
        """The folder of a table."""
        return f"{self.out}/{table}"

    def of_day(self, table: str, day: str) -> str:
        """The folder of one day of a table."""
        return f"{self.table(table)}/day={day}"

    def part(self, table: str, day: str, name: str) -> str:
        """One Parquet file."""
        return f"{self.of_day(table, day)}/{name}.parquet"


MINUTES_OF_FILES = "_work/minutes"
"""Usage of each file; not of compacted days."""
TABLES = ("rows", "malformed", "copies", MINUTES_OF_FILES)
"""Tables that have a Parquet file for each of the log's. Compaction alone puts copies aside."""


def name_of(file: str) -> str:
    """Return the name of a log file's Parquet files: its own, in signs that Spark takes for letters."""
    stem = file.removesuffix(SUFFIXES[compression_of(file)])
    safe = _UNSAFE.sub(lambda match: b"~%02x" % match[0][0], stem.encode(errors="surrogateescape")).decode()
    if len(safe) <= _LONGEST_NAME:
        return safe
    return f"{safe[: _LONGEST_NAME - 33]}~{hashlib.sha256(safe.encode()).hexdigest()[:32]}"


def read_log_file(place: str, out: str) -> FileFacts:
    """Read one closed file; return its facts.

    Args:
        place: The file.
        out: The job's folder.
    """
    file = place.rpartition("/")[2]
    writer = PartWriter(file, JobPlaces(out))
    for block in log_blocks(place, file, writer.reader):
        writer.add(block)
    return writer.close(name_of(file))


def log_blocks(place: str, file: str, reader: LineReader) -> Iterator[LineBlock]:
    """Yield the lines of a closed file; a compressed file that is cut off or damaged ends there."""
    number, parts = 1, _Parts(place, compression_of(file))
    for data in _whole_lines(parts):
        block = reader.read(data, number)
        number += block.rows.num_rows + block.malformed.num_rows
        yield block
    if parts.damage:
        yield reader.unreadable(number, f"the file is cut off or damaged: {parts.damage}")


class _Parts:
    """The content of a file in parts; `damage` says, at the end, why a compressed file has no more."""

    def __init__(self, place: str, compression: Compression) -> None:
        self.damage = ""
        self._place = place
        self._compression = compression

    def __iter__(self) -> Iterator[bytes]:
        if self._compression == "none":
            with storage.opened(self._place) as stream:
                yield from iter(partial(stream.read, BLOCK_BYTES), b"")
            return
        done, gathered = 0, bytearray()
        # A read that comes to the damage gives nothing: smaller reads follow, at last of a byte, for what precedes it.
        for size in (BLOCK_BYTES, 2**16, 2**11, 2**6, 1):
            with storage.opened(self._place) as stream, pa.CompressedInputStream(stream, self._compression) as lines:
                left = done
                while left:
                    left -= len(lines.read(min(left, BLOCK_BYTES)))
                try:
                    while part := lines.read(size):
                        done += len(part)
                        gathered += part
                        if len(gathered) >= BLOCK_BYTES:
                            yield bytes(gathered)
                            gathered.clear()
                except OSError as error:
                    self.damage = str(error)
                else:
                    break
        if gathered:
            yield bytes(gathered)


def _whole_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Cut at line ends; a last line without one is given one."""
    rest: list[bytes] = []
    for part in parts:
        end = part.rfind(b"\n") + 1
        if not end:
            rest.append(part)
            continue
        yield b"".join([*rest, part[:end]])
        rest = [part[end:]] if end < len(part) else []
    if last := b"".join(rest):
        yield last + b"\n"


class PartWriter:
    """The Parquet files of one log file, or of one range of a topic.

    Args:
        file: The name of the file in rows.
        places: Where they go.

    Attributes:
        reader: The reader of the lines.
    """

    def __init__(self, file: str, places: JobPlaces) -> None:
        self.reader = LineReader(file)
        self._file = file
        self._places = places
        self._rows: list[pa.Table] = []
        self._count = 0
        self._days: defaultdict[str, DayFacts] = defaultdict(DayFacts)
        self._parts: dict[tuple[str, str], tuple[pa.BufferOutputStream, pq.ParquetWriter]] = {}

    def add(self, block: LineBlock) -> None:
        """Take lines."""
        self._rows.append(block.rows)
        self._count += block.rows.num_rows
        if block.malformed:
            # Their day is known when all is read.
            self._part("malformed", "", MALFORMED).write_table(block.malformed)
            self._days[""] += DayFacts(malformed=block.malformed.num_rows)
        if self._count >= ROWS_AT_ONCE:
            self._flush()

    def close(self, name: str) -> FileFacts:
        """Write the files under this name, each as a whole, and the facts last."""
        self._flush()
        unplaced = self._days.pop("", DayFacts()) + DayFacts(newer=dict(self.reader.newer))
        first = min(self._days, default=NO_DAY)
        if unplaced != DayFacts():
            self._days[first] += unplaced
        for (table, day), (buffer, writer) in self._parts.items():
            writer.close()
            storage.write(self._places.part(table, day or first, name), memoryview(buffer.getvalue()))
        facts = FileFacts(name=name, file=self._file, days=dict(self._days))
        storage.write(self._places.facts(name), msgspec.json.encode(facts))
        return facts

    def _flush(self) -> None:
        if not self._count:
            return
        rows = pa.concat_tables(self._rows)
        by_day = facts_of(rows)
        days = rows["start"].cast(pa.date32()).cast(pa.string()) if len(by_day) > 1 else None
        for day, facts in by_day.items():
            self._days[day] += facts
            of_day = rows if days is None else rows.filter(pc.equal(days, day))
            self._part("rows", day, ROWS).write_table(of_day)
            self._part(MINUTES_OF_FILES, day, MINUTES).write_table(by_minute(of_day))
        self._rows, self._count = [], 0

    def _part(self, table: str, day: str, schema: pa.Schema) -> pq.ParquetWriter:
        if (table, day) not in self._parts:
            buffer = pa.BufferOutputStream()
            # Of few rows each column has a few bytes: to pack them takes longer than all else, and makes them no fewer.
            compression = "zstd" if self._count > _FEW_ROWS else "none"
            self._parts[table, day] = buffer, pq.ParquetWriter(buffer, schema, compression=compression)
        return self._parts[table, day][1]
