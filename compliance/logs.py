"""The lines of a report, or of the job's judging: their sums, and the notes that the judging needs."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.excerpt import WHOLE_LOG, Excerpt
from compliance.figures import traffic, trends
from compliance.figures.sums import Sum, all_together, summed
from compliance.judging import facts, quality
from compliance.judging.bypasses import LIMITED, Suspicion
from compliance.judging.changes import Changed, changed
from compliance.judging.clocks import CLOCK_SPANS, CLOCK_STEPS, Clocks, clocks_of, on_axes, on_axis, with_axis
from compliance.judging.fleets import SHARING, FleetNotes, fleet_notes, member_clocks, share_clocks, share_turns
from compliance.judging.judge import Judging, with_waits
from compliance.judging.lines import RunNotes
from compliance.judging.quality import RunId, run_of
from compliance.kept_days import DayJudging, DaySums, KeptDays, Tables, sums_by_day
from compliance.line_reader import MALFORMED
from compliance.log_lines import KeptLines
from compliance.schema import BOOT, defaulted_fields, nullable_fields, required_fields
from compliance.tables import LogTables

_RUN_SUMS: dict[str, Sum] = {
    "clock_spans": CLOCK_SPANS,
    "clock_steps": CLOCK_STEPS,
    "beats": quality.BEATS,
    "ends": quality.ENDS,
    "losses": quality.LOSSES,
    "standstills": quality.STANDSTILLS,
    "unknown": quality.UNKNOWN,
    "runs_of_files": quality.RUNS_OF_FILES,
    "sharing": SHARING,
    "limited": LIMITED,
    "changes": trends.CHANGES,
}
"""Sums that show how complete a log is, and others that the judging needs."""
_TRAFFIC_SUMS: dict[str, Sum] = {
    "pauses": traffic.PAUSES,
    "refusals": traffic.REFUSALS,
    "streams": traffic.STREAMS,
    "days": traffic.DAYS,
    "minutes": traffic.MINUTES,
    "roles": traffic.ROLES,
    "clients": traffic.CLIENTS,
    "client_waits": traffic.CLIENT_WAITS,
}
_SUMS = _RUN_SUMS | _TRAFFIC_SUMS
_AFTER_GAPS = "after_gaps"
MOST_NOTES = 200_000
"""Lines of shares that the driver reads."""
FEW_LINES = 100_000
"""Lines of which one task makes the figures of limits."""
LINES_A_PARTITION = 250_000
"""Lines of which Spark makes one partition where it shuffles."""
SHARES_BEFORE = timedelta(hours=1)
"""Time before an excerpt whose lines of shares are read: they say which members there are, and who is cut off."""


def settings_of_sums(lines: int) -> dict[str, str]:
    """Return Spark's settings for a log of this number of lines."""
    is_little = lines < FEW_LINES
    return {
        "spark.sql.shuffle.partitions": str(min(2000, max(2, lines // LINES_A_PARTITION))),
        # Compiling the plans takes longer than running them over so few rows as they are.
        "spark.sql.codegen.wholeStage": str(not is_little).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if is_little else "FALLBACK",
        # The number of partitions is known: planning again after each stage costs more than it gains.
        "spark.sql.adaptive.enabled": "false",
    }


@dataclass(frozen=True)
class Logs:
    """A log, or a part of it.

    Args:
        tables: What a job has kept, as far as it is in the excerpt.
        sums: Sums over these lines, by their names in `_SUMS`.
        clocks: As `clocks.clocks_of`.
        excerpt: The part of the log.
        begun: Runs that began before the excerpt, or before the days that are kept.
        days: Of the whole log, the sums by day; None of an excerpt.
        kept: The days that are kept; None: none are.
        whole: The log that this is a part of, in which its days are judged; that one may have sums of traffic of these
            days only. None: it is judged by its own lines.
    """

    tables: LogTables
    sums: Tables
    clocks: Clocks
    excerpt: Excerpt = WHOLE_LOG
    begun: Collection[RunId] = frozenset()
    days: DaySums | None = None
    kept: KeptDays | None = None
    whole: "Logs | None" = None

    @classmethod
    def of(cls, tables: LogTables, excerpt: Excerpt = WHOLE_LOG, kept: KeptDays | None = None) -> "Logs":
        """Sum up the lines.

        Args:
            tables: What a job has kept.
            excerpt: The part of the log.
            kept: The days of the whole log that are kept.
        """
        if excerpt.is_whole:
            return cls.of_whole(tables, kept, lambda _: True)
        if kept is not None and excerpt.has_whole_days and kept.days.issuperset(_other_days(tables, excerpt)):
            return cls.of_whole(tables, kept, excerpt.has_day).within(excerpt)
        rows, after_gaps = tables.rows.within(excerpt), quality.after_gaps(tables.gaps)
        sums = summed(rows, _SUMS) | summed(tables.rows.within(excerpt.of_all_tenants), {_AFTER_GAPS: after_gaps})
        losses = summed(tables.rows, {"losses": quality.LOSSES})["losses"]
        return cls._part(tables, excerpt, sums, losses)

    @classmethod
    def of_whole(cls, tables: LogTables, kept: KeptDays | None, has_traffic: Callable[[str], bool]) -> "Logs":
        """Sum up all lines.

        Args:
            tables: What a job has kept.
            kept: The days that are kept.
            has_traffic: Returns whether sums of a day's traffic are wanted, too.
        """
        sums = _sums_of(tables)
        of_runs = sums.keys() - _TRAFFIC_SUMS.keys()
        days = sums_by_day(tables, sums, kept, lambda day: sums if has_traffic(day) else of_runs)
        together = all_together(days.sums.values(), sums)
        clocks = clocks_of(together["clock_spans"])
        if kept is not None and tables.begun:
            clocks = on_axes(clocks, kept.day_before(max(tables.retired)).ahead_us)
        return cls(tables, together, clocks, begun=tables.begun, days=days, kept=kept)

    def within(self, excerpt: Excerpt) -> "Logs":
        """Return the lines of some whole days, which are judged as in the whole log."""
        assert self.days is not None
        own = [tables for day, tables in self.days.sums.items() if excerpt.has_day(day)]
        sums = all_together(own, _sums_of(self.tables))
        part = self._part(self.tables, excerpt, sums, self.sums["losses"])
        axes = {run: clock.ahead_us for run, clock in self.clocks.items()}
        return replace(part, clocks=on_axes(part.clocks, axes), whole=self)

    @classmethod
    def _part(cls, tables: LogTables, excerpt: Excerpt, sums: dict[str, pa.Table], losses: pa.Table) -> "Logs":
        """Return the part of a log that is within an excerpt.

        Args:
            tables: What a job has kept.
            excerpt: The part.
            sums: Those of its lines.
            losses: Those of the whole log.
        """
        runs, gaps = tables.runs, quality.gaps_within(tables.gaps, sums[_AFTER_GAPS])
        within = quality.runs_within(runs, gaps, sums["ends"], excerpt)
        sums["ends"] = quality.ends_within(sums["ends"], excerpt)
        sums["losses"] = quality.losses_within(losses, {run_of(row) for row in within.to_pylist()}, excerpt)
        rows = runs.to_pylist() if excerpt.begin is not None else []
        begun = {*tables.begun, *(run_of(row) for row in rows if row["first"] < excerpt.begin)}
        lines = sum(within["there"].to_pylist())
        part = replace(tables, rows=tables.rows.within(excerpt), runs=within, gaps=gaps, lines=lines)
        return cls(part, sums, clocks_of(sums["clock_spans"]), excerpt, begun)

    @cached_property
    def limits(self) -> DataFrame:
        """Lines of limiters, on the axis of `clocks.with_axis`."""
        return with_waits(with_axis(_of_kind(self.tables.rows, "limit"), self.clocks))

    @cached_property
    def intervals(self) -> DataFrame:
        """Lines of streams, on the same axis."""
        return with_waits(with_axis(_of_kind(self.tables.rows, "interval"), self.clocks))

    @cached_property
    def shares(self) -> DataFrame:
        """Lines of shares, on the same axis: also those before that say how shares stand."""
        rows = self.tables.rows
        begin = self.excerpt.begin and self.excerpt.begin - SHARES_BEFORE
        earlier = rows.within(Excerpt(begin=begin, end=self.excerpt.end))
        return with_axis(_of_kind(earlier, "share"), self.clocks)

    @cached_property
    def malformed(self) -> pa.Table:
        """Malformed lines of the whole log, as `quality.MALFORMED`: they have no time."""
        if self.whole is not None:
            return self.whole.malformed
        lines = KeptLines.of_frame(self.tables.quarantine) if self.tables.malformed else None
        return summed(lines, {"malformed": quality.MALFORMED}, MALFORMED)["malformed"]

    @cached_property
    def notes(self) -> Mapping[RunId, RunNotes]:
        """Notes of each run that has no end, or in which limits changed or lines are missing."""
        return _notes(self)

    @cached_property
    def fleets(self) -> tuple[FleetNotes, list[facts.FleetGapFacts]]:
        """Notes of members of fleets, as `notes_of_fleets`."""
        return notes_of_fleets(self) if self.has_fleets else (FleetNotes(), [])

    @property
    def has_fleets(self) -> bool:
        """Whether a limit is shared."""
        return len(self.sums["sharing"]) > 0

    @cached_property
    def judging(self) -> Judging:
        """The clocks, notes and suspicions of these lines, or of the log that they are judged in."""
        log = self.whole or self
        return Judging(log.clocks, log.notes, log.fleets[0], _suspicion(log), log.excerpt)

    @cached_property
    def by_day(self) -> DayJudging | None:
        """The judging of the whole log by its days; None: no day is kept."""
        if self.days is None or self.kept is None or not self.tables.days:
            return None
        return DayJudging(self.judging, self.tables, self.days, self.kept, self.shards)

    def judged(self) -> Tables:
        """Judge all limiters, as `Judging.of`; days that are kept are only loaded."""
        by_day = (self.whole or self).by_day
        wanted = [day for day in by_day.tables.days if self.excerpt.has_day(day)] if by_day else []
        if by_day is None or not wanted:
            return self.judging.of(self.tables.rows, self.shards)
        days = list(by_day.of(wanted).values())
        return {name: pa.concat_tables([results[name] for results in days]) for name in days[0]}

    @property
    def shards(self) -> int:
        """The number of parts in which limits are judged."""
        lines = self.tables.lines
        return min(2000, max(8, lines // FEW_LINES)) if lines > FEW_LINES else 1


def _sums_of(tables: LogTables) -> dict[str, Sum]:
    return _SUMS | {_AFTER_GAPS: quality.after_gaps(tables.gaps)}


def _other_days(tables: LogTables, excerpt: Excerpt) -> list[str]:
    """Return the settled days that an excerpt does not have."""
    return [day for day, info in tables.days.items() if info.is_settled and not excerpt.has_day(day)]


def _of_kind(rows: KeptLines, kind: str) -> DataFrame:
    return rows.lines.where(F.col("kind") == kind).select(*_columns(kind))


def _columns(kind: str) -> dict[str, None]:
    fields = (*required_fields(kind), *nullable_fields(kind), *defaulted_fields(kind))
    return dict.fromkeys(("kind", "file", "line", "day", *fields))


def notes_of_fleets(logs: Logs) -> tuple[FleetNotes, list[facts.FleetGapFacts]]:
    """Tell which run was in which fleet, and when it was cut off, as `fleet_notes`; it has all that shared."""
    shares = logs.shares
    turns = share_turns(shares).orderBy(*BOOT, "seq").limit(MOST_NOTES).collect()
    clocks = member_clocks(share_clocks(shares).orderBy(*BOOT, "epoch").limit(MOST_NOTES).collect())
    fleets = {run_of(row): row["fleet"] for row in logs.sums["beats"].to_pylist() if row["fleet"]}
    lives = {run: (clock.first_us, clock.last_us) for run, clock in logs.clocks.items()}
    notes, gaps = fleet_notes(turns, lives, clocks, fleets)
    members = {*notes.fleets, *map(run_of, logs.sums["sharing"].to_pylist())}
    return replace(notes, fleets={run: notes.fleet(run) for run in members}), gaps


def _suspicion(logs: Logs) -> Suspicion:
    changes_us: defaultdict[RunId, list[int]] = defaultdict(list)
    for row in on_axis(logs.sums["changes"], logs.clocks):
        changes_us[run_of(row)].append(row["start_us"])
    return Suspicion(logs.sums["limited"], {run: sorted(times) for run, times in changes_us.items()})


def _notes(logs: Logs) -> dict[RunId, RunNotes]:
    """Return notes of each run that has no end, or in which limits changed or lines are missing."""
    changes: defaultdict[RunId, list[Changed]] = defaultdict(list)
    holes: defaultdict[RunId, list[int]] = defaultdict(list)
    still: defaultdict[RunId, list[tuple[int, int]]] = defaultdict(list)
    complete: defaultdict[RunId, int] = defaultdict(int)
    lines = {name: on_axis(logs.sums[name], logs.clocks) for name in ("standstills", "changes", "beats")}
    for row in lines["standstills"]:
        still[run_of(row)].append((row["start_us"], row["end_us"]))
    for row in lines["changes"]:
        fields = {field: row[field] for field in ("what", "setting", "name", "before", "after")}
        if (change := changed(row["seq"], row["end_us"], **fields)) is not None:
            changes[run_of(row)].append(change)
    for row in logs.tables.gaps.to_pylist():
        holes[run_of(row)].append(row["after_seq"] + row["missing"] + 1)
    for row in logs.sums["unknown"].to_pylist():
        if row["is_newer"]:
            holes[run_of(row)].append(row["seq"])
    for row in lines["beats"]:
        late = row["end"] - (row["complete_until"] or row["end"])
        complete[run_of(row)] = max(complete[run_of(row)], row["end_us"] - late // timedelta(microseconds=1))
    unended = {run_of(row): complete[run_of(row)] for row in logs.tables.runs.to_pylist() if not row["has_ended"]}
    return {
        run: RunNotes(
            has_begin=0 not in holes[run] and run not in logs.begun,
            changed=sorted(changes[run]),
            holes=sorted(holes[run]),
            still_us=sorted(still[run]),
            complete_us=unended.get(run),
        )
        for run in {*changes, *holes, *still, *unended, *logs.begun}
    }
