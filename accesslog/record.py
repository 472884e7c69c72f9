"""The lines of the access log: one JSON object a line, `kind` says which.

Flow-log style: a line per stream (or limiter) and interval in which something happened, never one per message.
All clock times are UTC, for people and for joining; `duration_ms` and `throttled_ms` come from the monotonic clock, so
a stepped wall clock cannot bend a rate. *Messages* are what the broker counts (a batch of ten is ten messages, one
*entry*); *bytes* are everything behind the command of a SEND or MESSAGE frame: magic, checksum, metadata and payload.

    interval    one producer or consumer, what it offered, passed, and what was held or dropped
    limit       one limiter, what it passed, what was in force, how long somebody waited on it
    change      somebody changed a limit or a block, or another configuration file came into force
    connection  one client connection, at its end
    throttle    one pause of reading, at its end
    reject      lookups, producers and consumers that were refused
    heartbeat   the process lives; how many lines it had to drop
    standstill  the process did nothing: from when to when
    loss        lines that are lost for good: from when to when, how many, why

`SCHEMA_VERSION` changes when a field's meaning does; new fields and kinds may come at any time. Fields with a default
are left out of a line in which they have it; all others are in every line of their kind.
"""

from typing import ClassVar

from accesslog.connection import ConnectionLine, RejectLine, ThrottleLine
from accesslog.head import SCHEMA_VERSION, Direction, LineHead
from accesslog.interval import IntervalLine
from accesslog.limit import ChangeLine, LimitLine
from accesslog.process import HeartbeatLine, LossLine, StandstillLine

__all__ = [
    "SCHEMA_VERSION",
    "ChangeLine",
    "ConnectionLine",
    "Direction",
    "HeartbeatLine",
    "IntervalLine",
    "Kinds",
    "LimitLine",
    "Line",
    "LossLine",
    "RejectLine",
    "StandstillLine",
    "ThrottleLine",
]

Line = (
    IntervalLine
    | LimitLine
    | ChangeLine
    | ConnectionLine
    | ThrottleLine
    | RejectLine
    | HeartbeatLine
    | StandstillLine
    | LossLine
)


class Kinds:
    """Every kind of line by its name in `kind`."""

    BY_NAME: ClassVar[dict[str, type[LineHead]]] = {
        "interval": IntervalLine,
        "limit": LimitLine,
        "change": ChangeLine,
        "connection": ConnectionLine,
        "throttle": ThrottleLine,
        "reject": RejectLine,
        "heartbeat": HeartbeatLine,
        "standstill": StandstillLine,
        "loss": LossLine,
    }
