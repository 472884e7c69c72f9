"""Plain values between Spark and the judging, in this order: runs, spells, input facts, and results.

Facts (`…Facts`) are small sums, one of each kind a row. The result for one limiter of one run (`Judged` and its parts)
is of such facts. Spells are the stretches of time in which a promise was broken: how often, the
first time, and the longest.

The latest run of each proxy decides how far the log reaches, even where clocks were wrong. Runs of one proxy follow
each other, so the run whose lines end last is the latest. A clock that was far ahead would make any run the latest: it
would hide the live run until that time has come, and all other proxies would seem silent. So a run whose lines end
later than the reader's own clock allows comes before all others. Real time overtakes a smaller lead within the hour.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from compliance.excerpt import WHOLE_LOG, Excerpt
from compliance.figures.facts import (
    BurnFacts,
    ChangeFacts,
    DelayFacts,
    DemandFacts,
    EpisodeFacts,
    FairnessFacts,
    FleetRateFacts,
    HeadroomFacts,
    ImpactFacts,
    LossFacts,
    NeighbourFacts,
    ObservedFacts,
    PauseFacts,
    PeakFacts,
    RateFacts,
    RefusalFacts,
    ReplayFacts,
    RoleFacts,
    TenantDayFacts,
)
from compliance.figures.what_if import Proposal
from compliance.schema import BEGIN_OF_1970

AHEAD = timedelta(hours=1)
"""The time by which a proxy's clock may differ from the reader's."""
SILENT = timedelta(seconds=60)
"""A run without an orderly end that stops this long before the log does has fallen silent."""
Moment = TypeVar("Moment", int, datetime)


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return BEGIN_OF_1970 + timedelta(microseconds=micros)


class RunEnd(NamedTuple, Generic[Moment]):
    """The end of a run, as far as its lines are there.

    Args:
        proxy_id: Whose.
        boot_id: Which run of that proxy.
        last: End of its latest line.
        complete_up_to: The time up to which its heartbeats say that all lines are there; None: there is none.
        has_ended: Whether it came to an orderly end.
    """

    proxy_id: str
    boot_id: str
    last: Moment
    complete_up_to: Moment | None
    has_ended: bool


def latest_runs(runs: Iterable[RunEnd[Moment]], horizon: Moment) -> list[RunEnd[Moment]]:
    """Return the latest run of each proxy; the run that ends last comes last.

    Args:
        runs: All runs.
        horizon: The reader's now, and `AHEAD`.
    """
    in_order = sorted(runs, key=lambda run: (run.last <= horizon, run.last, not run.has_ended, run.boot_id))
    latest: dict[str, RunEnd[Moment]] = {}
    for run in in_order:
        latest.pop(run.proxy_id, None)
        latest[run.proxy_id] = run
    return list(latest.values())


def complete_up_to(runs: Iterable[RunEnd[Moment]], horizon: Moment) -> Moment | None:
    """Return the earliest of all proxies' latest runs; None without any, or if one has no heartbeat.

    A proxy that has come to an orderly end does not count, as long as there is another.
    """
    latest = latest_runs(runs, horizon)
    ends = [run.complete_up_to for run in latest if not run.has_ended]
    complete = [end for end in ends if end is not None]
    if ends:
        return min(complete) if len(complete) == len(ends) else None
    return max((run.complete_up_to for run in latest if run.complete_up_to is not None), default=None)


def cut_off(runs: Iterable[RunEnd[datetime]], horizon: datetime) -> set[tuple[str, str]]:
    """Return proxy and boot of the runs without an orderly end after which the log goes on.

    Lines after their last one may have been written and lost: no number is missing then. The latest run of a proxy may
    still be going on, unless it is silent.
    """
    ends = list(runs)
    going_on = set(latest_runs(ends, horizon)) - set(silent_runs(ends, horizon))
    return {(run.proxy_id, run.boot_id) for run in ends if not run.has_ended and run not in going_on}


def silent_runs(runs: Iterable[RunEnd[datetime]], horizon: datetime) -> list[RunEnd[datetime]]:
    """Return the latest runs of proxies that stop `SILENT` or more before the log does, without an orderly end."""
    latest = latest_runs(runs, horizon)
    return [run for run in latest if not run.has_ended and latest[-1].last - run.last >= SILENT]


def end_of_log(runs: Iterable[RunEnd[Moment]], horizon: Moment) -> Moment | None:
    """Return the end of the run that ends last of all; None without any."""
    latest = latest_runs(runs, horizon)
    return latest[-1].last if latest else None


class Spells(Struct, frozen=True, kw_only=True):
    """Stretches of time in which a promise was broken, one line of the log after the other."""

    times: int
    """The number of spells."""
    seconds: float
    """The length of all spells together."""
    first: datetime
    """Begin of the first."""
    longest: datetime
    """Begin of the longest."""
    longest_s: float


@dataclass
class Spelling:
    """The search for spells as lines go by; times are microseconds since 1970."""

    times: int = 0
    seconds: float = 0.0
    first_us: int = 0
    longest_us: int = 0
    longest_s: float = 0.0
    _is_on: bool = False
    _begin_us: int = 0
    _lasts_s: float = 0.0

    def add(self, begin_us: int, seconds: float, *, is_broken: bool) -> None:
        """Add the next line.

        Args:
            begin_us: Its begin.
            seconds: The part of its time that counts.
            is_broken: Whether the promise was broken in it.
        """
        if is_broken and not self._is_on:
            self._begin_us, self._lasts_s = begin_us, 0.0
            self.first_us = begin_us if not self.times else self.first_us
            self.times += 1
        self._is_on = is_broken
        if is_broken:
            self.seconds += seconds
            self._lasts_s += seconds
            if self.times == 1 or self._lasts_s > self.longest_s:
                self.longest_us, self.longest_s = self._begin_us, self._lasts_s

    def spells(self) -> Spells | None:
        """Return what was found; None if there is no spell."""
        first, longest = moment(self.first_us), moment(self.longest_us)
        spells = Spells(times=self.times, seconds=self.seconds, first=first, longest=longest, longest_s=self.longest_s)
        return spells if self.times else None


def together(spells: Iterable[Spells | None]) -> Spells | None:
    """Merge the spells of several runs; None without any."""
    all_spells = [spell for spell in spells if spell is not None]
    if not all_spells:
        return None
    longest = max(all_spells, key=lambda spell: spell.longest_s)
    return Spells(
        times=sum(spell.times for spell in all_spells),
        seconds=sum(spell.seconds for spell in all_spells),
        first=min(spell.first for spell in all_spells),
        longest=longest.longest,
        longest_s=longest.longest_s,
    )


class RunKey(Struct, frozen=True, kw_only=True):
    """The key of a run of a proxy."""

    proxy_id: str
    boot_id: str


class LimiterRunKey(RunKey, frozen=True, kw_only=True):
    """The key of a limiter in one run of a proxy."""

    direction: str
    level: str
    name: str


class RunFacts(RunKey, frozen=True, kw_only=True):
    """One run (boot) of one proxy: how much of its log is there."""

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
    """The time up to which the heartbeats say that all lines are there; null without a heartbeat."""
    coverage: float
    """Share of the time that heartbeats with all their lines cover, 0 to 1."""
    dropped_lines: int
    """Lines that the proxy says it could not write."""
    is_lossy: bool
    """The proxy says, perhaps in a later run, that lines of this one are lost, or may be."""
    is_cut_off: bool = False
    """The run has no orderly end, and its proxy has a later run or is silent: lines after its last one may be lost."""
    ended: bool
    """The last heartbeat says that the proxy came to an orderly end."""
    clock_steps: int
    """The number of steps of the wall clock by more than 100 ms."""
    malformed: int = 0
    """Lines of its files that are no records: they may have been of any limit."""
    conflicts: int = 0
    """Numbers under which there are two lines that are not the same."""
    newer: int = 0
    """Lines of known kinds whose version this report does not know."""
    has_tail: bool = False
    """The run has no orderly end, and lines of limits or streams after its last heartbeat: others may be lost."""

    @property
    def is_doubtful(self) -> bool:
        """True if the run has lines that cannot be read, or two lines that cannot both be true."""
        return bool(self.malformed or self.conflicts or self.newer or self.has_tail)

    @property
    def end(self) -> RunEnd[datetime]:
        """The end of the run, for `latest`."""
        return RunEnd(self.proxy_id, self.boot_id, self.last, self.complete_up_to, self.ended)


class LimiterFacts(LimiterRunKey, frozen=True, kw_only=True):
    """One limiter in one run of one proxy."""

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
    """The number of values in force, one after the other; of a relative limit, the number configured."""
    is_relative: bool
    """The limit last in force is relative to the publish rate, and so varies with it."""
    is_shared: bool = False
    """Some line is of a share of the limit, which a fleet holds together."""
    shared_messages: float | None = None
    """The limit of the whole fleet where the value last in force is a share; null elsewhere."""
    shared_bytes: float | None = None
    was_limited: bool
    """Some line has a limit that was not only observed."""
    passed_messages: int
    """Messages that passed while the limit was not only observed; `throttled_s` also is of that time."""
    passed_bytes: int
    rejected_messages: int
    """Refused by this limit, with an error to the client."""
    rejected_bytes: int
    throttled_s: float
    first: datetime
    last: datetime
    removed: datetime | None = None
    """The time from which the limit has no value, by a change; null: it has one by the end of the run."""


class LinePlace(Struct, frozen=True, kw_only=True):
    """The place of a line in the access log, so that a reader can look at it."""

    file: str
    seq: int
    """The number that the proxy gave the line."""
    line: int | None = None
    """Which line of the file, from 1 (of a Kafka topic, the offset); null if the source does not number its lines."""


class KeptFacts(LimiterRunKey, frozen=True, kw_only=True):
    """The time in which one limiter was kept in one run of one proxy, and the time in which it was not."""

    lines: int
    """Lines that were judged: each line ends windows."""
    judged_s: float
    """Time that they span, seconds."""
    waited_s: float
    """Time in which a stream waited, seconds."""
    over: Spells | None
    """Spells of lines that drove the amount passed further above the amount allowed; null without any."""
    short: Spells | None
    """Spells of time waited in lines whose last ten seconds passed less than owed; null without any."""


class ContainmentFacts(LimiterRunKey, frozen=True, kw_only=True):
    """The worst window of one limiter in one unit; `excess` > 0 says that more passed than allowed."""

    unit: str
    """`messages` or `bytes`."""
    is_peak: bool = False
    """Whether the window is of the peak rate, which is in force while the burst lasts."""
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


class EntitlementFacts(LimiterRunKey, frozen=True, kw_only=True):
    """Amounts that one limiter owed while a stream waited: the worst ten seconds, and the whole time."""

    start: datetime
    end: datetime
    waited_s: float
    """Seconds in the worst window in which a stream waited."""
    served_s: float
    """Seconds' worth of the limit that passed in that time."""
    deficit_s: float
    """By how much more was lacking than may be, in seconds of the limit; > 0 is less than owed."""
    late_s: float
    """The part of the shortfall in which a stream waited, by its own lines, while each bucket had a token. Then the
    proxy was late: as a rule it had no time on its processors."""
    passed_messages: int
    """In the lines of the worst window in which a stream waited: more was offered there than passed."""
    passed_bytes: int
    owed_messages: float | None
    """Messages that passed or were lacking; null without a limit of messages. Of two limits the binding one counts."""
    owed_bytes: float | None
    first_line: LinePlace
    """The first line of the worst window."""
    last_line: LinePlace
    whole_waited_s: float
    """This, and the next two, are of a whole day: the one in which most was lacking."""
    whole_served_s: float
    whole_deficit_s: float
    unseen_s: float
    """Seconds' worth of the limit that could be lacking in ten seconds of waiting without showing in the lines."""
    still_s: float = 0.0
    """Time in which a stream waited though there were tokens, as the proxy stood still: not in the other numbers."""


class DoubtFacts(LimiterRunKey, frozen=True, kw_only=True):
    """A contradiction between two facts that the log has about one limiter."""

    what: str
    """`streams`: its streams' lines and its own differ in the amount passed. `no lines`: it has streams, and
    no line. `no streams`: it passed something before any stream has a line. `value`: its streams' lines name a limit,
    and its own none, or another value. `outside`: the line of a stream that bears its name does not name the limit.
    `exempt`: the same, for a topic that is none of Pulsar's own. `waits`: a stream waited on it, and its own line has
    no wait. `books`: its bucket's balance is wrong. `starved`: a stream waited and passed next to nothing, while others
    passed much. `refused`: it refused something, and had tokens. `unconfirmed`: tokens were reserved by its own line,
    and no other line has the reason. `change`: its value was changed, and its next line has the old one."""
    said: str
    """The first time, with both numbers."""
    start: datetime
    end: datetime
    first_line: LinePlace
    last_line: LinePlace
    times: int = 1


class ClockStepFacts(RunKey, frozen=True, kw_only=True):
    """The wall clock of a proxy was stepped."""

    size_s: float
    """Above 0: ahead."""
    first: datetime
    """The step was after `first`, by the clock before it, and before `last`, by the clock after it."""
    last: datetime
    line: LinePlace
    """The first line that ends after it."""


class StandstillFacts(RunKey, frozen=True, kw_only=True):
    """A proxy did nothing for a while."""

    start: datetime
    end: datetime
    lasted_s: float
    """Length of the span in seconds, by the monotonic clock."""
    line: LinePlace


class CutOffMember(Struct, frozen=True, kw_only=True):
    """A member of a fleet that was cut off from its coordinator while it used a limit."""

    proxy_id: str
    seconds: float
    """The time of its lines while it was."""
    share: float
    """The largest share of the limit that it had then, 0 to 1: all members may pass more than the whole by that."""
    passed: int
    """Amount that the member passed then; the sum is without it."""
    beyond: float = 0.0
    """By how much its share was above an equal part of the limit, the most that it may keep."""


class OutsideProxy(Struct, frozen=True, kw_only=True):
    """A proxy that had the whole of a limit to itself, while members of a fleet shared it."""

    proxy_id: str
    first: datetime
    last: datetime
    passed: int
    """Amount that the proxy passed in that time; the sum is without it."""


class FleetSumFacts(Struct, frozen=True, kw_only=True):
    """One unit of one limit that a fleet shares, and the interval in which its members passed the most beside it."""

    fleet: str
    direction: str
    level: str
    name: str
    unit: str
    """`messages` or `bytes`."""
    tenant: str
    limit: float
    """The limit of the whole fleet that was last in force, per second."""
    burst: float
    members: list[tuple[str, str]]
    """The runs that shared it: proxy and boot."""
    first: datetime
    """Begin of the first line of any member, by their common clock."""
    last: datetime
    """End of the last one."""
    start: datetime
    """Begin of the worst interval."""
    end: datetime
    passed: int
    """Amount that all members passed in the interval."""
    allowed: float
    """Burst + limit · time + `entries` + `slack`."""
    entries: float
    """One entry of each member: the largest one that it has passed by then."""
    slack: float
    """Amount that clocks which differ by 0.1 s hide, once they are corrected, and the rounding."""
    excess: float
    """passed - allowed; negative is the room that was left."""
    clock_s: float
    """A further difference of the clocks that would explain the amount beyond `allowed`; 0 if there is none."""
    corrected_s: float
    """Seconds by which clocks of members differ, as members have measured: their lines are compared by one clock."""
    uncertain_s: float
    """Seconds, above 0.1 s, by which the corrected clocks of two members may still differ."""
    beside: int
    """Amount of lines that reach out of the interval: that much more may have passed in it."""
    first_line: LinePlace
    last_line: LinePlace
    judged_s: float
    """Time with a line of any member."""
    demand_s: float
    """Time in which a stream waited at every member that used the limit."""
    demand_share: float | None
    """The part of the limit that passed then; null if there was no such time."""
    cut_off: list[CutOffMember]
    outside: list[OutsideProxy]


class FleetGapFacts(Struct, frozen=True, kw_only=True):
    """Members of a fleet have no log: a member heard of more members than have lines."""

    fleet: str
    at: datetime
    members: int
    logs: int
    """Runs of that fleet with lines around that time."""


class ShareChangeFacts(Struct, frozen=True, kw_only=True):
    """Changes of the shares of one proxy with one cause."""

    fleet: str
    proxy_id: str
    cause: str
    """The cause of the changes, as lines of shares have it."""
    lines: int
    left_out: int
    """Changes without a line of their own, which were counted in these."""
    limits: int
    """Limits (and units) that these lines are of."""
    largest: float
    """The largest share that it got."""
    first: datetime
    last: datetime


class NewerFacts(Struct, frozen=True, kw_only=True):
    """Lines that only a newer version of this report understands; they were passed over."""

    what: str
    """The kind of the lines and, if this version does not know it, the version of the lines; or a field."""
    lines: int


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


class GapFacts(RunKey, frozen=True, kw_only=True):
    """Consecutive lines that are missing."""

    after_seq: int
    """The line before the gap, -1 if the gap is at the beginning."""
    missing: int
    until: datetime
    """Start of the first line after the gap."""
    behind: LinePlace
    """The line after the gap."""


class QuarantineFacts(Struct, frozen=True, kw_only=True):
    """Malformed lines of one file with one reason."""

    file: str
    reason: str
    lines: int
    example: str
    """The beginning of one such line."""


class Facts(Struct, frozen=True, kw_only=True):
    """All facts that the report is made from."""

    read_at: datetime
    """When the log was read, by the clock of this machine."""
    excerpt: Excerpt = WHOLE_LOG
    """The part of the log."""
    runs: list[RunFacts]
    gaps: list[GapFacts]
    quarantine: list[QuarantineFacts]
    limiters: list[LimiterFacts]
    containment: list[ContainmentFacts]
    entitlement: list[EntitlementFacts]
    topics: list[TopicFacts]
    usage: list[UsageFacts]
    doubts: list[DoubtFacts] = []
    roles: list[RoleFacts] = []
    clock_steps: list[ClockStepFacts] = []
    standstills: list[StandstillFacts] = []
    newer: list[NewerFacts] = []
    passed_over: str = ""
    """Files of the log that were not read, and what helps."""
    unread: int = 0
    """The number of files among them that may hold lines of the log."""
    rates: list[RateFacts] = []
    tenant_rates: list[RateFacts] = []
    """Rates for the pages of tenants."""
    charts_left_out: int = 0
    """Limits (or, where there are none, topics) that have no chart."""
    kept: list[KeptFacts] = []
    peaks: list[PeakFacts] = []
    episodes: list[EpisodeFacts] = []
    delays_by_reason: list[DelayFacts] = []
    delays_by_topic: list[DelayFacts] = []
    impacts: list[ImpactFacts] = []
    demands: list[DemandFacts] = []
    observed: list[ObservedFacts] = []
    pauses: list[PauseFacts] = []
    refusals: list[RefusalFacts] = []
    burn: list[BurnFacts] = []
    objective: float = 0.999
    """Share of time in which promises should be kept; burn rates are measured by it."""
    fairness: list[FairnessFacts] = []
    neighbours: list[NeighbourFacts] = []
    headroom: list[HeadroomFacts] = []
    replays: list[ReplayFacts] = []
    proposals: list[Proposal] = []
    tenant_days: list[TenantDayFacts] = []
    changes: list[ChangeFacts] = []
    losses: list[LossFacts] = []
    fleet_sums: list[FleetSumFacts] = []
    fleet_gaps: list[FleetGapFacts] = []
    fleet_rates: list[FleetRateFacts] = []
    """Rates of the sums that have a chart."""
    share_changes: list[ShareChangeFacts] = []
    left_out: dict[str, int] = {}
    """The number of rows of each table, by its name, that were not brought out of Spark: those that matter least."""

    @property
    def horizon(self) -> datetime:
        """The latest time that a clock which is about right has written."""
        return self.read_at + AHEAD

    @property
    def ends(self) -> list[RunEnd[datetime]]:
        """The ends of all runs, for `latest`."""
        return [run.end for run in self.runs]


class Minute(Struct):
    """Sums over lines that end in one minute; seconds."""

    judged_s: float = 0.0
    over_s: float = 0.0
    waited_s: float = 0.0
    short_s: float = 0.0
    lines: int = 0


class LastLine(NamedTuple):
    """The last line of a limiter: its end, microseconds on the axis of `clocks.py`, and the source of its value."""

    end_us: int
    source: str


class Judged(Struct):
    """The result for one limiter of one run, in one day or all."""

    windows: list[ContainmentFacts]
    entitlement: EntitlementFacts | None
    doubts: list[DoubtFacts]
    kept: KeptFacts
    minutes: dict[int, Minute]
    last: LastLine | None = None
    """None for a limit that only streams name."""
    alone: LimiterFacts | None = None
    """The facts of a limit that only streams name; None for others."""
