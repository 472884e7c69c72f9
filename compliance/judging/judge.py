"""The judging of all limiters: `account.py` replays each limiter's lines and its streams' lines.

Each task sums up its lines of streams by limit and span. These sums and the lines of limiters go to the task that has
the limit, of all proxies, and judges it. So memory holds the lines of a part of all limits at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compliance.excerpt import OF_ONE_TENANT, WHOLE_LOG, Excerpt
from compliance.figures.limits import (
    LIMIT_COLUMNS,
    LIMIT_KEY,
    episode_facts,
    headroom_facts,
    limiter_facts,
    observed_facts,
    value_changes,
)
from compliance.figures.scopes import LEVEL_WORDS
from compliance.figures.shards import figures_by_limit
from compliance.figures.sums import Grouping, seconds, values_of, waits, with_columns
from compliance.judging.account import judged
from compliance.judging.bypasses import Suspicion
from compliance.judging.clocks import Clocks, placed
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
        most: Limits of which a part of all keeps the results: the worst.
        excerpt: The part of the log that is judged.
    """

    clocks: Clocks
    notes: Notes
    fleets: FleetNotes
    suspicion: Suspicion
    most: int
    excerpt: Excerpt = WHOLE_LOG

    def of(self, lines: KeptLines, shards: int) -> dict[str, pa.Table]:
        """Judge all limiters, and sum up what only all lines of a limit show.

        Args:
            lines: Of all kinds.
            shards: The number of parts in which limits are judged.

        Returns:
            `judged` (`LIMITER`, `score`, `facts`: msgpack of `Judged`), `minutes`, `outside`, and by their names the
            figures of `figures.limits`.
        """
        columns = dict.fromkeys((*LIMIT_COLUMNS, *STREAM_COLUMNS))
        # A balance needs the amounts of whole lines, which may lie on the edge.
        return figures_by_limit(lines.within(self.excerpt.with_margin), columns, self.parts, self.figures, shards)

    def parts(self, lines: pa.Table) -> dict[str, pa.Table]:
        """Return what the judging needs of some lines."""
        on_axis = placed(with_columns(lines, throttled_ms=waits(lines)), self.clocks)
        limits = on_axis.filter(pc.equal(lines["kind"], "limit")).select([*LIMIT_COLUMNS, "start_us", "end_us"])
        streams = on_axis.filter(pc.equal(lines["kind"], "interval")).select([*STREAM_COLUMNS, "start_us", "end_us"])
        levels = LEVEL_WORDS
        if self.excerpt.tenant:
            levels = tuple(level for level in LEVEL_WORDS if level in OF_ONE_TENANT)
            limits = limits.filter(pc.is_in(limits["level"], pa.array(levels)))
        suspects = self.suspicion.suspects(self.excerpt.of(streams))
        return {"limits": limits, "streams": sums_of_lines(streams, levels), "suspects": suspects}

    def figures(self, parts: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Judge some limits, by what is needed of all their lines, and return the figures of them."""
        limits = parts["limits"].sort_by(_BY_TIME)
        streams = STREAMS_OF_LIMITS.again(parts["streams"]).sort_by(_BY_TIME)
        facts, minutes = _judged(limits, streams, self.notes, self.excerpt)
        limits = self.excerpt.of(limits)
        limiters = limiter_facts(limits)
        return {
            "judged": worst(facts, limiters, self.most),
            "minutes": MINUTES.of(minutes),
            "outside": self.suspicion.confirmed(parts["suspects"], limits),
            "limiters": limiters,
            "values": value_changes(limits),
            "episodes": episode_facts(limits),
            "observed": observed_facts(limits),
            "headroom": headroom_facts(on_common_clock(limits, self.fleets)),
        }


def worst(facts: pa.Table, limiters: pa.Table, most: int) -> pa.Table:
    """Return the results of the limits that come nearest to a violation, or are in one; then those waited on longest.

    Args:
        facts: As `Judging.of` returns them.
        limiters: As `limits.limiter_facts`.
        most: The most limits.
    """
    keys = worst_limits(facts, limiters, most)
    return facts if keys is None else facts.join(keys, keys=list(LIMIT_KEY), join_type="left semi")


def worst_limits(facts: pa.Table, limiters: pa.Table, most: int) -> pa.Table | None:
    """Return the keys of the worst limits; None if there are not more."""
    scores = with_columns(facts.select([*LIMIT_KEY, "score"]), waits=pa.nulls(len(facts), pa.float64()))
    waited = with_columns(
        limiters.select(list(LIMIT_KEY)), score=pa.nulls(len(limiters), pa.float64()), waits=limiters["throttled_s"]
    )
    limits = Grouping(LIMIT_KEY, sums=("waits",), most=("score",)).of(pa.concat_tables([scores, waited]))
    if len(limits) <= most:
        return None
    order = [("score", "descending"), ("waits", "descending"), *((name, "ascending") for name in LIMIT_KEY)]
    return limits.sort_by(order).slice(0, most).select(list(LIMIT_KEY))


def _judged(limits: pa.Table, streams: pa.Table, notes: Notes, excerpt: Excerpt) -> tuple[pa.Table, pa.Table]:
    """Replay all limiters, one after the other: their results, and their minutes."""
    within = _judged_us(excerpt)
    rows, minutes = [], []
    own_lines, sums = limit_lines(limits), streams_lines(streams)
    places = [_by_limiter(table) for table in (limits, streams)]
    for key in sorted({*places[0], *places[1]}):
        limiter = dict(zip(LIMITER, key, strict=True))
        own, theirs = (of.get(key, slice(0)) for of in places)
        items: list[Line | StreamsLine] = [*own_lines[own], *sums[theirs]]
        items.sort(key=_by_time)
        run = notes.get((key[0], key[1]), RunNotes())
        result = judged(limiter, run.of_limiter(*key[2:]), items, within)
        result.alone = None if own_lines[own] else _alone(limiter, _between(streams[theirs], excerpt))
        tenant = _tenant(limits[own], streams[theirs])
        minutes += [{"tenant": tenant, "minute": at} | msgspec.structs.asdict(of) for at, of in result.minutes.items()]
        result.minutes = {}
        score = _score(result)
        if result.alone is not None or result.kept.lines or score is not None:
            rows.append(limiter | {"score": score, "facts": msgspec.msgpack.encode(result)})
    return pa.Table.from_pylist(rows, _JUDGED), pa.Table.from_pylist(minutes, _MINUTES)


def _between(sums: pa.Table, excerpt: Excerpt) -> pa.Table:
    begin_us, end_us = excerpt.times_us
    return sums.filter(pc.and_(pc.greater_equal(sums["wall_start"], begin_us), pc.less(sums["wall_start"], end_us)))


def _judged_us(excerpt: Excerpt) -> tuple[float, float] | None:
    """Return the times between which lines are judged, microseconds since 1970; None: all are."""
    begin_us, end_us = excerpt.times_us
    # Lines may lag behind a change that is not in the excerpt.
    return None if (begin_us, end_us) == (-inf, inf) else (begin_us + BEHIND_CHANGE_S * 1e6, end_us)


_JUDGED = pa.schema([*((name, pa.string()) for name in LIMITER), ("score", pa.float64()), ("facts", pa.binary())])
_MINUTES = pa.schema(
    [("tenant", pa.string()), ("minute", pa.int64()), *((name, pa.float64()) for name in MINUTES.sums)]
)


def _by_limiter(rows: pa.Table) -> dict[tuple[str, ...], slice]:
    """Return the places of each limiter's rows; they are in order."""
    found, begin = {}, 0
    for key, of_limiter in groupby(zip(*(values_of(rows[name]) for name in LIMITER), strict=True)):
        end = begin + sum(1 for _ in of_limiter)
        found[key], begin = slice(begin, end), end
    return found


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


def _score(result: Judged) -> float | None:
    """Return how near a limiter comes to a violation: the higher, the worse."""
    scores = [window.excess / (window.limit or 1) for window in result.windows]
    owed = result.entitlement
    if owed is not None:
        scores.append(max(owed.deficit_s, owed.whole_deficit_s))
    if result.doubts:
        scores.append(max([0.0, *scores]))
    return max(scores, default=None)


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
    zeros = {name: pc.fill_null(limits[name], 0) for name in ("idle_ms", "reserved_ms", "rejected_messages")}
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
        of_buckets("tokens"),
        of_buckets("overflow"),
        values_of(made["rejected_messages"]),
        of_units("share"),
        of_buckets("began"),
        strict=True,
    )
    return [Line(*row) for row in rows]


def results_of(facts: pa.Table) -> list[Judged]:
    """Return results, in the order of their limiters."""
    in_order = facts.sort_by([(name, "ascending") for name in LIMITER])
    return [msgspec.msgpack.decode(result, type=Judged) for result in in_order["facts"].to_pylist()]
