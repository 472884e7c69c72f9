"""The line of a producer or consumer."""

from datetime import datetime

from accesslog.head import Direction, LineHead


class IntervalLine(LineHead, kw_only=True, tag="interval"):
    """One producer (publish) or consumer (dispatch) in one interval in which something happened.

    Intervals end at multiples of `access_log.interval` of the wall clock, and where a limit changes.
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
    """As whom limits of addresses count the client (`name` of their limit lines), where that is not its address: the
    /64 of an IPv6 address, or the keyed hash of that. Empty: it is counted by its address."""
    client_version: str
    """As the client's CONNECT says."""
    client_role: str = ""
    """What the client authenticated as; empty if that is not known."""
    resource_group: str = ""
    """The resource group whose limit, enforced or observed, the stream was under at the end of the interval; empty for
    none."""
    exempt: bool = False
    """The topic is one of Pulsar's own, which ordinary limits do not count."""
    limit_levels: str | None = None
    """Levels of all limits that hold for the stream at the end of the interval, outermost first, with a blank between;
    of one that is only observed none. They are found from the policies, and not from what let the stream pass. Null in
    lines of older proxies."""
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
    """What of `passed_messages` counts against the limits that there are. An entry may count as one, whatever it holds
    (dispatchThrottlingOnBatchMessageEnabled), and what a subscription without a backlog receives as none
    (dispatchThrottlingOnNonBacklogConsumerEnabled). With workers, in the first lines behind a change of limits, what
    passed before its worker heard of that does not count, either. Null, and so in lines of older proxies: all of it."""
    charged_bytes: int | None = None
    """The same of `passed_bytes`."""
    dropped_messages: int
    """Held messages that ended with their connection, consumer or seek: no receipt was given for them."""
    dropped_bytes: int
    """The bytes of those."""
    rejected_messages: int = 0
    """Messages refused at once, with an error to the client, by a limit in mode `reject`."""
    rejected_bytes: int = 0
    """The bytes of those."""
    held_messages: int
    """Messages held at the end of the interval."""
    held_bytes: int
    """Bytes held at the end of the interval."""
    held_since: datetime | None = None
    """Since when something of the stream has been held without a break; null if nothing is at the end."""
    throttled_ms: float
    """How long, in the interval, at least one entry of the stream was held, milliseconds."""
    delay_max_ms: float
    """Longest time that an entry passed on in this interval had been held, milliseconds."""
    delay_sum_ms: float = 0.0
    """Sum, over the messages passed on in this interval, of the milliseconds that each had been held."""
    delay_hist: tuple[int, ...] = ()
    """How many of the messages passed on in this interval had been held for how long: counts by bucket of fixed bounds
    (see Delays), zeros at the end left out. Its sum is the number of passed messages that were held at all. The sum of
    two histograms, place by place, is that of both together."""
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
    limit_source: str = ""
    """Whose value that limit has and where it was written, as in the `source` of its limit lines."""
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
    """How long, in the interval, they would have held at least one entry, milliseconds."""
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
