"""Plain values that Spark hands to the sections without a verdict: small sums, no Spark in them."""

from datetime import datetime

from msgspec import Struct


class LimitKey(Struct, frozen=True, kw_only=True):
    """The key of a limiter of a proxy, over all its runs."""

    proxy_id: str
    direction: str
    level: str
    name: str


class RateFacts(LimitKey, frozen=True, kw_only=True):
    """One limiter (or, with an empty `proxy_id`, a topic without a limit) in one step of a chart; rates per second."""

    step_s: int
    """Length of a step, seconds."""
    step: int
    """Which step, counted from 1970."""
    offered_messages: float | None
    """Null where the log does not name the limit's streams, as those of resource groups."""
    offered_bytes: float | None
    passed_messages: float
    passed_bytes: float
    limit_messages: float | None
    limit_bytes: float | None
    burst_messages: float | None
    burst_bytes: float | None


class FleetRateFacts(RateFacts, frozen=True, kw_only=True):
    """One limit that a fleet shares, in one step of a chart: the sum of all members, and the whole limit.

    `proxy_id` is empty.
    """

    fleet: str
    """Empty where no line names it."""


class PeakFacts(LimitKey, frozen=True, kw_only=True):
    """A limiter's highest average rate over any aligned step of one length, and the rate allowed over that length."""

    step_s: int
    unit: str
    highest: float
    """Per second."""
    at: datetime
    """Begin of that step."""
    limit: float
    """Per second, in force then."""
    allowed: float
    """Limit, burst and one entry over one step, per second."""


class EpisodeFacts(LimitKey, frozen=True, kw_only=True):
    """Episodes of waiting on one limiter: their number and lengths."""

    tenant: str
    namespace: str
    throttled_s: float
    span_s: float
    """From its first line to its last, summed over runs."""
    episodes: int
    """Waits without a break."""
    longest_s: float
    longest_start: datetime


class DelayFacts(Struct, frozen=True, kw_only=True):
    """Delays of held messages: of one topic and direction, or of all topics, by the level that held them."""

    tenant: str
    namespace: str
    topic: str
    """Empty for all topics together."""
    direction: str
    reason: str
    """Level of the limit that held; empty for all together."""
    passed_messages: int
    held_messages: int
    """Passed messages that had been held."""
    delay_sum_ms: float
    delay_max_ms: float
    hist: list[int]
    """Held messages by bucket of the access log's fixed bounds: the sum of all its lines'."""


class ImpactFacts(Struct, frozen=True, kw_only=True):
    """Waits and refusals in one direction: in all, of a tenant, at a limit, or of a client at a limit.

    A field is null where the row is of all of its values.
    """

    direction: str
    tenant: str | None
    level: str | None
    """Level of the limit that held or refused."""
    name: str | None
    topic: str | None
    client: str | None
    """Name of the producer or subscription."""
    offered_messages: int
    passed_messages: int
    dropped_messages: int
    rejected_messages: int
    late_messages: int
    """Passed messages that were held for about 30 s or longer: as long as clients wait for a receipt by default."""
    hist: list[int]
    """As in `DelayFacts`."""
    delay_max_ms: float
    throttled_s: float
    """Summed over streams."""
    first: datetime | None
    """Begin of the first line with a wait or refusal; null without any."""
    last: datetime | None
    worst_at: datetime | None
    """Begin of the line with most late and refused messages; of equal ones the longest delay decides."""
    would_throttle_s: float
    """Time in which limits that are only observed would have held a stream, summed over streams."""
    would_delay_max_ms: float


class DemandFacts(LimitKey, frozen=True, kw_only=True):
    """The demand at a limit: the offer of the fullest 30 s; of a shared limit to all members, without a `proxy_id`."""

    messages_per_s: float
    bytes_per_s: float


class ObservedFacts(Struct, frozen=True, kw_only=True):
    """A limit that is only observed, over all proxies."""

    direction: str
    level: str
    name: str
    tenant: str
    limit_messages: float | None
    limit_bytes: float | None
    would_throttle_s: float
    """Time in which it would have held a stream."""
    observed_s: float
    first: datetime | None
    """When it would first have held one; null for never."""


class PauseFacts(Struct, frozen=True, kw_only=True):
    """Pauses of reading from clients or brokers, for one cause."""

    side: str
    cause: str
    pauses: int
    connections: int
    total_s: float
    longest_s: float


class RefusalFacts(Struct, frozen=True, kw_only=True):
    """Lookups, producers and consumers that were refused for one reason."""

    reason: str
    """The bound that refused, by its key in the configuration's `admission`; `blocked`; or `fleet_topic`."""
    rejected: int
    connections: int
    """On how many connections; those without a line of their own are counted as one."""
    first: datetime
    last: datetime
    example: str
    """The text that the last refused client got."""


class BurnFacts(Struct, frozen=True, kw_only=True):
    """The burn rate of one tenant's error budget, in one pair of windows."""

    tenant: str
    promise: str
    """`containment` or `entitlement`."""
    long_s: int
    short_s: int
    threshold: float
    judged_s: float
    """Limit-seconds that were judged: time under limits (containment) or waited on them (entitlement)."""
    bad_s: float
    worst: float
    """The highest burn rate that both windows had at once: 1 spends exactly the whole budget."""
    worst_at: datetime
    """End of the windows with that burn rate."""
    last: float
    """The burn rate that both have at the end of the log."""


class FairnessFacts(LimitKey, frozen=True, kw_only=True):
    """One member of a shared limit while a stream waited on it."""

    member: str
    unit: str
    contended_s: float
    """Time compared: steps of ten seconds in which a stream waited for at least half of the time."""
    got: float
    wanted: float
    """Messages that came in those steps, and those held from before."""
    fair: float
    """The member's max-min share of the sum: no member gets more than it wants, nor more than one that wants more."""


class NeighbourFacts(Struct, frozen=True, kw_only=True):
    """A stream that offered more than its limit, and one that shares its connection."""

    proxy_id: str
    boot_id: str
    connection_id: int
    client_address: str
    offender: str
    """Topic of the stream that offered too much."""
    offender_stream: int
    direction: str
    ratio: float
    """Offered over the limit, in the time in which it had one."""
    offender_throttled_s: float
    paused_s: float
    """Seconds for which the offender's connection was not read."""
    victim: str | None
    """Topic of another stream on that connection that kept within its own limit and yet waited; null for none."""
    victim_throttled_s: float
    victim_delay_max_ms: float
    victim_reason: str
    """Level of the limit that the victim last waited on; empty if it waited on none."""
    victims: int
    """The number of victims on the connection."""


class HeadroomFacts(LimitKey, frozen=True, kw_only=True):
    """The headroom of one limit, in steps of ten seconds, and its trend.

    Of a limit that a fleet shares `proxy_id` is empty: what all members used together of the whole.
    """

    fleet: str = ""
    """The fleet that shares the limit; empty for a proxy's own, and where no line names the fleet."""
    members: int = 0
    """Most members of the fleet that had a line in the same step; 0 for a proxy's own limit."""
    steps: int
    """Aligned steps of ten seconds with any line."""
    near_steps: int
    """Steps with at least 80 % of the limit used."""
    peak: float
    """Share of the limit used in the fullest step; over 1 a burst, or members of a fleet that were cut off."""
    peak_at: datetime
    typical: float
    """Share used in the middle one of all steps with any line."""
    days: int
    """UTC days with a line."""
    slope: float | None
    """Change of the daily peak per day, by least squares; null for less than two days."""
    slope_error: float | None
    """The standard error of `slope`; null for less than three days."""
    now: float | None
    """The daily peak of the last day on the line through all daily peaks."""


class ReplayFacts(LimitKey, frozen=True, kw_only=True):
    """The effect that a proposed limit would have had on the arrivals of one name.

    Of a limit that a fleet would share `proxy_id` is empty: all members' arrivals together.
    """

    fleet: str = ""
    """The fleet that would share the limit; empty for a proxy's own, and where no line names the fleet."""
    members: int = 0
    """Most members of the fleet at which something arrived in the same second; 0 for a proxy's own limit."""
    proposal: int
    """Which of the file's limits, from 0."""
    offered_messages: int
    offered_bytes: int
    held_messages: int
    """Messages that arrived in lines at whose end something would have waited: at most these would have been held."""
    backlog_messages: float
    """Most that would have waited at once."""
    delay_p50_ms: float
    """Over all messages; each waits as long as the last of its line."""
    delay_p95_ms: float
    delay_p99_ms: float
    delay_max_ms: float
    queued_s: float
    """Time with something waiting."""
    left_ms: float
    """Milliseconds that the log's last message would still have waited; large if the queue never caught up."""
    first_at: datetime | None
    """When something would have waited for the first time."""
    censored_s: float
    """Time in which a stream waited on limits in force: a client that waits sends less than it might want to."""
    limit_now_messages: float | None
    """The lowest limit of the streams then, of any level; of one that a fleet shared, the whole."""
    limit_now_bytes: float | None


class TenantDayFacts(Struct, frozen=True, kw_only=True):
    """Usage of one tenant in one direction on one UTC day."""

    day: str
    tenant: str
    direction: str
    offered_messages: int
    offered_bytes: int
    passed_messages: int
    passed_bytes: int
    peak_messages_per_s: float
    """The highest minute's mean."""
    peak_bytes_per_s: float
    throttled_s: float
    """Summed over its streams."""


class ChangeFacts(Struct, frozen=True, kw_only=True):
    """An event that changed what limits mean, on the time axis of the rates."""

    at: datetime
    kind: str
    """`set` (an operator changed a setting), `reload` (another file), `limit` (a limiter's line has another value)."""
    proxy_id: str
    what: str
    name: str
    before: str
    after: str
    who: str


class LossFacts(Struct, frozen=True, kw_only=True):
    """Lines that a proxy itself says are lost."""

    proxy_id: str
    of_boot: str
    cause: str
    detail: str
    lost_lines: int | None
    """Null if unknown."""
    lost_from: datetime
    lost_until: datetime


class RoleFacts(Struct, frozen=True, kw_only=True):
    """The proof of a limited role, on one proxy in one direction: its clients' lines say proved, claimed, or both.

    Args:
        is_proved: Sluice verified the role in some line of a stream.
        is_claimed: It did not in some line, and the broker let the client in.
    """

    proxy_id: str
    direction: str
    name: str
    is_proved: bool
    is_claimed: bool
