"""The judging of all limiters, day by day: `account.py` replays each limiter's lines and its streams' lines.

Each task sums up its lines of streams by limit and span. These sums and the lines of limiters go to the task that has
the limit, of all proxies, and judges it. So memory holds the lines of a part of all limits at a time.

A day is judged by its own lines, those on its edges, and the last line before it of each limiter, whose balances go on.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.excerpt import DAY_US, MARGIN_US, OF_ONE_TENANT, WHOLE_LOG, Excerpt, only
from compliance.figures.limits import (
    LIMIT_COLUMNS,
    LIMIT_KEY,
    episodes_of,
    last_lines,
    limiters_of,
    observed_of,
    use_of,
    value_changes,
)
from compliance.figures.scopes import LEVEL_WORDS
from compliance.figures.shards import figures_by_limit
from compliance.figures.sums import Grouping, seconds, values_of, waits, with_columns
from compliance.judging.account import ALL, JudgedPart, judged
from compliance.judging.bypasses import Suspicion
from compliance.judging.clocks import Clocks, placed
from compliance.judging.days import of_days
from compliance.judging.facts import Judged, LimiterFacts, moment
from compliance.judging.fleets import FleetNotes, on_common_clock
from compliance.judging.lines import BEHIND_CHANGE_S, BUCKETS, Line, RunNotes, StreamsLine
from compliance.judging.streams import STREAM_COLUMNS, STREAMS_OF_LIMITS, streams_lines, sums_of_lines
from compliance.log_lines import KeptLines
from compliance.schema import LIMITER

Notes = Mapping[tuple[str, str], RunNotes]
"""Notes of runs; a run that is not in it has none."""
_UNITS = BUCKETS[:2]
_BY_TIME = [(name, "ascending") for name in (*LIMITER, "start_us", "seq")]
MINUTES = Grouping(("tenant", "minute"), sums=("judged_s", "over_s", "waited_s", "short_s"))
"""The time of each tenant's limits in which promises were due, and broken; limits that span tenants have no tenant."""


def with_waits(lines: DataFrame) -> DataFrame:
    """Bound each line's wait by its length: a longer one would owe more than was due."""
    return lines.withColumn("throttled_ms", F.least("throttled_ms", "duration_ms"))


@dataclass(frozen=True)
class Judging:
    """All that the judging needs beside the lines.

    Args:
        clocks: As `clocks.clocks_of`.
        notes: Notes of the runs.
        fleets: Notes of members of fleets.
        suspicion: What shows streams that a limit does not count.
        excerpt: The part of the log that is judged.
        has_edges: Whether nothing is known of what is beyond the excerpt.
        last: The last line of each limiter before the excerpt, as `last_lines` of the day before; None: there is none.
    """

    clocks: Clocks
    notes: Notes
    fleets: FleetNotes
    suspicion: Suspicion
    excerpt: Excerpt = WHOLE_LOG
    has_edges: bool = True
    last: pa.Table | None = None

    def of(self, lines: KeptLines, shards: int) -> dict[str, pa.Table]:
        """Judge all limiters, and sum up what only all lines of a limit show.

        Args:
            lines: Of all kinds.
            shards: The number of parts in which limits are judged.

        Returns:
            By days since 1970 (`day`): `judged` (`LIMITER`, `facts`: msgpack of `Judged`), `minutes`, `outside`, by
            their names the sums of `figures.limits`, and `last_lines` of limiters up to the day's end.
        """
        columns = dict.fromkeys((*LIMIT_COLUMNS, *STREAM_COLUMNS))
        # A balance needs the amounts of whole lines, which may lie on the edge.
        return figures_by_limit(lines.within(self.excerpt.with_margin), columns, self.parts, self.figures, shards)

    def parts(self, lines: pa.Table) -> dict[str, pa.Table]:
        """Return what the judging needs of some lines."""
        on_axis = placed(with_columns(lines, throttled_ms=waits(lines)), self.clocks)
        limits, streams = (
            only(on_axis.select([*columns, "start_us", "end_us"]), pc.equal(lines["kind"], kind))
            for kind, columns in (("limit", LIMIT_COLUMNS), ("interval", STREAM_COLUMNS))
        )
        levels = LEVEL_WORDS
        if self.excerpt.tenant:
            levels = tuple(level for level in LEVEL_WORDS if level in OF_ONE_TENANT)
            limits = only(limits, pc.is_in(limits["level"], pa.array(levels)))
        suspects = self.suspicion.suspects(self.excerpt.of(streams))
        return {"limits": limits, "streams": sums_of_lines(streams, levels), "suspects": suspects}

    def figures(self, parts: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Judge some limits, by what is needed of all their lines, and return the figures of each day."""
        limits = parts["limits"].sort_by(_BY_TIME)
        streams = STREAMS_OF_LIMITS.again(parts["streams"]).sort_by(_BY_TIME)
        suspects = parts["suspects"]
        figures: dict[str, list[pa.Table]] = {}
        last = self._last_of(limits, streams)
        for day in self.excerpt.days([limits["start"], streams["wall_start"], suspects["start"]]):
            begin_us, end_us = day.times_us
            edge_us = begin_us - MARGIN_US
            near = _between(limits, "start", edge_us, end_us + MARGIN_US)
            going_on = _between(near, "start", edge_us, begin_us).select(list(LIMITER))
            of_streams = _between(streams, "wall_start", edge_us, end_us + MARGIN_US)
            idle = _of_limiters(last, near, of_streams).join(going_on, list(LIMITER), join_type="left anti")
            own = pa.concat_tables([idle, near]).sort_by(_BY_TIME) if len(idle) else near
            tables = self._of_day(day, own, of_streams, _between(suspects, "start", begin_us, end_us))
            last = tables["last_lines"] = last_lines(pa.concat_tables([last, _between(near, "start", -inf, end_us)]))
            number = pa.scalar(begin_us // DAY_US if abs(begin_us) < inf else 0, pa.int32())
            for name, table in tables.items():
                figures.setdefault(name, []).append(with_columns(table, day=pa.repeat(number, len(table))))
        return {name: pa.concat_tables(tables) for name, tables in figures.items()}

    def _last_of(self, limits: pa.Table, streams: pa.Table) -> pa.Table:
        """Return the last lines before the excerpt of these limiters."""
        if self.last is None:
            return limits.slice(0, 0)
        return _of_limiters(self.last.select(limits.column_names), limits, streams)

    def _of_day(self, day: Excerpt, limits: pa.Table, streams: pa.Table, suspects: pa.Table) -> dict[str, pa.Table]:
        facts, minutes = self._judged(day, limits, streams)
        begin_us, end_us = day.times_us
        own = day.of(limits)
        return {
            "judged": facts,
            "minutes": MINUTES.of(minutes),
            "outside": self.suspicion.confirmed(suspects, limits),
            "values": _between(value_changes(limits), "at", begin_us, end_us),
            **limiters_of(own),
            **episodes_of(own),
            **observed_of(own),
            **use_of(on_common_clock(own, self.fleets)),
        }

    def _judged(self, day: Excerpt, limits: pa.Table, streams: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Replay all limiters, one after the other: their results, and their minutes."""
        part = self._part(day, limits, streams)
        rows, minutes = [], []
        own_lines, sums = limit_lines(limits), streams_lines(streams)
        places = [_by_limiter(table) for table in (limits, streams)]
        for key in sorted({*places[0], *places[1]}):
            limiter = dict(zip(LIMITER, key, strict=True))
            own, theirs = (of.get(key, slice(0)) for of in places)
            items: list[Line | StreamsLine] = [*own_lines[own], *sums[theirs]]
            items.sort(key=_by_time)
            run = self.notes.get((key[0], key[1]), RunNotes())
            result = judged(limiter, run.of_limiter(*key[2:]), items, part)
            if not own_lines[own]:
                result.alone = _alone(limiter, _between(streams[theirs], "wall_start", *day.times_us))
            tenant = _tenant(limits[own], streams[theirs])
            minutes += [
                {"tenant": tenant, "minute": at} | msgspec.structs.asdict(of) for at, of in result.minutes.items()
            ]
            result.minutes = {}
            if own_lines[own] or result.alone is not None or score(result) is not None:
                rows.append(limiter | {"facts": msgspec.msgpack.encode(result)})
        return pa.Table.from_pylist(rows, _JUDGED), pa.Table.from_pylist(minutes, _MINUTES)

    def _part(self, day: Excerpt, limits: pa.Table, streams: pa.Table) -> JudgedPart:
        """Return which stretches of a day's lines count."""
        begin_us, end_us = day.times_us
        is_first = self.has_edges and day.begin == self.excerpt.begin
        is_last = self.has_edges and day.end == self.excerpt.end
        begins = pa.chunked_array([limits["start"].cast(pa.int64()), streams["wall_start"]], pa.int64())
        ends = pc.min_max(begins).as_py()
        has_edge = (self.excerpt.begin and is_first) or (self.excerpt.end and is_last)
        if not has_edge and (not len(begins) or begin_us <= ends["min"] <= ends["max"] < end_us):
            return ALL
        # Lines may lag behind a change that is not in the excerpt.
        known_us = begin_us + BEHIND_CHANGE_S * 1e6 if is_first else -inf
        return JudgedPart(known_us, begin_us, end_us, end_us if is_last else inf)


def results_of(facts: pa.Table) -> list[Judged]:
    """Return the results of all days together, in the order of their limiters.

    Args:
        facts: `judged`, as `Judging.of` returns it.
    """
    in_order = facts.sort_by([(name, "ascending") for name in (*LIMITER, "day")])
    facts = in_order["facts"]
    return [
        of_days([msgspec.msgpack.decode(result, type=Judged) for result in facts[place].to_pylist()])
        for place in _by_limiter(in_order).values()
    ]


def worst_limits(results: Iterable[Judged], limiters: pa.Table, most: int) -> pa.Table | None:
    """Return the keys of the limits that come nearest to a violation, or are in one; then those waited on longest.

    Args:
        results: Of all limits.
        limiters: As `limits.limiter_facts`.
        most: The most limits; None is returned if there are not more.
    """
    scores = pa.Table.from_pylist(
        [
            {name: getattr(result.kept, name) for name in LIMIT_KEY} | {"score": score(result), "waits": None}
            for result in results
        ],
        _SCORES,
    )
    waited = with_columns(
        limiters.select(list(LIMIT_KEY)), score=pa.nulls(len(limiters), pa.float64()), waits=limiters["throttled_s"]
    )
    limits = Grouping(LIMIT_KEY, sums=("waits",), most=("score",)).of(pa.concat_tables([scores, waited]))
    if len(limits) <= most:
        return None
    order = [("score", "descending"), ("waits", "descending"), *((name, "ascending") for name in LIMIT_KEY)]
    return limits.sort_by(order).slice(0, most).select(list(LIMIT_KEY))


def score(result: Judged) -> float | None:
    """Return how near a limiter comes to a violation: the higher, the worse."""
    scores = [window.excess / (window.limit or 1) for window in result.windows]
    owed = result.entitlement
    if owed is not None:
        scores.append(max(owed.deficit_s, owed.whole_deficit_s))
    if result.doubts:
        scores.append(max([0.0, *scores]))
    return max(scores, default=None)


_SCORES = pa.schema([*((name, pa.string()) for name in LIMIT_KEY), ("score", pa.float64()), ("waits", pa.float64())])
_JUDGED = pa.schema([*((name, pa.string()) for name in LIMITER), ("facts", pa.binary())])
_MINUTES = pa.schema(
    [("tenant", pa.string()), ("minute", pa.int64()), *((name, pa.float64()) for name in MINUTES.sums)]
)


def _of_limiters(rows: pa.Table, *named: pa.Table) -> pa.Table:
    """Return the rows of limiters that other tables name."""
    keys = pa.concat_tables([table.select(list(LIMITER)) for table in named])
    return rows.join(keys, list(LIMITER), join_type="left semi")


def _between(rows: pa.Table, name: str, begin_us: float, end_us: float) -> pa.Table:
    """Return the rows of which a time is between two, microseconds since 1970; the end is exclusive."""
    times = rows[name].cast(pa.int64()).to_numpy()
    return only(rows, pa.array((times >= begin_us) & (times < end_us)))


def _by_limiter(rows: pa.Table) -> dict[tuple[str, ...], slice]:
    """Return the places of each limiter's rows; they are in order."""
    places, begin = {}, 0
    for key, of_limiter in groupby(zip(*(values_of(rows[name]) for name in LIMITER), strict=True)):
        end = begin + sum(1 for _ in of_limiter)
        places[key], begin = slice(begin, end), end
    return places


def _by_time(item: Line | StreamsLine) -> tuple[int, int]:
    return item.at_us[0], item.seq


_NAMED = ["start_us", "seq", "tenant"]


def _tenant(own: pa.Table, theirs: pa.Table) -> str:
    """Return the tenant that a limiter's rows name last."""
    last = [
        tuple(named[name][-1].as_py() for name in _NAMED)
        for table in (own, theirs)
        if len(named := table.select(_NAMED).filter(pc.not_equal(table["tenant"], "")))
    ]
    return str(max(last)[-1]) if last else ""


def _alone(limiter: Mapping[str, Any], sums: pa.Table) -> LimiterFacts | None:
    """Return the facts of a limit that only streams name; None without a value of it."""
    limits = pc.or_(sums["limit_messages"].is_valid(), sums["limit_bytes"].is_valid())
    named = sums.filter(limits)
    if not len(named):
        return None
    last = named.slice(len(named) - 1).to_pylist()[0]
    return LimiterFacts(
        **limiter,
        tenant=last["tenant"],
        namespace=last["namespace"],
        source=last["source"] or "",
        mode=last["named_mode"] or "enforce",
        limit_messages=last["limit_messages"],
        limit_bytes=last["limit_bytes"],
        burst_messages=None,
        burst_bytes=None,
        values=1,
        is_relative=False,
        was_limited=True,
        passed_messages=pc.sum(sums["counted_messages"]).as_py(),
        passed_bytes=pc.sum(sums["counted_bytes"]).as_py(),
        rejected_messages=0,
        rejected_bytes=0,
        throttled_s=0.0,
        first=moment(sums["wall_start"][0].as_py()),
        last=moment(sums["wall_end"][-1].as_py()),
    )


def limit_lines(limits: pa.Table) -> list[Line]:
    """Return lines of limiters as values.

    Args:
        limits: With `start_us` and `end_us`.
    """
    # No entry is larger than all that passed.
    largest = {
        f"largest_{unit}": pc.min_element_wise(limits[f"largest_entry_{unit}"], limits[f"passed_{unit}"])
        for unit in _UNITS
    }
    zeros = {
        name: pc.fill_null(limits[name], 0) for name in ("idle_ms", "recovered_ms", "reserved_ms", "rejected_messages")
    }
    overflow = {f"overflow_{bucket}": pc.fill_null(limits[f"overflow_{bucket}"], 0.0) for bucket in BUCKETS}
    walls = {f"wall_{name}": limits[name].cast(pa.int64()) for name in ("start", "end")}
    made = with_columns(limits, **largest, **zeros, **overflow, **walls)

    def together(*names: str) -> Iterator[Any]:
        return zip(*(values_of(made[name]) for name in names), strict=True)

    def of_units(*names: str) -> Iterator[Any]:
        return together(*(f"{name}_{unit}" for name in names for unit in _UNITS))

    def of_buckets(name: str) -> Iterator[Any]:
        return together(*(f"{name}_{bucket}" for bucket in BUCKETS))

    def in_s(name: str) -> list[float]:
        return values_of(seconds(made[f"{name}_ms"]))

    rows = zip(
        values_of(made["seq"]),
        together("file", "line"),
        together("start_us", "end_us"),
        together("wall_start", "wall_end"),
        in_s("duration"),
        values_of(made["source"]),
        values_of(made["mode"]),
        of_units("limit", "peak"),
        of_units("burst", "peak_burst"),
        of_units("published"),
        of_units("passed"),
        of_units("largest"),
        in_s("throttled"),
        in_s("idle"),
        in_s("reserved"),
        in_s("recovered"),
        of_buckets("tokens"),
        of_buckets("overflow"),
        values_of(made["rejected_messages"]),
        of_units("share"),
        of_buckets("began"),
        strict=True,
    )
    return [Line(*row) for row in rows]
