"""Streams that a limit does not count although they bear its name, each as `DoubtFacts`.

`account.py` finds contradictions within one limiter's replay.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from compliance.excerpt import only
from compliance.figures.limits import any_of, is_in_force
from compliance.figures.scopes import LimitsOfLines, is_exempt, scoped
from compliance.figures.sums import Grouping, Sum, with_columns
from compliance.judging.facts import DoubtFacts, LinePlace
from compliance.schema import LIMITER
from limiter import levels as limiting

Row = Mapping[str, Any]
_OF_ALL = ("proxy", "tenant", "namespace")
"""Levels whose limits apply to all deliveries under their names; narrower limits may spare a consumer."""
_OF_ALL_PUBLISHED = tuple(level.word for level in limiting.LEVELS if not level.is_of_system)
"""Levels whose limits apply to all messages published under their names."""


def _limited(lines: pa.Table) -> pa.Table:
    own = only(lines, is_in_force(lines))
    has_value = any_of(own["limit_messages"], own["limit_bytes"])
    return with_columns(own, since=own["start"], valued_since=pc.if_else(has_value, own["start"], None))


LIMITED = Sum(
    (*LIMITER, "mode", "limit_messages", "limit_bytes", "start"),
    _limited,
    Grouping(LIMITER, least=("since", "valued_since")),
    ("limit",),
)
"""The limiters that do not only observe: since when, and since when they had a value; null: never."""
_SUSPECT = ("topic", "passed_messages", "seq", "start", "end", "start_us", "end_us", "file", "line", "is_steady")
_SUSPECTS = (*LIMITER, *_SUSPECT, "what")


@dataclass(frozen=True)
class Suspicion:
    """The limits whose streams are looked at, and the times at which their lines may differ.

    Args:
        limited: As `LIMITED`.
        changes_us: The times of changes of each run, ascending. In a span with a change, a line names the limits at
            its end only.
    """

    limited: pa.Table
    changes_us: Mapping[tuple[str, str], Sequence[int]]

    def suspects(self, streams: pa.Table) -> pa.Table:
        """Return the lines of streams that bear a limit's name, and say not to be under it, or falsely to be exempt.

        Args:
            streams: Lines of streams, on the axis.
        """
        lines = only(streams, pc.greater(streams["passed_messages"], 0))
        steady = pc.fill_null(lines["steady"], False)
        no_system = only(with_columns(lines, is_steady=steady), pc.invert(is_exempt(lines)))
        claimed = only(no_system, no_system["exempt"])
        exempt = with_columns(claimed, exempt=pa.array([False] * len(claimed), pa.bool_()))
        line_levels = LimitsOfLines(no_system, with_lowest=False)
        is_publish = pc.equal(no_system["direction"], "publish")
        suspects = [_none_of(no_system)]
        for level in _OF_ALL_PUBLISHED:
            without = pa.array(line_levels.of_each(partial(_is_without, level)) > 0)
            outside = pc.and_(without, is_publish) if level not in _OF_ALL else without
            own = self.limited.filter(pc.equal(self.limited["level"], level))
            for kind, of_level, since in (
                ("outside", only(no_system, outside), "valued_since"),
                ("exempt", exempt, "since"),
            ):
                if len(of_level) and len(own):
                    limits = with_columns(own.select(list(LIMITER)), since=own[since])
                    suspects += [_under(named, level, kind, limits) for _, named in scoped(of_level, {level})]
        return pa.concat_tables(suspects)

    def confirmed(self, suspects: pa.Table, limits: pa.Table) -> pa.Table:
        """Return the doubts of limits, of all suspects and all lines of limiters: `facts` (msgpack of `DoubtFacts`)."""
        if not len(suspects):
            return pa.table({"facts": pa.array([], pa.binary())})
        doubts = [*self._outside(suspects, limits), *_falsely_exempt(suspects)]
        return pa.table({"facts": pa.array(map(msgspec.msgpack.encode, doubts), pa.binary())})

    def _outside(self, suspects: pa.Table, limits: pa.Table) -> Iterator[DoubtFacts]:
        outside = suspects.filter(pc.equal(suspects["what"], "outside"))
        is_limited = pc.and_(is_in_force(limits), any_of(limits["limit_messages"], limits["limit_bytes"]))
        names = outside.select(list(LIMITER)).group_by(list(LIMITER)).aggregate([])
        columns = [*LIMITER, "seq", "start", "end", "start_us", "end_us", "file", "line", "steady"]
        own = only(limits.select(columns), is_limited).join(names, list(LIMITER), join_type="left semi")
        lines = _by_limiter(own.sort_by([("start_us", "ascending"), ("seq", "ascending")]))
        for limiter, streams in _by_limiter(outside).items():
            longest_us = max((line["end_us"] - line["start_us"] for line in lines.get(limiter, ())), default=0)
            pairs = [
                (line, stream)
                for stream in streams
                for line in _beside(stream, lines.get(limiter, []), longest_us)
                if not self._is_changed(limiter[:2], line, stream)
            ]
            if pairs:
                line, stream = min(pairs, key=lambda pair: (pair[0]["seq"], pair[1]["seq"]))
                text = (
                    f"a stream of {stream['topic']} passed {stream['passed_messages']} messages, "
                    "and its line does not name this limit"
                )
                yield _doubt(limiter, "outside", text, line, len(pairs))

    def _is_changed(self, run: tuple[str, ...], line: Row, stream: Row) -> bool:
        times = self.changes_us.get((run[0], run[1]), ())
        place = bisect_left(times, min(line["start_us"], stream["start_us"]))
        return place < len(times) and times[place] <= max(line["end_us"], stream["end_us"])


def _is_without(level: str, levels: frozenset[str]) -> bool:
    return level not in levels


def _none_of(streams: pa.Table) -> pa.Table:
    empty = streams.slice(0, 0)
    text = pa.array([], pa.string())
    return with_columns(empty, level=text, name=text, what=text).select(list(_SUSPECTS))


def _under(named: pa.Table, level: str, kind: str, limits: pa.Table) -> pa.Table:
    """Return the lines of streams that bear the name of one of the limits, which was there by their end."""
    texts = {name: pa.array([text] * len(named), pa.string()) for name, text in (("level", level), ("what", kind))}
    lines = with_columns(named, **texts).select(list(_SUSPECTS))
    under = lines.join(limits, keys=list(LIMITER), join_type="inner")
    return under.filter(pc.greater_equal(under["end"], under["since"])).select(list(_SUSPECTS))


def _by_limiter(rows: pa.Table) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows.to_pylist():
        groups.setdefault(tuple(row[name] for name in LIMITER), []).append(row)
    return groups


def _beside(stream: Row, lines: Sequence[Row], longest_us: int) -> Iterator[Row]:
    """Yield the lines of a limiter to which a stream's line is compared: of the same span, or a steady line's time."""
    first = bisect_left(lines, stream["start_us"] - longest_us, key=itemgetter("start_us"))
    for line in lines[first : bisect_right(lines, stream["end_us"], key=itemgetter("start_us"))]:
        is_same = (line["start_us"], line["end_us"]) == (stream["start_us"], stream["end_us"])
        overlaps = stream["start_us"] < line["end_us"] and line["start_us"] < stream["end_us"]
        if is_same or (overlaps and (stream["is_steady"] or line["steady"])):
            yield line


def _falsely_exempt(suspects: pa.Table) -> Iterator[DoubtFacts]:
    """Yield, for each limit, the first line of a stream of its names that falsely says to be exempt."""
    for limiter, lines in _by_limiter(suspects.filter(pc.equal(suspects["what"], "exempt"))).items():
        first = min(lines, key=itemgetter("seq"))
        text = (
            f"a stream of {first['topic']} passed {first['passed_messages']} messages as exempt, "
            "and the topic is none of Pulsar's own"
        )
        yield _doubt(limiter, "exempt", text, first, len(lines))


def _doubt(limiter: Sequence[str], kind: str, text: str, line: Row, times: int) -> DoubtFacts:
    place = LinePlace(file=line["file"], seq=line["seq"], line=line["line"])
    return DoubtFacts(
        **dict(zip(LIMITER, limiter, strict=True)),
        what=kind,
        said=text,
        start=line["start"],
        end=line["end"],
        first_line=place,
        last_line=place,
        times=times,
    )
