"""The lines of the access log: one JSON object a line; `kind` is the kind of line.

Flow-log style: a line per stream (or limiter) and interval in which something happened, never one per message.
All clock times are UTC, for people and for joining. `mono_us`, `duration_ms` and `throttled_ms` come from the monotonic
clock, so a stepped wall clock cannot bend a rate or change the order of lines. *Messages* are what the broker counts (a
batch of ten is ten messages, one *entry*); *bytes* are everything after the command of a SEND or MESSAGE frame: magic,
checksum, metadata and payload.

    interval    one producer or consumer: amounts offered, passed, held and dropped
    limit       one limiter: amounts passed, the limit in force, the time in which streams waited on it
    change      a limit or a block was changed, or another configuration file came into force
    share       another share of a limit that the proxies of a fleet hold together
    connection  one client connection, at its end
    throttle    one pause of reading, at its end
    reject      lookups, producers and consumers that were refused
    heartbeat   the process is alive; the number of lines that it dropped
    standstill  a time in which the process did nothing
    loss        lines that are lost for good: their times, number and the reason

`SCHEMA_VERSION` changes when a field's meaning does; new fields and kinds may come at any time. Fields with a default
are left out of a line in which they have it; all others are in every line of their kind.
"""

from datetime import datetime
from typing import ClassVar, Literal, get_args

from msgspec import Struct, field

BUCKETS = 66
_PER_DOUBLING = 4


def upper_bound_ms(bucket: int) -> float | None:
    """Delays in `bucket` are below this many milliseconds, and not below that of the bucket before; None for no bound.

    0 → 1 ms, 1 → 1.25 ms, 2 → 1.5 ms, 4 → 2 ms, 5 → 2.5 ms … 64 → 65,536 ms, 65 → none.
    """
    if bucket >= BUCKETS - 1:
        return None
    doubling, quarter = divmod(bucket, _PER_DOUBLING)
    return float((_PER_DOUBLING + quarter) << doubling) / _PER_DOUBLING


SCHEMA_VERSION = 1

Direction = Literal["publish", "dispatch"]


class LineHead(Struct, kw_only=True, tag_field="kind", omit_defaults=True):
    """The fields that every line has first, after its `kind`."""

    v: int = field(default_factory=lambda: SCHEMA_VERSION)  # unlike a default, never left out
    """Version of the schema."""
    proxy_id: str
    """The proxy that wrote the line; the same after a restart."""
    boot_id: str
    """The run of that proxy; names of later runs sort after names of earlier ones."""
    seq: int
    """Counts the lines of one run from 0; a gap is a lost line, a repetition a duplicate."""
    start: datetime
    """Begin of the line's span (inclusive), UTC, microseconds."""
    end: datetime
    """End of the line's span (exclusive), UTC, microseconds."""
    mono_us: int
    """The same end by the monotonic clock, microseconds since some moment that is the same for all lines of a run: the
    basis of order, gaps and lengths. Where `end` less `mono_us` changes within a run, the wall clock was stepped."""
    duration_ms: float
    """Length of the span, milliseconds of the monotonic clock: the basis of every rate."""


class IntervalLine(LineHead, kw_only=True, tag="interval"):
    """One producer (publish) or consumer (dispatch) in one interval in which something happened.

    Intervals end at multiples of `access_log.interval` of the wall clock, and when the stream comes under other limits.
    Several steady ones may have one line.
    When only the value of a limit changes, the line goes on: its fields of limits are as of its end.
    """

    direction: Direction
    """`publish`: client to broker. `dispatch`: broker to client."""
    tenant: str
    """The topic's tenant."""
    namespace: str
    """The namespace's own name, without the tenant."""
    topic: str
    """Full name, partition suffix included."""
    connection_id: int
    """Counts the connections of one run."""
    client_address: str
    """Address and port of the client; with `access_log.address_key` a keyed hash of the address, without the port."""
    client_network: str = ""
    """The key by which address limits count this client (`name` of their limit lines), if it differs from its address:
    the /64 of an IPv6 address, or that key's hash. Empty: the client is counted by its address."""
    client_version: str
    """As the client's CONNECT says."""
    client_role: str = ""
    """The role that the client authenticated as; empty if it is not known."""
    role_is_proved: bool = False
    """Sluice verified that (`authentication: {mode: terminate}`); else it is what the client says of itself, and the
    broker let it in."""
    resource_group: str = ""
    """The resource group whose limit, enforced or observed, the stream was under at the end of the interval; empty for
    none."""
    exempt: bool = False
    """The topic is one of Pulsar's own, which ordinary limits do not count."""
    limit_levels: str
    """Levels of all limits that hold for the stream at the end of the interval, outermost first, with a blank between;
    of one that is only observed none. They are found from the policies, and not from what let the stream pass."""
    stream_id: int
    """The client's producer id or consumer id; unique within the connection."""
    producer_name: str
    """Publish: the name that the client chose or the broker gave. Else empty."""
    subscription: str
    """Dispatch: the subscription. Else empty."""
    offered_entries: int
    """Entries that arrived at the proxy in the interval."""
    offered_messages: int
    """Messages that arrived in the interval."""
    offered_bytes: int
    """Bytes that arrived in the interval."""
    passed_entries: int
    """Entries passed on in the interval, whenever they had arrived."""
    passed_messages: int
    """Messages passed on in the interval."""
    passed_bytes: int
    """Bytes passed on in the interval."""
    charged_messages: int | None = None
    """The part of `passed_messages` that counts against limits. An entry may count as one
    (dispatchThrottlingOnBatchMessageEnabled), and a delivery to a subscription without a backlog as none
    (dispatchThrottlingOnNonBacklogConsumerEnabled). Null: the whole amount."""
    charged_bytes: int | None = None
    """The part of `passed_bytes` that counts against limits; see `charged_messages`."""
    dropped_messages: int
    """Held messages that ended with their connection, consumer or seek: no receipt was given for them."""
    dropped_bytes: int
    """Bytes of the dropped messages."""
    rejected_messages: int = 0
    """Messages refused at once, with an error to the client, by a limit in mode `reject`."""
    rejected_bytes: int = 0
    """Bytes of the rejected messages."""
    held_messages: int
    """Messages held at the end of the interval."""
    held_bytes: int
    """Bytes held at the end of the interval."""
    held_since: datetime | None = None
    """Begin of the time in which the stream has held something without a break, by the clock of `end`: if the clock was
    stepped in that time, `end` less the length of that time. Null if nothing is held at the end."""
    throttled_ms: float
    """Time in the interval in which at least one entry of the stream was held, milliseconds."""
    steady: bool = False
    """The line is of one interval or several (`access_log.steady_interval`). In each of them nothing of the stream was
    held, dropped or rejected, and each of its limits was steady, too. The line may be written later than lines that end
    after it."""
    largest_entry_messages: int | None = None
    """No entry had more messages. Null: `offered_messages` less 1 for each further entry says it as well."""
    largest_entry_bytes: int | None = None
    """No entry had more bytes. Null: `offered_bytes` less 1 for each further entry says it as well."""
    delay_max_ms: float
    """Longest time that an entry passed on in this interval had been held, since its last part came, milliseconds."""
    delay_sum_ms: float = 0.0
    """Sum, over the messages passed on in this interval, of the milliseconds that each had been held."""
    delay_hist: tuple[int, ...] = ()
    """Passed messages of the interval by the time for which they had been held: counts by bucket of fixed bounds
    (see Delays), zeros at the end left out. Its sum is the number of passed messages that were held at all. The sum of
    two histograms, place by place, is that of both together."""
    reason: str
    """Level of the limit that the stream waits on at the end of the interval, or else of the last limit in it that held
    or rejected the stream's messages; empty if none did."""
    reason_name: str = ""
    """The name of that limit, as in its limit lines; empty for the level `proxy`, and for a limit that is gone."""
    reason_messages: float | None = None
    """Messages per second of that limit, as in force at the end of the interval; null for none."""
    reason_bytes: float | None = None
    """Bytes per second of that limit; null for none."""
    limit_level: str
    """Level of the limit that `limit_messages` is of (of `limit_bytes`, if no limit counts messages); of equal ones the
    outermost. Empty if the stream has no limit. Limits that are only observed do not count."""
    limit_source: str = ""
    """The source of that limit's value, as in its limit lines."""
    limit_mode: str = "enforce"
    """Mode of that limit: `enforce` or `reject`; says nothing where there is no limit."""
    limit_messages: float | None
    """The lowest messages per second of all limits of the stream, its own or shared with others; null for none. As of
    the end of the interval, as all that the line says of limits: within it a subscription may have been limited for a
    while and spared for a while, and what counted against limits is `charged_messages`."""
    limit_bytes: float | None
    """The lowest bytes per second of all limits of the stream, perhaps of another level; null for none."""
    would_hold_messages: int = 0
    """Messages that the stream's limits in mode `observe` would hold at the end of the interval."""
    would_throttle_ms: float = 0.0
    """Time in the interval in which they would have held at least one entry, milliseconds."""
    would_delay_max_ms: float = 0.0
    """Longest time for which they would have held an entry that they would have passed on in this interval,
    milliseconds."""
    would_exceed_messages: int = 0
    """Messages that came although those limits would already have held as much as a connection may hold (with the
    limits enforced they would not have been read yet), or that would still have been held when the stream ended."""
    permits_asked: int
    """Dispatch: permits that the consumer asked for in the interval."""
    permits_granted: int
    """Dispatch: permits that were passed on to the broker in the interval."""
    permits_withheld: int = 0
    """Dispatch: permits asked for and not yet passed on to the broker at the end of the interval."""


class LimitLine(LineHead, kw_only=True, tag="limit"):
    """One limiter in one interval in which it passed something, held a stream or changed; or in several steady ones.

    A change of a limit ends the span: no line mixes two values. Messages are as the limit counts them: where an entry
    counts as one (dispatchThrottlingOnBatchMessageEnabled), entries.
    """

    direction: Direction
    """As in interval lines."""
    level: str
    """`proxy`, `tenant`, `namespace` (totals), `resource_group`, `partitioned_topic` (its partitions together), `topic`
    (one topic or partition), `subscription`, `producer`, `role`, `address`, or `exempt` (a topic of Pulsar's own)."""
    name: str
    """The name that the limit is for: a full topic name, `tenant/namespace`, `producer@topic`, an address (or its
    keyed hash, as in interval lines) …; empty for the proxy."""
    tenant: str
    """Empty where the limit spans tenants."""
    namespace: str
    """Empty where the limit spans namespaces."""
    source: str
    """The level and layer of the value. First its level: `topic`, `namespace` (for each of its topics), `broker`
    (for each topic), `total` (of a tenant, namespace or partitioned topic), `group`, `proxy`, `subscription`,
    `producer`, `role`, `address`, `exempt`; with `each` before it where the value is that of all names without one
    of their own, and `pattern` where it is that of a pattern. Then its layer: `file`, `rest`, `dynamic` (the broker's
    dynamic configuration) or `global` (a topic's global policy). Then, if a plan gives the value, `plan` and its
    name."""
    mode: str
    """`enforce`: messages over the limit wait. `reject`: they are refused. `observe`: nothing is held; amounts passed
    and times waited are those of `enforce` for the same arrivals."""
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
    peak_burst_messages: float | None = None
    """Capacity of the bucket of `peak_messages`, messages; null for none."""
    peak_burst_bytes: float | None = None
    """Capacity of the bucket of `peak_bytes`, bytes."""
    share_messages: float | None = None
    """The part of a limit of messages that a fleet's coordinator has granted this proxy, 0 to 1: `limit_messages`,
    `burst_messages` and the peak's are those of the share (a millionth at the least, and room for one message). Null
    where no fleet shares the limit. A change of the share ends the span; tokens and debts carry over."""
    share_bytes: float | None = None
    """`share_messages` for bytes."""
    shared_messages: float | None = None
    """Messages per second of the whole fleet; null where no fleet shares the limit."""
    shared_bytes: float | None = None
    """Bytes per second of the whole fleet."""
    shared_burst_messages: float | None = None
    """The burst of the whole fleet, messages."""
    shared_burst_bytes: float | None = None
    """The burst of the whole fleet, bytes."""
    published_messages: float | None = None
    """The part of `limit_messages` that is the topic's publish rate (relativeToPublishRate); null if it is not
    relative. Such a limit changes with that rate, at the end of a span, and also between lines if it was not in
    use."""
    published_bytes: float | None = None
    """The part of `limit_bytes` that is the topic's publish rate."""
    passed_entries: int
    """Entries that it passed in the span."""
    passed_messages: int
    """Messages that it passed in the span."""
    passed_bytes: int
    """Bytes that it passed in the span."""
    largest_entry_messages: int
    """Messages of the largest entry passed in the span: the slack of an exact limiter, as entries are indivisible."""
    largest_entry_bytes: int
    """Bytes of the largest one."""
    steady: bool = False
    """The line is of one interval or several (`access_log.steady_interval`). In each of them no stream waited on the
    limit, it refused nothing, passed no more than its rates allow in that time, and owed no token at the end. The line
    may be written later than lines that end after it."""
    rejected_messages: int = 0
    """Messages that this limit refused, with an error to the client (mode `reject`)."""
    rejected_bytes: int = 0
    """Bytes of the refused messages."""
    throttled_ms: float
    """Time in the span in which at least one stream waited on this limiter, milliseconds."""
    idle_ms: float = 0.0
    """The part of `throttled_ms` in which each bucket had a token, beyond the 20 ms by which a timer may be late,
    milliseconds."""
    recovered_ms: float = 0.0
    """The part of `idle_ms` after which some bucket still had room, milliseconds: no token was lost."""
    reserved_ms: float = 0.0
    """The part of `throttled_ms` in which each bucket had a token that was kept for a stream that also waited on
    another limit, milliseconds."""
    tokens_messages: float | None = None
    """The message bucket's balance at the end of the span, messages; negative: a debt."""
    tokens_bytes: float | None = None
    """The byte bucket's balance at the end of the span, bytes."""
    tokens_peak_messages: float | None = None
    """The balance of the bucket of `peak_messages`."""
    tokens_peak_bytes: float | None = None
    """The balance of the bucket of `peak_bytes`."""
    overflow_messages: float = 0.0
    """Tokens that the message bucket earned since the limiter's line before, and had no room for. For two lines without
    time in between: tokens behind = tokens before + limit times duration - overflow - passed."""
    overflow_bytes: float = 0.0
    """`overflow_messages` for the byte bucket."""
    overflow_peak_messages: float = 0.0
    """`overflow_messages` for the bucket of `peak_messages`."""
    overflow_peak_bytes: float = 0.0
    """`overflow_messages` for the bucket of `peak_bytes`."""
    began_messages: float | None = None
    """The message bucket's balance when this limiter was made, in the limiter's first line, if the bucket was not full:
    after a restart it goes on with the balance of the run before, or fills from empty (`drain.state`). Also the balance
    at the begin of a line at which a share of the limit, with its tokens, went to the process that takes the place of
    this one, or came from it. Null: neither is so."""
    began_bytes: float | None = None
    """`began_messages` for the byte bucket."""
    began_peak_messages: float | None = None
    """`began_messages` for the bucket of `peak_messages`."""
    began_peak_bytes: float | None = None
    """`began_messages` for the bucket of `peak_bytes`."""


class ChangeLine(LineHead, kw_only=True, tag="change"):
    """A setting came into force at this moment: the span is empty. Where limits change, all lines end then.

    If more than 100 limiters or streams are concerned, the others follow in slices, as soon as possible. The lines of
    each such limiter, and of its streams, have the old value until its own value changes, and then end once more. A
    limit that is removed has no line after that. With many changes at once, some change lines come after lines with new
    values: `start` is right.

    Texts are cut at 1,000 characters; the policy store's audit log has the whole text of settings made at run time. An
    operator's text is written as it was given, with addresses: no hash takes their place.
    """

    who: str
    """The name of the token or certificate, or `anonymous`; of a configuration file that no REST request reloaded, the
    reason: `SIGHUP` or `file changed`."""
    address: str
    """The address of the REST request; empty without one."""
    what: str
    """`publish`, `dispatch`, `subscribe` (a limit), `group`, `attachment` (of a tenant or namespace to a resource
    group), `dynamic` (a key of the broker's dynamic configuration), `block`; or, for all at once, `file`: another
    configuration file."""
    setting: str
    """The level of a limit, or the kind of an attachment: `topic_of_namespace`, `namespace` …; else empty."""
    name: str
    """The name: a topic, `tenant/namespace`, a group, a key, a blocked client …; empty for the file."""
    before: str | None
    """The value before, as it was written; null if there was none."""
    after: str | None
    """The value from now on; null if there is none."""


class ShareLine(LineHead, kw_only=True, tag="share"):
    """This proxy's share of a limit that a fleet shares changed at this moment: the span is empty.

    At most 100 such lines are written between two heartbeats, and one more each time the proxy is cut off or back. Of
    the changes beyond that the last one has a line at the heartbeat, which counts the others. The limit's own lines
    have each share for as long as it was in force, whatever is left out here.
    """

    fleet: str
    """The name of the fleet."""
    direction: Direction
    """As in the limit's lines."""
    level: str
    """As in the limit's lines."""
    name: str
    """As in the limit's lines."""
    unit: str
    """`messages` or `bytes`: each has a share of its own."""
    share_before: float
    """The share until now, 0 to 1."""
    share_after: float
    """The share from now on, 0 to 1; the same as before in a line that only says that the proxy is cut off or back."""
    epoch: int
    """The epoch of the coordinator that the proxy follows; a later coordinator has a greater one. 0 while it follows
    none."""
    coordinator: str
    """The `proxy_id` of the coordinator that the proxy heard last."""
    members: int
    """The number of the fleet's members, as last heard; 0 if the proxy has not heard a number."""
    cause: str
    """`granted`: by the coordinator. `isolated`: the proxy is cut off from the coordinator since its lease has ended,
    or none came, and keeps what `fleet.isolated` leaves it. `rejoined`: the proxy has a lease again; these are its
    first shares since. `lease ended`: the coordinator knows the lease no more, and the share is void until the next
    grant."""
    coordinator_ahead_ms: float | None = None
    """The lead of the coordinator's wall clock over this proxy's in milliseconds, measured by grants and the reports
    that they answer; null if that is not known, or no coordinator is followed."""
    coordinator_ahead_within_ms: float | None = None
    """The possible error of `coordinator_ahead_ms` in either direction, in milliseconds: about half a round trip."""
    left_out: int = 0
    """Changes of shares since the share line before that have no line."""


class ConnectionLine(LineHead, kw_only=True, tag="connection"):
    """One client connection, written when it ends; the span is its life."""

    connection_id: int
    """Counts the connections of one run."""
    client_address: str
    """As in interval lines."""
    client_version: str
    """As the client's CONNECT says."""
    client_role: str = ""
    """The role that the client authenticated as; empty if it is not known."""
    role_is_proved: bool = False
    """Sluice verified that (`authentication: {mode: terminate}`); else it is what the client says of itself, and the
    broker let it in."""
    client_tls: bool = False
    """Whether the client came by TLS."""
    role: str
    """`lookup`, `data`, or `handshake` if it never got that far."""
    broker: str
    """Address of the broker that it was connected to, or empty."""
    end_cause: str
    """Why it ended, one of the fixed words of `sluice_connections_ended_total`."""
    detail: str
    """The cause in words; empty where `end_cause` says all."""
    bytes_from_client: int
    """Bytes read from the client, all that TCP carried."""
    bytes_from_broker: int
    """Bytes read from the broker, all that TCP carried."""


class ThrottleLine(LineHead, kw_only=True, tag="throttle"):
    """One pause of reading for one cause, of 50 ms at least, written at its end."""

    connection_id: int
    """The connection whose bytes were not read."""
    client_address: str
    """As in interval lines."""
    side: str
    """The peer whose bytes were not read: `client` or `broker`."""
    cause: str
    """The cause for which the throttle count rose."""


class RejectLine(LineHead, kw_only=True, tag="reject"):
    """The requests that one connection was refused for one reason since the last heartbeat; at most 1,000 such lines.

    Refused messages are in interval lines (`rejected_messages`), refused connections are connection lines.
    """

    connection_id: int
    """The connection that asked; 0 for all that found no line of their own."""
    client_address: str
    """As in interval lines."""
    client_role: str = ""
    """The role that the client authenticated as; empty if it is not known."""
    role_is_proved: bool = False
    """Sluice verified that (`authentication: {mode: terminate}`); else it is what the client says of itself, and the
    broker let it in."""
    topic: str
    """Full name of the topic of the last such request; empty where none is named."""
    reason: str
    """The bound that refused, by its key in the configuration's `admission`; `blocked`; or `fleet_topic`, a topic by
    which proxies exchange limits and shares."""
    detail: str
    """The text that the client got the last time, at most 1,000 characters."""
    rejected: int
    """Lookups, producers or consumers that were refused."""


class HeartbeatLine(LineHead, kw_only=True, tag="heartbeat"):
    """The process was alive over the span, and dropped this number of lines."""

    dropped_lines: int
    """Lines of this run so far that could not be written (each leaves a gap in `seq`)."""
    last: bool
    """True in the last line of an orderly end."""
    complete_until: datetime | None = None
    """Each line of the run that ends by this time comes before this one. Null: `end`. Lines of several steady intervals
    are written late (`access_log.steady_interval`): then it is the begin of the earliest of them."""
    proxy_version: str = ""
    """Version of Sluice."""
    fleet: str = ""
    """The name of the fleet that the proxy is a member of; empty for none."""


class StandstillLine(LineHead, kw_only=True, tag="standstill"):
    """The process did nothing over the span: a timer that was due at its begin, half a second ago or more, fires now.

    So the machine had no processor for it, or it was stopped. Streams may have waited in that time though there were
    tokens: each limit's own lines have that time in `idle_ms`.
    """


class LossLine(LineHead, kw_only=True, tag="loss"):
    """Lines of the log are lost for good; written as soon as there is a log again. The line's own span is empty.

    Each lost line of a run is in exactly one loss line if the run came to an orderly end on a disk that took its last
    lines. If a run was killed, or ended while the disk took nothing, undeclared losses show as gaps in `seq`, and
    losses after its last line in a line of the next run (`killed`).
    """

    of_boot: str
    """The run whose lines these are: this one's, or an earlier one's that was killed."""
    cause: str
    """`disk`: they could not be written. `queue`: the disk took others too slowly. `killed`: the run ended without
    having written them, because it was killed or because the disk took nothing at its end."""
    detail: str
    """The error, for humans; empty where the cause says all."""
    lost_lines: int | None
    """The number of lost lines; null if unknown, perhaps none."""
    first_seq: int
    """`seq` of the first lost line."""
    last_seq: int | None
    """`seq` of the last lost line; null if unknown. Lines between the two need not be lost."""
    lost_from: datetime
    """The time at which the first lost line was due; of a killed run, the end of its last line."""
    lost_until: datetime
    """The time at which the last lost line was due; of a killed run, the begin of the next run."""


AnyLine = (
    IntervalLine
    | LimitLine
    | ChangeLine
    | ShareLine
    | ConnectionLine
    | ThrottleLine
    | RejectLine
    | HeartbeatLine
    | StandstillLine
    | LossLine
)


class Kinds:
    """Every kind of line by its name in `kind`."""

    BY_NAME: ClassVar[dict[str, type[LineHead]]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyLine)}
