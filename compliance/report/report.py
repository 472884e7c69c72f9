"""The report as one value: what report.json holds and the page shows."""

from collections.abc import Iterator
from typing import TypeVar

from msgspec import Struct

from compliance.excerpt import Excerpt
from compliance.figures.facts import (
    EpisodeFacts,
    FleetRateFacts,
    LossFacts,
    NeighbourFacts,
    PauseFacts,
    PeakFacts,
    RateFacts,
    RefusalFacts,
    TenantDayFacts,
)
from compliance.judging.facts import (
    ClockStepFacts,
    DoubtFacts,
    Facts,
    FleetGapFacts,
    GapFacts,
    NewerFacts,
    QuarantineFacts,
    RunFacts,
    ShareChangeFacts,
    StandstillFacts,
    TopicFacts,
    UsageFacts,
    silent_runs,
)
from compliance.judging.lines import OWED_WINDOW_S, SHORT_S, UNSEEN_S
from compliance.judging.verdict import (
    COMPLETE,
    FleetVerdict,
    LimiterVerdict,
    Overall,
    Rollup,
    SumVerdict,
    judge_fleets,
    judge_limiters,
    judge_overall,
    roll_up,
)
from compliance.report.impact import Answers, answers, failed
from compliance.report.sections import (
    CENSORED,
    Burn,
    Delay,
    Event,
    Headroom,
    SharedLimit,
    WhatIf,
    burns,
    by_reason,
    delays,
    headrooms,
    shared_limits,
    timeline,
    unmatched,
    what_ifs,
)
from compliance.report.subjects import Tenant, clock, numbered, percent, span, tenants, whole

REPORT_VERSION = 2

FactsRow = TypeVar("FactsRow", RateFacts, PeakFacts)
BYTES_BASIS = "entries: magic, checksum, metadata and payload, as the broker counts; no TCP, no TLS"


class Quality(Struct, frozen=True, kw_only=True):
    """The completeness of the log."""

    lines: int
    quarantined: int
    duplicates: int
    missing: int
    silent: list[str]
    """Proxies whose log stops, without an orderly end, before that of others."""
    runs: list[RunFacts]
    gaps: list[GapFacts]
    losses: list[LossFacts]
    """Lines that proxies themselves report as lost."""
    quarantine: list[QuarantineFacts]
    """Groups of file and reason, the largest first."""
    clock_steps: list[ClockStepFacts] = []
    standstills: list[StandstillFacts] = []
    newer: list[NewerFacts] = []
    """Lines that only a newer version of this report understands; they were passed over."""
    passed_over: str = ""
    """Files of the log's folder that were not read, and what helps."""
    unread: int = 0
    """The number of files among them that may hold lines of the log."""


class Throttling(Struct, frozen=True, kw_only=True):
    """Waits, delays and refusals."""

    limits: list[EpisodeFacts]
    """Waits by limit, the longest first."""
    by_reason: list[Delay]
    by_topic: list[Delay]
    pauses: list[PauseFacts]
    """Pauses of reading, which all streams of a connection feel."""
    refusals: list[RefusalFacts]
    """Lookups, producers and consumers that were refused."""


class Budgets(Struct, frozen=True, kw_only=True):
    """The burn rates of error budgets."""

    objective: float
    rows: list[Burn]


class Replay(Struct, frozen=True, kw_only=True):
    """Proposed limits on the arrivals of this log."""

    rows: list[WhatIf]
    unmatched: list[str]
    """Proposals that fit no name in the log."""
    caveat: str


class Fleets(Struct, frozen=True, kw_only=True):
    """The limits that several proxies hold together, as fleets."""

    verdict: SumVerdict | None
    """The gravest of the sums; null where no fleet shares a limit."""
    sums: list[FleetVerdict]
    """The sums of all members, by limit and unit; the gravest come first."""
    rates: list[FleetRateFacts]
    """Rates in the charts of the gravest sums."""
    gaps: list[FleetGapFacts]
    """Members without a log."""
    share_changes: list[ShareChangeFacts]


class Report(Struct, frozen=True, kw_only=True):
    """The whole report, the verdict first."""

    report_version: int
    bytes_basis: str
    excerpt: Excerpt
    """The part of the log that this report is about."""
    overall: Overall
    headline: str
    sentence: str
    answers: Answers
    rollups: list[Rollup]
    limiters: list[LimiterVerdict]
    fleets: Fleets
    doubts: list[DoubtFacts]
    """Contradictions in the log, in the order of the limits."""
    quality: Quality
    rates: list[RateFacts]
    peaks: list[PeakFacts]
    charts_left_out: int
    throttling: Throttling
    budgets: Budgets
    fairness: list[SharedLimit]
    neighbours: list[NeighbourFacts]
    headroom: list[Headroom]
    what_if: Replay | None
    tenants: list[Tenant]
    """Tenants that have a page of their own, the gravest first."""
    tenants_left_out: int
    topics: list[TopicFacts]
    usage: list[UsageFacts]
    tenant_days: list[TenantDayFacts]
    events: list[Event]
    log_sha256: str = ""
    """SHA-256 of the list of the log's files beside the report (`log-files.sha256`); empty without a list."""
    left_out: dict[str, int]
    """Rows of the larger tables that are in none of the files, because they did not fit one machine: the least."""


def make_report(facts: Facts) -> Report:
    """Judges the facts and puts them in order."""
    limiters = judge_limiters(facts)
    sums = judge_fleets(facts)
    overall = judge_overall(facts, limiters, sums)
    use, fairness = headrooms(facts.headroom), shared_limits(facts.fairness)
    answered = answers(facts, limiters, use, fairness)
    headline, sentence = words(overall, limiters, facts, sums, answered)
    proposals, own = facts.proposals, tenants(facts, limiters)
    named = {row.tenant for row in facts.topics} | {limiter.tenant for limiter in limiters}
    return Report(
        report_version=REPORT_VERSION,
        bytes_basis=BYTES_BASIS,
        excerpt=facts.excerpt,
        overall=overall,
        headline=headline,
        sentence=sentence,
        answers=answered,
        rollups=roll_up(limiters),
        limiters=limiters,
        fleets=Fleets(
            verdict=sums[0].verdict if sums else None,
            sums=sums,
            rates=facts.fleet_rates,
            gaps=facts.fleet_gaps,
            share_changes=facts.share_changes,
        ),
        doubts=[doubt for limiter in limiters for doubt in limiter.doubts],
        quality=_quality(facts),
        rates=in_order(facts.rates, limiters),
        # An average over more time than the log has would show the log's length.
        peaks=[peak for peak in in_order(facts.peaks, limiters) if peak.step_s <= _span_s(overall)],
        charts_left_out=facts.charts_left_out,
        throttling=Throttling(
            limits=facts.episodes,
            by_reason=by_reason(facts.delays_by_reason),
            by_topic=delays([row for row in facts.delays_by_topic if row.delay_max_ms]),
            pauses=facts.pauses,
            refusals=facts.refusals,
        ),
        budgets=Budgets(objective=facts.objective, rows=burns(facts.burn, facts.objective, _span_s(overall))),
        fairness=fairness,
        neighbours=sorted(facts.neighbours, key=lambda row: (-row.victims, -row.ratio, row.offender)),
        headroom=use,
        what_if=_replay(facts) if proposals else None,
        tenants=own,
        tenants_left_out=len(named - {""}) - len(own),
        topics=sorted(facts.topics, key=lambda topic: (topic.topic, topic.direction)),
        usage=sorted(facts.usage, key=lambda row: (row.day, row.topic, row.direction)),
        tenant_days=sorted(facts.tenant_days, key=lambda row: (row.day, row.tenant, row.direction)),
        events=timeline(facts.changes, facts.runs, facts.losses, facts.gaps, facts.horizon),
        left_out=facts.left_out,
    )


def _span_s(overall: Overall) -> float:
    return (overall.last - overall.first).total_seconds() if overall.first and overall.last else 0.0


def in_order(rows: list[FactsRow], limiters: list[LimiterVerdict]) -> list[FactsRow]:
    """Rows of limits in the order of the limits."""
    order = {
        (limiter.proxy_id, limiter.direction, limiter.level, limiter.name): place
        for place, limiter in enumerate(limiters)
    }
    # Rows of topics without a limit stay as they are.
    return sorted(rows, key=lambda row: order.get((row.proxy_id, row.direction, row.level, row.name), len(order)))


def _quality(facts: Facts) -> Quality:
    return Quality(
        lines=sum(run.lines for run in facts.runs),
        quarantined=sum(group.lines for group in facts.quarantine),
        duplicates=sum(run.duplicates for run in facts.runs),
        missing=sum(run.missing for run in facts.runs),
        silent=silent(facts),
        runs=sorted(facts.runs, key=lambda run: (run.proxy_id, run.first)),
        gaps=facts.gaps,
        losses=facts.losses,
        quarantine=facts.quarantine,
        clock_steps=facts.clock_steps,
        standstills=facts.standstills,
        newer=facts.newer,
        passed_over=facts.passed_over,
        unread=facts.unread,
    )


def silent(facts: Facts) -> list[str]:
    """Proxies whose latest run stops a minute or more before the log does, without an orderly end."""
    return sorted(run.proxy_id for run in silent_runs(facts.ends, facts.horizon))


def _replay(facts: Facts) -> Replay:
    rows = what_ifs(facts.replays, facts.proposals)
    return Replay(rows=rows, unmatched=unmatched(facts.replays, facts.proposals), caveat=CENSORED)


def words(
    overall: Overall, limiters: list[LimiterVerdict], facts: Facts, sums: list[FleetVerdict], answered: Answers
) -> tuple[str, str]:
    """Return the verdict for a stranger: a headline and a sentence."""
    limited = [limiter for limiter in limiters if limiter.containment != "no limit"]
    if overall.verdict == "violated":
        return _violations(overall, limited, facts, sums)
    if not facts.runs:
        return "Nothing to judge", "The access log has no valid line."
    if overall.verdict == "unknown":
        return _not_known(overall, limited, facts, sums)
    if not limited:
        observed = (
            f" {numbered(len(facts.observed), 'limit')} only observed: nothing was held." if facts.observed else ""
        )
        return "No limits in force", f"Traffic was counted, but there was no limit to keep.{observed}"
    until = f" up to {overall.complete_up_to:%Y-%m-%d %H:%M:%S} UTC" if overall.complete_up_to else ""
    hurt = " and ".join(failed(total) for total in answered.totals if total.is_hurt)
    return (
        f"All limits were kept, but {hurt}" if hurt else "All limits were kept, and no stream got less than owed",
        f"{numbered(len(limited), 'limit')} judged, in every window of time; the log is complete{until}.",
    )


def _not_known(
    overall: Overall, limited: list[LimiterVerdict], facts: Facts, sums: list[FleetVerdict]
) -> tuple[str, str]:
    """Say why the report cannot confirm anything, the gravest reason first, each with where to look."""
    reasons = [*_reasons(overall, limited, facts), *_of_fleets(sums)]
    is_whole = overall.coverage >= COMPLETE and not facts.unread
    headline = (
        "No violation seen, but the log does not show all"
        if is_whole
        else "No violation seen, but the log is not complete"
    )
    return headline, f"{'; '.join(reasons)}: so nothing is confirmed."


def _reasons(overall: Overall, limited: list[LimiterVerdict], facts: Facts) -> Iterator[str]:
    if facts.quarantine:
        group, lines = facts.quarantine[0], sum(group.lines for group in facts.quarantine)
        yield f"{numbered(lines, 'line')} malformed ({group.reason})"
    for noun, count in (
        ("duplicate", sum(run.conflicts for run in facts.runs)),
        ("line", sum(run.newer for run in facts.runs)),
        ("file", facts.unread),
    ):
        if count:
            yield f"{numbered(count, noun)} {_WHY[noun]}"
    tails = [run for run in facts.runs if run.has_tail and not run.ended]
    if tails:
        yield f"the log of {tails[0].proxy_id}, run {tails[0].boot_id}, breaks off behind its last heartbeat"
    doubted = [limiter for limiter in limited if limiter.doubts]
    if doubted:
        more = f" and {numbered(len(doubted) - 1, 'more limit')}" if len(doubted) > 1 else ""
        yield f"lines about {doubted[0].direction} {doubted[0].level} {doubted[0].name}{more} contradict each other"
    yield from _stood_still(limited, facts)
    blind = [limiter for limiter in limited if (limiter.unseen_percent or 0) > MOST_UNSEEN_PERCENT]
    if blind and not doubted:
        most = max(limiter.unseen_percent or 0 for limiter in blind)
        yield f"of {numbered(len(blind), 'limit')} up to {most:.0f} % less than owed would not show"
    if overall.coverage < COMPLETE:
        yield f"coverage is {_covered(overall, facts)}, and missing lines might show a violation"


def _of_fleets(sums: list[FleetVerdict]) -> Iterator[str]:
    unknown = [verdict for verdict in sums if verdict.verdict == "unknown"]
    if unknown:
        yield f"what a fleet passed together is not known for {numbered(len(unknown), 'limit')} ({unknown[0].why})"


def _stood_still(limited: list[LimiterVerdict], facts: Facts) -> Iterator[str]:
    waited = [limiter for limiter in limited if limiter.still_s > SHORT_S]
    longest = max(facts.standstills, key=lambda standstill: standstill.lasted_s, default=None)
    if waited and longest:
        times = len(facts.standstills)
        which = "" if times == 1 else f", the longest of {whole(times)} times"
        when = f"for {span(longest.lasted_s)} at {clock(longest.start)}"
        yield f"{longest.proxy_id} stood still {when}{which}, while a stream waited on {numbered(len(waited), 'limit')}"


_WHY = {
    "duplicate": "not the same as the line kept",
    "line": "of a version that this report does not know",
    "file": "of the folder not read",
}
MOST_UNSEEN_PERCENT = 100 * UNSEEN_S / OWED_WINDOW_S
"""The largest shortfall in percent that may stay unseen; above it entitlement is not confirmed."""


def _covered(overall: Overall, facts: Facts) -> str:
    names = silent(facts)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    silence = f", and {names[0]}{more} fell silent without an orderly end" if names else ""
    basis = f" in the least covered of {whole(overall.runs)} runs" if overall.runs > 1 else ""
    return percent(overall.coverage) + basis + silence


def _violations(
    overall: Overall, limited: list[LimiterVerdict], facts: Facts, sums: list[FleetVerdict]
) -> tuple[str, str]:
    over = [limiter for limiter in limited if limiter.containment == "violated"]
    short = [limiter for limiter in limited if limiter.entitlement == "violated"]
    parts = []
    if over:
        parts.append(f"{numbered(len(over), 'limit')} exceeded")
    if short:
        parts.append(f"{numbered(len(short), 'limit')} throttled below {'its' if len(short) == 1 else 'their'} rate")
    violated_sums = [verdict for verdict in sums if verdict.verdict == "violated"]
    if violated_sums:
        parts.append(f"{numbered(len(violated_sums), 'limit')} exceeded by a fleet together")
    violated = [
        *(limiter.name for limiter in limited if limiter.is_violated),
        *(verdict.name for verdict in violated_sums),
    ]
    named = list(dict.fromkeys(violated))
    listed = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    unproven = "; ".join([*_reasons(overall, limited, facts), *_of_fleets(sums)])
    unknown = f" Also, not all is known: {unproven}." if unproven else ""
    return " · ".join(parts), f"Of {numbered(len(limited), 'limit')} judged. Concerned: {listed}.{unknown}"


_MOST_LINES = 10
"""Proxies of one kind that a terminal shows."""


def fleet_lines(fleets: Fleets) -> list[str]:
    """Return a terminal's lines about limits that fleets share; none where there are no such limits."""
    if fleets.verdict is None:
        return []
    counts = [
        (word, sum(verdict.verdict == word for verdict in fleets.sums)) for word in ("held", "violated", "unknown")
    ]
    listed = ", ".join(f"{whole(count)} {word}" for word, count in counts if count)
    text = [f"fleets: the sum of {numbered(len(fleets.sums), 'shared limit')}: {listed}"]
    worst = fleets.sums[0]
    if worst.verdict != "held":
        more = f", {whole(worst.allowed)} allowed" if worst.excess > 0 else ""
        passed = f"{whole(worst.passed)} {worst.unit} passed from {clock(worst.start)} for "
        lasts = span((worst.end - worst.start).total_seconds())
        text.append(f"fleet {worst.fleet}, {_limit_of(worst)}: {passed}{lasts}{more}; {worst.why}")
    remedies = (
        [remedy(*outsider) for outsider in outsiders(fleets.sums)],
        [away(*member) for member in cut_off(fleets.sums)],
    )
    for lines in remedies:
        text += lines[:_MOST_LINES]
        text += [f"and {whole(len(lines) - _MOST_LINES)} more proxies like it"] if len(lines) > _MOST_LINES else []
    return text


def outsiders(sums: list[FleetVerdict]) -> list[tuple[str, str, list[str]]]:
    """Return the proxies without the fleet beside its members: proxy, fleet, and the limits that each has to itself."""
    proxies: dict[tuple[str, str], dict[str, None]] = {}
    for verdict in sums:
        for outside in verdict.outside:
            proxies.setdefault((outside.proxy_id, verdict.fleet), {})[_limit_of(verdict)] = None
    return [(proxy_id, fleet, list(limits)) for (proxy_id, fleet), limits in sorted(proxies.items())]


def remedy(proxy_id: str, fleet: str, limits: list[str]) -> str:
    """Return the remedy for a proxy outside the fleet."""
    more = f" and {numbered(len(limits) - 1, 'limit')} more" if len(limits) > 1 else ""
    section = f"fleet: {{name: {fleet}}}" if fleet else "the same section fleet"
    return f"{proxy_id} has {limits[0]}{more} to itself beside fleet {fleet}: give it `{section}` as the others have it"


def cut_off(sums: list[FleetVerdict]) -> list[tuple[str, str, float, float]]:
    """Return the members that were cut off: proxy, fleet, the largest share of a limit that it kept, and seconds."""
    members: dict[tuple[str, str], tuple[float, float]] = {}
    for verdict in sums:
        for member in verdict.cut_off:
            share, seconds = members.get((member.proxy_id, verdict.fleet), (0.0, 0.0))
            members[member.proxy_id, verdict.fleet] = max(member.share, share), max(member.seconds, seconds)
    return [(*key, *value) for key, value in sorted(members.items())]


def away(proxy_id: str, fleet: str, share: float, seconds: float) -> str:
    """Return for how long a member was cut off, and the part of a limit that it kept."""
    kept = f"It kept {percent(share)} of a limit at most, which other members may also have had"
    return f"{proxy_id} was cut off from fleet {fleet} for {span(seconds)}. {kept}"


def _limit_of(verdict: FleetVerdict) -> str:
    return f"{verdict.direction} {verdict.level} {verdict.name}"
