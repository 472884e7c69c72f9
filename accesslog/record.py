"""The lines of the access log: one JSON object a line, `kind` says which.

Flow-log style: a line per stream (or limiter) and interval in which something happened, never one per message.
All clock times are UTC; `duration_ms` and `throttled_ms` come from the monotonic clock, so a stepped wall clock
cannot bend a rate. *Messages* are what the broker counts (a batch of ten is ten messages, one *entry*);
*bytes* are everything behind the command of a SEND or MESSAGE frame: magic, checksum, metadata and payload.

    interval    one producer or consumer, what it offered, passed, and what was held or dropped
    limit       one limiter, what it passed, what was in force, how long somebody waited on it
    connection  one client connection, at its end
    throttle    one pause of reading, at its end
    heartbeat   the process lives; how many lines it had to drop

`SCHEMA_VERSION` changes when a field's meaning does; new fields may come at any time.
"""

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct

SCHEMA_VERSION = 1

Direction = Literal["publish", "dispatch"]


class _Line(Struct, kw_only=True, tag_field="kind"):
    """What every line starts with."""

    v: int = SCHEMA_VERSION
    """Version of the schema."""
    proxy_id: str
    """Which proxy wrote the line; stable over restarts."""
    boot_id: str
    """Which run of that proxy."""
    seq: int
    """Counts the lines of one boot from 0; a gap is a lost line, a repetition a duplicate."""
    start: datetime
    """Begin of the span that the line tells of (inclusive)."""
    end: datetime
    """End of that span (exclusive)."""
    duration_ms: float
    """Length of the span, milliseconds of the monotonic clock."""


class IntervalLine(_Line, kw_only=True, tag="interval"):
    """One producer (publish) or consumer (dispatch) in one interval."""

    direction: Direction
    """`publish`: client to broker. `dispatch`: broker to client."""
    tenant: str
    namespace: str
    """The namespace's own name, without the tenant."""
    topic: str
    """Full name, partition suffix included."""
    connection_id: int
    """Counts the connections of one boot."""
    client_address: str
    """Address and port of the client."""
    client_version: str
    """As the client's CONNECT says."""
    stream_id: int
    """The client's producer id or consumer id; unique within the connection."""
    producer_name: str
    """Publish: the name that the client chose or the broker gave. Else empty."""
    subscription: str
    """Dispatch: the subscription. Else empty."""
    offered_entries: int
    """Entries that arrived at the proxy in the interval."""
    offered_messages: int
    offered_bytes: int
    passed_entries: int
    """Entries passed on in the interval, whenever they had arrived."""
    passed_messages: int
    passed_bytes: int
    dropped_messages: int
    """Held messages that ended with their connection, consumer or seek: no receipt was given for them."""
    dropped_bytes: int
    held_messages: int
    """Messages held at the end of the interval."""
    held_bytes: int
    throttled_ms: float
    """How long, in the interval, at least one entry of the stream was held."""
    delay_max_ms: float
    """Longest time that an entry passed on in this interval had been held."""
    reason: str
    """Level of the limit that the stream waits on at the end of the interval, or waited on last in it; else empty."""
    limit_level: str
    """Level of the narrowest limit in force for the stream (`topic`, `namespace` …); empty if there is none."""
    limit_messages: float | None
    """That limit, messages per second; null for none."""
    limit_bytes: float | None
    """That limit, bytes per second; null for none."""
    permits_asked: int
    """Dispatch: permits that the consumer asked for in the interval."""
    permits_granted: int
    """Dispatch: permits that were passed on to the broker in the interval."""


class LimitLine(_Line, kw_only=True, tag="limit"):
    """One limiter in one interval in which it passed something, held somebody or changed.

    A change of a limit ends the span: no line mixes two values.
    """

    direction: Direction
    level: str
    """`topic` (one topic or partition), `namespace` (a total over its topics) …"""
    name: str
    """What is limited: a full topic name, `tenant/namespace` …"""
    tenant: str
    namespace: str
    source: str
    """Where the value came from: `topic`, `namespace` (default for its topics), `broker`; with `file` or `rest`."""
    mode: str
    """`enforce`."""
    limit_messages: float | None
    """Messages per second in force; null for none."""
    limit_bytes: float | None
    """Bytes per second in force; null for none."""
    burst_messages: float | None
    """The message bucket's capacity, messages."""
    burst_bytes: float | None
    """The byte bucket's capacity, bytes."""
    passed_entries: int
    passed_messages: int
    passed_bytes: int
    largest_entry_messages: int
    """The largest entry passed in the span: the slack of an exact limiter, as entries are indivisible."""
    largest_entry_bytes: int
    throttled_ms: float
    """How long, in the span, at least one stream waited on this limiter."""


class ConnectionLine(_Line, kw_only=True, tag="connection"):
    """One client connection, written when it ends; the span is its life."""

    connection_id: int
    client_address: str
    client_version: str
    role: str
    """`lookup`, `data`, or `handshake` if it never got that far."""
    broker: str
    """Address of the broker that it was connected to, or empty."""
    end_cause: str
    """Why it ended, one of the fixed words of `sluice_connections_ended_total`."""
    detail: str
    """The same for humans; empty where the cause says all."""
    bytes_from_client: int
    bytes_from_broker: int


class ThrottleLine(_Line, kw_only=True, tag="throttle"):
    """One pause of reading for one cause, written at its end."""

    connection_id: int
    client_address: str
    side: str
    """Whose bytes were not read: `client` or `broker`."""
    cause: str
    """What raised the throttle count."""


class HeartbeatLine(_Line, kw_only=True, tag="heartbeat"):
    """The process was alive over the span, and these many lines of it are missing."""

    dropped_lines: int
    """Lines of this boot so far that could not be written (each leaves a gap in `seq`)."""
    last: bool
    """True in the last line of an orderly end."""


Line = IntervalLine | LimitLine | ConnectionLine | ThrottleLine | HeartbeatLine


class Kinds:
    """Every kind of line by its name in `kind`."""

    BY_NAME: ClassVar[dict[str, type[_Line]]] = {
        "interval": IntervalLine,
        "limit": LimitLine,
        "connection": ConnectionLine,
        "throttle": ThrottleLine,
        "heartbeat": HeartbeatLine,
    }
