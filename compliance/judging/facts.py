"""What Spark hands to the judging: small sums, one of each kind a row. Plain values, no Spark in them."""

from datetime import datetime

from msgspec import Struct

from compliance.figures.facts import (
    BurnFacts,
    ChangeFacts,
    DelayFacts,
    EpisodeFacts,
    FairnessFacts,
    HeadroomFacts,
    LossFacts,
    NeighbourFacts,
    PauseFacts,
    PeakFacts,
    RateFacts,
    RefusalFacts,
    ReplayFacts,
    TenantDayFacts,
)
from compliance.figures.proposals import Proposal
from compliance.latest import AHEAD, RunEnd


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
    is_lossy: bool
    """The proxy says, perhaps in a later run, that lines of this one are lost, or may be."""
    is_cut_off: bool = False
    """It has no orderly end, and its proxy has a later run or is silent: lines behind its last one may be lost."""
    ended: bool
    """The last heartbeat says that the proxy came to an orderly end."""
    clock_steps: int
    """Lines in which the wall clock and the monotonic clock differ by more than 100 ms."""

    @property
    def end(self) -> RunEnd[datetime]:
        """How it ends."""
        return RunEnd(self.proxy_id, self.boot_id, self.last, self.complete_up_to, self.ended)


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
    rejected_messages: int
    """Refused by this limit, with an error to the client."""
    rejected_bytes: int
    throttled_s: float
    first: datetime
    last: datetime


class LinePlace(Struct, frozen=True, kw_only=True):
    """Where a line of the access log stands, so that it can be looked at."""

    file: str
    seq: int
    """The number that the proxy gave the line."""
    line: int | None = None
    """Which line of the file, from 1 (of a Kafka topic, the offset); null if the source does not number its lines."""


class KeptFacts(Struct, frozen=True, kw_only=True):
    """One limiter in one run of one proxy: for how long was it kept, and for how long not?"""

    proxy_id: str
    boot_id: str
    direction: str
    level: str
    name: str
    lines: int
    """Lines that were judged: each of them ends windows."""
    judged_s: float
    """Time that they span, seconds."""
    over_s: float
    """Of it: lines that drove what passed further above what is allowed."""
    waited_s: float
    """Time in which somebody waited, seconds."""
    short_s: float
    """Of it: in lines whose last ten seconds passed less than owed."""


class ContainmentFacts(Struct, frozen=True, kw_only=True):
    """The worst window of one limiter in one unit; `excess` > 0 says that more passed than allowed."""

    proxy_id: str
    boot_id: str
    direction: str
    level: str
    name: str
    unit: str
    """`messages` or `bytes`."""
    is_peak: bool = False
    """It is the peak rate, in force while the burst lasts, that this is about."""
    basis: str
    """`limiter`: the limiter's own lines; `streams`: the lines of its producers or consumers."""
    start: datetime
    end: datetime
    passed: float
    allowed: float
    limit: float
    excess: float
    """passed - allowed; negative is the room that was left."""
    first_line: LinePlace
    """The first line of the window."""
    last_line: LinePlace


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
    passed_messages: int
    """In the lines of the worst window in which somebody waited: more was offered there than passed."""
    passed_bytes: int
    owed_messages: float | None
    """The limit times the seconds waited; null without a limit of messages. Of two limits the one that binds counts."""
    owed_bytes: float | None
    first_line: LinePlace
    """The first line of the worst window."""
    last_line: LinePlace
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


class GapFacts(Struct, frozen=True, kw_only=True):
    """Consecutive lines that are missing."""

    proxy_id: str
    boot_id: str
    after_seq: int
    """The line before the gap, -1 if the gap is at the beginning."""
    missing: int
    until: datetime
    """Start of the first line behind the gap."""
    behind: LinePlace
    """That line."""


class QuarantineFacts(Struct, frozen=True, kw_only=True):
    """Malformed lines of one file with one reason."""

    file: str
    reason: str
    lines: int
    example: str
    """The beginning of one of them."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that the report is made from."""

    read_at: datetime
    """By the clock of this machine."""
    runs: list[RunFacts]
    gaps: list[GapFacts]
    quarantine: list[QuarantineFacts]
    limiters: list[LimiterFacts]
    containment: list[ContainmentFacts]
    entitlement: list[EntitlementFacts]
    topics: list[TopicFacts]
    usage: list[UsageFacts]
    rates: list[RateFacts] = []
    charts_left_out: int = 0
    """Limits (or, where there are none, topics) that have no chart."""
    kept: list[KeptFacts] = []
    peaks: list[PeakFacts] = []
    episodes: list[EpisodeFacts] = []
    delays_by_reason: list[DelayFacts] = []
    delays_by_topic: list[DelayFacts] = []
    pauses: list[PauseFacts] = []
    refusals: list[RefusalFacts] = []
    burn: list[BurnFacts] = []
    objective: float = 0.999
    """Share of time in which promises are to be kept: what burn rates are measured by."""
    fairness: list[FairnessFacts] = []
    neighbours: list[NeighbourFacts] = []
    headroom: list[HeadroomFacts] = []
    replays: list[ReplayFacts] = []
    proposals: list[Proposal] = []
    tenant_days: list[TenantDayFacts] = []
    changes: list[ChangeFacts] = []
    losses: list[LossFacts] = []
    left_out: dict[str, int] = {}
    """How many rows of which table are beyond what was brought out of Spark: the least of them."""

    @property
    def horizon(self) -> datetime:
        """No clock that is about right says more."""
        return self.read_at + AHEAD

    @property
    def ends(self) -> list[RunEnd[datetime]]:
        """How the runs end."""
        return [run.end for run in self.runs]
