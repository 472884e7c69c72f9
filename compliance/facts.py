"""What Spark hands to the judging: small sums, one of each kind a row. Plain values, no Spark in them."""

from datetime import datetime

from msgspec import Struct


class RunFacts(Struct, frozen=True, kw_only=True):
    """One run (boot) of one proxy: how much of its log is there."""

    proxy_id: str
    boot_id: str
    lines: int
    """Distinct lines."""
    duplicates: int
    """Copies of lines, removed."""
    missing: int
    """Sequence numbers below the largest that are not there."""
    first: datetime
    """Start of the earliest line."""
    last: datetime
    """End of the latest line."""
    complete_up_to: datetime | None
    """End of the last heartbeat; null without one."""
    coverage: float
    """Share of the time that heartbeats with all their lines cover, 0 to 1."""
    dropped_lines: int
    """Lines that the proxy says it could not write."""
    ended: bool
    """The last heartbeat says that the proxy came to an orderly end."""
    clock_steps: int
    """Lines in which the wall clock and the monotonic clock differ by more than 100 ms."""


class LimiterFacts(Struct, frozen=True, kw_only=True):
    """One limiter in one run of one proxy."""

    proxy_id: str
    boot_id: str
    direction: str
    level: str
    name: str
    tenant: str
    namespace: str
    source: str
    mode: str
    """The mode last in force."""
    limit_messages: float | None
    """The value last in force."""
    limit_bytes: float | None
    burst_messages: float | None
    burst_bytes: float | None
    values: int
    """How many values were in force, one after the other; of a relative limit, configured."""
    is_relative: bool
    """The limit last in force is relative to the publish rate, and so varies with it."""
    was_limited: bool
    """Some line has a limit that was not only observed."""
    passed_messages: int
    """While it was not only observed; so `throttled_s`."""
    passed_bytes: int
    throttled_s: float
    first: datetime
    last: datetime


class ContainmentFacts(Struct, frozen=True, kw_only=True):
    """The worst window of one limiter in one unit; `excess` > 0 says that more passed than allowed."""

    proxy_id: str
    boot_id: str
    direction: str
    level: str
    name: str
    unit: str
    """`messages` or `bytes`."""
    basis: str
    """`limiter`: the limiter's own lines; `streams`: the lines of its producers or consumers."""
    start: datetime
    end: datetime
    passed: float
    allowed: float
    limit: float
    excess: float
    """passed - allowed; negative is the room that was left."""


class EntitlementFacts(Struct, frozen=True, kw_only=True):
    """One limiter's worst ten seconds, and its whole time, of what it owed while somebody waited."""

    proxy_id: str
    boot_id: str
    direction: str
    level: str
    name: str
    start: datetime
    end: datetime
    waited_s: float
    """Seconds in the worst window in which somebody waited."""
    served_s: float
    """How many seconds' worth of the limit passed meanwhile."""
    deficit_s: float
    """0.99 · waited - served - one entry, in seconds of the limit; > 0 is less than owed."""
    whole_waited_s: float
    whole_served_s: float
    whole_deficit_s: float


class TopicFacts(Struct, frozen=True, kw_only=True):
    """One topic in one direction, over everything."""

    tenant: str
    namespace: str
    topic: str
    direction: str
    offered_messages: int
    offered_bytes: int
    passed_messages: int
    passed_bytes: int
    dropped_messages: int
    dropped_bytes: int
    rejected_messages: int
    """Refused at once, with an error to the client."""
    rejected_bytes: int
    held_messages: int
    held_bytes: int
    throttled_s: float
    """Summed over its streams."""
    delay_max_ms: float
    limit_level: str
    limit_messages: float | None
    limit_bytes: float | None
    first: datetime
    last: datetime


class UsageFacts(Struct, frozen=True, kw_only=True):
    """One topic in one direction on one UTC day: a line of usage.csv."""

    day: str
    tenant: str
    namespace: str
    topic: str
    direction: str
    offered_messages: int
    offered_bytes: int
    passed_messages: int
    passed_bytes: int


class RateFacts(Struct, frozen=True, kw_only=True):
    """One topic in one direction in one step of a chart."""

    topic: str
    direction: str
    step_s: int
    """Length of a step, seconds."""
    step: int
    """Which step, counted from 1970."""
    offered_messages: float
    offered_bytes: float
    passed_messages: float
    passed_bytes: float
    limit_messages: float | None
    limit_bytes: float | None


class GapFacts(Struct, frozen=True, kw_only=True):
    """Consecutive lines that are missing."""

    proxy_id: str
    boot_id: str
    after_seq: int
    """The line before the gap, -1 if the gap is at the beginning."""
    missing: int
    until: datetime
    """Start of the first line behind the gap."""


class QuarantineFacts(Struct, frozen=True, kw_only=True):
    """Malformed lines of one file with one reason."""

    file: str
    reason: str
    lines: int
    example: str
    """The beginning of one of them."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that the report is made from."""

    runs: list[RunFacts]
    gaps: list[GapFacts]
    quarantine: list[QuarantineFacts]
    limiters: list[LimiterFacts]
    containment: list[ContainmentFacts]
    entitlement: list[EntitlementFacts]
    topics: list[TopicFacts]
    usage: list[UsageFacts]
    rates: list[RateFacts]
    charts_left_out: int
    """Topics that have no chart."""
