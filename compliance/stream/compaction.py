"""Compaction of closed days: a few files of rows in the order in which they are asked for, without copies.

Tasks read the day's Parquet files and write the new ones, in columns (Arrow); the driver says which task reads which. A
task has a bounded number of rows: those of whole files, and, where files hold copies of each other's lines, those with
some range of numbers in all of these files. So all copies of a line meet in one task.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from accesslog.record import Kinds
from compliance import storage
from compliance.excerpt import only
from compliance.line_reader import MALFORMED, ROWS
from compliance.schema import BOOT
from compliance.stream.folder import DayManifest, Ledger, finish, staged
from compliance.stream.ledger import Runs, first_day_of_now, joined, total
from compliance.stream.log_file import JobPlaces

TASK_ROWS = 2**19
"""Rows of one task, and so of one new file; in columns they take less than a kilobyte each."""
TASK_BYTES = 256 * 2**20
"""Bytes of Parquet files that one task reads, unless one file is larger."""
TASK_FILES = 1024
"""Files that one task reads: to open one takes as long as to read thousands of rows."""
_ORDER = ("tenant", "namespace", *BOOT, "seq")
"""The order of the rows of one kind."""
_GROUP_ROWS = 128 * 1024
_SMALL_ROWS = 4096
"""Files of no more rows are read whole: each column by itself takes longer."""
_TEXTS = [column.name for column in ROWS if column.type == pa.string()]
# Texts by their numbers, as Parquet has them: they are neither spelt out nor looked up again.
_NUMBERED = pa.schema(
    [
        pa.field(column.name, pa.dictionary(pa.int32(), pa.string())) if column.name in _TEXTS else column
        for column in ROWS
    ]
)

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def closed_days(ledger: Ledger, now: datetime, least_files: int = 1) -> list[str]:
    """Return the days of which no more lines are to be expected, and that have files which are not compacted.

    Args:
        ledger: What has been read.
        now: By the clock of this machine.
        least_files: The least number of such files.
    """
    open_from = first_day_of_now(total(ledger.totals.values()).by_run(), now)
    return [
        day
        for day in sorted(ledger.totals)
        if day < open_from
        and len(ledger.live(day)) >= least_files
        and (day not in ledger.days or ledger.days[day].is_kept)
    ]


def compact(spark: SparkSession, places: JobPlaces, ledger: Ledger, day: str) -> None:
    """Rewrite one day; a run that ends before this is done leaves the day as it was, or the next run ends it."""
    storage.remove_folder(f"{places.work}/compact/day={day}")
    # A task of an attempt that was given up may write yet: it does not have the names of this one.
    attempt = uuid.uuid4().hex
    tasks = plan(places, ledger, day)
    work = partial(_run_task, out=places.out, day=day, attempt=attempt)
    written = spark.sparkContext.parallelize(list(enumerate(tasks)), max(1, len(tasks))).flatMap(work).collect()
    made: dict[str, list[str]] = {"rows": [], "malformed": [], "copies": []}
    earlier = ledger.days.get(day)
    if earlier:
        made["copies"] += earlier.files.get("copies", [])
    for table, name in written:
        made[table].append(name)
    names = sorted([*(earlier.names if earlier else ()), *ledger.live(day)])
    files = {table: own for table, own in made.items() if own or table == "rows"}
    manifest = DayManifest(names=names, files=files, facts=ledger.totals[day])
    finish(places, day, manifest)
    ledger.cover(day, manifest)


# ---- the plan


class NumberRange(NamedTuple):
    """Lines of one run, by their numbers; both inclusive."""

    proxy_id: str
    boot_id: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """The work of one task.

    Args:
        rows: Parquet files whose rows it takes.
        doubled: Parquet files in which copies of each other's lines may be, and of which it takes `ranges`.
        ranges: Their lines that it takes.
        malformed: Parquet files whose malformed lines it takes.
    """

    rows: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    ranges: list[NumberRange] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)


class _Unit(NamedTuple):
    """A part of a day that no two tasks share: a file, or a range of numbers in files that have copies."""

    rows: int
    size: int
    file: str = ""
    numbers: NumberRange | None = None

    @property
    def amounts(self) -> tuple[int, int, int]:
        """Rows, bytes and files."""
        return self.rows, self.size, bool(self.file)


def plan(places: JobPlaces, ledger: Ledger, day: str) -> list[CompactionTask]:
    """Return the tasks that together take each line of a day that the ledger names once.

    Args:
        places: The job's.
        ledger: What has been read.
        day: The day.
    """
    live, earlier = ledger.live(day), ledger.days.get(day)
    runs_of = {name: facts.by_run() for name, facts in live.items() if facts.rows}
    compacted = earlier.files["rows"] if earlier else []
    if earlier:
        # Which of its files has which lines is not known; its copies are no longer there.
        kept = {run: span.without_copies for run, span in earlier.facts.by_run().items()}
        runs_of |= dict.fromkeys(compacted, kept)
    doubled = sorted(ledger.doubled([day]) & runs_of.keys())
    sizes = dict(storage.files(places.of_day("rows", day)))
    units = []
    for name, runs in runs_of.items():
        if name not in doubled:
            rows = sum(run.read for run in runs.values()) // (len(compacted) if name in compacted else 1)
            units.append(_Unit(rows, sizes.get(f"{name}.parquet", 0), file=name))
    # Each compacted file stands for all of them.
    once = [name for name in doubled if name not in compacted[1:]]
    for run, span in sorted(joined(runs_of[name] for name in once).items()):
        first, past = span.ranges[0][0], span.ranges[-1][1] + 1
        pieces = max(1, min(-(-span.read // TASK_ROWS), past - first))
        cuts = [first + (past - first) * piece // pieces for piece in range(pieces + 1)]
        for at, end in pairwise(cuts):
            units.append(_Unit(span.read // pieces, 0, numbers=NumberRange(*run, at, end - 1)))
    tasks = []
    for own in storage.in_parts(units, attrgetter("amounts"), (TASK_ROWS, TASK_BYTES, TASK_FILES)):
        numbers = [unit.numbers for unit in own if unit.numbers]
        files = [name for name in doubled if any(_may_have(runs_of[name], each) for each in numbers)]
        tasks.append(CompactionTask([unit.file for unit in own if unit.file], files, numbers))
    with_malformed = [name for name, facts in live.items() if facts.malformed]
    if earlier:
        with_malformed += earlier.files.get("malformed", [])
    return [*tasks, CompactionTask(malformed=with_malformed)] if with_malformed else tasks


def _may_have(runs: Runs, numbers: NumberRange) -> bool:
    span = runs.get((numbers.proxy_id, numbers.boot_id))
    return span is not None and any(first <= numbers.last and numbers.first <= last for first, last in span.ranges)


# ---- a task


class _Lines(NamedTuple):
    """Lines of one row group of a file, or of several small files.

    Args:
        read: Reads some of the columns.
        there: All columns.
        chosen: Which of the rows.
    """

    read: Callable[[list[str]], pa.Table]
    there: Collection[str]
    chosen: Bools

    def columns(self, names: Iterable[str]) -> pa.Table:
        """Read columns, as far as they are there."""
        table = self.read([name for name in names if name in self.there])
        return only(table, pa.array(self.chosen))

    def of(self, chosen: Bools) -> "_Lines":
        """Return those of the chosen lines that are chosen again."""
        both = self.chosen.copy()
        both[self.chosen] = chosen
        return self._replace(chosen=both)


def _run_task(numbered: tuple[int, CompactionTask], *, out: str, day: str, attempt: str) -> list[tuple[str, str]]:
    """Do a task; return the table and the name of each file that it has written."""
    written = _write(numbered, out=out, day=day, attempt=attempt)
    # Spark keeps this process for later compactions; the processes of the judging need the memory.
    pa.default_memory_pool().release_unused()
    return written


def _write(numbered: tuple[int, CompactionTask], *, out: str, day: str, attempt: str) -> list[tuple[str, str]]:
    number, task = numbered
    places, name = JobPlaces(out), f"part-{number:05}-{attempt}"
    lines = list(_groups(places, day, "rows", task.rows))
    once, others = _without_copies(list(_of_ranges(list(_groups(places, day, "rows", task.doubled)), task.ranges)))
    malformed = _groups(places, day, "malformed", task.malformed)
    made = {
        "rows": _in_order([*lines, *once]),
        "copies": _in_order(others),
        "malformed": (group.columns(MALFORMED.names).cast(MALFORMED) for group in malformed),
    }
    written = []
    for table, parts in made.items():
        buffer = pa.BufferOutputStream()
        writer = None
        for part in parts:
            if writer is None:
                writer = pq.ParquetWriter(buffer, part.schema, compression="zstd", store_schema=False)
            writer.write_table(part)
        if writer is not None:
            writer.close()
            storage.write(f"{staged(places, table, day)}/{name}.parquet", memoryview(buffer.getvalue()))
            written.append((table, name))
    return written


def _groups(places: JobPlaces, day: str, table: str, names: Iterable[str]) -> Iterator[_Lines]:
    small: list[pa.Table] = []
    for name in names:
        source = storage.at_random(places.part(table, day, name))
        metadata = pq.read_metadata(source)
        there = metadata.schema.to_arrow_schema().names
        texts = [column for column in there if column in _TEXTS]
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=texts, coerce_int96_timestamp_unit="us")
        if metadata.num_rows <= _SMALL_ROWS:
            small.append(file.read(use_threads=False))
            file.close()
            continue
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            yield _Lines(partial(file.read_row_group, group, use_threads=False), there, np.ones(rows, bool))
    if small:
        together = pa.concat_tables(small, promote_options="permissive").unify_dictionaries().combine_chunks()
        yield _Lines(together.select, together.column_names, np.ones(len(together), bool))


def _of_ranges(groups: Iterable[_Lines], ranges: Sequence[NumberRange]) -> Iterator[_Lines]:
    for group in groups:
        proxy, boot, seq = group.columns((*BOOT, "seq")).columns
        numbers = seq.to_numpy()
        chosen = np.zeros(len(numbers), bool)
        for own in ranges:
            is_of_run = pc.and_(pc.equal(proxy, own.proxy_id), pc.equal(boot, own.boot_id)).to_numpy()
            chosen |= is_of_run & (numbers >= own.first) & (numbers <= own.last)
        if chosen.any():
            yield group.of(chosen)


def _without_copies(groups: Sequence[_Lines]) -> tuple[list[_Lines], list[_Lines]]:
    """Return each line once, and all further lines with the number of one of them."""
    if not groups:
        return [], []
    keys = pa.concat_tables([group.columns((*BOOT, "seq", "file", "line")) for group in groups])
    columns = [_ranks(keys[name]) for name in keys.column_names]
    order = np.lexsort(columns[::-1])
    differs = [np.diff(column[order], prepend=column[order[:1]] - 1) != 0 for column in columns[:3]]
    is_first = np.empty(len(order), bool)
    is_first[order] = np.logical_or.reduce(differs)
    ends = np.cumsum([group.chosen.sum() for group in groups])[:-1]
    by_group = list(zip(groups, np.split(is_first, ends), strict=True))
    return [group.of(firsts) for group, firsts in by_group], [group.of(~firsts) for group, firsts in by_group]


def _in_order(groups: Sequence[_Lines]) -> Iterator[pa.Table]:
    """Yield rows in their order, kind by kind: so columns that a kind lacks cost nothing."""
    of_kinds: defaultdict[str, list[_Lines]] = defaultdict(list)
    for group in groups:
        kinds = group.columns(["kind"])["kind"].combine_chunks()
        for number, kind in enumerate(kinds.dictionary.to_pylist()):
            is_of_kind = pc.equal(kinds.indices, number).to_numpy(zero_copy_only=False)
            if is_of_kind.any():
                of_kinds[kind].append(group.of(is_of_kind))
    for kind, own in sorted(of_kinds.items()):
        names = [name for name in ROWS.names if kind not in Kinds.BY_NAME or name in _columns_of(kind)]
        read = [group.columns(names) for group in own]
        rows = pa.concat_tables(read, promote_options="permissive").unify_dictionaries().combine_chunks()
        keys = [_ranks(rows[name]) for name in _ORDER if name in rows.column_names]
        order = np.lexsort(keys[::-1])
        for at in range(0, len(order), _GROUP_ROWS):
            yield _with_all_columns(rows.take(pa.array(order[at : at + _GROUP_ROWS])))


@cache
def _columns_of(kind: str) -> frozenset[str]:
    own = (column.encode_name for column in msgspec.structs.fields(Kinds.BY_NAME[kind]))
    return frozenset(("kind", *own, "file", "line"))


def _ranks(column: pa.ChunkedArray) -> Ints:
    """Return numbers that have the order of the values; nulls come first."""
    if not pa.types.is_dictionary(column.type):
        return np.asarray(column.fill_null(-1).to_numpy(), np.int64)
    texts = column.unify_dictionaries().combine_chunks()
    ranks = np.append(pc.rank(texts.dictionary, tiebreaker="dense").to_numpy().astype(np.int64), 0)
    return np.asarray(ranks[texts.indices.fill_null(-1).to_numpy(zero_copy_only=False)], np.int64)


def _with_all_columns(rows: pa.Table) -> pa.Table:
    none = {kind: pa.nulls(rows.num_rows, kind) for kind in set(_NUMBERED.types)}
    there = set(rows.column_names)
    columns = [
        rows[column.name].cast(column.type) if column.name in there else none[column.type] for column in _NUMBERED
    ]
    return pa.Table.from_arrays(columns, schema=_NUMBERED)
