"""Sums and verdicts of closed days, kept beside a report: the next one reads and judges only days that have changed.

    DAY.sums      the sums of `collect` over a day's lines; they follow from these lines alone
    DAY.judged    the results of `judge.Judging` for a day, and the last line of each limiter, whose balances go on

Each file has the key of what it was made from. A key of `judged` has that of the day before in it, as balances go on: a
late file changes its own day, and the days after it.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from itertools import groupby, pairwise
from pathlib import Path
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
from compliance.tables import SETTLED_US, DayOfLog, LogTables

_FORMAT = 1
"""Raise it whenever sums or rules of the judging change."""
Tables = Mapping[str, pa.Table]


class _Kept(msgspec.Struct, array_like=True):
    key: str
    digest: str
    tables: dict[str, bytes]


class KeptDays(NamedTuple):
    """The folder in which days are kept; a report that writes there is alone."""

    folder: Path

    def load(self, name: str, key: str) -> Tables | None:
        """Return what is kept under a name; None unless it was made from what the key says, and is whole."""
        place = str(self.folder / name)
        try:
            kept = msgspec.msgpack.decode(storage.read(place), type=_Kept)
        except (OSError, msgspec.DecodeError):
            return None
        if kept.key != key or kept.digest != _digest(kept.tables):
            return None
        return {table: decoded(part) for table, part in kept.tables.items()}

    def keep(self, name: str, key: str, tables: Tables) -> None:
        """Keep tables under a name, in place of what is there."""
        parts = {table: encoded(rows) for table, rows in tables.items()}
        with suppress(OSError):  # a disk without room: the next report makes the day again
            storage.write(str(self.folder / name), msgspec.msgpack.encode(_Kept(key, _digest(parts), parts)))

    def forget_others(self, days: Collection[str]) -> None:
        """Delete the days that the log no longer has."""
        for name, _ in storage.files(str(self.folder)):
            if name.partition(".")[0] not in days:
                storage.remove(str(self.folder / name))


def _digest(parts: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, part in sorted(parts.items()):
        digest.update(f"{name} {len(part)} ".encode())
        digest.update(part)
    return digest.hexdigest()


def key_of(*parts: Any) -> str:
    """Return the key of what follows from these values."""
    made = msgspec.json.encode([_FORMAT, version("pulsar-sluice"), *parts], order="sorted")
    return hashlib.sha256(made).hexdigest()


class DaySums(NamedTuple):
    """The sums of each day, and their keys, in the order of the days."""

    keys: Mapping[str, str]
    sums: Mapping[str, Tables]


def sums_by_day(tables: LogTables, wanted: Mapping[str, Sum], kept: KeptDays | None) -> DaySums:
    """Sum up the lines of each day, or load what is kept.

    Args:
        tables: What a job has kept.
        wanted: The sums by their names.
        kept: The days that are kept; None: none are.
    """
    if kept is None:
        return DaySums({}, summed_by_day(tables.rows, wanted))
    kept.forget_others(tables.days)
    gaps = tables.gaps.to_pylist()
    keys = {day: key_of(of_log.content, sorted(wanted), _gaps_in(of_log, gaps)) for day, of_log in tables.days.items()}
    found: dict[str, Tables] = {}
    for day, of_log in tables.days.items():
        if of_log.is_closed and (loaded := kept.load(f"{day}.sums", keys[day])):
            found[day] = loaded
    new = tables.days.keys() - found.keys()
    for day, sums in summed_by_day(tables.rows.of_days(new), wanted).items() if new else ():
        found[day] = sums
        if tables.days[day].is_closed:
            kept.keep(f"{day}.sums", keys[day], sums)
    return DaySums(keys, dict(sorted(found.items())))


def _gaps_in(day: DayOfLog, gaps: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the gaps before lines of a day."""
    found = []
    for gap in gaps:
        first, last = day.numbers.get(run_of(gap), (0, -1))
        after = gap["after_seq"] + gap["missing"] + 1
        if first <= after <= last:
            found.append((*run_of(gap), after, gap["missing"]))
    return found


def judged_by_day(
    judging: Judging, tables: LogTables, days: DaySums, kept: KeptDays | None, shards: int
) -> dict[str, pa.Table]:
    """Judge the days that have changed, and load the results of the others; returned as by `Judging.of`.

    Args:
        judging: All that the judging needs, of the whole log.
        tables: What a job has kept.
        days: As `sums_by_day`.
        kept: The days that are kept; None: none are.
        shards: The number of parts in which limits are judged.
    """
    if kept is None or not tables.days:
        return judging.of(tables.rows, shards)
    keys = dict(_chained(judging, tables, days))
    loaded = {
        day: found
        for day, of_log in tables.days.items()
        if of_log.is_closed and (found := kept.load(f"{day}.judged", keys[day]))
    }
    results, days_there = list(loaded.values()), list(tables.days)
    for group in _groups(days_there, loaded):
        first = days_there.index(group[0])
        last = loaded[days_there[first - 1]]["last_lines"] if first else None
        near = tables.rows.of_days(days_there[max(0, first - 1) : first + len(group) + 1])
        part = replace(judging, excerpt=Excerpt.of_days(group[0], group[-1]), has_edges=False, last=last)
        judged = part.of(near, shards)
        for day in group:
            of_day = {name: rows.filter(pc.equal(rows["day"], number_of(day))) for name, rows in judged.items()}
            last = of_day["last_lines"] if last is None else pa.concat_tables([last, of_day["last_lines"]])
            of_day["last_lines"] = last = last_lines(last)
            results.append(of_day)
            if tables.days[day].is_closed:
                kept.keep(f"{day}.judged", keys[day], of_day)
    names = results[0].keys() - {"last_lines"}
    return {name: pa.concat_tables([of_day[name] for of_day in results]) for name in names}


def _groups(days: Sequence[str], loaded: Collection[str]) -> Iterator[list[str]]:
    """Yield the days that are to be judged, those that follow each other together."""
    for is_kept, group in groupby(days, key=lambda day: day in loaded):
        if not is_kept:
            yield list(group)


def _chained(judging: Judging, tables: LogTables, days: DaySums) -> Iterator[tuple[str, str]]:
    """Yield the key of each day's results: of its sums, of the day before, and of the first minute after it."""
    key = ""
    for day, after in pairwise([*tables.days, ""]):
        runs = sorted(tables.days[day].numbers)
        key = key_of(
            key,
            days.keys[day],
            [_clock(judging, run) for run in runs if run in judging.clocks],
            [_tail_us(judging, run, day) for run in runs],
            _edge(tables.days[after], days.sums[after], after) if after else None,
        )
        yield day, key


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


def _edge(day: DayOfLog, sums: Tables, name: str) -> list[Any]:
    """Return what a day's first minute says of lines that began before it."""
    end = begin_of(name) + MARGIN
    early = (
        sums[what].filter(pc.less(sums[what]["start"], pa.scalar(end, TIME))) for what in ("changes", "standstills")
    )
    return [day.edge, *(sorted(map(repr, rows.to_pylist())) for rows in early)]
