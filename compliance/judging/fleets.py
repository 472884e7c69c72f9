"""The sum over a fleet: the amount that all members passed under one shared limit, against the amount allowed.

For each limiter that members of one fleet share, and each unit, over every interval:

    passed by all ≤ burst + rate · time + an entry of each member        (docs/fleet.md)

A line has the amount that passed in its span, without the times. So an interval is judged by the lines that lie wholly
within it, and a line that reaches beyond it counts as nothing: no grain of the log makes a violation. The lines of all
proxies end at the same multiples of the interval, so next to nothing is lost by that. All intervals are judged in one
pass over the lines in the order of their begins: `FleetSweep`.

Lines of two proxies are compared by their wall clocks, which differ. Each member measures its coordinator's clock, and
its lines of shares have the result. So all lines are put by one coordinator's clock (`member_clocks`). Where nothing
was measured, clocks are taken to be at most `CLOCKS_APART_S` apart, as NTP and PTP leave them.
Where less exact measurements might explain an excess, or steps of the members' clocks, which heartbeats show, it is
left open whether they do.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from compliance.figures.sums import Grouping, Sum, with_columns
from compliance.judging.clocks import of_runs
from compliance.judging.facts import CutOffMember, FleetGapFacts, FleetSumFacts, LinePlace, OutsideProxy, moment
from compliance.judging.lines import CLOCKS_APART_S, excess_tolerance
from compliance.schema import BOOT, OBSERVED, has_share, rfc3339
from compliance.session import local_frame

BACK_US = 2_000_000
"""Microseconds after a member's first grants in which it may still use the share that it had while cut off."""
_GONE_US = 60_000_000
"""A member without a line for this long owes nothing any more, and shares no limit."""
_ALIVE_US = 35_000_000
"""A heartbeat and a lease: the time before its first line and after its last one in which a run may be a member."""
_FOREVER_US = 2**60
_NOT_HEARD = 0.05
"""The part of a limit that a member may keep which is cut off and has not heard how many members there are."""
_EXACT_MS = 5
"""Measurements of a clock that are so exact are as good as better ones."""
_ALL_OF_IT = 0.95
"""The part of a line that counts as the whole line."""
_MOST_NAMED = 100
"""Proxies of one kind that are named for one limit."""
_UNITS = ("messages", "bytes")
_LIMIT = ("direction", "level", "name")
RunId = tuple[str, str]


class FleetLine(NamedTuple):
    """The counts of one unit in one line of a member; times are microseconds by the members' common clock."""

    run: RunId
    start_us: int
    end_us: int
    passed: int
    largest: int
    rate: float
    """The limit of the whole fleet, per second."""
    burst: float
    waits: bool
    """A stream waited through all of the line."""
    place: LinePlace

    @property
    def room(self) -> float:
        """The amount that may pass in no time: the burst, and what clocks hide."""
        return self.burst + self.slack

    @property
    def slack(self) -> float:
        """The amount that inexact clocks hide."""
        return CLOCKS_APART_S * self.rate + excess_tolerance(self.rate)

    @property
    def speed(self) -> float:
        """The amount that passed in a microsecond."""
        return self.passed / (self.end_us - self.start_us) if self.end_us > self.start_us else 0.0


@dataclass(frozen=True)
class _Begun:
    """A begin of intervals.

    Args:
        at_us: The time.
        passed: Amount of lines that begin before.
        allowed: Amount that the rate allows up to then.
        cut: Amount of lines that begin before and end after.
        place: A line that begins then.
    """

    at_us: int
    passed: int
    allowed: float
    cut: int
    place: LinePlace

    @property
    def value(self) -> float:
        """The part of the excess that the begin decides: the greater, the worse."""
        return self.allowed - self.passed


@dataclass(frozen=True)
class _Worst:
    """An interval and its excess, in messages or bytes; the other fields are what this was reckoned from."""

    excess: float
    begun: _Begun
    room: float
    line: FleetLine
    """The line with which the interval ends."""
    passed: int
    allowed: float
    entries: int
    beside: int
    """Amount of lines that reach out of the interval."""


class FleetSweep:
    """Finds the worst interval of one unit of a shared limit in one pass; memory grows with the members only.

    With A(t) for what the rate allows up to t, an interval from a to b has the excess

        (passed by lines that end by b - A(b)) + (A(a) - passed by lines that begin before a) - room

    A line that begins before a and ends behind b is not in the first bracket and is taken off by the second: it counts
    as less than nothing. That may hide an excess, and makes none. The `room` is the largest burst in force in the
    interval, and what clocks hide at the largest rate. Where members have different rates, the largest counts: others
    may not have heard of a change yet. Each member may owe an entry at b. A run that has ended in between has taken its
    debt along.

    Attributes:
        judged_us: Microseconds with a line of any member.
        demand_us: Microseconds in which a stream waited at every member that has a line.
        worst: The interval with the greatest excess.
        last: The line that was added last.
        until_us: The latest end of a line.
    """

    def __init__(self) -> None:
        self.judged_us = self.demand_us = 0
        self.worst: _Worst | None = None
        self.last: FleetLine | None = None
        self.until_us = 0
        self._demand_passed = self._demand_worth = 0.0
        self._now_us = 0
        self._allowed = 0.0
        """Amount that the rate allows up to now, and the debts of runs that are over."""
        self._ended = self._begun = 0
        """Amounts of all lines that have ended, and of all that have begun."""
        self._under_way: list[tuple[int, int, FleetLine]] = []
        """Lines that have begun and not ended: a heap by their ends, equal ones by `_count`."""
        self._count = 0
        self._rates: Counter[float] = Counter()
        """The rates of lines under way, as `_rooms`; `_rate` is the largest one."""
        self._rooms: Counter[float] = Counter()
        self._rate = 0.0
        self._waiting = 0
        """Lines under way in which a stream waits."""
        self._speed = 0.0
        """Amount that all lines under way pass in a microsecond."""
        self._begins: dict[float, _Begun] = {}
        """The worst begin of intervals, by the room that they have."""
        self._owing: dict[RunId, tuple[int, int]] = {}
        """Of each run: its largest entry, and the end of its last line."""
        self._entries = 0
        """The sum of the entries of all runs in `_owing`."""
        self._run_of: dict[str, RunId] = {}
        """The latest run of each proxy."""

    @property
    def demand_share(self) -> float | None:
        """The part of the limit that passed while a stream waited at every member."""
        return self._demand_passed / self._demand_worth if self._demand_worth else None

    def add(self, line: FleetLine) -> None:
        """Add a line; none begins before the one that was added before."""
        self._end_until(line.start_us)
        self._go_on(line.start_us)
        if line.run not in self._owing:
            self._meet(line)
        self._rates[line.rate] += 1
        self._rooms[line.room] += 1
        self._rate = max(self._rates)
        self._begin(line)
        self._begun += line.passed
        self._waiting += line.waits
        self._speed += line.speed
        self._count += 1
        heapq.heappush(self._under_way, (line.end_us, self._count, line))
        self.last, self.until_us = line, max(self.until_us, line.end_us)

    def finish(self) -> None:
        """Judge the intervals that end last."""
        self._end_until(self.until_us)

    def _end_until(self, us: int) -> None:
        while self._under_way and self._under_way[0][0] <= us:
            self._end(self._under_way[0][2])

    def _go_on(self, now_us: int) -> None:
        lasts_us = now_us - self._now_us
        if self._under_way:
            self.judged_us += lasts_us
            if self._waiting == len(self._under_way):
                self.demand_us += lasts_us
                self._demand_passed += self._speed * lasts_us
                self._demand_worth += self._rate * lasts_us / 1e6
        if self.last is not None:
            self._allowed += self._rate * lasts_us / 1e6
        self._now_us = now_us

    def _meet(self, line: FleetLine) -> None:
        """Add the run of a line. The debts of runs that are over are allowed from now on."""
        gone = {run for run, owing in self._owing.items() if owing[1] < line.start_us - _GONE_US}
        before = self._run_of.get(line.run[0])
        if before in self._owing:
            gone.add(before)
        for run in gone:
            largest, _ = self._owing.pop(run)
            self._allowed += largest
            self._entries -= largest
        self._run_of[line.run[0]] = line.run
        self._owing[line.run] = 0, line.end_us

    def _begin(self, line: FleetLine) -> None:
        room = max(self._rooms)
        new = _Begun(line.start_us, self._begun, self._allowed, self._begun - self._ended, line.place)
        for less in [other for other in self._begins if other <= room]:
            old = self._begins.pop(less)
            new = old if old.value > new.value else new
        self._begins[room] = new

    def _end(self, line: FleetLine) -> None:
        self._go_on(line.end_us)
        heapq.heappop(self._under_way)
        self._ended += line.passed
        if line.run in self._owing:
            largest, _ = self._owing[line.run]
            self._owing[line.run] = max(largest, line.largest), line.end_us
            self._entries += max(0, line.largest - largest)
        self._judge(line)
        self._waiting -= line.waits
        self._speed = self._speed - line.speed if self._under_way else 0.0
        for counts, value in ((self._rates, line.rate), (self._rooms, line.room)):
            counts[value] -= 1
            if not counts[value]:
                del counts[value]
        self._rate = max(self._rates, default=self._rate)

    def _judge(self, line: FleetLine) -> None:
        for room, begun in self._begins.items():
            excess = self._ended - self._allowed + begun.value - room - self._entries
            if self.worst is None or excess > self.worst.excess:
                passed = self._ended - begun.passed
                allowed = self._allowed - begun.allowed + room + self._entries
                beside = begun.cut + self._begun - self._ended
                self.worst = _Worst(excess, begun, room, line, passed, allowed, self._entries, beside)


class MemberClock(NamedTuple):
    """A run's clock: microseconds by which the common one is ahead of its axis, and by which that may be wrong."""

    behind_us: int
    within_us: int


class CutOff(NamedTuple):
    """A time in which a run was cut off, by the common clock, and the members that it had heard of; 0: none."""

    start_us: int
    end_us: int
    members: int = 0


@dataclass(frozen=True)
class FleetNotes:
    """Notes about the members, from their lines of shares.

    Args:
        fleets: The fleet of each run.
        away_us: Of each run the times in which it was cut off.
        clocks: The clocks of the runs that measured their coordinator's.
    """

    fleets: Mapping[RunId, str] = field(default_factory=dict)
    away_us: Mapping[RunId, Sequence[CutOff]] = field(default_factory=dict)
    clocks: Mapping[RunId, MemberClock] = field(default_factory=dict)

    def behind_us(self, run: RunId) -> int:
        """Return by how much the common clock is ahead of a run's axis, as far as it is known."""
        return self.clocks[run].behind_us if run in self.clocks else 0

    def fleet(self, run: RunId) -> str:
        """Return the fleet of a run; of one that does not say it, the only one that there is."""
        names = set(self.fleets.values())
        return self.fleets.get(run, next(iter(names)) if len(names) == 1 else "")

    def cut_off(self, run: RunId, start_us: int, end_us: int, settling_us: int = 0) -> CutOff | None:
        """Return the time in which the run was cut off in any part of a span, or at most `settling_us` before it."""
        spells = self.away_us.get(run, ())
        return next(
            (spell for spell in spells if spell.start_us < end_us and start_us < spell.end_us + settling_us), None
        )


def member_clocks(rows: Sequence[Any]) -> dict[RunId, MemberClock]:
    """Find by how much the clocks of runs differ from one: the coordinator's clock that most runs have measured.

    Runs that followed another coordinator are compared through runs that followed both, by the most exact way.

    Args:
        rows: As `share_clocks`.
    """
    measured: defaultdict[Any, dict[Any, MemberClock]] = defaultdict(dict)
    for row in rows:
        run, clock = (row.proxy_id, row.boot_id), (row.fleet, row.epoch)
        behind_us, within_us = (row.least_us + row.most_us) // 2, -((row.least_us - row.most_us) // 2)
        measured[clock][run] = MemberClock(behind_us, within_us)
        measured[run][clock] = MemberClock(-behind_us, within_us)
    coordinators = sorted({(row.fleet, row.epoch) for row in rows}, key=lambda node: (-len(measured[node]), node))
    reached_clocks: dict[Any, MemberClock] = {}
    order = count()
    for first in coordinators:
        near = [(0, next(order), 0, first)]
        while near:
            within_us, _, behind_us, node = heapq.heappop(near)
            if node in reached_clocks:
                continue
            reached_clocks[node] = MemberClock(behind_us, within_us)
            for other, link in measured[node].items():
                if other not in reached_clocks:
                    reached = within_us + link.within_us, next(order), behind_us + link.behind_us, other
                    heapq.heappush(near, reached)
    return {run: clock for run, clock in reached_clocks.items() if run not in coordinators}


def fleet_notes(
    rows: Iterable[Any],
    lives: Mapping[RunId, tuple[int, int]],
    clocks: Mapping[RunId, MemberClock] | None = None,
    fleets: Mapping[RunId, str] | None = None,
) -> tuple[FleetNotes, list[FleetGapFacts]]:
    """Find the fleet of each run, the times in which it was cut off, and the most members without a log.

    Args:
        rows: As `share_turns`, in their order.
        lives: The begin and the end of each run, microseconds on its axis.
        clocks: As `member_clocks`.
        fleets: The fleets that heartbeats name, by run.
    """
    notes = FleetNotes({**(fleets or {})}, {}, clocks or {})
    own, away, turns = dict(notes.fleets), defaultdict[RunId, list[CutOff]](list), defaultdict[RunId, list[Any]](list)
    for row in rows:
        run = row.proxy_id, row.boot_id
        own[run] = row.fleet
        turns[run].append(row)
        at_us, spells = row.at_us + notes.behind_us(run), away[run]
        if row.is_away and not (spells and spells[-1].end_us == _FOREVER_US):
            spells.append(CutOff(at_us, _FOREVER_US, row.members))
        elif not row.is_away and spells and spells[-1].end_us == _FOREVER_US:
            spells[-1] = spells[-1]._replace(end_us=at_us)
    known = replace(notes, fleets=own, away_us=dict(away))
    return known, _without_log(turns, lives, known)


def _without_log(
    turns: Mapping[RunId, Sequence[Any]], lives: Mapping[RunId, tuple[int, int]], notes: FleetNotes
) -> list[FleetGapFacts]:
    """Find, for each fleet, the moment at which a member heard of most members without a log.

    A run may have been a member for `_ALIVE_US` before its first line and after its last one.
    """
    alive: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for run, (first_us, last_us) in lives.items():
        if fleet := notes.fleets.get(run):
            behind_us = notes.behind_us(run)
            alive[fleet].append((first_us + behind_us - _ALIVE_US, last_us + behind_us + _ALIVE_US))
    gaps: dict[str, FleetGapFacts] = {}
    for run, rows in turns.items():
        behind_us = notes.behind_us(run)
        last_us = lives[run][1] if run in lives else rows[-1].at_us
        for row, until_us in zip(rows, [*(row.at_us for row in rows[1:]), last_us], strict=True):
            if row.is_away:
                continue
            begin_us, end_us = row.at_us + behind_us, until_us + behind_us
            spans = alive[row.fleet]
            # A member more than there are logs is missed first when a run has been over for long enough.
            for at_us in (begin_us, *(over_us + 1 for _, over_us in spans if begin_us <= over_us < end_us)):
                logs = sum(first <= at_us <= last for first, last in spans)
                gap = gaps.get(row.fleet)
                if row.members > logs and (gap is None or row.members - logs > gap.members - gap.logs):
                    gaps[row.fleet] = FleetGapFacts(fleet=row.fleet, at=moment(at_us), members=row.members, logs=logs)
    return list(gaps.values())


def share_turns(shares: DataFrame) -> DataFrame:
    """Select the lines of shares in which a run enters a fleet, is cut off or back, or hears another number of members.

    Args:
        shares: All lines of shares, on the axis of `clocks.with_axis`.
    """
    in_order = Window.partitionBy(*BOOT).orderBy("seq")
    lines = shares.withColumn("is_away", F.col("cause") == "isolated")
    names = ("fleet", "is_away", "members")
    before = {f"{name}_before": F.lag(name).over(in_order) for name in names}
    is_new = [~F.col(name).eqNullSafe(F.col(f"{name}_before")) for name in names]
    turns = lines.withColumns(before).where(is_new[0] | is_new[1] | is_new[2])
    return turns.select(*BOOT, "seq", "fleet", "is_away", "members", F.col("start_us").alias("at_us"))


def share_clocks(shares: DataFrame) -> DataFrame:
    """Bound by how much each coordinator's clock was ahead of each run's axis: `least_us` and `most_us`.

    Measurements of one run count that are not much less exact than the best.

    Args:
        shares: All lines of shares, on the axis of `clocks.with_axis`.
    """
    of_one = (*BOOT, "fleet", "epoch")
    measured = shares.where(
        "coordinator_ahead_ms is not null and coordinator_ahead_within_ms is not null and epoch > 0"
    )
    within = F.col("coordinator_ahead_within_ms")
    best = F.min(within).over(Window.partitionBy(*of_one))
    exact = measured.withColumn("best_ms", best).where(within <= 2 * F.col("best_ms") + _EXACT_MS)
    stepped_us = F.unix_micros("start") - F.col("start_us")
    bounds = [F.round(1000 * (F.col("coordinator_ahead_ms") + way * within)) + stepped_us for way in (-1, 1)]
    return exact.groupBy(*of_one).agg(
        F.min(bounds[0]).cast("long").alias("least_us"), F.max(bounds[1]).cast("long").alias("most_us")
    )


def share_change_facts(shares: DataFrame) -> DataFrame:
    """Sum up the changes of shares of each proxy by their cause, as `ShareChangeFacts`."""
    return shares.groupBy("fleet", "proxy_id", "cause").agg(
        F.count("*").alias("lines"),
        F.sum(F.coalesce("left_out", F.lit(0))).alias("left_out"),
        F.count_distinct(*_LIMIT, "unit").alias("limits"),
        F.max("share_after").alias("largest"),
        rfc3339(F.min("start")).alias("first"),
        rfc3339(F.max("start")).alias("last"),
    )


def in_fleets(limits: DataFrame, notes: FleetNotes) -> DataFrame:
    """Add `fleet`, null where the limit is the proxy's own; put lines of shares by the members' common clock.

    Args:
        limits: All lines of limiters, on the axis of `clocks.with_axis`.
        notes: As `fleet_notes`.
    """
    return _of_fleets(limits, notes, has_share())


def of_members(lines: DataFrame, notes: FleetNotes) -> DataFrame:
    """Add the `fleet` of the run, null where it is in none; put lines of members by their common clock.

    Args:
        lines: All lines of streams or of limiters, on the axis of `clocks.with_axis`.
        notes: As `fleet_notes`, with the fleet of each of `SHARING`.
    """
    return _of_fleets(lines, notes, F.col("of_fleet").isNotNull())


def _sharing(limits: pa.Table) -> pa.Table:
    return limits.filter(pc.coalesce(limits["share_messages"], limits["share_bytes"]).is_valid())


SHARING = Sum((*BOOT, "share_messages", "share_bytes"), _sharing, Grouping(BOOT), ("limit",))
"""The runs that had a share of any limit."""


def _of_fleets(lines: DataFrame, notes: FleetNotes, is_of_fleet: Column) -> DataFrame:
    alone = notes.fleet(("", ""))
    runs = sorted({*notes.fleets, *notes.clocks})
    rows = [(*run, notes.fleets.get(run, alone), notes.behind_us(run)) for run in runs]
    columns = {**dict.fromkeys(BOOT, "string"), "of_fleet": "string", "behind_us": "long"}
    members = local_frame(lines.sparkSession, rows, columns)
    behind_us = F.coalesce("behind_us", F.lit(0))
    common = {name: F.col(name) + behind_us for name in ("start_us", "end_us")}
    times = {
        name: F.when(is_of_fleet, F.timestamp_micros(common[f"{name}_us"])).otherwise(F.col(name))
        for name in ("start", "end")
    }
    fleet = F.when(is_of_fleet, F.coalesce("of_fleet", F.lit(alone)))
    joined = lines.join(F.broadcast(members), on=list(BOOT), how="left")
    return joined.withColumns({"fleet": fleet, **times, **common}).drop("of_fleet", "behind_us")


def on_common_clock(limits: pa.Table, notes: FleetNotes) -> pa.Table:
    """Add `fleet`, and put lines of shares by the members' common clock, as `in_fleets`."""
    is_shared = pc.coalesce(limits["share_messages"], limits["share_bytes"]).is_valid()
    fleets = of_runs(limits, notes.fleet, pa.string())
    behind_us = of_runs(limits, notes.behind_us, pa.int64())
    times = {
        name: pc.if_else(is_shared, pc.add(limits[f"{name}_us"], behind_us).cast(limits[name].type), limits[name])
        for name in ("start", "end")
    }
    return with_columns(limits, fleet=pc.if_else(is_shared, fleets, None), **times)


def fleet_sums(limits: DataFrame, notes: FleetNotes) -> DataFrame:
    """Judge the sums of all limits that fleets share: rows with `score`, in seconds of the limit, and `facts`.

    Args:
        limits: All lines of limiters, on the axis of `clocks.with_axis`.
        notes: As `fleet_notes`.
    """
    shared = limits.where(has_share()).select(*_LIMIT).distinct()
    lines = limits.where(F.col("mode") != OBSERVED).join(F.broadcast(shared), on=list(_LIMIT), how="left_semi")
    picked = in_fleets(lines, notes).select(*_LIMIT, *BOOT, *_columns())
    in_order = picked.repartition(*_LIMIT).sortWithinPartitions(*_LIMIT, "start_us", "proxy_id", "seq")
    schema = ", ".join(f"{name} string" for name in (*_LIMIT, "unit"))
    return in_order.mapInArrow(_worker(notes), f"{schema}, score double, facts binary")


_OF_UNIT = ("limit", "share", "shared", "shared_burst", "passed", "largest_entry")


def _columns() -> Iterator[Column]:
    for name in ("tenant", "seq", "file", "line", "start_us", "end_us", "duration_ms", "throttled_ms"):
        yield F.col(name)
    for name in _OF_UNIT:
        for unit in _UNITS:
            yield F.col(f"{name}_{unit}")


_ARROW = pa.schema(
    [*((name, pa.string()) for name in (*_LIMIT, "unit")), ("score", pa.float64()), ("facts", pa.binary())]
)


def _worker(notes: FleetNotes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for _, of_limit in groupby(rows, key=lambda row: tuple(row[name] for name in _LIMIT)):
            results = [
                {name: getattr(sum_, name) for name in (*_LIMIT, "unit")}
                | {"score": sum_.excess / (sum_.limit or 1), "facts": msgspec.msgpack.encode(sum_)}
                for sum_ in sums_of(of_limit, notes)
            ]
            yield pa.RecordBatch.from_pylist(results, schema=_ARROW)

    return work


def sums_of(rows: Iterable[Mapping[str, Any]], notes: FleetNotes) -> list[FleetSumFacts]:
    """Judge one limit by the lines of all its limiters, in the order of their begins: each fleet and unit.

    Args:
        rows: The lines; `start_us` and `end_us` are by the common clock.
        notes: As `fleet_notes`.
    """
    sums: dict[tuple[str, str], _Sum] = {}
    for row in rows:
        for unit in _UNITS:
            if row[f"share_{unit}"] is not None:
                key = notes.fleet((row["proxy_id"], row["boot_id"])), unit
                if key not in sums:
                    sums[key] = _Sum(row, *key)
                sums[key].add(row, notes)
            elif row[f"limit_{unit}"] is not None:
                for fleet in {fleet for fleet, unit_ in sums if unit_ == unit}:
                    sums[fleet, unit].add_outside(row)
    return [facts for sum_ in sums.values() if (facts := sum_.found()) is not None]


class _Sum:
    """One unit of one limit in one fleet, as its lines go by."""

    def __init__(self, row: Mapping[str, Any], fleet: str, unit: str) -> None:
        self.unit = unit
        self._fleet, self._row = fleet, row
        self._sweep = FleetSweep()
        self._members: dict[RunId, None] = {}
        self._cut_off: dict[str, CutOffMember] = {}
        self._outside: dict[str, OutsideProxy] = {}
        self._clocks: dict[RunId, MemberClock] = {}
        self._until_us = 0

    def add(self, row: Mapping[str, Any], notes: FleetNotes) -> None:
        """Add a line of a member. A member that is cut off, or just back, is not in the sum."""
        unit, run, times = self.unit, (row["proxy_id"], row["boot_id"]), (row["start_us"], row["end_us"])
        self._members[run] = None
        if run in notes.clocks:
            self._clocks[run] = notes.clocks[run]
        passed = row[f"passed_{unit}"]
        self._until_us = max(self._until_us, times[1])
        spell = notes.cut_off(run, *times)
        if spell is not None:
            self._add_cut_off(row, spell)
        if notes.cut_off(run, *times, BACK_US) is not None:
            return
        self._sweep.add(
            FleetLine(
                run=run,
                start_us=times[0],
                end_us=times[1],
                passed=passed,
                # No entry is larger than all that passed.
                largest=min(row[f"largest_entry_{unit}"], passed),
                rate=row[f"shared_{unit}"] or 0.0,
                burst=row[f"shared_burst_{unit}"] or 0.0,
                waits=row["throttled_ms"] >= _ALL_OF_IT * row["duration_ms"] > 0,
                place=LinePlace(file=row["file"], seq=row["seq"], line=row["line"]),
            )
        )

    def _add_cut_off(self, row: Mapping[str, Any], spell: CutOff) -> None:
        proxy_id, own = row["proxy_id"], row[f"share_{self.unit}"]
        kept = 1 / spell.members if spell.members else _NOT_HEARD
        # A line that begins before the member is cut off has the share of that time.
        beyond = 0.0 if row["start_us"] < spell.start_us else max(0.0, own - kept)
        earlier = self._cut_off.get(proxy_id)
        if earlier is None:
            if len(self._cut_off) >= _MOST_NAMED:
                return
            earlier = CutOffMember(proxy_id=proxy_id, seconds=0.0, share=0.0, passed=0)
        self._cut_off[proxy_id] = CutOffMember(
            proxy_id=proxy_id,
            seconds=row["duration_ms"] / 1e3 + earlier.seconds,
            share=max(own, earlier.share),
            passed=row[f"passed_{self.unit}"] + earlier.passed,
            beyond=max(beyond, earlier.beyond),
        )

    def add_outside(self, row: Mapping[str, Any]) -> None:
        """Add a line of a proxy that has the limit to itself, if members shared it shortly before."""
        proxy_id, first_us, last_us = row["proxy_id"], row["start_us"], row["end_us"]
        earlier = self._outside.get(proxy_id)
        if first_us - self._until_us > _GONE_US or (earlier is None and len(self._outside) >= _MOST_NAMED):
            return
        passed, first, last = row[f"passed_{self.unit}"], moment(first_us), moment(last_us)
        if earlier is not None:
            passed, first, last = passed + earlier.passed, min(first, earlier.first), max(last, earlier.last)
        self._outside[proxy_id] = OutsideProxy(proxy_id=proxy_id, first=first, last=last, passed=passed)

    def found(self) -> FleetSumFacts | None:
        """Return the result; None if all members were cut off in all of their lines."""
        sweep = self._sweep
        sweep.finish()
        worst, last = sweep.worst, sweep.last
        if worst is None or last is None:
            return None
        behind = [clock.behind_us for clock in self._clocks.values()]
        within_us = sum(sorted([clock.within_us for clock in self._clocks.values()])[-2:])
        return FleetSumFacts(
            fleet=self._fleet,
            direction=self._row["direction"],
            level=self._row["level"],
            name=self._row["name"],
            unit=self.unit,
            tenant=self._row["tenant"] or "",
            limit=last.rate,
            burst=last.burst,
            members=sorted(self._members),
            first=moment(self._row["start_us"]),
            last=moment(self._until_us),
            start=moment(worst.begun.at_us),
            end=moment(worst.line.end_us),
            passed=worst.passed,
            allowed=worst.allowed,
            entries=worst.entries,
            slack=worst.line.slack,
            excess=worst.excess,
            clock_s=max(0.0, worst.excess) / (worst.line.rate or 1.0),
            corrected_s=(max(behind) - min(behind)) / 1e6 if behind else 0.0,
            uncertain_s=max(0.0, within_us / 1e6 - CLOCKS_APART_S),
            beside=worst.beside,
            first_line=worst.begun.place,
            last_line=worst.line.place,
            judged_s=sweep.judged_us / 1e6,
            demand_s=sweep.demand_us / 1e6,
            demand_share=sweep.demand_share,
            cut_off=sorted(self._cut_off.values(), key=lambda member: (-member.share, member.proxy_id)),
            outside=sorted(self._outside.values(), key=lambda proxy: proxy.proxy_id),
        )
