"""Which runs of which proxies have been seen, and up to when their lines are there."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from compliance import latest
from compliance.latest import RunEnd
from compliance.schema import BOOT, TIME
from compliance.stream.seen import Run, Seen, table_of_rows
from compliance.strict import BEGIN_OF_1970

SCHEMA = pa.schema(
    dict.fromkeys(BOOT, pa.string())
    | dict.fromkeys(("first", "last", "complete_up_to"), TIME)
    | {"has_ended": pa.bool_(), "dropped_lines": pa.int64(), "read": pa.int64()}
    | dict.fromkeys(("there", "missing"), pa.int64())
)
FIELDS = ("start", "end", "kind", "last", "dropped_lines", *BOOT)
"""What of a line is needed."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """What the lines of one run say of it.

    Args:
        first: Its first moment, microseconds since 1970.
        last: Its last.
        complete_up_to: The end of its last heartbeat; None: there is none.
        has_ended: Whether it came to an orderly end.
        dropped_lines: How many it says to have lost.
        read: Its lines, copies included.
    """

    first: int
    last: int
    complete_up_to: int | None
    has_ended: bool
    dropped_lines: int
    read: int


Spans = dict[Run, Span]


def spans_of(lines: pa.Table) -> Spans:
    """Of lines with `FIELDS`."""
    is_beat = pc.equal(lines["kind"], "heartbeat")
    columns = {
        **{name: lines[name] for name in BOOT},
        "first": lines["start"].cast(pa.int64()),
        "last": lines["end"].cast(pa.int64()),
        "complete_up_to": pc.if_else(is_beat, lines["end"].cast(pa.int64()), None),
        "has_ended": pc.if_else(is_beat, lines["last"], False),
        "dropped_lines": pc.if_else(is_beat, lines["dropped_lines"], 0),
    }
    largest = [(name, "max") for name in ("last", "complete_up_to", "has_ended", "dropped_lines")]
    wanted = [("first", "min"), *largest, ("proxy_id", "count")]
    grouped = pa.table(columns).group_by(list(BOOT), use_threads=False).aggregate(wanted)
    values = (grouped["_".join(one)].to_pylist() for one in wanted)
    whose = (grouped[name].to_pylist() for name in BOOT)
    return {(proxy, boot): Span(*span) for proxy, boot, *span in zip(*whose, *values, strict=True)}


def merged(many: Iterable[Spans]) -> Spans:
    """What several parts or batches say of a run becomes one."""
    found: Spans = {}
    for spans in many:
        for run, span in spans.items():
            found[run] = _both(found[run], span) if run in found else span
    return found


def _both(one: Span, other: Span) -> Span:
    complete = [span.complete_up_to for span in (one, other) if span.complete_up_to is not None]
    return Span(
        min(one.first, other.first),
        max(one.last, other.last),
        max(complete, default=None),
        one.has_ended or other.has_ended,
        max(one.dropped_lines, other.dropped_lines),
        one.read + other.read,
    )


def complete_up_to(runs: Spans, now: datetime) -> int | None:
    """As `latest.complete_up_to`, microseconds since 1970."""
    ends = (RunEnd(*run, span.last, span.complete_up_to, span.has_ended) for run, span in runs.items())
    return latest.complete_up_to(ends, (now + latest.AHEAD - BEGIN_OF_1970) // timedelta(microseconds=1))


def rfc3339(micros: int) -> str:
    """Microseconds since 1970 as text that any JSON reader takes for a UTC time."""
    return (BEGIN_OF_1970 + timedelta(microseconds=micros)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def table(runs: Spans, seen: Seen) -> pa.Table:
    """As they are kept, with how many lines of each are there, and how many are missing below the last."""
    rows = [(*run, *msgspec.structs.astuple(runs[run]), seen.there(run), seen.missing(run)) for run in sorted(runs)]
    return table_of_rows(rows, SCHEMA)


def of(kept: pa.Table) -> Spans:
    """What `table` gave."""
    micros = [column.cast(pa.int64()) if column.type == TIME else column for column in kept.columns]
    rows = zip(*(column.to_pylist() for column in micros), strict=True)
    return {(proxy, boot): Span(*span) for proxy, boot, *span, _, _ in rows}
