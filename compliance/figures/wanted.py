"""Figures of some limits and topics only: rates and peaks for charts, members' shares, demand.

The lines of one limit, of all proxies, come to one task.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from compliance.figures.limits import LIMIT_KEY, is_in_force, ratio, spread
from compliance.figures.scopes import SCOPED_BY, scoped
from compliance.figures.sums import Grouping, Latest, Values, ones, waits, with_columns
from compliance.figures.traffic import TIMEOUT_S

_UNITS = ("messages", "bytes")
_LIMITS = ("limit_messages", "limit_bytes", "burst_messages", "burst_bytes")
_FLOWS = ("offered", "passed", "held", "dropped", "rejected")
_STREAM = ("boot_id", "connection_id", "stream_id", "topic")
_STREAMS = (
    *LIMIT_KEY,
    *_STREAM,
    *("member", "seq", "start", "end", "duration_ms", "limit_level", "limit_messages", "limit_bytes"),
    *(f"{flow}_{unit}" for flow in _FLOWS for unit in _UNITS),
)
_OF_LIMITS = (
    *LIMIT_KEY,
    *("mode", "start", "end", "duration_ms", "throttled_ms"),
    *(f"{name}_{unit}" for name in ("passed", "largest_entry", "limit", "burst") for unit in _UNITS),
)
COLUMNS = tuple(
    dict.fromkeys(
        (
            *("kind", "tenant", "namespace", "producer_name", "subscription", *SCOPED_BY),
            *(name for name in _STREAMS if name not in {"member", "level", "name"}),
            *_OF_LIMITS,
        )
    )
)
"""Columns of lines that these figures need."""
RESOLUTIONS_S = (1, 10, 60, 300, 3600)
"""Lengths of the steps over which the highest averages are reported."""
Key = tuple[str, str, str, str]


class Wanted(Struct, frozen=True, kw_only=True):
    """The limits and topics of which figures are wanted, by `LIMIT_KEY`.

    Args:
        limits: Those with rates: key, the length of a step, begin and end, in seconds (since 1970).
        topics: The same for topics without a limit: an empty proxy, level `topic`, and the topic as its name.
        peaks: Those with peaks.
        shared: Those with shares of members: key, and the unit.
        demands: Those with a demand: key, and the proxy, or empty for a limit that a fleet shares.
    """

    limits: Sequence[tuple[Any, ...]] = ()
    topics: Sequence[tuple[Any, ...]] = ()
    peaks: Sequence[Key] = ()
    shared: Sequence[tuple[str, ...]] = ()
    demands: Sequence[tuple[str, ...]] = ()


_KEYS = [(name, pa.string()) for name in LIMIT_KEY]
_SPANS = pa.schema([*_KEYS, ("step_s", pa.int64()), ("from_s", pa.float64()), ("to_s", pa.float64())])
_UNIT, _OWNER = pa.schema([*_KEYS, ("unit", pa.string())]), pa.schema([*_KEYS, ("owner", pa.string())])


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _keys(*of: Sequence[tuple[Any, ...]]) -> pa.Table:
    return _table(sorted({row[:4] for rows in of for row in rows}), pa.schema(_KEYS))


def wanted_lines(lines: pa.Table, wanted: Wanted) -> dict[str, pa.Table]:
    """Return the lines that the figures need: of limiters, of streams by their limits, of topics."""
    lines = with_columns(lines, throttled_ms=waits(lines))
    limits, streams = (lines.filter(pc.equal(lines["kind"], kind)) for kind in ("limit", "interval"))
    own = _keys(wanted.limits, wanted.peaks, wanted.shared)
    of_streams = _keys(wanted.limits, wanted.shared, wanted.demands)
    by_level = [_named(streams.slice(0, 0), "")]
    for level, named in scoped(streams, set(of_streams["level"].to_pylist())):
        by_level.append(_among(_named(named, level), of_streams))
    topics = with_columns(streams, name=streams["topic"], member=streams["topic"], proxy_id=_text("", streams))
    return {
        "limits": _among(limits.select(list(_OF_LIMITS)), own),
        "streams": pa.concat_tables(by_level),
        "topics": _among(_named(topics, "topic"), _keys(wanted.topics)),
    }


def _among(lines: pa.Table, keys: pa.Table) -> pa.Table:
    return lines.join(keys, keys=list(LIMIT_KEY), join_type="left semi") if len(keys) else lines.slice(0, 0)


def _named(lines: pa.Table, level: str) -> pa.Table:
    named = with_columns(lines, level=_text(level, lines))
    if not len(named):
        named = with_columns(named, member=_text("", lines), name=_text("", lines))
    return named.select(list(_STREAMS))


def _text(text: str, rows: pa.Table) -> pa.Array:
    return pa.array([text] * len(rows), pa.string())


def wanted_figures(parts: dict[str, pa.Table], wanted: Wanted) -> dict[str, pa.Table]:
    """Return `rates`, `peaks`, `fairness` and `demands`, each as the facts of its name, from `wanted_lines`."""
    limits, streams = parts["limits"], parts["streams"]
    rates = [limiter_rates(limits, streams, wanted.limits), topic_rates(parts["topics"], wanted.topics)]
    return {
        "rates": pa.concat_tables(rates),
        "peaks": peak_facts(limits, wanted.peaks),
        "fairness": fairness_facts(limits, streams, wanted.shared),
        "demands": demand_facts(streams, wanted.demands),
    }


_STEP = (*LIMIT_KEY, "step_s", "step")
_RATES = (*_STEP, *(f"{flow}_{unit}" for flow in ("offered", "passed") for unit in _UNITS), *_LIMITS)


def limiter_rates(limits: pa.Table, streams: pa.Table, spans: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return rates per second of limits per step, as `RateFacts`."""
    passed = _per_step(_within(limits, spans), ("passed",), *_LIMITS)
    theirs = _within(streams, spans)
    is_own = pc.equal(theirs["limit_level"], theirs["level"])
    own_limits = {f"said_{unit}": pc.if_else(is_own, theirs[f"limit_{unit}"], None) for unit in _UNITS}
    offered = _per_step(with_columns(theirs, **own_limits), ("offered", "passed"), *own_limits)
    by_streams = offered.rename_columns({f"passed_{unit}": f"by_streams_{unit}" for unit in _UNITS})
    joined = passed.join(by_streams, keys=list(_STEP), join_type="full outer")
    # Where the limit has no lines, its streams' lines count.
    more = {f"passed_{unit}": pc.coalesce(joined[f"passed_{unit}"], joined[f"by_streams_{unit}"]) for unit in _UNITS}
    more |= {f"limit_{unit}": pc.coalesce(joined[f"limit_{unit}"], joined[f"said_{unit}"]) for unit in _UNITS}
    return with_columns(joined, **more).select(list(_RATES))


def topic_rates(topics: pa.Table, spans: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return rates of topics without a limit, as `RateFacts`."""
    rates = _per_step(_within(topics, spans), ("offered", "passed"))
    return with_columns(rates, **{name: pa.nulls(len(rates), pa.float64()) for name in _LIMITS}).select(list(_RATES))


def _within(lines: pa.Table, spans: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return the lines that touch the span of their limit, with the length of its steps."""
    joined = lines.join(_table(spans, _SPANS), keys=list(LIMIT_KEY), join_type="inner")
    start, end = (joined[name].cast(pa.int64()).to_numpy() / 1e6 for name in ("start", "end"))
    return joined.filter(pa.array((end > joined["from_s"].to_numpy()) & (start < joined["to_s"].to_numpy())))


def _per_step(lines: pa.Table, flows: Sequence[str], *most: str) -> pa.Table:
    names = tuple(f"{flow}_{unit}" for flow in flows for unit in _UNITS)
    steps = Grouping(_STEP, sums=names, most=most).of(spread(lines, lines["step_s"].to_numpy(), names))
    return with_columns(steps, **{name: pc.divide(steps[name], steps["step_s"].cast(pa.float64())) for name in names})


def peak_facts(limits: pa.Table, keys: Sequence[Key]) -> pa.Table:
    """Return the highest average of limits over each resolution, as `PeakFacts`."""
    lines = _among(limits, _keys(keys))
    return pa.concat_tables(_peaks(lines, unit, step_s) for unit in _UNITS for step_s in RESOLUTIONS_S)


def _peaks(lines: pa.Table, unit: str, step_s: int) -> pa.Table:
    limit = pc.if_else(is_in_force(lines), lines[f"limit_{unit}"], None)
    of = {"passed": lines[f"passed_{unit}"], "burst": lines[f"burst_{unit}"], "largest": lines[f"largest_entry_{unit}"]}
    own = with_columns(lines, limit=limit, **of).filter(limit.is_valid())
    steps = Grouping((*LIMIT_KEY, "step"), sums=("passed",), most=("limit", "burst", "largest")).of(
        spread(own, step_s, ("passed",))
    )
    highest = pc.divide(steps["passed"], float(step_s))
    slack = pc.divide(pc.add(steps["burst"], steps["largest"].cast(pa.float64(), safe=False)), float(step_s))
    order = {"rounded": pc.round(highest, 6), "before": pc.negate(steps["step"])}
    peaks = Grouping(
        LIMIT_KEY,
        # Of equal steps the earliest.
        latest=(Latest(("rounded", "before"), ("highest", "limit", "allowed", "step")),),
    ).of(with_columns(steps, highest=highest, allowed=pc.add(steps["limit"], slack), **order))
    at = pa.array(peaks["step"].to_numpy() * step_s * 1_000_000).cast(pa.timestamp("us", tz="UTC"))
    return with_columns(peaks, unit=_text(unit, peaks), step_s=pa.array([step_s] * len(peaks), pa.int64()), at=at)


CONTENDED_STEP_S = 10
CONTENDED = 0.5


def fairness_facts(limits: pa.Table, streams: pa.Table, shared: Sequence[tuple[str, ...]]) -> pa.Table:
    """Return the shares of each member of limits, as `FairnessFacts`."""
    key = (*LIMIT_KEY, "step")
    own = _among(limits.filter(is_in_force(limits)), _keys(shared))
    waited = Grouping(key, sums=("throttled_ms",)).of(spread(own, CONTENDED_STEP_S, ("throttled_ms",)))
    contended = waited.filter(pc.greater_equal(waited["throttled_ms"], CONTENDED * CONTENDED_STEP_S * 1e3))
    lines = streams.join(_table(shared, _UNIT), keys=list(LIMIT_KEY), join_type="inner")
    is_bytes = pc.equal(lines["unit"], "bytes")
    counts = {
        flow: pc.fill_null(pc.if_else(is_bytes, lines[f"{flow}_bytes"], lines[f"{flow}_messages"]), 0).cast(
            pa.float64(), safe=False
        )
        for flow in _FLOWS[1:]
    }
    flows = ("passed", "dropped", "rejected")
    of_streams = Grouping(
        (*LIMIT_KEY, "unit", "member", "step", *_STREAM), sums=flows, latest=(Latest(("seq",), ("held",)),)
    ).of(spread(with_columns(lines, **counts), CONTENDED_STEP_S, flows))
    # Messages held at the end of a step had arrived by then: they were wanted in this step and in the next.
    wanted: Values = of_streams["held"]
    for flow in flows:
        wanted = pc.add(wanted, of_streams[flow])
    members = Grouping((*LIMIT_KEY, "unit", "member", "step"), sums=("got", "wanted")).of(
        with_columns(of_streams, got=of_streams["passed"], wanted=wanted)
    )
    steps = with_fair_share(members.join(contended.select(list(key)), keys=list(key), join_type="left semi"), key)
    shares = Grouping((*LIMIT_KEY, "unit", "member"), sums=("steps", "got", "wanted", "fair")).of(
        with_columns(steps, steps=ones(steps))
    )
    return with_columns(
        shares,
        contended_s=pc.multiply(shares["steps"].cast(pa.float64()), float(CONTENDED_STEP_S)),
        lacks=pc.subtract(shares["fair"], shares["got"]),
    )


def with_fair_share(members: pa.Table, key: Sequence[str]) -> pa.Table:
    """Add `fair`, the max-min share of the sum of `got` within each group, by `wanted` (water filling)."""
    ordered = members.sort_by([(name, "ascending") for name in (*key, "wanted", "member")])
    groups = ordered.group_by(list(key), use_threads=False).aggregate([("got", "sum"), ("got", "count")])
    numbered = with_columns(groups.select(list(key)), group=pa.array(np.arange(len(groups))))
    ordered = ordered.join(numbered, keys=list(key), join_type="inner").sort_by(
        [("group", "ascending"), ("wanted", "ascending"), ("member", "ascending")]
    )
    group, wanted = ordered["group"].to_numpy(), ordered["wanted"].to_numpy()
    got, number = groups["got_sum"].to_numpy(), groups["got_count"].to_numpy()
    first = np.searchsorted(group, group)
    before = np.concatenate([[0.0], np.cumsum(wanted)])
    smaller = before[:-1] - before[first]
    share = np.maximum(0.0, (got[group] - smaller) / (number[group] - (np.arange(len(group)) - first)))
    # A member that wants at most an equal part of the rest gets it; the first that wants more sets the others' level.
    water = np.full(len(groups), -np.inf)
    np.maximum.at(water, group, np.where(wanted > share, share, -np.inf))
    level = water[group]
    return with_columns(ordered, fair=pa.array(np.where(np.isfinite(level), np.minimum(wanted, level), wanted)))


DEMAND_STEP_S = TIMEOUT_S
"""A limit that gives all that came in each of these steps has no backlog at the end of one: no message waits longer."""


def demand_facts(streams: pa.Table, demands: Sequence[tuple[str, ...]]) -> pa.Table:
    """Return what clients offered to limits in the fullest step, as `DemandFacts`."""
    key = ("owner", *LIMIT_KEY[1:])
    offered = tuple(f"offered_{unit}" for unit in _UNITS)
    lines = streams.join(_table(demands, _OWNER), keys=list(LIMIT_KEY), join_type="inner")
    steps = Grouping((*key, "step"), sums=offered).of(spread(lines, DEMAND_STEP_S, offered))
    fullest = Grouping(key, most=offered).of(steps)
    spans = Grouping(key, least=("start",), most=("end",)).of(lines)
    peaks = fullest.join(spans, keys=list(key), join_type="inner")
    span_s = (peaks["end"].cast(pa.int64()).to_numpy() - peaks["start"].cast(pa.int64()).to_numpy()) / 1e6
    # A log shorter than a step has its rate over the log.
    length_s = pa.array(np.clip(span_s, 1.0, DEMAND_STEP_S))
    rates = {f"{unit}_per_s": ratio(peaks[f"offered_{unit}"], length_s) for unit in _UNITS}
    return with_columns(peaks, proxy_id=peaks["owner"], **rates)
