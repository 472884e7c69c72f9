"""Kept sums and results of settled days, so that only days that have changed are read and judged.

    DAY.sums      the sums of `logs` over a day's lines; they follow from these lines alone
    DAY.judged    the results of `judge.Judging` for a day, and what it leaves to the next one: `DayBefore`

Each file has the key of what it was made from. A key of `judged` has that of the day before in it, as balances go on: a
late file changes the results of its own day and of all days after it, and, by its first minute, of the day before.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from compliance import storage
from compliance.excerpt import DAY_US, MARGIN, Excerpt, begin_of, number_of
from compliance.figures.limits import last_lines
from compliance.figures.sums import Sum, decoded, encoded, summed_by_day
from compliance.judging.judge import Judging
from compliance.judging.quality import RunId, run_of
from compliance.schema import TIME
from compliance.tables import SETTLED_US, DayOfLog, LogTables, digest_of

_FORMAT = 2
"""Raise it whenever sums or rules of the judging change."""
MADE_BY = f"{_FORMAT} {version('pulsar-sluice')}"
"""Part of each key: another version makes days anew."""
Tables = Mapping[str, pa.Table]
_LAST, _AXES = "last_lines", "axes"


class _Kept(msgspec.Struct, array_like=True):
    made_by: str
    key: str
    digest: str
    tables: dict[str, bytes]


class DayBefore(NamedTuple):
    """The balances and the axes of runs that a day leaves to the next one.

    Args:
        key: That of its results.
        last_lines: The last line of each limiter up to its end; None: no day was judged.
        ahead_us: Per run the lead of its wall clock at its first moment: its axis stays, whatever is deleted.
    """

    key: str = ""
    last_lines: pa.Table | None = None
    ahead_us: Mapping[RunId, int] = MappingProxyType({})


class KeptDays(NamedTuple):
    """The folders in which days are kept. Only one process at a time writes to the first one.

    Args:
        folder: Where days are kept, and looked for first.
        job_folder: Where a job has kept days, which are only loaded; empty for none.
    """

    folder: str
    job_folder: str = ""

    def load(self, name: str, key: str, *tables: str) -> Tables | None:
        """Return what is kept under a name; None unless it was made from what the key says, and is whole.

        Args:
            name: The name, as in `2026-11-21.sums`.
            key: The key.
            tables: Those that are wanted; all without any.
        """
        for folder in self._folders:
            kept = _read(f"{folder}/{name}")
            if kept is not None and kept.key == key:
                return {table: decoded(part) for table, part in kept.tables.items() if not tables or table in tables}
        return None

    @property
    def days(self) -> set[str]:
        """The days of which results are kept, whatever they were made from."""
        names = (name.partition(".") for folder in self._folders for name, _ in storage.files(folder))
        return {day for day, _, ending in names if ending == "judged"}

    def keep(self, name: str, key: str, tables: Tables) -> None:
        """Keep tables under a name, in place of what is there."""
        parts = {table: encoded(rows) for table, rows in tables.items()}
        with suppress(OSError):  # a full disk: the next run makes the day again
            storage.write(f"{self.folder}/{name}", msgspec.msgpack.encode(_Kept(MADE_BY, key, _digest(parts), parts)))

    def forget_others(self, days: Collection[str]) -> None:
        """Delete the files of all other days."""
        for name, _ in storage.files(self.folder):
            if name.partition(".")[0] not in days:
                storage.remove(f"{self.folder}/{name}")

    def day_before(self, day: str) -> DayBefore:
        """Return what a day leaves to the next one, by its results, whatever they were made from."""
        # Of a day that the job has deleted only the job has the last results.
        for folder in reversed(self._folders):
            kept = _read(f"{folder}/{day}.judged")
            if kept is not None:
                axes = decoded(kept.tables[_AXES]).to_pylist()
                return DayBefore(
                    kept.key, decoded(kept.tables[_LAST]), {run_of(axis): axis["ahead_us"] for axis in axes}
                )
        return DayBefore()

    @property
    def _folders(self) -> list[str]:
        return [self.folder, self.job_folder] if self.job_folder else [self.folder]


def _read(place: str) -> _Kept | None:
    try:
        kept = msgspec.msgpack.decode(storage.read(place), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return None
    return kept if kept.made_by == MADE_BY and kept.digest == _digest(kept.tables) else None


def _digest(parts: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, part in sorted(parts.items()):
        digest.update(f"{name} {len(part)} ".encode())
        digest.update(part)
    return digest.hexdigest()


def key_of(*parts: Any) -> str:
    """Return the key of what follows from these values."""
    return digest_of([MADE_BY, *parts])


class DaySums(NamedTuple):
    """The sums of each day, and their keys, in the order of the days."""

    keys: Mapping[str, str]
    sums: Mapping[str, Tables]


def sums_by_day(
    tables: LogTables, sums: Mapping[str, Sum], kept: KeptDays | None, needed: Callable[[str], Collection[str]]
) -> DaySums:
    """Sum up the lines of each day, or load what is kept.

    Args:
        tables: What a job has kept.
        sums: The sums by their names.
        kept: The days that are kept; None: none are.
        needed: Called with a day; returns the names of its sums that the caller needs.
    """
    if kept is None:
        return DaySums({}, summed_by_day(tables.rows, sums))
    kept.forget_others({*tables.days, *tables.retired_before.values()})
    gaps = tables.gaps.to_pylist()
    keys = {day: key_of(info.content, sorted(sums), _gaps_in(info, gaps)) for day, info in tables.days.items()}
    day_sums: dict[str, Tables] = {}
    for day, info in tables.days.items():
        if info.is_settled and (loaded := kept.load(f"{day}.sums", keys[day], *needed(day))):
            day_sums[day] = loaded
    new = tables.days.keys() - day_sums.keys()
    for day, of_day in summed_by_day(tables.rows.of_days(new), sums).items() if new else ():
        day_sums[day] = {name: of_day[name] for name in needed(day)}
        if tables.days[day].is_settled:
            kept.keep(f"{day}.sums", keys[day], of_day)
    return DaySums(keys, dict(sorted(day_sums.items())))


def _gaps_in(info: DayOfLog, gaps: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the gaps before lines of a day."""
    day_gaps = []
    for gap in gaps:
        first, last = info.numbers.get(run_of(gap), (0, -1))
        after = gap["after_seq"] + gap["missing"] + 1
        if first <= after <= last:
            day_gaps.append((*run_of(gap), after, gap["missing"]))
    return day_gaps


@dataclass(frozen=True)
class DayJudging:
    """The judging of a whole log, day by day.

    Args:
        judging: All that the judging needs beside the lines.
        tables: What a job has kept.
        sums: As `sums_by_day`.
        kept: The days that are kept.
        shards: The number of parts in which limits are judged.
    """

    judging: Judging
    tables: LogTables
    sums: DaySums
    kept: KeptDays
    shards: int

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """The key of each day's results: of its sums, the day before, and the first minute after it."""
        keys, key = {}, ""
        for day, after in pairwise([*self.tables.days, ""]):
            runs = sorted(self.tables.days[day].numbers)
            key = keys[day] = key_of(
                self._deleted_before[day].key if day in self._deleted_before else key,
                self.sums.keys[day],
                [_clock(self.judging, run) for run in runs if run in self.judging.clocks],
                [_tail_us(self.judging, run, day) for run in runs],
                _edge(self.tables.days[after], self.sums.sums[after], after) if after else None,
            )
        return keys

    @cached_property
    def _deleted_before(self) -> Mapping[str, DayBefore]:
        return {day: self.kept.day_before(retired) for day, retired in self.tables.retired_before.items()}

    @cached_property
    def _before(self) -> Mapping[str, str]:
        """For each day the one before it; empty for the first one, and after days that are deleted."""
        days = pairwise(["", *self.tables.days])
        return {day: "" if day in self._deleted_before else earlier for earlier, day in days}

    def of(self, wanted: Collection[str]) -> dict[str, Tables]:
        """Return the results of some days, each as `Judging.of`; those that are not kept are judged, and kept."""
        day_results = {day: results for day in self.tables.days if day in wanted and (results := self._loaded(day))}
        for changed in self._groups([day for day in self.tables.days if day in wanted and day not in day_results]):
            day_results |= self._judged(changed)
        return {day: _without_rest(day_results[day]) for day in self.tables.days if day in wanted}

    def _loaded(self, day: str, *tables: str) -> Tables | None:
        if not self.tables.days[day].is_settled:
            return None
        return self.kept.load(f"{day}.judged", self.keys[day], *tables)

    def _groups(self, changed: Collection[str]) -> Iterator[list[str]]:
        """Yield the days that are to be judged, those that follow each other together.

        Balances come from the day before: it is judged first, unless it is kept, or deleted.
        """
        before = self._before
        needed: set[str] = set()
        for day in changed:
            needed.add(day)
            while (day := before[day]) and day not in needed and self._loaded(day, _LAST) is None:
                needed.add(day)
        group: list[str] = []
        for day in self.tables.days:
            if group and (day not in needed or not before[day]):
                yield group
                group = []
            if day in needed:
                group.append(day)
        if group:
            yield group

    def _judged(self, group: Sequence[str]) -> dict[str, Tables]:
        """Judge days that follow each other, and keep the results of those that are settled."""
        days = list(self.tables.days)
        first, end = days.index(group[0]), days.index(group[-1]) + 1
        near = self.tables.rows.of_days(days[max(0, first - 1) : end + 1])
        last = self._last_before(group[0])
        excerpt = Excerpt.of_days(group[0], group[-1])
        judged = replace(self.judging, excerpt=excerpt, has_edges=False, last=last).of(near, self.shards)
        axes = pa.Table.from_pylist(
            [
                {"proxy_id": proxy, "boot_id": boot, "ahead_us": clock.ahead_us}
                for (proxy, boot), clock in self.judging.clocks.items()
            ],
            _AXIS,
        )
        day_results: dict[str, Tables] = {}
        for day in group:
            results = {name: rows.filter(pc.equal(rows["day"], number_of(day))) for name, rows in judged.items()}
            last = results[_LAST] if last is None else pa.concat_tables([last, results[_LAST]])
            results[_LAST] = last = last_lines(last)
            day_results[day] = results
            if self.tables.days[day].is_settled:
                self.kept.keep(f"{day}.judged", self.keys[day], results | {_AXES: axes})
        return day_results

    def _last_before(self, day: str) -> pa.Table | None:
        """Return the last lines of limiters before a day."""
        if day in self._deleted_before:
            return self._deleted_before[day].last_lines
        before = self._loaded(self._before[day], _LAST) if self._before[day] else None
        return None if before is None else before[_LAST]


_AXIS = pa.schema([("proxy_id", pa.string()), ("boot_id", pa.string()), ("ahead_us", pa.int64())])


def _without_rest(results: Tables) -> Tables:
    return {name: table for name, table in results.items() if name not in (_LAST, _AXES)}


def _clock(judging: Judging, run: RunId) -> tuple[Any, ...]:
    """Return what places a run's lines: its axis, its fleet, and that fleet's common clock to a tenth of a second."""
    fleets = judging.fleets
    return judging.clocks[run].ahead_us, fleets.fleet(run), fleets.behind_us(run) // 100_000


def _tail_us(judging: Judging, run: RunId, day: str) -> int | None:
    """Return the time up to which all lines of a run are there, if that is not after a day."""
    notes = judging.notes.get(run)
    complete_us = None if notes is None else notes.complete_us
    end_us = (number_of(day) + 1) * DAY_US + SETTLED_US
    return complete_us if complete_us is not None and complete_us < end_us else None


def _edge(info: DayOfLog, sums: Tables, day: str) -> list[Any]:
    """Return what a day's first minute says of lines that began before it."""
    end = begin_of(day) + MARGIN
    early = (
        sums[name].filter(pc.less(sums[name]["start"], pa.scalar(end, TIME))) for name in ("changes", "standstills")
    )
    return [info.edge, *(sorted(map(repr, rows.to_pylist())) for rows in early)]
