"""The job's folder as a whole: which files have been read, what is in each day, and which Parquet files are the tables.

    _work/files/NAME.json    facts of a file that has been read, written by its task after its rows
    _work/days/D.json        a compacted day: the names that went into it, its Parquet files, and its facts; or one that
                             is no longer kept: its facts
    _work/compact/D.json     a compaction that is whole in `_work/compact/day=D`, and has yet to take the day's place

A file whose rows are gone, or whose facts cannot be read, has not been read; a day whose Parquet files are gone has not
been compacted.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import TypeVar

import msgspec

from compliance import storage
from compliance.stream.ledger import DayFacts, FileFacts, total, with_copies
from compliance.stream.log_file import TABLES, JobPlaces
from compliance.stream.options import Job, JobError, Sink

VERSION = 2
"""The version of the layout. Raise it whenever an earlier version of the job could not go on from it."""
_ENDING = ".parquet"
_READERS = 16
T = TypeVar("T")


class DayManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A day that was compacted, or is no longer kept.

    Args:
        names: The log's files that went into it.
        files: By table, the Parquet files that hold them.
        facts: Of all their lines of that day, copies included.
        is_kept: Whether its rows are still there.
    """

    names: list[str]
    files: dict[str, list[str]]
    facts: DayFacts
    is_kept: bool = True


# Threads read accounts. If several make the first decoder of a type, msgspec ends the process (segmentation fault).
_FACTS = msgspec.json.Decoder(FileFacts)
_MANIFESTS = msgspec.json.Decoder(DayManifest)


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 0
    source: str = ""
    sink: str = ""
    catalog: str = ""


class Ledger:
    """The account of the files that were read.

    Args:
        files: Facts of files by their names.
        days: Days that were compacted or are no longer kept.
        extra: Parquet files that belong to no table: those of a file that is being read, or that were left over.
    """

    def __init__(
        self,
        files: Mapping[str, FileFacts],
        days: Mapping[str, DayManifest],
        extra: Iterable[tuple[str, str, str]] = (),
    ) -> None:
        self.files = dict(files)
        self.days = dict(days)
        self.extra = list(extra)
        self._covered = {day: frozenset(manifest.names) for day, manifest in days.items()}
        self._totals = {day: manifest.facts for day, manifest in days.items()}
        for day, live in self._by_day(files.values()).items():
            self._add(day, live)

    def add(self, files: Iterable[FileFacts]) -> None:
        """Take files that were read."""
        new = [log_file for log_file in files if log_file.name not in self.files]
        self.files |= {log_file.name: log_file for log_file in new}
        for day, live in self._by_day(new).items():
            self._add(day, live)

    def cover(self, day: str, manifest: DayManifest) -> None:
        """Take a day that was compacted, or is no longer kept."""
        self.days[day], self._covered[day] = manifest, frozenset(manifest.names)
        self._totals[day] = manifest.facts

    def forget(self, name: str) -> None:
        """Forget a file all of whose days are covered."""
        del self.files[name]

    @property
    def totals(self) -> Mapping[str, DayFacts]:
        """The facts of each day."""
        return self._totals

    def live(self, day: str) -> dict[str, DayFacts]:
        """Return the facts of files that have lines of a day and are not in its compaction."""
        covered = self._covered.get(day, frozenset())
        return {
            name: log_file.days[day]
            for name, log_file in self.files.items()
            if day in log_file.days and name not in covered
        }

    def is_covered(self, log_file: FileFacts) -> bool:
        """Return whether all lines of a file are in days that are compacted or no longer kept."""
        return all(log_file.name in self._covered.get(day, ()) for day in log_file.days)

    def doubled(self, days: Iterable[str] | None = None) -> set[str]:
        """Return the names of Parquet files of rows, without their ending, that hold copies of lines of each other.

        Args:
            days: Look only for files of these days; None: all.
        """
        wanted = None if days is None else set(days)
        parts: dict[str, list[DayFacts]] = {}
        for name, log_file in self.files.items():
            own = [facts for day, facts in log_file.days.items() if name not in self._covered.get(day, ())]
            if own and (wanted is None or wanted & log_file.days.keys()):
                parts[name] = own
        for day, manifest in self.days.items():
            if manifest.is_kept and (wanted is None or day in wanted):
                # Its own copies are no longer there.
                runs = [(*run, span.without_copies) for *run, span in manifest.facts.runs]
                parts[f"/{day}"] = [msgspec.structs.replace(manifest.facts, runs=runs)]
        names = set()
        for name in with_copies(parts):
            names |= set(self.days[name[1:]].files["rows"]) if name.startswith("/") else {name}
        return names

    def _by_day(self, files: Iterable[FileFacts]) -> dict[str, list[DayFacts]]:
        by_day: dict[str, list[DayFacts]] = {}
        for log_file in files:
            for day, facts in log_file.days.items():
                if log_file.name not in self._covered.get(day, ()):
                    by_day.setdefault(day, []).append(facts)
        return by_day

    def _add(self, day: str, live: list[DayFacts]) -> None:
        self._totals[day] = total([self._totals.get(day, DayFacts()), *live])


def load(places: JobPlaces) -> Ledger:
    """Read what has been read.

    Raises:
        JobError: If the account of a day cannot be read.
    """
    days = {
        name.removesuffix(".json"): _manifest(f"{places.work}/days/{name}")
        for name, _ in storage.files(f"{places.work}/days")
        if name.endswith(".json")
    }
    there = {
        (table, day): {
            name.removesuffix(_ENDING) for name, _ in storage.files(places.of_day(table, day)) if name.endswith(_ENDING)
        }
        for table in TABLES
        for day in days_in(places, table)
    }
    days = {
        day: manifest
        for day, manifest in days.items()
        if all(set(manifest.files.get(table, ())) <= there.get((table, day), set()) for table in TABLES)
    }
    names = [name for name, _ in storage.files(places.files) if name.endswith(".json") and name[0] != "."]
    files = {}
    for log_file in _each(lambda name: _facts(f"{places.files}/{name}"), names):
        if log_file and not _lacks(log_file, there, days):
            files[log_file.name] = log_file
    known = {
        (table, day, name)
        for log_file in files.values()
        for day in log_file.days
        if log_file.name not in (days[day].names if day in days else ())
        for table, name in ((table, log_file.name) for table in TABLES)
    } | {
        (table, day, name)
        for day, manifest in days.items()
        for table in TABLES
        for name in manifest.files.get(table, ())
    }
    extra = [(*key, name) for key, own in there.items() for name in own if (*key, name) not in known]
    return Ledger(files, days, extra)


def days_in(places: JobPlaces, table: str) -> list[str]:
    """List the days that have a folder in a table, ascending."""
    folders = storage.folders(places.table(table))
    return [folder.removeprefix("day=") for folder in folders if folder.startswith("day=")]


def _lacks(log_file: FileFacts, there: Mapping[tuple[str, str], set[str]], days: Mapping[str, DayManifest]) -> bool:
    """Return whether rows of a file are gone."""
    for day, facts in log_file.days.items():
        if day in days and log_file.name in days[day].names:
            continue
        for table, lines in (("rows", facts.rows), ("malformed", facts.malformed)):
            if lines and log_file.name not in there.get((table, day), ()):
                return True
    return False


def _facts(place: str) -> FileFacts | None:
    try:
        return _FACTS.decode(storage.read(place))
    except (msgspec.DecodeError, FileNotFoundError):
        return None


def _manifest(place: str) -> DayManifest:
    try:
        return _MANIFESTS.decode(storage.read(place))
    except msgspec.DecodeError as error:
        raise JobError(f"{place}: cannot be read: delete the folder of the job, and run it again") from error


def _each(work: Callable[[str], T], names: list[str]) -> list[T]:
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(work, names))


# ---- a job begins


def claim(job: Job) -> None:
    """Mark the folder as this job's.

    Raises:
        JobError: If it is another source's, sink's or version's.
    """
    ours = _Claim(
        version=VERSION,
        source=f"{job.source.kind} {job.source.folder}".strip(),
        sink=job.sink.kind,
        catalog=job.sink.catalog,
    )
    theirs = _claim_of(job.places)
    if theirs is None:
        storage.write(_mark(job.places), msgspec.json.encode(ours))
    elif theirs != ours:
        raise JobError(f"--out {job.out}: holds {_words(theirs)}, not {_words(ours)}; give each its own folder")


def sink_of(out: str) -> Sink:
    """Return the sink of the job that `out` belongs to.

    Raises:
        JobError: If it is no job's.
    """
    theirs = _claim_of(JobPlaces(out))
    if theirs is None:
        raise JobError(f"{out}: no tables of `sluice compliance run` in it; give that command's --out")
    return Sink(theirs.sink, theirs.catalog)


def _words(claimed: _Claim) -> str:
    return f"{claimed.source} into {claimed.sink} {claimed.catalog}".rstrip()


def _mark(places: JobPlaces) -> str:
    return f"{places.work}/job.json"


def _claim_of(places: JobPlaces) -> _Claim | None:
    if not storage.exists(_mark(places)):
        if storage.exists(f"{places.work}/source") or storage.folders(f"{places.work}/state"):
            raise _another_version(places)
        return None
    try:
        theirs = msgspec.json.decode(storage.read(_mark(places)), type=_Claim)
    except msgspec.DecodeError:
        theirs = _Claim()
    if theirs.version != VERSION:
        raise _another_version(places)
    return theirs


def _another_version(places: JobPlaces) -> JobError:
    return JobError(
        f"--out {places.out}: holds tables of another version of the job, or its {_mark(places)} is damaged: "
        "delete this folder (or give another one) and run it again: the log is read from its beginning"
    )


def recover(places: JobPlaces) -> Ledger:
    """Finish what an earlier run left undone; return what has been read. Only for the one job that writes the folder.

    Raises:
        JobError: If the account of a day cannot be read.
    """
    compact = f"{places.work}/compact"
    for name, _ in storage.files(compact):
        if name.endswith(".json") and name[0] != ".":
            take_place(places, name.removesuffix(".json"))
    storage.remove_folder(compact)
    ledger = load(places)
    for name, _ in storage.files(places.files):
        if name.removesuffix(".json") not in ledger.files:
            storage.remove(f"{places.files}/{name}")
    for name, _ in storage.files(f"{places.work}/days"):
        if name.removesuffix(".json") not in ledger.days:
            storage.remove(f"{places.work}/days/{name}")
    for table, day, name in ledger.extra:
        storage.remove(places.part(table, day, name))
    ledger.extra.clear()
    return ledger


# ---- days


def staged(places: JobPlaces, table: str, day: str) -> str:
    """Return the folder in which a compaction is made."""
    return f"{places.work}/compact/day={day}/{table}"


def finish(places: JobPlaces, day: str, manifest: DayManifest) -> None:
    """Have a compaction take the day's place: from here on it is done, whatever ends the run."""
    storage.write(f"{places.work}/compact/{day}.json", msgspec.json.encode(manifest))
    take_place(places, day)


def take_place(places: JobPlaces, day: str) -> None:
    """Put the files of a whole compaction in the place of those that went into it; may be done again."""
    plan = f"{places.work}/compact/{day}.json"
    manifest = _manifest(plan)
    for table in TABLES:
        keep = {f"{name}{_ENDING}" for name in manifest.files.get(table, ())}
        for name, _ in storage.files(places.of_day(table, day)):
            if name not in keep:
                storage.remove(f"{places.of_day(table, day)}/{name}")
        stage = staged(places, table, day)
        for name, _ in storage.files(stage):
            if name in keep:
                storage.move(f"{stage}/{name}", f"{places.of_day(table, day)}/{name}")
    storage.move(plan, f"{places.work}/days/{day}.json")
    storage.remove_folder(f"{places.work}/compact/day={day}")


def retire(places: JobPlaces, ledger: Ledger, days: int, unjudged: Collection[str] = ()) -> None:
    """Delete the rows of days that lie further before the latest day than `days`; their facts stay.

    Args:
        places: The job's.
        ledger: What has been read.
        days: The number of days that are kept.
        unjudged: Days that are kept all the same: the judging still needs them.
    """
    kept = [day for day, manifest in ledger.totals.items() if manifest.rows]
    if not kept:
        return
    least = (date.fromisoformat(max(kept)).toordinal() - days) + 1
    for day in sorted(ledger.totals):
        if date.fromisoformat(day).toordinal() >= least or day in unjudged:
            continue
        live = ledger.live(day)
        manifest = ledger.days.get(day)
        if manifest is not None and not manifest.is_kept and not live:
            continue
        names = [*(manifest.names if manifest else ()), *live]
        gone = DayManifest(names=names, files={}, facts=ledger.totals[day], is_kept=False)
        storage.write(f"{places.work}/days/{day}.json", msgspec.json.encode(gone))
        ledger.cover(day, gone)
        for table in (*TABLES, "usage_minute", "usage_hour", "usage_day"):
            storage.remove_folder(places.of_day(table, day))


def forget_files(places: JobPlaces, ledger: Ledger, present: set[str]) -> None:
    """Forget files that the log no longer has and all of whose lines are in compacted days.

    Args:
        places: The job's.
        ledger: What has been read.
        present: Names of the files that the log has.
    """
    for name, log_file in list(ledger.files.items()):
        if name not in present and log_file.days and ledger.is_covered(log_file):
            storage.remove(places.facts(name))
            ledger.forget(name)


def kept_facts(ledger: Ledger) -> tuple[DayFacts, DayFacts]:
    """Return the facts of all days, and of those whose rows are kept."""
    is_kept = {day: day not in ledger.days or ledger.days[day].is_kept for day in ledger.totals}
    return (
        total(ledger.totals.values()),
        total(facts for day, facts in ledger.totals.items() if is_kept[day]),
    )
