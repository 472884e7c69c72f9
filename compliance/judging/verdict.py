"""The judging: facts in, verdicts out. Its rules are in docs/compliance.md.

A verdict is `violated` when a violation was seen. Else it is `unknown` when lines are missing that might show one. Only
then it is `compliant`. It is `no limit` where there was nothing to keep. A tenant, namespace, topic or level has the
gravest verdict of its limits, and shows how long these were kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from compliance.figures.facts import LimitKey, RoleFacts
from compliance.judging.facts import (
    ContainmentFacts,
    DoubtFacts,
    EntitlementFacts,
    Facts,
    FleetSumFacts,
    KeptFacts,
    LimiterFacts,
    LinePlace,
    RunFacts,
    Spells,
    complete_up_to,
    together,
)
from compliance.judging.lines import (
    CLOCK_RESOLUTION_S,
    CLOCKS_APART_S,
    OWED_WINDOW_S,
    SHORT_S,
    UNSEEN_S,
    excess_tolerance,
)
from limiter import levels as limiting

Verdict = Literal["compliant", "violated", "unknown", "no limit"]

FactsRow = TypeVar("FactsRow", LimiterFacts, ContainmentFacts, EntitlementFacts, KeptFacts, DoubtFacts)

COMPLETE = 1 - 1e-9
_NOT_KNOWN_WHOLE = 0.9999
"""The largest coverage of a run with missing lines, or lines that may be missing, or beyond the table."""
_GRAVITY: tuple[Verdict, ...] = ("violated", "unknown", "compliant", "no limit")


RoleProof = Literal["", "proved", "claimed", "mixed"]
"""Sluice verified the role; or the client says so, and the broker let it in; or one at one time, the other at another.
"""


class LimiterVerdict(LimitKey, frozen=True, kw_only=True):
    """The verdict on one limiter of one proxy over all its runs."""

    tenant: str
    namespace: str
    source: str
    mode: str
    """The mode last in force; a limit that is only observed is none for the verdicts."""
    limit_messages: float | None
    """The value last in force, per second; null for none. Of a limit that a fleet shares, the proxy's share."""
    limit_bytes: float | None
    burst_messages: float | None
    burst_bytes: float | None
    values: int
    """The number of values in force, or of a relative limit configured; above 1, the limit was changed."""
    is_relative: bool
    """The limit varies with the publish rate; the value is the last one."""
    containment: Verdict
    entitlement: Verdict
    shortfall_percent: float
    """Percent of the amount owed that did not pass in the worst window; 0 if all passed."""
    containment_share: float | None
    """Share of the judged time in which the limit was kept, 0 to 1; null without a limit."""
    entitlement_share: float | None
    """Share of the time waited in which all that was owed passed; 1 without waits; null without a limit."""
    containment_broken: Spells | None
    """When the limit was not kept; null if no such time was seen."""
    entitlement_broken: Spells | None
    """When less passed than was owed in the last ten seconds; null if no such time was seen."""
    unseen_percent: float | None
    """The largest shortfall that would not show, in percent of the amount owed in ten seconds of waiting; null without
    waits. Above 5 %, entitlement is unknown."""
    lines: int
    """Lines that were judged: each ends a window of every length."""
    coverage: float
    """Lowest share of time covered in any of the runs, 0 to 1."""
    passed_messages: int
    passed_bytes: int
    rejected_messages: int
    """Refused by this limit, with an error to the client."""
    rejected_bytes: int
    throttled_s: float
    throttled_share: float
    """Share of the time from the limiter's first line to its last in each run."""
    first: datetime
    """Begin of its first line."""
    last: datetime
    worst_containment: ContainmentFacts | None
    worst_entitlement: EntitlementFacts | None
    role_proof: RoleProof = ""
    """How the clients of a role's limit came by the role, by the lines of their streams. Empty if no line says it."""
    still_s: float = 0.0
    """Time in which a stream waited on it because the proxy stood still. More than 0.1 s: entitlement is unknown."""
    shared_messages: float | None = None
    """The limit of the whole fleet where the value last in force is a share; null elsewhere."""
    shared_bytes: float | None = None
    removed: datetime | None = None
    """The time from which it has no value, by a change; null: it was in force at the end."""
    doubts: list[DoubtFacts] = msgspec.field(default_factory=list)
    """Contradictions between lines, which leave the limit unknown."""

    @property
    def is_violated(self) -> bool:
        """True if at least one of the two promises was broken."""
        return "violated" in (self.containment, self.entitlement)

    @property
    def is_shared(self) -> bool:
        """True if the value last in force is a share of a limit that a fleet holds together."""
        return (self.shared_messages, self.shared_bytes) != (None, None)

    @property
    def severity_s(self) -> float:
        """The size of the violation, in seconds of the limit; 0 if no promise was broken."""
        over, short = self.worst_containment, self.worst_entitlement
        is_over, is_short = self.containment == "violated", self.entitlement == "violated"
        return max(
            over.excess / (over.limit or 1) if over and is_over else 0.0,
            _deficit_s(short) if short and is_short else 0.0,
        )

    @property
    def deciding_window(self) -> ContainmentFacts | EntitlementFacts | None:
        """The window that decides the verdict: of the shortfall if that is the only violation, else the fullest."""
        over, short = self.worst_containment, self.worst_entitlement
        is_short_only = self.entitlement == "violated" and self.containment != "violated"
        return short if is_short_only else over


class Overall(Struct, frozen=True, kw_only=True):
    """The verdict on the whole log."""

    verdict: Verdict
    containment: Verdict
    entitlement: Verdict
    first: datetime | None
    last: datetime | None
    complete_up_to: datetime | None
    """The earliest of what the logs are complete up to of proxies that have not come to an orderly end."""
    coverage: float
    """Lowest of all runs."""
    runs: int
    """The number of listed runs of proxies."""
    whole_runs: int
    """Runs with a coverage of 100 %."""
    least_covered: str
    """Proxy and boot of the run that `coverage` is of; empty without any run."""


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the gravest of some verdicts: one violation outweighs everything."""
    return min(verdicts, key=_GRAVITY.index, default="no limit")


def judge_limiters(facts: Facts) -> list[LimiterVerdict]:
    """Judge each limiter of each proxy; the gravest come first."""
    coverage = {(run.proxy_id, run.boot_id): run_coverage(run) for run in facts.runs}
    groups = _grouped(facts.containment), _grouped(facts.entitlement), _grouped(facts.kept), _grouped(facts.doubts)
    seen = (SeenLimiter(rows, *(rows_of[key] for rows_of in groups)) for key, rows in _grouped(facts.limiters).items())  # type: ignore[arg-type]
    proofs = {(role.proxy_id, role.direction, role.name): _proof(role) for role in facts.roles}
    verdicts = [_judge(limiter, coverage, proofs) for limiter in seen]
    return sorted(verdicts, key=_order)


_SAME_SHARE = 1e-5
"""Shares are exact to a millionth of the limit."""
SumVerdict = Literal["held", "violated", "unknown"]
_AS_VERDICT: dict[SumVerdict, Verdict] = {"held": "compliant", "violated": "violated", "unknown": "unknown"}


class FleetVerdict(FleetSumFacts, frozen=True, kw_only=True):
    """The verdict on what all members of a fleet passed together of one unit of a limit."""

    verdict: SumVerdict
    why: str
    """The reasons why the verdict is not known; of a violation, its possible excuse. Empty for none."""
    killed: int
    """Runs among the members that were killed: the amount of their last moments is not in the log."""


def judge_fleets(facts: Facts) -> list[FleetVerdict]:
    """Judge the sums of limits that fleets share, by the rule of `fleets.py`; the gravest come first."""
    runs = {(run.proxy_id, run.boot_id): run for run in facts.runs}
    lossy = {(loss.proxy_id, loss.of_boot) for loss in facts.losses if loss.cause != "killed"}
    steps: defaultdict[tuple[str, str], float] = defaultdict(float)
    for step in facts.clock_steps:
        steps[step.proxy_id, step.boot_id] += abs(step.size_s)
    verdicts = []
    for sum_ in facts.fleet_sums:
        # Two clocks differ by their earlier difference, and by the steps of both.
        stepped_s = sum(sorted((steps[run] for run in sum_.members), reverse=True)[:2])
        reasons = list(_fleet_reasons(sum_, facts, runs, lossy))
        verdict: SumVerdict = "unknown" if reasons else "held"
        if sum_.excess > 0:
            apart = f"clocks that differ by {CLOCKS_APART_S + sum_.clock_s:.3g} s would explain it"
            verdict = "violated"
            if sum_.clock_s <= stepped_s:
                verdict, apart = "unknown", f"{apart}, and clocks of members were stepped by {stepped_s:.3g} s"
            elif sum_.clock_s <= sum_.uncertain_s:
                within_s = CLOCKS_APART_S + sum_.uncertain_s
                verdict, apart = "unknown", f"{apart}, and members know theirs to within {within_s:.3g} s only"
            elif sum_.corrected_s > CLOCKS_APART_S:
                apart = f"{apart}, beyond the {sum_.corrected_s:.3g} s that are known and corrected"
            reasons = [apart, *reasons]
        took = [member for member in sum_.cut_off if member.beyond > _SAME_SHARE]
        if took:
            verdict = "violated"
            worst = max(took, key=lambda member: member.beyond)
            more = f"took {worst.share:.3g} of the limit, {worst.beyond:.3g} more than an equal part"
            reasons = [f"{worst.proxy_id} was cut off and {more}", *reasons]
        killed = sum(run in runs and runs[run].is_cut_off for run in sum_.members)
        fields = msgspec.structs.asdict(sum_)
        verdicts.append(FleetVerdict(**fields, verdict=verdict, why="; ".join(reasons), killed=killed))
    order: tuple[SumVerdict, ...] = ("violated", "unknown", "held")
    return sorted(
        verdicts, key=lambda sum_: (order.index(sum_.verdict), -sum_.excess / (sum_.limit or 1), sum_.name, sum_.unit)
    )


def _fleet_reasons(
    sum_: FleetSumFacts, facts: Facts, runs: Mapping[tuple[str, str], RunFacts], lossy: set[tuple[str, str]]
) -> Iterator[str]:
    """Yield the reasons why more may have passed than the log has."""
    for gap in facts.fleet_gaps:
        if gap.fleet == sum_.fleet:
            yield f"the fleet had {gap.members} members at {gap.at:%H:%M:%S}, and there are logs of {gap.logs} proxies"
    for member in sum_.members:
        run = runs.get(member)
        if run is None:
            yield f"the coverage of the log of {member[0]}, run {member[1]}, is not known"
        elif run.missing or member in lossy:
            yield f"lines of {member[0]}, run {member[1]}, are missing"
        elif run.malformed or run.conflicts or run.newer:
            yield f"lines of {member[0]}, run {member[1]}, cannot be read, or contradict each other"
    if facts.unread:
        yield "files of the log's folder were not read"


def judge_overall(facts: Facts, limiters: list[LimiterVerdict], sums: Sequence[FleetVerdict] = ()) -> Overall:
    """Judge the whole log. Without a single line, or a single heartbeat, nothing is known.

    Args:
        facts: All facts.
        limiters: The verdicts on single proxies' limits.
        sums: The verdicts on what fleets passed together.
    """
    least = min(facts.runs, key=run_coverage, default=None)
    coverage = run_coverage(least) if least else 0.0
    # A limit beyond the table has no violation, or the table would begin with it.
    is_limited = facts.left_out.get("limiters") or any(limiter.containment != "no limit" for limiter in limiters)
    # A line that is missing may be of any limit, also in a run in which the limits that are known have none.
    is_read = coverage >= COMPLETE and not facts.unread
    beyond: Verdict = "unknown" if is_limited and not is_read else "no limit"
    together = (_AS_VERDICT[verdict_.verdict] for verdict_ in sums)
    containment = gravest([*(limiter.containment for limiter in limiters), *together, beyond])
    entitlement = gravest([*(limiter.entitlement for limiter in limiters), beyond])
    verdict = gravest([containment, entitlement]) if facts.runs else "unknown"
    return Overall(
        verdict=verdict,
        containment=containment,
        entitlement=entitlement,
        first=min((run.first for run in facts.runs), default=None),
        last=max((run.last for run in facts.runs), default=None),
        complete_up_to=complete_up_to(facts.ends, facts.horizon),
        coverage=coverage,
        runs=len(facts.runs),
        whole_runs=sum(run_coverage(run) >= COMPLETE for run in facts.runs),
        least_covered=f"{least.proxy_id}, {least.boot_id}" if least else "",
    )


def run_coverage(run: RunFacts) -> float:
    """Return the run's coverage; never whole while a line is known to be missing, or may be."""
    is_whole = not (run.missing or run.is_lossy or run.is_cut_off or run.is_doubtful)
    return run.coverage if is_whole else min(run.coverage, _NOT_KNOWN_WHOLE)


@dataclass(frozen=True)
class SeenLimiter:
    """All facts of one limiter of one proxy."""

    rows: list[LimiterFacts]
    containment: list[ContainmentFacts]
    entitlement: list[EntitlementFacts]
    kept: list[KeptFacts]
    doubts: list[DoubtFacts]


def containment_share(seen: SeenLimiter, worst: ContainmentFacts | None) -> float:
    """Return the share of the judged time in which the limit was kept.

    If the limit has no lines, and only its streams show that it was not kept, the whole window counts as broken.
    """
    over = _over(seen, worst)
    over_s = over.seconds if over else 0.0
    judged_s = max(over_s, sum(row.judged_s for row in seen.kept))
    return max(0.0, 1 - over_s / judged_s) if judged_s else 1.0


def _over(seen: SeenLimiter, worst: ContainmentFacts | None) -> Spells | None:
    over = together(row.over for row in seen.kept)
    if over is None and worst and worst.basis == "streams" and worst.excess > excess_tolerance(worst.limit):
        lasts_s = max(0.0, (worst.end - worst.start).total_seconds())
        return Spells(times=1, seconds=lasts_s, first=worst.start, longest=worst.start, longest_s=lasts_s)
    return over


def entitlement_share(seen: SeenLimiter, least: EntitlementFacts | None) -> float:
    """Return the share of the time waited whose last ten seconds had no shortfall.

    A shortfall that shows only over a whole day counts by how much passed.
    """
    waited_s = sum(row.waited_s for row in seen.kept)
    short = together(row.short for row in seen.kept)
    share = 1 - short.seconds / waited_s if short and waited_s else 1.0
    if least and least.whole_deficit_s > CLOCK_RESOLUTION_S and least.whole_waited_s:
        share = min(share, least.whole_served_s / least.whole_waited_s)
    return max(0.0, share)


def _proof(role: RoleFacts) -> RoleProof:
    if role.is_proved:
        return "mixed" if role.is_claimed else "proved"
    return "claimed"


def _judge(
    seen: SeenLimiter, coverage: dict[tuple[str, str], float], proofs: Mapping[tuple[str, str, str], RoleProof]
) -> LimiterVerdict:
    rows, containment, entitlement = seen.rows, seen.containment, seen.entitlement
    latest = max(rows, key=lambda row: row.last)
    # By its own lines it may have had none in force, and by its streams' lines one.
    was_limited = any(row.was_limited for row in rows) or any(doubt.what == "value" for doubt in seen.doubts)
    covered = min(coverage.get((row.proxy_id, row.boot_id), _NOT_KNOWN_WHOLE) for row in rows)
    worst = max(containment, key=lambda window: window.excess / (window.limit or 1), default=None)
    least = max(entitlement, key=_deficit_s, default=None)
    is_over = any(window.excess > excess_tolerance(window.limit) for window in containment)
    is_short = least is not None and _deficit_s(least) > CLOCK_RESOLUTION_S
    is_certain = not seen.doubts
    is_seen = all(window_.unseen_s <= UNSEEN_S for window_ in entitlement)
    still_s = sum(window_.still_s for window_ in entitlement)
    span_s = sum((row.last - row.first).total_seconds() for row in rows)
    throttled_s = sum(row.throttled_s for row in rows)
    is_role = latest.level == "role"
    return LimiterVerdict(
        **{name: getattr(latest, name) for name in _OF_LATEST},
        values=max(row.values for row in rows),
        containment=_verdict(is_violated=is_over, was_limited=was_limited, is_known=is_certain and covered >= COMPLETE),
        entitlement=_verdict(
            is_violated=is_short,
            was_limited=was_limited,
            is_known=is_certain and is_seen and still_s <= SHORT_S and covered >= COMPLETE,
        ),
        shortfall_percent=shortfall_percent(least) if least and is_short else 0.0,
        containment_share=containment_share(seen, worst) if was_limited else None,
        entitlement_share=entitlement_share(seen, least) if was_limited else None,
        containment_broken=_over(seen, worst) if is_over and was_limited else None,
        entitlement_broken=together(row.short for row in seen.kept) if is_short and was_limited else None,
        unseen_percent=max(map(unseen_percent, entitlement), default=None),
        lines=sum(row.lines for row in seen.kept),
        coverage=covered,
        passed_messages=sum(row.passed_messages for row in rows),
        passed_bytes=sum(row.passed_bytes for row in rows),
        rejected_messages=sum(row.rejected_messages for row in rows),
        rejected_bytes=sum(row.rejected_bytes for row in rows),
        throttled_s=throttled_s,
        throttled_share=min(1.0, throttled_s / span_s) if span_s > 0 else 0.0,
        first=min(row.first for row in rows),
        last=max(row.last for row in rows),
        worst_containment=worst,
        worst_entitlement=least,
        role_proof=proofs.get((latest.proxy_id, latest.direction, latest.name), "") if is_role else "",
        still_s=still_s,
        doubts=seen.doubts,
    )


_OF_LATEST = (
    *("proxy_id", "direction", "level", "name", "tenant", "namespace", "source", "mode", "is_relative", "removed"),
    *(f"{name}_{unit}" for name in ("limit", "burst", "shared") for unit in ("messages", "bytes")),
)
"""Fields that the verdict has from the facts of the limiter's latest run."""


def _verdict(*, is_violated: bool, was_limited: bool, is_known: bool) -> Verdict:
    if not was_limited:
        return "no limit"
    if is_violated:
        return "violated"
    return "compliant" if is_known else "unknown"


def shortfall_percent(facts: EntitlementFacts) -> float:
    """Return the percent of the amount owed that did not pass, in the worst window or the whole, whichever is worse."""
    window = 1 - facts.served_s / facts.waited_s if facts.waited_s and facts.deficit_s > 0 else 0.0
    whole = 1 - facts.whole_served_s / facts.whole_waited_s if facts.whole_waited_s and facts.whole_deficit_s > 0 else 0
    return 100 * max(0.0, window, whole)


def unseen_percent(facts: EntitlementFacts) -> float:
    """Return the largest shortfall that would not show, in percent of the amount owed in ten seconds of waiting."""
    return min(100.0, 100 * facts.unseen_s / OWED_WINDOW_S)


def _deficit_s(facts: EntitlementFacts) -> float:
    return max(facts.deficit_s, facts.whole_deficit_s)


def _order(limiter: LimiterVerdict) -> tuple[int, float, float, str, str, str]:
    gravity = _GRAVITY.index(gravest([limiter.containment, limiter.entitlement]))
    return (gravity, -limiter.severity_s, -limiter.throttled_s, limiter.name, limiter.direction, limiter.proxy_id)


def _grouped(rows: list[FactsRow]) -> dict[tuple[str, str, str, str], list[FactsRow]]:
    groups: defaultdict[tuple[str, str, str, str], list[FactsRow]] = defaultdict(list)
    for row in rows:
        groups[row.proxy_id, row.direction, row.level, row.name].append(row)
    return groups


RollupScope = Literal["tenant", "namespace", "topic", "level"]
_BY_TOPIC = {
    level.word: len(level.limited) > 1
    for level in limiting.LEVELS
    if not level.is_of_system and level.limited[-1:] in {(limiting.TOPIC,), (limiting.PARTITIONED_TOPIC,)}
}
"""Levels whose limits bear a topic's name, and whether other words and an @ come before it."""


class WorstWindow(Struct, frozen=True, kw_only=True):
    """The window that decides a verdict, and the lines that it begins and ends with."""

    start: datetime
    end: datetime
    first_line: LinePlace
    last_line: LinePlace


class Rollup(Struct, frozen=True, kw_only=True):
    """The joint verdict on all limits of one tenant, namespace, topic or level."""

    scope: RollupScope
    name: str
    verdict: Verdict
    containment: Verdict
    entitlement: Verdict
    containment_share: float | None
    """The lowest of its limits', 0 to 1; null if none was in force."""
    entitlement_share: float | None
    containment_broken: Spells | None
    """When the limit with the lowest share was not kept; null if that was never seen."""
    entitlement_broken: Spells | None
    coverage: float
    """The lowest of its limits'."""
    limits: int
    violated: int
    """Limits with a violation."""
    worst: str
    """The limit that decides: its direction, level and name."""
    worst_window: WorstWindow | None
    """The worst window of that limit; null if no window was judged."""


def roll_up(limiters: list[LimiterVerdict]) -> list[Rollup]:
    """Join verdicts by tenant, namespace, topic and level, in this order; the gravest come first.

    Args:
        limiters: In the order of gravity.
    """
    groups: defaultdict[tuple[RollupScope, str], list[LimiterVerdict]] = defaultdict(list)
    for limiter in limiters:
        for key in scopes(limiter):
            groups[key].append(limiter)
    order: tuple[RollupScope, ...] = ("tenant", "namespace", "topic", "level")
    rolled = [_roll(scope, name, members) for (scope, name), members in groups.items()]
    # Within a scope as the limits are: a group came up with its gravest.
    return sorted(rolled, key=lambda row: order.index(row.scope))


def scopes(limiter: LimiterVerdict) -> Iterable[tuple[RollupScope, str]]:
    """Yield the groups that the limit belongs to. A limit that spans tenants belongs to its level only."""
    yield ("level", limiter.level)
    if limiter.tenant:
        yield ("tenant", limiter.tenant)
        if limiter.namespace:
            yield ("namespace", f"{limiter.tenant}/{limiter.namespace}")
    if topic := _topic(limiter):
        yield ("topic", topic)


def _topic(limiter: LimiterVerdict) -> str:
    if not _BY_TOPIC.get(limiter.level, True):
        return limiter.name
    # Names of producers may hold an @, names of topics begin with their kind.
    for kind in ("@persistent://", "@non-persistent://"):
        if limiter.level in _BY_TOPIC and kind in limiter.name:
            return kind[1:] + limiter.name.rpartition(kind)[2]
    return ""


def _roll(scope: RollupScope, name: str, limiters: list[LimiterVerdict]) -> Rollup:
    containment = gravest(limiter.containment for limiter in limiters)
    entitlement = gravest(limiter.entitlement for limiter in limiters)
    worst = limiters[0]
    return Rollup(
        scope=scope,
        name=name,
        verdict=gravest([containment, entitlement]),
        containment=containment,
        entitlement=entitlement,
        containment_share=_lowest(limiter.containment_share for limiter in limiters),
        entitlement_share=_lowest(limiter.entitlement_share for limiter in limiters),
        containment_broken=min(limiters, key=_contained).containment_broken,
        entitlement_broken=min(limiters, key=_entitled).entitlement_broken,
        coverage=min(limiter.coverage for limiter in limiters),
        limits=len(limiters),
        violated=sum(limiter.is_violated for limiter in limiters),
        worst=f"{worst.direction} {worst.level} {worst.name}".strip(),
        worst_window=_window(worst),
    )


def _window(limiter: LimiterVerdict) -> WorstWindow | None:
    window = limiter.deciding_window
    if window is None:
        return None
    return WorstWindow(start=window.start, end=window.end, first_line=window.first_line, last_line=window.last_line)


def _contained(limiter: LimiterVerdict) -> tuple[bool, float]:
    return limiter.containment != "violated", limiter.containment_share or 0.0


def _entitled(limiter: LimiterVerdict) -> tuple[bool, float]:
    return limiter.entitlement != "violated", limiter.entitlement_share or 0.0


def _lowest(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)
