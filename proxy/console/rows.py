"""Rates from two looks, and the order of rows."""

from dataclasses import dataclass
from typing import Literal

from proxy.console.poll import Poll, StreamState

Sort = Literal["held", "rate", "wait"]
Key = tuple[int, str, int, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One stream and its rates, messages per second; None while they are not known."""

    stream: StreamState
    offered_per_s: float | None = None
    passed_per_s: float | None = None
    rejected_per_s: float | None = None


def rows_of(poll: Poll, before: Poll | None) -> list[Row]:
    """The streams of a look with their rates since the one before.

    A stream that is new, or whose counts went back (another one under the same number, another run of the proxy), has
    no rates yet.
    """
    elapsed_s = (poll.monotonic_ms - before.monotonic_ms) / 1e3 if before else 0.0
    known = {_key(stream): stream for stream in before.streams} if before and elapsed_s > 0 else {}
    return [_row(stream, known.get(_key(stream)), elapsed_s) for stream in poll.streams]


def ordered(rows: list[Row], sort: Sort) -> list[Row]:
    """`held`: most messages held first; `rate`: highest rate passed; `wait`: longest held. Then who is busiest."""
    return sorted(rows, key=lambda row: (_rank(row, sort), row.passed_per_s or 0.0), reverse=True)


def total(rates: list[float | None]) -> float:
    """The sum of what is known."""
    return sum(rate for rate in rates if rate is not None)


def _rank(row: Row, sort: Sort) -> float:
    if sort == "held":
        return row.stream.held_messages
    return (row.passed_per_s or 0.0) if sort == "rate" else (row.stream.held_for_ms or 0.0)


def _key(stream: StreamState) -> Key:
    return stream.connection_id, stream.direction, stream.stream_id, stream.topic


def _row(stream: StreamState, before: StreamState | None, elapsed_s: float) -> Row:
    if before is None:
        return Row(stream)
    changes = (
        stream.offered_messages - before.offered_messages,
        stream.passed_messages - before.passed_messages,
        stream.rejected_messages - before.rejected_messages,
    )
    if min(changes) < 0:
        return Row(stream)
    return Row(stream, *(change / elapsed_s for change in changes))
