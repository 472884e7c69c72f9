"""Figures of limits, by all lines of their limiters: values, changes, episodes of waiting, headroom."""

import re
from collections.abc import Sequence
from operator import lt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compliance.excerpt import only
from compliance.figures.sums import Grouping, Latest, Values, ones, seconds, with_columns, with_zeros
from compliance.schema import LIMITER, OBSERVED, STEP_S, defaulted_fields, nullable_fields, required_fields

LIMIT_KEY = ("proxy_id", "direction", "level", "name")
LIMIT_COLUMNS = tuple(
    dict.fromkeys(
        (
            *required_fields("limit"),
            *nullable_fields("limit"),
            *defaulted_fields("limit"),
            "kind",
            "file",
            "line",
        )
    )
)
"""Columns of lines of limiters."""
_UNITS = ("messages", "bytes")
_LIMITS = ("limit_messages", "limit_bytes", "burst_messages", "burst_bytes")
_IN_FORCE = (*_LIMITS, "shared_messages", "shared_bytes", "source", "mode", "tenant", "namespace", "is_relative")
_COUNTED = ("passed_messages", "passed_bytes", "rejected_messages", "rejected_bytes", "throttled_ms")
Flags = npt.NDArray[np.bool_]


def is_in_force(lines: pa.Table) -> Values:
    """Return whether each limit holds streams back, and does not only observe."""
    return pc.not_equal(lines["mode"], OBSERVED)


def whole_limit(lines: pa.Table, unit: str) -> Values:
    """Return the limit of one unit in lines of limiters; of a share, that of the whole fleet."""
    return pc.coalesce(lines[f"shared_{unit}"], lines[f"limit_{unit}"])


def any_of(*columns: Values) -> Values:
    """Return whether any of the columns has a value."""
    return pc.coalesce(*columns).is_valid()


LIMITERS = Grouping(
    LIMITER,
    sums=_COUNTED,
    least=("start",),
    most=("end", "is_shared", "was_limited"),
    latest=(Latest(("seq",), _IN_FORCE),),
)
"""Each limiter of each run."""
CONFIGURED = Grouping((*LIMITER, "configured_messages", "configured_bytes"))
"""The values that each had."""


def limiters_of(lines: pa.Table) -> dict[str, pa.Table]:
    """Sum up lines of limiters as `limiters` and `configured`."""
    in_force = is_in_force(lines)
    more = {
        "is_shared": any_of(lines["share_messages"], lines["share_bytes"]),
        "is_relative": any_of(lines["published_messages"], lines["published_bytes"]),
        "was_limited": pc.and_(in_force, any_of(lines["limit_messages"], lines["limit_bytes"])),
        **{name: pc.if_else(in_force, lines[name], None) for name in _COUNTED},
        **{f"configured_{unit}": _configured(lines, unit) for unit in _UNITS},
    }
    made = with_columns(lines, **more)
    return {"limiters": LIMITERS.of(made), "configured": CONFIGURED.of(made)}


def limiter_facts(limiters: pa.Table, configured: pa.Table) -> pa.Table:
    """Describe each limiter of each run, as `LimiterFacts`, by `limiters_of` days."""
    each = CONFIGURED.again(configured)
    values = Grouping(LIMITER, sums=("values",)).of(with_columns(each, values=ones(each)))
    joined = LIMITERS.again(limiters).join(values, keys=list(LIMITER), join_type="inner")
    joined = with_zeros(joined, *_COUNTED)
    return with_columns(joined, throttled_s=seconds(joined["throttled_ms"]), first=joined["start"], last=joined["end"])


def _configured(lines: pa.Table, unit: str) -> Values:
    """The limit without the publish rate that it is relative to; of a share, that of the whole fleet."""
    return pc.round(pc.subtract(whole_limit(lines, unit), pc.fill_null(lines[f"published_{unit}"], 0.0)), 6)


def _in_order(rows: pa.Table, key: Sequence[str] = LIMITER, by: str = "seq") -> tuple[pa.Table, Flags]:
    """Return rows by their key and another column, and which of them are the first of a key."""
    is_first = _first_of(rows, key)
    if not _is_in_order(rows, key, by, is_first):
        rows = rows.sort_by([(name, "ascending") for name in (*key, by)])
        is_first = _first_of(rows, key)
    return rows, is_first


def _first_of(rows: pa.Table, key: Sequence[str]) -> Flags:
    is_first = np.ones(len(rows), np.bool_)
    for number, name in enumerate(key):
        column = rows[name]
        differs = pc.not_equal(column.slice(1), column.slice(0, max(0, len(column) - 1))).to_numpy()
        is_first[1:] = differs if not number else is_first[1:] | differs
    return is_first


def _is_in_order(rows: pa.Table, key: Sequence[str], by: str, is_first: Flags) -> bool:
    """Return whether rows are in order already: a copy of all columns would take longer than this look."""
    places = np.flatnonzero(is_first)
    if len(places) > len(rows) // 4:
        return False
    values = rows[by].to_numpy()
    keys = list(zip(*(rows[name].take(places).to_pylist() for name in key), strict=True))
    return bool(((values[1:] >= values[:-1]) | is_first[1:]).all()) and all(map(lt, keys, keys[1:]))


def last_lines(lines: pa.Table) -> pa.Table:
    """Return the last line of each limiter."""
    ordered, is_first = _in_order(lines)
    return ordered.filter(pa.array(np.append(is_first[1:], np.ones(min(1, len(ordered)), np.bool_))))


_ZEROS = re.compile(r"\.?0+$")


def value_changes(lines: pa.Table) -> pa.Table:
    """List values of limits that changed, as `ChangeFacts`: the line before has another one.

    Limits that follow the publish rate always change.
    """
    ordered, is_first = _in_order(lines)
    values = [pc.fill_null(whole_limit(ordered, unit), -1.0).to_numpy() for unit in _UNITS]
    values.append(pc.fill_null(ordered["mode"], "").combine_chunks().dictionary_encode().indices.to_numpy())
    is_new = np.zeros(len(ordered), np.bool_)
    for column in values:
        is_new[1:] |= column[1:] != column[:-1]
    at = np.flatnonzero(is_new & ~is_first)
    changes = []
    for before, after in zip(ordered.take(at - 1).to_pylist(), ordered.take(at).to_pylist(), strict=True):
        was, now = _limit(before), _limit(after)
        if None not in (was, now) and was != now:
            target = f"{after['direction']} {after['level']}"
            changed = {"at": after["start"], "kind": "limit", "what": target, "before": was, "after": now, "who": ""}
            changes.append(changed | {name: after[name] for name in ("proxy_id", "name")})
    return pa.Table.from_pylist(changes, _CHANGES)


_CHANGES = pa.schema(
    [("at", pa.timestamp("us", tz="UTC"))]
    + [(name, pa.string()) for name in ("kind", "proxy_id", "what", "name", "before", "after", "who")]
)


def _limit(line: dict[str, Any]) -> str | None:
    """Return a limit in words; None for one that follows the publish rate."""
    if line["published_messages"] is not None or line["published_bytes"] is not None:
        return None
    words = []
    for unit in _UNITS:
        # A share that a fleet's coordinator grants is no other limit.
        limit = line[f"limit_{unit}"] if line[f"shared_{unit}"] is None else line[f"shared_{unit}"]
        if limit is not None:
            words.append(f"{_ZEROS.sub('', f'{limit:,.3f}')} {unit}/s")
    if line["mode"] != "enforce":
        words.append(f"mode {line['mode']}")
    return ", ".join(words) or "no limit"


_STILL_ONE_US = 1000


EPISODES = Grouping(
    LIMIT_KEY,
    sums=("throttled_s", "episodes"),
    most=("longest_s",),
    # Of several that are as long, the first; sums of fractions differ with the order in which they are added.
    latest=(Latest(("rounded_s", "before"), ("start",)),),
)
"""Waits on each limit; lines that follow one another are one episode."""
IN_FORCE = Grouping((*LIMITER, "tenant", "namespace"), least=("start",), most=("end",))
"""The time in which each limiter did not only observe."""


def episodes_of(lines: pa.Table) -> dict[str, pa.Table]:
    """Sum up lines of limiters as `episodes` and `in_force`."""
    ordered, is_first = _in_order(only(lines, is_in_force(lines)))
    waits = pc.fill_null(pc.greater(ordered["throttled_ms"], 0), False).to_numpy()
    start, end = (ordered[name].cast(pa.int64()).to_numpy() for name in ("start", "end"))
    begins = waits.copy()
    begins[1:] &= ~(waits[:-1] & (start[1:] - end[:-1] <= _STILL_ONE_US) & ~is_first[1:])
    waited = only(with_columns(ordered, episode=pa.array(np.cumsum(begins))), pa.array(waits))
    episodes = Grouping((*LIMITER, "episode"), sums=("throttled_ms",), least=("start",)).of(waited)
    waited_s = seconds(episodes["throttled_ms"])
    order = {"rounded_s": pc.round(waited_s, 9), "before": pc.negate(episodes["start"].cast(pa.int64()))}
    counted = with_columns(episodes, throttled_s=waited_s, longest_s=waited_s, episodes=ones(episodes), **order)
    return {"episodes": EPISODES.of(counted), "in_force": IN_FORCE.of(ordered)}


def episode_facts(episodes: pa.Table, in_force: pa.Table) -> pa.Table:
    """Sum up the waits on each limiter, as `EpisodeFacts`, by `episodes_of` days."""
    waits, runs = EPISODES.again(episodes), IN_FORCE.again(in_force)
    span_s = (runs["end"].cast(pa.int64()).to_numpy() - runs["start"].cast(pa.int64()).to_numpy()) / 1e6
    spans = Grouping(LIMIT_KEY, sums=("span_s",), least=("tenant", "namespace")).of(
        with_columns(runs, span_s=pa.array(span_s))
    )
    joined = waits.join(spans, keys=list(LIMIT_KEY), join_type="inner")
    return with_columns(joined, longest_start=joined["start"], order_s=pc.round(joined["throttled_s"], 9))


OBSERVED_LIMITS = Grouping(
    ("direction", "level", "name", "tenant"),
    sums=("throttled_ms", "duration_ms"),
    least=("first",),
    latest=(Latest(("end",), ("limit_messages", "limit_bytes")),),
)
"""The limits that are only observed."""


def observed_of(lines: pa.Table) -> dict[str, pa.Table]:
    """Sum up lines of limiters as `observed`: with enforcing, streams would have waited."""
    own = only(lines, pc.equal(lines["mode"], OBSERVED))
    first = pc.if_else(pc.greater(own["throttled_ms"], 0), own["start"], None)
    return {"observed": OBSERVED_LIMITS.of(with_columns(own, first=first))}


def observed_facts(observed: pa.Table) -> pa.Table:
    """Sum up the limits that are only observed, as `ObservedFacts`, by `observed_of` days."""
    limits = OBSERVED_LIMITS.again(observed)
    return with_columns(
        limits, would_throttle_s=seconds(limits["throttled_ms"]), observed_s=seconds(limits["duration_ms"])
    )


MOST_STEPS_A_LINE = 3600
"""Steps of a chart in which one line counts, at most; a line in more steps counts in its first and last one."""


def spread(lines: pa.Table, step_s: Any, names: Sequence[str]) -> pa.Table:
    """Repeat each line for every step that it touches, with its share of each count.

    Args:
        lines: With `start`, `end` and `duration_ms`; adds `step`, counted from 1970, and `share`.
        step_s: The length of a step in seconds, of all lines or of each.
        names: Columns to share out.
    """
    step_s = np.broadcast_to(np.asarray(step_s), (len(lines),))
    start, end = (lines[name].cast(pa.int64()).to_numpy() / 1e6 for name in ("start", "end"))
    lasts, by_wall = lines["duration_ms"].to_numpy() / 1e3, end - start
    # By its own clock, where the wall clock was stepped within it.
    length = np.where(np.abs(by_wall - lasts) > STEP_S, lasts, by_wall)
    begin = end - length
    first = np.floor(begin / step_s).astype(np.int64)
    # The end is exclusive; a clock that stepped back must not make the sequence run backwards.
    last = np.maximum(first, np.ceil(end / step_s).astype(np.int64) - 1)
    # A line of an hour must not become thousands of rows.
    is_long = last - first > MOST_STEPS_A_LINE
    number = np.where(is_long, 2, last - first + 1)
    of = np.repeat(np.arange(len(lines)), number)
    place = np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number)
    step = np.where(is_long[of] & (place == 1), last[of], first[of] + place)
    own_s = step_s[of]
    overlap = np.maximum(0.0, np.minimum(end[of], (step + 1) * own_s) - np.maximum(begin[of], step * own_s))
    whole = length[of]
    share = np.where(whole > 0, overlap / np.where(whole > 0, whole, 1.0), 1.0)
    touched = lines.take(pa.array(of))
    shared = {name: pc.multiply(touched[name].cast(pa.float64(), safe=False), pa.array(share)) for name in names}
    return with_columns(touched, step=pa.array(step), share=pa.array(share), **shared)


NEAR = 0.8
USE_STEP_S = 10
_SLIVER = 0.01
"""The part of a short line that counts as nothing."""
_SLIVER_MS = 100.0
_AMOUNTS = tuple(f"{amount}_{unit}" for unit in _UNITS for amount in ("served_s", "passed", "entries"))


_LIMIT_OF_ALL = (*LIMIT_KEY, "fleet")
USE = Grouping(
    _LIMIT_OF_ALL,
    sums=("steps", "near_steps"),
    most=("members",),
    latest=(Latest(("rounded", "before"), ("peak", "step")),),
)
"""The use of each limit in steps of ten seconds."""
USED = Grouping((*_LIMIT_OF_ALL, "used"), sums=("steps",))
"""How many steps had which use, rounded to half a percent."""
_HALF_A_PERCENT = 200


def use_of(lines: pa.Table) -> dict[str, pa.Table]:
    """Sum up lines of limiters as `use` and `used`; a limit that a fleet shares is one, that of all members.

    Args:
        lines: As `fleets.on_common_clock`.
    """
    steps = _step_use(lines)
    steps = only(steps, steps["used"].is_valid())
    order = {"rounded": pc.round(steps["used"], 9), "before": pc.negate(steps["step"])}
    near = pc.greater_equal(steps["used"], NEAR).cast(pa.int64())
    made = with_columns(steps, steps=ones(steps), near_steps=near, peak=steps["used"], **order)
    rounded = pc.divide(pc.round(pc.multiply(steps["used"], _HALF_A_PERCENT)), _HALF_A_PERCENT)
    return {"use": USE.of(made), "used": USED.of(with_columns(made, used=rounded))}


def headroom_facts(use: pa.Table, used: pa.Table) -> pa.Table:
    """Headroom of each limit in force, as `HeadroomFacts`.

    Args:
        use: As `use_of`, of several days, with `day`.
        used: Likewise.
    """
    key = list(_LIMIT_OF_ALL)
    ordered, is_first = _in_order(USED.again(used), key, "used")
    first = np.flatnonzero(is_first)
    until = np.cumsum(ordered["steps"].to_numpy())
    begin = until[first] - ordered["steps"].to_numpy()[first]
    # The lower one of two in the middle.
    middle = (begin + np.append(begin[1:], until[-1:])[: len(begin)] - 1) // 2
    typical = ordered.take(pa.array(np.searchsorted(until, middle, side="right")))
    headroom = USE.again(use).join(
        with_columns(typical, typical=typical["used"]).select([*key, "typical"]), keys=key, join_type="inner"
    )
    return with_columns(
        headroom,
        peak_at=pa.array(headroom["step"].to_numpy() * USE_STEP_S * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
        **_trends(headroom, use, key),
    )


def _step_use(lines: pa.Table) -> pa.Table:
    """Return the share of each limit that was used in each ten seconds with a line: `used`.

    An amount counts as a share of the limit's amount in ten seconds, or of the largest entry if that is larger: one
    entry fills a limit of less than an entry in ten seconds. Of a limit that a fleet shares, all members together
    use the whole, and may each pass an entry. Of messages and bytes the fuller ones count.
    """
    limits = [whole_limit(lines, unit) for unit in _UNITS]
    in_force = only(lines, pc.and_(is_in_force(lines), any_of(*limits)))
    touched = spread(in_force, USE_STEP_S, [f"passed_{unit}" for unit in _UNITS])
    share = touched["share"]
    # A line ends a little after the step.
    is_part = pc.or_(
        pc.greater_equal(share, _SLIVER), pc.greater_equal(pc.multiply(share, touched["duration_ms"]), _SLIVER_MS)
    )
    counted = only(touched, is_part)
    served = {f"served_s_{unit}": ratio(counted[f"passed_{unit}"], whole_limit(counted, unit)) for unit in _UNITS}
    entries = {f"entries_{unit}": counted[f"largest_entry_{unit}"] for unit in _UNITS}
    is_shared = counted["fleet"].is_valid()
    of_each = Grouping(
        (*LIMIT_KEY, "fleet", "step"),
        sums=(*served, *(f"passed_{unit}" for unit in _UNITS)),
        most=(*entries, "members"),
    ).of(with_columns(counted, **served, **entries, members=is_shared.cast(pa.int64())))
    owner = pc.if_else(of_each["fleet"].is_valid(), "", of_each["proxy_id"])
    fleet = pc.fill_null(of_each["fleet"], "")
    together = Grouping((*LIMIT_KEY, "fleet", "step"), sums=("members", *_AMOUNTS)).of(
        with_columns(of_each, proxy_id=owner, fleet=fleet)
    )
    used = []
    for unit in _UNITS:
        of_limit = pc.divide(together[f"served_s_{unit}"], USE_STEP_S)
        of_entries = ratio(together[f"passed_{unit}"], together[f"entries_{unit}"])
        # Without a limit of that unit the sum is null, and so is the lesser of both.
        used.append(pc.if_else(of_limit.is_valid(), pc.min_element_wise(of_limit, of_entries), None))
    return with_columns(together, used=pc.max_element_wise(*used))


def ratio(amount: Values, of: Values) -> Values:
    """Divide; null where there is nothing to divide by."""
    divisor = pc.if_else(pc.not_equal(of, 0), of.cast(pa.float64(), safe=False), None)
    return pc.divide(amount.cast(pa.float64(), safe=False), divisor)


def _trends(limits: pa.Table, daily: pa.Table, key: Sequence[str]) -> dict[str, pa.Array]:
    """Return days, slope, its standard error, and the last day's value on the line through all daily peaks."""
    of: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for row in daily.to_pylist():
        of.setdefault(tuple(row[name] for name in key), []).append((row["day"], row["peak"]))
    trends = [_trend(of[tuple(row.values())]) for row in limits.select(list(key)).to_pylist()]
    names = {"days": pa.int64(), "slope": pa.float64(), "slope_error": pa.float64(), "now": pa.float64()}
    return {name: pa.array([trend[at] for trend in trends], kind) for at, (name, kind) in enumerate(names.items())}


def _trend(points: list[tuple[float, float]]) -> tuple[int, float | None, float | None, float | None]:
    days, used = np.array(points).T
    number = len(points)
    if number == 1:
        return 1, None, None, None
    x, y = days - days.mean(), used - used.mean()
    slope = float(x @ y / (x @ x))
    residual = max(0.0, float(y @ y - (x @ y) ** 2 / (x @ x)))
    error = (residual / (number - 2) / float(x @ x)) ** 0.5 if number > 2 else None
    return number, slope, error, float(used.mean() + slope * (days.max() - days.mean()))
