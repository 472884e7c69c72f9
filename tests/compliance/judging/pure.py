"""Lines judged without Spark: what the job's data frames do with them before and behind, in plain Python."""

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa

from accesslog.record import ChangeLine, HeartbeatLine, IntervalLine, LimitLine, StandstillLine
from compliance.figures.limits import LIMIT_COLUMNS
from compliance.judging.account import ALL, JudgedPart, judged
from compliance.judging.changes import changed
from compliance.judging.clocks import placed
from compliance.judging.facts import Judged
from compliance.judging.judge import limit_lines
from compliance.judging.lines import Line, RunNotes, StreamsLine, excess_tolerance
from compliance.log_lines import LINES
from compliance.schema import BEGIN_OF_1970, LIMITER
from limiter.levels import LEVEL_OF_WORD

UNITS = ("messages", "bytes")
_LIMITS = pa.schema([LINES.field(name) for name in LIMIT_COLUMNS])
Key = tuple[str, str, str]


def micros(time: Any) -> int:
    return int((time - BEGIN_OF_1970) // timedelta(microseconds=1))


def verdicts(lines: Iterable[Any], part: JudgedPart = ALL, **notes: Any) -> dict[Key, Judged]:
    """Each limiter's, by direction, level and name."""
    lines = list(lines)
    known = notes_of(lines, **notes)
    return {key: judged_of(key, known.of_limiter(*key), items, part) for key, items in items_of(lines).items()}


def notes_of(lines: list[Any], **notes: Any) -> RunNotes:
    """What the lines say of the run, and what else is known."""
    of_lines = (
        changed(
            line.seq,
            line.mono_us,
            what=line.what,
            setting=line.setting,
            name=line.name,
            before=line.before,
            after=line.after,
        )
        for line in lines
        if isinstance(line, ChangeLine)
    )
    fields: dict[str, Any] = {"changed": [change for change in of_lines if change is not None]}
    still = [on_axis(line) for line in lines if isinstance(line, StandstillLine)]
    beats = [line for line in lines if isinstance(line, HeartbeatLine)]
    if beats and not any(beat.last for beat in beats):
        fields["complete_us"] = max(complete_us(beat) for beat in beats)
    return RunNotes(**(fields | {"still_us": sorted(still)} | notes))


def judged_of(
    names: tuple[str, ...],
    notes: RunNotes,
    items: list[Line | StreamsLine],
    part: JudgedPart = ALL,
) -> Judged:
    """The result for a limiter with these names, the last ones of its key."""
    key = ("p", "b", "publish", "topic", "t")[: 5 - len(names)] + names
    return judged(dict(zip(LIMITER, key, strict=True)), notes, items, part)


def complete_us(beat: HeartbeatLine) -> int:
    """The time up to which all lines come before it, by its own word."""
    return beat.mono_us - (micros(beat.end) - micros(beat.complete_until or beat.end))


def on_axis(line: Any) -> tuple[int, int]:
    """Begin and end of a line on the axis."""
    return line.mono_us - round(line.duration_ms * 1e3), line.mono_us


def items_of(lines: Iterable[Any]) -> dict[Key, list[Line | StreamsLine]]:
    """What is judged of each limiter, in order."""
    lines = list(lines)
    limits = [line for line in lines if isinstance(line, LimitLine)]
    intervals = [line for line in lines if isinstance(line, IntervalLine)]
    limiters: dict[Key, list[Line | StreamsLine]] = {}
    for limit, of_limit in zip(limits, limit_lines(_table(limits)), strict=True):
        limiters.setdefault((limit.direction, limit.level, limit.name), []).append(of_limit)
    groups: dict[tuple[Any, ...], list[tuple[IntervalLine, list[str]]]] = {}
    for line in intervals:
        under = levels_of(line)
        for level in under:
            key = line.direction, level, name_at(line, level), *on_axis(line)
            groups.setdefault(key, []).append((line, under))
    for (direction, level, name, start, end), members in groups.items():
        limiters.setdefault((direction, level, name), []).append(streams_of(level, name, (start, end), members))
    return {key: sorted(items, key=lambda item: (item.at_us[0], item.seq)) for key, items in limiters.items()}


def _table(limits: list[LimitLine]) -> pa.Table:
    """Lines of limiters as the judging has them."""
    rows = [{name: getattr(line, name) for name in line.__struct_fields__} for line in limits]
    more = [
        {"file": "a.jsonl", "line": line.seq + 1, "throttled_ms": min(line.throttled_ms, line.duration_ms)}
        for line in limits
    ]
    return placed(pa.Table.from_pylist([row | of for row, of in zip(rows, more, strict=True)], _LIMITS), {})


def levels_of(line: IntervalLine) -> list[str]:
    return list(dict.fromkeys([*line.limit_levels.split(), *({line.limit_level} - {""})]))


def name_at(line: IntervalLine, level: str) -> str:
    whole_topic = re.sub(r"-partition-\d+$", "", line.topic)
    names = {
        "proxy": "",
        "tenant": line.tenant,
        "namespace": f"{line.tenant}/{line.namespace}",
        "resource_group": line.resource_group,
        "partitioned_topic": whole_topic,
        "topic": line.topic,
        "subscription": f"{line.subscription}@{line.topic}",
        "producer": f"{line.producer_name}@{whole_topic}",
        "role": line.client_role,
        "address": line.client_network or line.client_address.rpartition(":")[0],
        "exempt": whole_topic,
    }
    assert names.keys() == LEVEL_OF_WORD.keys(), "a level that is not looked for here"
    return names[level]


def counted(line: IntervalLine, unit: str) -> int:
    return int(getattr(line, f"passed_{unit}")) if line.direction == "publish" else charged_of(line, unit)


def charged_of(line: IntervalLine, unit: str) -> int:
    charged = getattr(line, f"charged_{unit}")
    return int(getattr(line, f"passed_{unit}") if charged is None else charged)


def streams_of(
    level: str, name: str, at: tuple[int, int], members: list[tuple[IntervalLine, list[str]]]
) -> StreamsLine:
    lines = [line for line, _ in members]
    first = min(lines, key=lambda line: line.seq)
    named = [waited_ms(line) for line in lines if (line.reason, line.reason_name) == (level, name)]
    alone = [waited_ms(line) for line, under in members if len(under) == 1]
    largest = [
        [
            max(1, least(counted(line, unit) - max(0, line.passed_entries - 1), line, unit))
            if counted(line, unit)
            else 0
            for line in lines
        ]
        for unit in UNITS
    ]
    crossing = [line for line, under in members if len(under) > 1]
    elsewhere = [line for line in crossing if (line.reason, line.reason_name) != (level, name)]
    level_lines = [line for line in lines if line.limit_level == level]
    sums = [sum(counted(line, unit) for line in lines) for unit in UNITS]
    return StreamsLine(
        seq=first.seq,
        place=("a.jsonl", first.seq + 1),
        at_us=at,
        wall_us=(min(micros(line.start) for line in lines), max(micros(line.end) for line in lines)),
        duration_s=max(line.duration_ms for line in lines) / 1e3,
        passed=(sums[0], sums[1]),
        largest=(max(largest[0]), max(largest[1])),
        only_wait_s=max(alone, default=0.0) / 1e3,
        named_wait_s=max(named, default=0.0) / 1e3,
        limit=said_by(level_lines, max),
        least_limit=said_by(level_lines, min),
        most_served=max(
            ((f"{line.connection_id}/{line.stream_id}", line.passed_messages) for line in lines), key=passed_of
        ),
        members=len(lines),
        is_alone=all(len(under) == 1 for _, under in members),
        largest_offered=(largest_offered(lines, "messages"), largest_offered(lines, "bytes")),
        crossing_wait_s=sum(map(waited_ms, crossing)) / 1e3,
        elsewhere_wait_s=sum(map(waited_ms, elsewhere)) / 1e3,
        starving=starving(level, name, members),
    )


def held_ms(line: IntervalLine) -> float:
    """For how long something had been held at its end, by itself."""
    return 0.0 if line.held_since is None else (line.end - line.held_since) / timedelta(milliseconds=1)


def waited_ms(line: IntervalLine) -> float:
    return min(line.duration_ms, max(line.throttled_ms, held_ms(line)))


def denied_waits(lines: Iterable[Any]) -> list[tuple[IntervalLine, float]]:
    """Lines of streams that held something for longer than they say that they waited, and for how long, ms."""
    waits = []
    last: dict[tuple[Any, ...], IntervalLine] = {}
    for line in lines:
        if not isinstance(line, IntervalLine):
            continue
        key = line.connection_id, line.direction, line.stream_id, line.topic
        before = last.get(key)
        last[key] = line
        gone = line.passed_messages + line.dropped_messages + line.rejected_messages
        stays = before is not None and before.held_messages > gone
        least_ms = max(
            min(line.duration_ms, held_ms(line)),
            line.duration_ms if stays else 0.0,
            line.delay_max_ms - (held_ms(before) if before else 0.0),
        )
        is_silent = line.held_messages > 0 and line.held_since is None
        if is_silent or least_ms > min(line.throttled_ms, line.duration_ms) + SAME_WAIT_MS:
            waits.append((line, least_ms))
    return waits


SAME_WAIT_MS = 2.0


def passed_of(stream: tuple[str, int]) -> int:
    return stream[1]


def said_by(lines: list[IntervalLine], which: Callable[..., float | None]) -> tuple[float | None, float | None]:
    """The limit of bytes may be another level's, unless no limit counts messages."""
    messages = [line.limit_messages for line in lines if line.limit_messages is not None]
    size = [line.limit_bytes for line in lines if line.limit_messages is None and line.limit_bytes is not None]
    return which(messages, default=None), which(size, default=None)


def largest_offered(lines: list[IntervalLine], unit: str) -> int:
    return max(least(getattr(line, f"offered_{unit}") - max(line.offered_entries - 1, 0), line, unit) for line in lines)


def least(bound: int, line: IntervalLine, unit: str) -> int:
    """The smaller one of a bound and what the line itself says of its largest entry."""
    largest = getattr(line, f"largest_entry_{unit}")
    return bound if largest is None else min(bound, largest)


def starving(
    level: str, name: str, members: list[tuple[IntervalLine, list[str]]]
) -> tuple[str, tuple[int, int], tuple[int, int], bool] | None:
    """Who got least of those that waited on it in all of the span."""
    waiting = [
        (line, len(under) == 1)
        for line, under in members
        if (line.reason, line.reason_name) == (level, name)
        and waited_ms(line) >= line.duration_ms
        and (len(under) == 1 or not line.passed_entries)
    ]
    if not waiting:
        return None
    line, is_alone = min(
        waiting,
        key=lambda waiter: (
            waiter[0].passed_messages,
            waiter[0].passed_bytes,
            waiter[0].held_since or waiter[0].start,
            waiter[0].seq,
        ),
    )
    held, passed = ((line.held_messages, line.held_bytes), (line.passed_messages, line.passed_bytes))
    return f"{line.connection_id}/{line.stream_id}", held, passed, is_alone


def excess(result: Judged) -> float:
    """By how much more passed than is allowed, in the worst window; below 0 where the limit was kept."""
    return max((window.excess - excess_tolerance(window.limit) for window in result.windows), default=-1.0)


def deficit_s(result: Judged) -> float:
    """By how many seconds' worth less passed than was owed; below 0 where all was given."""
    owed = result.entitlement
    return -1.0 if owed is None else max(owed.deficit_s, owed.whole_deficit_s)


def doubts(result: Judged) -> set[str]:
    """What contradicts itself; logs of a limiter's lines alone lack streams on purpose."""
    return {doubt.what for doubt in result.doubts} - {"no streams"}


def replaced(line: Any, **more: Any) -> Any:
    return msgspec.structs.replace(line, **more)
