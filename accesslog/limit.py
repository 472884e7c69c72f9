"""The lines of limits: what one passed, and that one changed."""

from accesslog.head import Direction, LineHead


class LimitLine(LineHead, kw_only=True, tag="limit"):
    """One limiter in one interval in which it passed something, held somebody or changed.

    A change of a limit ends the span: no line mixes two values. Messages are as the limit counts them: where an entry
    counts as one (dispatchThrottlingOnBatchMessageEnabled), entries.
    """

    direction: Direction
    """As in interval lines."""
    level: str
    """`proxy`, `tenant`, `namespace` (totals), `resource_group`, `partitioned_topic` (its partitions together), `topic`
    (one topic or partition), `subscription`, `producer`, `role`, `address`, or `exempt` (a topic of Pulsar's own)."""
    name: str
    """What is limited: a full topic name, `tenant/namespace`, `producer@topic`, an address (or its keyed hash, as in
    interval lines) …; empty for the proxy."""
    tenant: str
    """Empty where the limit spans tenants."""
    namespace: str
    """Empty where the limit spans namespaces."""
    source: str
    """Whose value it is: `topic`, `namespace` (for each of its topics), `broker` (for each topic), `total` (of a
    tenant, namespace or partitioned topic), `group`, `proxy`, `subscription`, `producer`, `role`, `address`, `exempt`;
    with `each` before it where the value is that of all names without one of their own. Then where it was written:
    `file`, `rest`, `dynamic` (the broker's dynamic configuration) or `global` (a topic's global policy)."""
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
    peak_burst_messages: float | None = None
    """Capacity of the bucket of `peak_messages`, messages; null for none."""
    peak_burst_bytes: float | None = None
    """Capacity of the bucket of `peak_bytes`, bytes."""
    published_messages: float | None = None
    """What of `limit_messages` is the topic's publish rate (relativeToPublishRate); null if it is not relative. Such a
    limit changes with that rate, at the end of a span, and also between lines if it was not in use."""
    published_bytes: float | None = None
    """The same of `limit_bytes`."""
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
    rejected_messages: int = 0
    """Messages that this limit refused, with an error to the client (mode `reject`)."""
    rejected_bytes: int = 0
    """The bytes of those."""
    throttled_ms: float
    """How long, in the span, at least one stream waited on this limiter, milliseconds."""
    idle_ms: float | None = None
    """How much of that each bucket had a token, beyond the 20 ms by which a timer may be late, milliseconds. Null in
    lines of older proxies, as the balances below."""
    reserved_ms: float = 0.0
    """How much of that each bucket had a token which was kept for a stream that waited on another limit besides,
    milliseconds."""
    tokens_messages: float | None = None
    """What the message bucket holds at the end of the span, messages; negative: a debt."""
    tokens_bytes: float | None = None
    """What the byte bucket holds at the end of the span, bytes."""
    tokens_peak_messages: float | None = None
    """The same of the bucket of `peak_messages`."""
    tokens_peak_bytes: float | None = None
    """The same of the bucket of `peak_bytes`."""
    lent_messages: int = 0
    """What of these the proxy's workers had been lent at the end of the span, and may have passed already: that counts
    in the line in whose span they tell it."""
    lent_bytes: int = 0
    """The same of the byte bucket."""
    left_messages: int = 0
    """What of `passed_messages` was of streams that were no longer under the limit when their worker told. So what its
    streams passed, as it counts against limits, and this are together what it passed."""
    left_bytes: int = 0
    """The same of `passed_bytes`."""
    overflow_messages: float = 0.0
    """What the message bucket earned, since the limiter's line before, and had no room for. So of two lines without
    time in between: tokens behind = tokens before + limit times duration - overflow - lost - (passed - unforeseen)."""
    overflow_bytes: float = 0.0
    """The same of the byte bucket."""
    overflow_peak_messages: float = 0.0
    """The same of the bucket of `peak_messages`."""
    overflow_peak_bytes: float = 0.0
    """The same of the bucket of `peak_bytes`."""
    lost_messages: int = 0
    """Of what workers had been lent of the message bucket, so much is gone and will not be counted as passed: the
    worker was lost, or told that it passed for other limits."""
    lost_bytes: int = 0
    """The same of the byte bucket."""
    lost_peak_messages: int = 0
    """The same of the bucket of `peak_messages`."""
    lost_peak_bytes: int = 0
    """The same of the bucket of `peak_bytes`."""
    unforeseen_messages: int = 0
    """What of `passed_messages` took nothing from the message bucket: it passed before its worker knew the value in
    force, by what it had been lent of a larger burst, or while messages were not limited. Only behind a change."""
    unforeseen_bytes: int = 0
    """The same of `passed_bytes` and the byte bucket."""
    unforeseen_peak_messages: int = 0
    """The same of the bucket of `peak_messages`."""
    unforeseen_peak_bytes: int = 0
    """The same of the bucket of `peak_bytes`."""


class ChangeLine(LineHead, kw_only=True, tag="change"):
    """Something came into force at this moment: the span is empty. Where limits change, all lines end then.

    If more than 100 limiters or streams are concerned, the others follow in slices, as soon as may be. The lines of
    each, and those of its streams, end once more when its own value changes, and have the value of before until then. A
    limit that goes has no line behind that. Where much changes at once some of these lines here come later, behind
    those of new values: `start` is right.

    Texts are cut at 1,000 characters; the whole of what was set at run time is in the policy store's audit log. What
    operators wrote stands here as they wrote it, addresses too: no hash is put in their place.
    """

    who: str
    """The name of the token or certificate, or `anonymous`; of a configuration file that nobody asked for by REST,
    why it was read: `SIGHUP` or `file changed`."""
    address: str
    """Whence it was asked for; empty where nobody asked by REST."""
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
