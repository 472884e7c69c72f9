"""The sums of the lines of all streams under a limit, by their spans."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compliance.excerpt import only
from compliance.figures.scopes import LEVEL_WORDS, SCOPED_BY, LimitsOfLines, own_name, scoped
from compliance.figures.sums import Grouping, Latest, Values, ones, seconds, values_of, with_columns
from compliance.judging.lines import BUCKETS, StreamsLine
from compliance.schema import LIMITER

_UNITS = BUCKETS[:2]
_OF_UNITS = ("offered", "passed", "charged", "held", "largest_entry", "limit")
STREAM_COLUMNS = tuple(
    dict.fromkeys(
        (
            *("kind", "proxy_id", "boot_id", "seq", "start", "end", "mono_us", "duration_ms", "file", "line"),
            *("direction", "tenant", "namespace", "topic", "producer_name", "subscription"),
            *SCOPED_BY,
            *(f"{name}_{unit}" for name in _OF_UNITS for unit in _UNITS),
            *("offered_entries", "passed_entries", "throttled_ms", "held_since", "steady", "reason", "reason_name"),
            *("limit_levels", "limit_level", "limit_source", "limit_mode"),
        )
    )
)
"""Columns of lines of streams that the judging needs."""
_STREAM = ("own_name", "topic", "connection_id", "stream_id")
_FIRST = ("file", "line", "tenant", "namespace")
_STARVING = (
    *(f"starving_{name}" for name in (*_STREAM, *_UNITS)),
    *(f"starving_held_{unit}" for unit in _UNITS),
    "starving_is_alone",
)
STREAMS_OF_LIMITS = Grouping(
    (*LIMITER, "start_us", "end_us"),
    sums=(*(f"counted_{unit}" for unit in _UNITS), "crossing_wait_ms", "elsewhere_wait_ms", "members"),
    least=("seq", "wall_start", "is_alone", *(f"least_limit_{unit}" for unit in _UNITS)),
    most=(
        *("wall_end", "duration_ms", "only_wait_ms", "named_wait_ms", "source", "named_mode"),
        *(f"{name}_{unit}" for name in ("largest_counted", "largest_offered", "limit") for unit in _UNITS),
    ),
    latest=(
        Latest(("before",), _FIRST),
        Latest(("starved_messages", "starved_bytes", "starved_since", "starved_before"), _STARVING),
        Latest(("most_passed", "most_before"), tuple(f"most_{name}" for name in _STREAM)),
    ),
)
_NEVER_US = 2**62


def held_ms(lines: pa.Table) -> Values:
    """Return the milliseconds of each line for which something had been held at its end, by `held_since`."""
    held_us = pc.subtract(lines["end"].cast(pa.int64()), lines["held_since"].cast(pa.int64()))
    held = pc.multiply(held_us.cast(pa.float64(), safe=False), 1e-3)
    return pc.fill_null(pc.if_else(held.is_valid(), pc.min_element_wise(held, lines["duration_ms"]), 0.0), 0.0)


def sums_of_lines(lines: pa.Table, levels: Iterable[str] = LEVEL_WORDS) -> pa.Table:
    """Sum up lines of streams for each limit that they are under, and span.

    Args:
        lines: Lines of streams, with `start_us` and `end_us`.
        levels: The levels of these limits.
    """
    line_levels = LimitsOfLines(lines)
    is_publish = pc.equal(lines["direction"], "publish")
    is_alone = pa.array(line_levels.of_each(len) == 1)
    throttled = pc.min_element_wise(lines["throttled_ms"], lines["duration_ms"])
    waited = pc.min_element_wise(pc.max_element_wise(throttled, held_ms(lines)), lines["duration_ms"])
    more: dict[str, Values] = {
        "members": ones(lines),
        "alone": is_alone,
        "is_alone": is_alone.cast(pa.int64()),
        "waited": waited,
        "only_wait_ms": pc.if_else(is_alone, waited, 0.0),
        "crossing_wait_ms": pc.if_else(is_alone, 0.0, waited),
        "wall_start": lines["start"].cast(pa.int64()),
        "wall_end": lines["end"].cast(pa.int64()),
        "before": pc.negate(lines["seq"]),
        "own_name": own_name(lines),
    }
    for unit in _UNITS:
        # Published messages always count, and one by one.
        passed, largest = lines[f"passed_{unit}"], lines[f"largest_entry_{unit}"]
        counted = pc.if_else(is_publish, passed, pc.coalesce(lines[f"charged_{unit}"], passed))
        more[f"counted_{unit}"] = counted
        at_most = pc.max_element_wise(pc.min_element_wise(_but_others(counted, lines["passed_entries"]), largest), 1)
        more[f"largest_counted_{unit}"] = pc.if_else(pc.greater(counted, 0), at_most, 0)
        offered = _but_others(lines[f"offered_{unit}"], lines["offered_entries"])
        more[f"largest_offered_{unit}"] = pc.min_element_wise(offered, largest)
    made = with_columns(lines, **more)
    # A stream says to be exempt from other limits, and is under those of topics of Pulsar's own.
    exempt = pc.and_(pc.fill_null(lines["exempt"], False), pa.array(line_levels.of_each(partial(_is_in, "exempt")) > 0))
    made = with_columns(made, exempt=exempt)
    sums: list[pa.Table] = []
    for level in levels:
        is_under = line_levels.of_each(partial(_is_in, level)) > 0
        if is_under.any() or not sums:
            sums += [_of_level(named, level) for _, named in scoped(only(made, pa.array(is_under)), {level})]
    return pa.concat_tables(sums)


def _but_others(amount: Values, entries: Values) -> Values:
    """Return the most that one of the entries may have: each other one has a message, and a byte."""
    return pc.subtract(amount, pc.max_element_wise(pc.subtract(entries, 1), 0))


def _of_level(lines: pa.Table, level: str) -> pa.Table:
    """Sum up the lines of streams under the limits of one level."""
    waited, alone = lines["waited"], lines["alone"]
    is_named = pc.and_(
        pc.equal(lines["reason"], level), pc.fill_null(pc.equal(lines["reason_name"], lines["name"]), False)
    )
    names_limit = pc.equal(lines["limit_level"], level)
    is_through = pc.greater_equal(waited, lines["duration_ms"])
    passes_nothing = pc.or_(alone, pc.equal(lines["passed_entries"], 0))
    is_starving = pc.and_(pc.and_(is_named, is_through), passes_nothing)
    since = pc.coalesce(lines["held_since"].cast(pa.int64()), -_NEVER_US)
    of_starving = {
        # Of several the one that passed least, and of these the one that has waited longest.
        "starved_messages": pc.negate(lines["passed_messages"]),
        "starved_bytes": pc.negate(lines["passed_bytes"]),
        "starved_since": pc.negate(since),
        "starved_before": lines["before"],
        "starving_is_alone": alone,
        **{f"starving_{unit}": lines[f"passed_{unit}"] for unit in _UNITS},
        **{f"starving_held_{unit}": lines[f"held_{unit}"] for unit in _UNITS},
        **{f"starving_{name}": lines[name] for name in _STREAM},
    }
    # The limit of bytes may be another level's, unless no limit counts messages.
    is_own = {"messages": names_limit, "bytes": pc.and_(names_limit, lines["limit_messages"].is_null())}
    own = {unit: pc.if_else(is_own[unit], lines[f"limit_{unit}"], None) for unit in _UNITS}
    made = with_columns(
        lines,
        level=pa.array([level] * len(lines), pa.string()),
        named_wait_ms=pc.if_else(is_named, waited, 0.0),
        elsewhere_wait_ms=pc.if_else(is_named, 0.0, lines["crossing_wait_ms"]),
        source=pc.if_else(names_limit, lines["limit_source"], None),
        named_mode=pc.if_else(names_limit, lines["limit_mode"], None),
        most_passed=lines["passed_messages"],
        most_before=lines["before"],
        **{f"most_{name}": lines[name] for name in _STREAM},
        **{name: pc.if_else(is_starving, value, None) for name, value in of_starving.items()},
        **{f"limit_{unit}": value for unit, value in own.items()},
        **{f"least_limit_{unit}": value for unit, value in own.items()},
    )
    return STREAMS_OF_LIMITS.of(made)


def streams_lines(sums: pa.Table) -> list[StreamsLine]:
    """Return sums as values.

    Args:
        sums: As `STREAMS_OF_LIMITS`.
    """
    of = {name: values_of(sums[name]) for name in sums.column_names}

    def pairs(*names: str) -> list[Any]:
        return list(zip(*(of[name] for name in names), strict=True))

    def of_units(name: str) -> list[Any]:
        return pairs(*(f"{name}_{unit}" for unit in _UNITS))

    def in_s(name: str) -> list[float]:
        return values_of(seconds(sums[f"{name}_ms"]))

    most = [(_name(*row[:4]), row[4]) for row in pairs(*(f"most_{name}" for name in _STREAM), "most_passed")]
    starving = [
        None if alone is None else (_name(*stream), held, passed, alone)
        for stream, held, passed, alone in zip(
            pairs(*(f"starving_{name}" for name in _STREAM)),
            of_units("starving_held"),
            of_units("starving"),
            of["starving_is_alone"],
            strict=True,
        )
    ]
    rows = zip(
        of["seq"],
        pairs("file", "line"),
        pairs("start_us", "end_us"),
        pairs("wall_start", "wall_end"),
        in_s("duration"),
        of_units("counted"),
        of_units("largest_counted"),
        in_s("only_wait"),
        in_s("named_wait"),
        of_units("limit"),
        of["members"],
        map(bool, of["is_alone"]),
        of_units("largest_offered"),
        most,
        of_units("least_limit"),
        in_s("crossing_wait"),
        in_s("elsewhere_wait"),
        starving,
        strict=True,
    )
    return [StreamsLine(*row) for row in rows]


def _name(own: str | None, topic: str, connection_id: int, stream_id: int) -> str:
    named = f"{own} of {topic}" if own else topic
    return f"{named}, connection {connection_id}, stream {stream_id}"


def _is_in(level: str, levels: frozenset[str]) -> bool:
    return level in levels
