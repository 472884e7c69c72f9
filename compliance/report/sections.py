"""The report's sections, made from the figures: throttling, sharing, trends, budgets, what-if, timeline."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from accesslog.record import upper_bound_ms
from compliance.figures.facts import (
    BurnFacts,
    ChangeFacts,
    DelayFacts,
    FairnessFacts,
    HeadroomFacts,
    LimitKey,
    LossFacts,
    ReplayFacts,
)
from compliance.figures.what_if import Proposal
from compliance.judging.facts import SILENT, GapFacts, RunFacts, end_of_log
from compliance.report.settings import in_words, subject


class Delay(Struct, frozen=True, kw_only=True):
    """Delays of one topic and direction, or by the level that held."""

    tenant: str
    namespace: str
    topic: str
    """Empty for all topics together."""
    direction: str
    reason: str
    """Level of the limit that held; empty for all together."""
    passed_messages: int
    held_messages: int
    mean_ms: float | None
    """Over the messages that were held; null if none was, or if the proxy did not log the time."""
    p50_ms: float | None
    """Half of the messages that were held had been held for less than this; so on. Right to a quarter of itself."""
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float


def percentile_ms(hist: Sequence[int], share: float, highest_ms: float) -> float | None:
    """Return the delay, in milliseconds, below which a share of a histogram's messages stayed; None without messages.

    Args:
        hist: Messages by bucket of the access log's fixed bounds.
        share: 0 to 1.
        highest_ms: The longest of all delays: no percentile is above it, and the last bucket has no other bound.
    """
    least, passed = share * sum(hist), 0
    for bucket, messages in enumerate(hist):
        passed += messages
        if messages and passed >= least:
            bound = upper_bound_ms(bucket)
            return highest_ms if bound is None else min(bound, highest_ms)
    return None


def added(hists: Iterable[Sequence[int]]) -> list[int]:
    """Histograms summed place by place."""
    total: defaultdict[int, int] = defaultdict(int)
    for hist in hists:
        for bucket, messages in enumerate(hist):
            total[bucket] += messages
    return [total[bucket] for bucket in range(max(total, default=-1) + 1)]


def delays(facts: list[DelayFacts]) -> list[Delay]:
    """Delays with percentiles, in the order of the facts."""
    return [_delay(row) for row in facts]


def by_reason(facts: list[DelayFacts]) -> list[Delay]:
    """Delays by the level that held, after one row for all of a direction together."""
    rows = []
    for direction in ("publish", "dispatch"):
        of_direction = [row for row in facts if row.direction == direction]
        if any(row.delay_max_ms for row in of_direction):
            rows.append(_delay(_together(direction, of_direction)))
            rows += [_delay(row) for row in sorted(of_direction, key=lambda delay: -delay.delay_sum_ms) if row.reason]
    return rows


def _together(direction: str, rows: list[DelayFacts]) -> DelayFacts:
    return DelayFacts(
        tenant="",
        namespace="",
        topic="",
        direction=direction,
        reason="",
        passed_messages=sum(row.passed_messages for row in rows),
        held_messages=sum(row.held_messages for row in rows),
        delay_sum_ms=sum(row.delay_sum_ms for row in rows),
        delay_max_ms=max(row.delay_max_ms for row in rows),
        hist=added(row.hist for row in rows),
    )


def _delay(row: DelayFacts) -> Delay:
    p50, p95, p99 = (percentile_ms(row.hist, share, row.delay_max_ms) for share in (0.5, 0.95, 0.99))
    return Delay(
        tenant=row.tenant,
        namespace=row.namespace,
        topic=row.topic,
        direction=row.direction,
        reason=row.reason,
        passed_messages=row.passed_messages,
        held_messages=row.held_messages,
        mean_ms=row.delay_sum_ms / row.held_messages if row.held_messages else None,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=row.delay_max_ms,
    )


_ENTRY = 1.0


class Member(Struct, frozen=True, kw_only=True):
    """A member of a shared limit, and the amount that it got while a stream waited."""

    member: str
    got: float
    wanted: float
    fair: float
    """The member's max-min share of the amount that passed."""


class SharedLimit(LimitKey, frozen=True, kw_only=True):
    """One limit with several members, while a stream waited on it."""

    unit: str
    contended_s: float
    jain: float
    """Jain's index of got / fair: 1 if all got the same part of their share, 1/n if one of n got everything."""
    gap: float
    """The part of its share that the worst-off member lacks: 0 is fair."""
    worst_off: str
    members: list[Member]
    """Members; the one that got least of its share comes first."""


def shared_limits(facts: list[FairnessFacts]) -> list[SharedLimit]:
    """Limits with at least two members that wanted something, the unfairest first."""
    groups: defaultdict[tuple[str, ...], list[FairnessFacts]] = defaultdict(list)
    for row in facts:
        if row.wanted >= _ENTRY and row.fair > 0:
            groups[row.proxy_id, row.direction, row.level, row.name, row.unit].append(row)
    limits = [_limit(rows) for rows in groups.values() if len(rows) > 1]
    return sorted(limits, key=lambda limit: (-limit.gap, limit.name))


def jain(shares: list[float]) -> float:
    """Jain's fairness index: (Σx)² / (n · Σx²). Source: Jain, Chiu and Hawe, 1984."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _limit(rows: list[FairnessFacts]) -> SharedLimit:
    ordered = sorted(rows, key=lambda row: (row.got / row.fair, row.member))
    worst = ordered[0]
    return SharedLimit(
        proxy_id=worst.proxy_id,
        direction=worst.direction,
        level=worst.level,
        name=worst.name,
        unit=worst.unit,
        contended_s=max(row.contended_s for row in rows),
        jain=jain([row.got / row.fair for row in rows]),
        gap=max(0.0, 1 - worst.got / worst.fair),
        worst_off=worst.member,
        members=[Member(member=row.member, got=row.got, wanted=row.wanted, fair=row.fair) for row in ordered],
    )


LEAST_DAYS = 7
"""A week has its own rhythm: of less, nothing is said."""
_FARTHEST_DAYS = 365.0
# Student's t, two-sided 95 %, for 1, 2, 3 … degrees of freedom.
_T = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
    2.09,
)
_T_OF_MANY = 2.05

Outlook = Literal["too little data", "at the limit", "rising", "no clear trend", "falling"]


class Headroom(LimitKey, frozen=True, kw_only=True):
    """The headroom of one limit; of one that a fleet shares `proxy_id` is empty, and all members are in one row."""

    fleet: str
    """The fleet that shares the limit; empty for a proxy's own, and where no line names the fleet."""
    members: int
    """Most members of the fleet that used it at once; 0 for a proxy's own limit."""
    near_s: float
    """Time with at least 80 % of the limit in use."""
    active_s: float
    """Time with any line."""
    peak: float
    """Share in use in the fullest ten seconds."""
    peak_at: datetime
    typical: float
    """Share in use in the middle one of all ten seconds with any line."""
    left: float
    """The share of the limit that the fullest ten seconds left, 0 to 1."""
    days: int
    outlook: Outlook
    per_day: float | None
    """Change of the daily peak per day, in shares of the limit."""
    per_day_low: float | None
    """The low end of the 95 % interval of `per_day`, if the days scatter independently around a line."""
    per_day_high: float | None
    days_left: float | None
    """Until the daily peak is at the limit, by that line; null if there is no clear rise."""
    days_left_low: float | None
    days_left_high: float | None
    """Null if the interval has no end within a year."""


def headrooms(facts: list[HeadroomFacts]) -> list[Headroom]:
    """Return the headrooms of all limits, the fullest first."""
    return sorted((_headroom(row) for row in facts), key=lambda row: (-row.near_s, -row.peak, row.name))


def t_of_95(freedom: int) -> float:
    """Student's t for a two-sided interval of 95 %."""
    return _T[freedom - 1] if freedom <= len(_T) else _T_OF_MANY


def days_until(now: float, slope: float) -> float | None:
    """Days until a share that changes by `slope` a day is 1; None if not within a year."""
    if now >= 1:
        return 0.0
    if slope <= 0 or (days := (1 - now) / slope) > _FARTHEST_DAYS:
        return None
    return days


def _headroom(row: HeadroomFacts) -> Headroom:
    low, high = _interval(row)
    now, slope = row.now or 0.0, row.slope or 0.0
    outlook = _outlook(row, low, high)
    is_rising = outlook == "rising"
    return Headroom(
        proxy_id=row.proxy_id,
        direction=row.direction,
        level=row.level,
        name=row.name,
        fleet=row.fleet,
        members=row.members,
        near_s=row.near_steps * 10.0,
        active_s=row.steps * 10.0,
        peak=row.peak,
        peak_at=row.peak_at,
        typical=row.typical,
        left=max(0.0, 1 - row.peak),
        days=row.days,
        outlook=outlook,
        per_day=row.slope if low is not None else None,
        per_day_low=low,
        per_day_high=high,
        days_left=days_until(now, slope) if is_rising else None,
        days_left_low=days_until(now, high or 0.0) if is_rising else None,
        days_left_high=days_until(now, low or 0.0) if is_rising else None,
    )


def _interval(row: HeadroomFacts) -> tuple[float | None, float | None]:
    if row.days < LEAST_DAYS or row.slope is None or row.slope_error is None:
        return None, None
    half = t_of_95(row.days - 2) * row.slope_error
    return row.slope - half, row.slope + half


def _outlook(row: HeadroomFacts, low: float | None, high: float | None) -> Outlook:
    if low is None or high is None:
        return "too little data"
    if (row.now or 0.0) >= 1:
        return "at the limit"
    if low > 0:
        return "rising"
    return "falling" if high < 0 else "no clear trend"


Bell = Literal["rings", "rang", "quiet"]


class Burn(Struct, frozen=True, kw_only=True):
    """One tenant, one promise, one pair of windows."""

    tenant: str
    """Empty for limits that span tenants."""
    promise: str
    long_s: int
    short_s: int
    threshold: float
    worst: float
    worst_at: datetime
    last: float
    bell: Bell
    """`rings` at the end of the log, `rang` before, or `quiet`."""
    spent: float
    """Share of the error budget of the judged time that is spent; over 1 the objective is missed."""
    is_whole: bool
    """The log is as long as the long window; else the rates are over what there is."""


def burns(facts: list[BurnFacts], objective: float, span_s: float) -> list[Burn]:
    """Burn rates, the highest first.

    Args:
        facts: One for each tenant, promise and pair.
        objective: Share of time in which promises should be kept.
        span_s: How long the log is.
    """
    order: dict[Bell, int] = {"rings": 0, "rang": 1, "quiet": 2}
    rows = [_burn(row, objective, span_s) for row in facts]
    return sorted(rows, key=lambda row: (order[row.bell], -row.spent, row.tenant, row.promise, row.long_s))


def _burn(row: BurnFacts, objective: float, span_s: float) -> Burn:
    bell: Bell = "rings" if row.last >= row.threshold else "rang" if row.worst >= row.threshold else "quiet"
    return Burn(
        tenant=row.tenant,
        promise=row.promise,
        long_s=row.long_s,
        short_s=row.short_s,
        threshold=row.threshold,
        worst=row.worst,
        worst_at=row.worst_at,
        last=row.last,
        bell=bell,
        spent=row.bad_s / row.judged_s / (1 - objective) if row.judged_s else 0.0,
        is_whole=span_s >= row.long_s,
    )


Certainty = Literal["sound", "lower bound"]
Effect = Literal["newly held", "still held", "holds nobody"]

CENSORED = (
    "A client that was held back sent less than it wanted, and no log holds messages that were never sent. So where a "
    "stream waited on a limit then in force, the result for a looser limit is a lower bound: more may have been held. "
    "For a tighter limit it is sound, except that clients might have reacted."
)


class WhatIf(LimitKey, frozen=True, kw_only=True):
    """One proposed limit on one name of one proxy, or of all members of a fleet together; then `proxy_id` is empty."""

    fleet: str
    """The fleet that would share the limit; empty for a proxy's own, and where no line names the fleet."""
    members: int
    """Most members of the fleet at which something arrived at once; 0 for a proxy's own limit."""
    proposed: Proposal
    effect: Effect
    """`newly held`: it would hold messages that no limit held in the log."""
    certainty: Certainty
    is_caught_up: bool
    """At the end of the log nothing would have waited any more (for longer than ten seconds)."""
    facts: ReplayFacts


def what_ifs(replays: list[ReplayFacts], proposals: list[Proposal]) -> list[WhatIf]:
    """Order the rows: limits that would newly have held something come first, then by how much."""
    order: dict[Effect, int] = {"newly held": 0, "still held": 1, "holds nobody": 2}
    rows = [_what_if(row, proposals[row.proposal]) for row in replays]
    return sorted(rows, key=lambda row: (order[row.effect], row.facts.proposal, -row.facts.held_messages, row.name))


def unmatched(replays: Iterable[ReplayFacts], proposals: list[Proposal]) -> list[str]:
    """Proposals that fit no name in the log, in words."""
    fitted = {row.proposal for row in replays}
    return [
        f"{proposal.direction} {proposal.level} {proposal.name}"
        for place, proposal in enumerate(proposals)
        if place not in fitted
    ]


def _what_if(row: ReplayFacts, proposal: Proposal) -> WhatIf:
    is_held, was_held = row.held_messages > 0, row.censored_s > 0
    effect: Effect = "holds nobody" if not is_held else "still held" if was_held else "newly held"
    return WhatIf(
        proxy_id=row.proxy_id,
        direction=row.direction,
        level=row.level,
        name=row.name,
        fleet=row.fleet,
        members=row.members,
        proposed=proposal,
        effect=effect,
        certainty="lower bound" if was_held and _is_looser(row, proposal) else "sound",
        is_caught_up=row.left_ms < 10_000,
        facts=row,
    )


def _is_looser(row: ReplayFacts, proposal: Proposal) -> bool:
    """Return whether a proposal allows more, in some unit, than the lowest limit that its streams had."""
    pairs = ((proposal.messages, row.limit_now_messages), (proposal.bytes, row.limit_now_bytes))
    return any(now is not None and (proposed is None or proposed > now) for proposed, now in pairs)


MOST_EVENTS = 5_000


class Event(Struct, frozen=True, kw_only=True):
    """An entry of the timeline."""

    at: datetime
    kind: str
    """`set`, `reload`, `limit`, `start`, `restart`, `end`, `silence` or `loss`."""
    proxy_id: str
    text: str
    """The event in words."""


def timeline(
    changes: list[ChangeFacts],
    runs: list[RunFacts],
    losses: list[LossFacts],
    gaps: list[GapFacts],
    horizon: datetime,
) -> list[Event]:
    """Return the events of the log, in the order of time.

    Args:
        changes: Settings and values that changed.
        runs: All runs of proxies.
        losses: Lines that proxies report as lost.
        gaps: Sequence numbers that are missing.
        horizon: The latest time that a correct clock may show.
    """
    end = end_of_log([run.end for run in runs], horizon)
    events = [_change(row) for row in changes]
    events += [event for run in runs for event in _run(run, runs, end)]
    events += [_loss(row) for row in losses]
    events += [_gap(row) for row in gaps]
    return sorted(events, key=lambda event: (event.at, event.kind, event.text))[:MOST_EVENTS]


def _change(row: ChangeFacts) -> Event:
    before, after = in_words(row.before), in_words(row.after)
    if row.kind == "reload":
        value = "another one is in force" + "".join(
            f"; {word} {text}" for word, text in (("now", after), ("before", before)) if text
        )
    elif not after:
        value = "removed" + (f" (before: {before})" if before else "")
    else:
        value = f"from {before} to {after}" if before else f"set to {after}"
    author = f", by {row.who}" if row.who else ""
    return Event(
        at=row.at, kind=row.kind, proxy_id=row.proxy_id, text=f"{subject(row.what, row.name)}: {value}{author}"
    )


def _run(run: RunFacts, runs: list[RunFacts], end: datetime | None) -> list[Event]:
    is_again = any(other.proxy_id == run.proxy_id and other.first < run.first for other in runs)
    events = [_event(run.first, "restart" if is_again else "start", run, f"run {run.boot_id} begins")]
    if run.ended:
        return [*events, _event(run.last, "end", run, f"run {run.boot_id} ends in order")]
    if (end and end - run.last >= SILENT) or any(other.first >= run.last for other in runs if other is not run):
        events.append(_event(run.last, "silence", run, f"run {run.boot_id}: last line, and no orderly end"))
    return events


def _event(at: datetime, kind: str, run: RunFacts, text: str) -> Event:
    return Event(at=at, kind=kind, proxy_id=run.proxy_id, text=text)


def _loss(row: LossFacts) -> Event:
    lines = "an unknown number of lines" if row.lost_lines is None else f"{row.lost_lines} lines"
    cause = f"{row.cause}: {row.detail}" if row.detail else row.cause
    text = f"the proxy says that {lines} of run {row.of_boot} are lost ({cause}) until {row.lost_until:%H:%M:%S}"
    return Event(at=row.lost_from, kind="loss", proxy_id=row.proxy_id, text=text)


def _gap(row: GapFacts) -> Event:
    text = f"{row.missing} lines of run {row.boot_id} are missing after number {row.after_seq}"
    return Event(at=row.until, kind="loss", proxy_id=row.proxy_id, text=text)
