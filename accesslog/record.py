"""The lines of the access log: one JSON object a line, `kind` says which.

Flow-log style: a line per stream (or limiter) and interval in which something happened, never one per message.
All clock times are UTC; `duration_ms` and `throttled_ms` come from the monotonic clock, so a stepped wall clock
cannot bend a rate. *Messages* are what the broker counts (a batch of ten is ten messages, one *entry*);
*bytes* are everything behind the command of a SEND or MESSAGE frame: magic, checksum, metadata and payload.

    interval    one producer or consumer, what it offered, passed, and what was held or dropped
    limit       one limiter, what it passed, what was in force, how long somebody waited on it
    connection  one client connection, at its end
    throttle    one pause of reading, at its end
    change      somebody changed a limit or a block, or another configuration file came into force
    heartbeat   the process lives; how many lines it had to drop

`SCHEMA_VERSION` changes when a field's meaning does; new fields and kinds may come at any time. Fields with a default
are left out of a line in which they have it; all others are in every line of their kind.
"""

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct, field

SCHEMA_VERSION = 1

Direction = Literal["publish", "dispatch"]


class _Line(Struct, kw_only=True, tag_field="kind", omit_defaults=True):
    """What every line starts with."""

    v: int = field(default_factory=lambda: SCHEMA_VERSION)  # unlike a default, never left out
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
    client_role: str = ""
    """What the client authenticated as; empty if that is not known."""
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
    charged_messages: int | None = None
    """What of `passed_messages` counts against the limits that there are. An entry may count as one, whatever it holds
    (dispatchThrottlingOnBatchMessageEnabled), and what a subscription without a backlog receives as none
    (dispatchThrottlingOnNonBacklogConsumerEnabled). Null, and so in lines of older proxies: all of it."""
    charged_bytes: int | None = None
    """The same of `passed_bytes`."""
    dropped_messages: int
    """Held messages that ended with their connection, consumer or seek: no receipt was given for them."""
    dropped_bytes: int
    rejected_messages: int = 0
    """Messages refused at once, with an error to the client, by a limit in mode `reject`."""
    rejected_bytes: int = 0
    held_messages: int
    """Messages held at the end of the interval."""
    held_bytes: int
    held_since: datetime | None = None
    """Since when something of the stream has been held without a break; null if nothing is at the end."""
    throttled_ms: float
    """How long, in the interval, at least one entry of the stream was held."""
    delay_max_ms: float
    """Longest time that an entry passed on in this interval had been held."""
    reason: str
    """Level of the limit that the stream waits on at the end of the interval, or else of the last one in it that held
    or rejected something of it; empty if none did."""
    reason_name: str = ""
    """What that limit limits (`name` of its limit lines); empty for the level `proxy`, and for a limit that is gone."""
    reason_messages: float | None = None
    """Messages per second of that limit, as in force at the end of the interval; null for none."""
    reason_bytes: float | None = None
    """Bytes per second of that limit; null for none."""
    limit_level: str
    """Level of the limit that `limit_messages` is of (of `limit_bytes`, if no limit counts messages); of equal ones the
    outermost. Empty if the stream has no limit. Limits that are only observed do not count."""
    limit_messages: float | None
    """The lowest messages per second of all limits of the stream, its own or shared with others; null for none. As of
    the end of the interval, as all that the line says of limits: within it a subscription may have been limited for a
    while and spared for a while, and what counted against limits is `charged_messages`."""
    limit_bytes: float | None
    """The lowest bytes per second of all limits of the stream, perhaps of another level; null for none."""
    would_hold_messages: int = 0
    """Messages that the stream's limits in mode `observe` would hold at the end of the interval."""
    would_throttle_ms: float = 0.0
    """How long, in the interval, they would have held at least one entry."""
    would_delay_max_ms: float = 0.0
    """Longest time for which they would have held an entry that they would have passed on in this interval."""
    would_exceed_messages: int = 0
    """Messages that came although those limits would already have held as much as a connection may hold (with the
    limits enforced they would not have been read yet), or that would still have been held when the stream ended."""
    permits_asked: int
    """Dispatch: permits that the consumer asked for in the interval."""
    permits_granted: int
    """Dispatch: permits that were passed on to the broker in the interval."""
    permits_withheld: int = 0
    """Dispatch: permits asked for and not yet passed on to the broker at the end of the interval."""


class LimitLine(_Line, kw_only=True, tag="limit"):
    """One limiter in one interval in which it passed something, held somebody or changed.

    A change of a limit ends the span: no line mixes two values. Messages are as the limit counts them: where an entry
    counts as one (dispatchThrottlingOnBatchMessageEnabled), entries.
    """

    direction: Direction
    level: str
    """`proxy`, `tenant`, `namespace` (totals), `resource_group`, `partitioned_topic` (its partitions together), `topic`
    (one topic or partition), `producer`, `role` or `address`."""
    name: str
    """What is limited: a full topic name, `tenant/namespace`, `producer@topic`, an address …; empty for the proxy."""
    tenant: str
    """Empty where the limit spans tenants; so `namespace`, where it spans namespaces."""
    namespace: str
    source: str
    """Whose value it is: `topic`, `namespace` (for each of its topics), `broker` (for each topic), `total` (of a
    tenant, namespace or partitioned topic), `group`, `proxy`, `producer`, `role`, `address`; with `each` before it
    where the value is that of all names without one of their own. Then where it was written: `file` or `rest`."""
    mode: str
    """`enforce`: what is over the limit waits. `reject`: it is refused. `observe`: nothing is held; what the line says
    was passed and waited for is what enforcing would have done with the same arrivals."""
    limit_messages: float | None
    """Messages per second in force; null for none."""
    limit_bytes: float | None
    """Bytes per second in force; null for none."""
    burst_messages: float | None
    """The message bucket's capacity, messages."""
    burst_bytes: float | None
    """The byte bucket's capacity, bytes."""
    peak_messages: float | None = None
    """Messages per second, in force while the burst lasts; null for none."""
    peak_bytes: float | None = None
    """Bytes per second, in force while the burst lasts; null for none."""
    published_messages: float | None = None
    """What of `limit_messages` is the topic's publish rate (relativeToPublishRate); null if it is not relative. Such a
    limit changes with that rate, at the end of a span, and also between lines if it was not in use."""
    published_bytes: float | None = None
    """The same of `limit_bytes`."""
    passed_entries: int
    passed_messages: int
    passed_bytes: int
    largest_entry_messages: int
    """The largest entry passed in the span: the slack of an exact limiter, as entries are indivisible."""
    largest_entry_bytes: int
    rejected_messages: int = 0
    """Messages that this limit refused, with an error to the client (mode `reject`)."""
    rejected_bytes: int = 0
    throttled_ms: float
    """How long, in the span, at least one stream waited on this limiter."""


class ConnectionLine(_Line, kw_only=True, tag="connection"):
    """One client connection, written when it ends; the span is its life."""

    connection_id: int
    client_address: str
    client_version: str
    client_role: str = ""
    """What the client authenticated as; empty if that is not known."""
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
    """One pause of reading for one cause, of 50 ms at least, written at its end."""

    connection_id: int
    client_address: str
    side: str
    """Whose bytes were not read: `client` or `broker`."""
    cause: str
    """What raised the throttle count."""


class ChangeLine(_Line, kw_only=True, tag="change"):
    """Something came into force at this moment: the span is empty. Lines of limiters end before it and begin after it.

    Texts are cut at 1,000 characters; the whole of what was set at run time is in the policy store's audit log.
    """

    who: str
    """The name of the token or certificate, `anonymous`, or `file` for what the configuration file says."""
    address: str
    """Whence it was asked for; empty for the file."""
    what: str
    """`publish`, `dispatch`, `subscribe` (a limit), `group`, `attachment` (of a tenant or namespace to a resource
    group), `dynamic` (a key of the broker's dynamic configuration), `block`, or `file`: all that another configuration
    file changed."""
    setting: str
    """Which level a limit is for, or what is attached: `topic_of_namespace`, `namespace` …; else empty."""
    name: str
    """Of whom: a topic, `tenant/namespace`, a group, a key, who is blocked …; empty for the file."""
    before: str | None
    """What held before, as it was written; null if nothing did."""
    after: str | None
    """What holds from now on; null if nothing does."""


class HeartbeatLine(_Line, kw_only=True, tag="heartbeat"):
    """The process was alive over the span, and these many lines of it are missing."""

    dropped_lines: int
    """Lines of this boot so far that could not be written (each leaves a gap in `seq`)."""
    last: bool
    """True in the last line of an orderly end."""


Line = IntervalLine | LimitLine | ConnectionLine | ThrottleLine | ChangeLine | HeartbeatLine


class Kinds:
    """Every kind of line by its name in `kind`."""

    BY_NAME: ClassVar[dict[str, type[_Line]]] = {
        "interval": IntervalLine,
        "limit": LimitLine,
        "connection": ConnectionLine,
        "throttle": ThrottleLine,
        "change": ChangeLine,
        "heartbeat": HeartbeatLine,
    }
