"""The report's subjects and its wording: the whole log, tenants, topics and limits, and the pictures of each."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from urllib.parse import quote

from msgspec import Struct

from compliance.figures.facts import LimitKey, RateFacts
from compliance.figures.scopes import SHARED
from compliance.judging.facts import Facts, Spells, TopicFacts
from compliance.judging.lines import SHORT_S
from compliance.judging.verdict import COMPLETE, FleetVerdict, LimiterVerdict, Verdict, gravest

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def whole(value: float) -> str:
    """Return a count with thousands apart: 1 234 567 (narrow no-break spaces, in no locale a decimal point)."""
    return f"{value:,.0f}".replace(",", "\u202f")


def numbered(number: int, noun: str) -> str:
    """Return a count of things: 1 limit, 2 limits."""
    return f"{whole(number)} {noun}" if number == 1 else f"{whole(number)} {noun}s"


def quantity(value: float) -> str:
    """Return a rate or size in three figures: 512, 1.5k, 20M."""
    for factor, prefix in _PREFIXES:
        # 999.6 would be shown as 1000 without its prefix.
        if abs(value) >= factor * 0.9995:
            return f"{value / factor:.3g}{prefix}"
    return f"{value:.3g}"


def percent(share: float) -> str:
    """Return a share of one as percent; less than the whole is never shown as the whole."""
    if abs(share - 1) < 1e-9:
        return "100 %"
    if share >= 10:
        return f"{whole(share * 100)} %"
    return f"{max(share * 100, 100.01):.5g} %" if share > 1 else f"{min(share * 100, 99.99):.2f} %"


def roughly(share: float) -> str:
    """Return a share of one as whole percent, for advice."""
    return f"{share * 100:.0f} %"


def span(seconds: float) -> str:
    """Return a length of time."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def window(seconds: int) -> str:
    """Return a configured length of time, in the largest unit that divides it."""
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds % unit_s == 0:
            return f"{seconds // unit_s} {unit}"
    return f"{seconds} s"


def clock(time: datetime | None) -> str:
    """Return a moment, to the second."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else "an unknown time"


def between(times: tuple[datetime, datetime]) -> str:
    """Return begin and end of a window as text, with the digits that distinguish the two."""
    start, end = times
    cut = next((cut for cut in (-7, -3) if _digits(start, cut) != _digits(end, cut)), None)
    behind = _digits(end, cut)[len("2026-11-22 ") if start.date() == end.date() else 0 :]
    back = ", the clock was put back in between" if end < start else ""
    return f"{_digits(start, cut)} to {behind} UTC{back}"


def _digits(time: datetime, cut: int | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S.%f}"[:cut]


def size(octets: float) -> str:
    """Return a number of bytes: 12.3 kB."""
    number = quantity(octets)
    # "12.3k" is read as a count: a size has its prefix at the unit.
    return f"{number[:-1]} {number[-1]}B" if number[-1].isalpha() else f"{number} B"


def rate(limited: object, prefix: str = "limit") -> str:
    """Return the limits of a row in words: those in force, or, as `shared`, those of a whole fleet."""
    messages, octets = (getattr(limited, f"{prefix}_{unit}") for unit in ("messages", "bytes"))
    parts = [] if messages is None else [f"{quantity(messages)} messages/s"]
    parts += [] if octets is None else [f"{size(octets)}/s"]
    return " and ".join(parts) or "none"


def delay(milliseconds: float | None) -> str:
    """Return a wait."""
    if milliseconds is None:
        return "-"
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else span(milliseconds / 1e3)


def broken_for(spells: Spells | None) -> str:
    """Return the wording of how long a promise was broken, and when: the first time and the longest."""
    return f"broken {_when(spells)}" if spells else ""


def _when(spells: Spells) -> str:
    if spells.times == 1:
        return f"for {span(spells.seconds)} at {clock(spells.first)}"
    first, longest = clock(spells.first), f"the longest for {span(spells.longest_s)} at {clock(spells.longest)}"
    return f"for {span(spells.seconds)} in {spells.times} spells, the first at {first}, {longest}"


def containment(limiter: LimiterVerdict) -> str:
    """Return the wording of the time in which the limit was kept, and of the time judged."""
    if limiter.containment == "no limit":
        return ""
    if limiter.containment == "unknown":
        return "no overrun, as far as the log shows"
    return _kept(limiter.containment_share, "the time", limiter.containment_broken)


def entitlement(limiter: LimiterVerdict) -> str:
    """Return the wording of the time in which everything owed passed, and of the time judged."""
    verdict, waited = limiter.entitlement, f"the {span(limiter.throttled_s)} in which a stream waited"
    if verdict == "no limit":
        return ""
    if verdict == "violated" and limiter.entitlement_broken is None:
        return f"{limiter.shortfall_percent:.1f} % less than owed, summed up over {waited}"
    if verdict != "violated" and not limiter.throttled_s:
        if limiter.rejected_messages:
            return "no stream waited: the limit refused the surplus"
        return "no stream ever waited" if verdict == "compliant" else "no stream waited, as far as the log shows"
    if verdict == "unknown":
        return f"no shortfall, as far as the log shows, in {waited}"
    return _kept(limiter.entitlement_share, waited, limiter.entitlement_broken)


def late(limiter: LimiterVerdict) -> str:
    """Return whether the proxy itself explains why less passed than was owed."""
    least = limiter.worst_entitlement
    if least is None or limiter.entitlement != "violated" or not least.late_s:
        return ""
    return f"the proxy was late by {span(least.late_s)} in that window, by its own account: was its machine busy?"


def unseen(limiter: LimiterVerdict) -> str:
    """Return the wording of the shortfall that would not have shown; empty if a violation was seen."""
    if limiter.unseen_percent is None or limiter.entitlement not in ("compliant", "unknown"):
        return ""
    return f"a shortfall of up to {limiter.unseen_percent:.3g} % in ten seconds would not show"


def _kept(share: float | None, time: str, spells: Spells | None) -> str:
    return ", ".join(part for part in (f"kept {percent(share or 0.0)} of {time}", broken_for(spells)) if part)


# ---- a tenant


def sentence(tenant: str, limiters: Sequence[LimiterVerdict]) -> str:
    """Return the verdict on both promises to one tenant.

    Args:
        tenant: Its name.
        limiters: Its limits, the gravest first.
    """
    limited = [limiter for limiter in limiters if limiter.containment != "no limit"]
    if not limited and any(limiter.mode == "observe" for limiter in limiters):
        return f"The limits of {tenant} are only observed: nothing was held or refused."
    if not limited:
        return f"No limit of {tenant} was in force: there was nothing to keep."
    over = gravest(limiter.containment for limiter in limited)
    short = gravest(limiter.entitlement for limiter in limited)
    limits = f"the {numbered(len(limited), 'limit') if len(limited) > 1 else 'limit'} of {tenant}"
    if over == short == "unknown":
        was = "was" if len(limited) == 1 else "were"
        due = "whether streams that waited got all that was owed"
        text = f"it is not known whether {limits} {was} kept, and {due}"
    else:
        text = f"{_contained(over, limited, limits)}; {_entitled(short, limited)}"
    why = f": {unknown_for(limited)}" if "unknown" in (over, short) else ""
    return f"{text[0].upper()}{text[1:]}{why}."


def _contained(verdict: Verdict, limited: Sequence[LimiterVerdict], limits: str) -> str:
    if verdict == "violated":
        broken = [limiter for limiter in limited if limiter.containment == "violated"]
        which = limits if len(limited) == 1 else f"{len(broken)} of {limits}"
        was = "was" if len(broken) == 1 else "were"
        return f"{which} {was} exceeded{_worst(limiter.containment_broken for limiter in broken)}"
    return (
        f"nothing passed beyond {limits}"
        if verdict == "compliant"
        else f"whether more passed than {limits} allow is not known"
    )


def _entitled(verdict: Verdict, limited: Sequence[LimiterVerdict]) -> str:
    if verdict == "violated":
        broken = [limiter for limiter in limited if limiter.entitlement == "violated"]
        least = max(limiter.shortfall_percent for limiter in broken)
        when = _worst(limiter.entitlement_broken for limiter in broken)
        return f"streams that waited got up to {least:.3g} % less than was owed{when}"
    if verdict == "unknown":
        return "whether streams that waited got all that was owed is not known"
    if any(limiter.throttled_s for limiter in limited):
        return "streams that waited got all that was owed"
    refused = sum(limiter.rejected_messages for limiter in limited)
    return f"the surplus of {numbered(refused, 'message')} was refused" if refused else "no stream had to wait"


def _worst(spells: Iterable[Spells | None]) -> str:
    of_limits = list(spells)
    worst = max((spell for spell in of_limits if spell), key=lambda spell: spell.seconds, default=None)
    which = "" if len(of_limits) == 1 else " the worst"
    return f",{which} {_when(worst)}" if worst else ""


def unknown_for(limited: Sequence[LimiterVerdict]) -> str:
    """Say why a limit among these is `unknown`: contradictory, hidden or missing lines."""
    doubt = next((doubt for limiter in limited for doubt in limiter.doubts), None)
    if doubt is not None:
        return f"lines about {doubt.direction} {doubt.level} {doubt.name} contradict each other"
    still_s = max(limiter.still_s for limiter in limited)
    if still_s > SHORT_S:
        return f"the proxy stood still, and served no waiting stream for {span(still_s)}"
    least = min(limiter.coverage for limiter in limited)
    if least < COMPLETE:
        return f"lines of the log are missing, or may be (coverage {percent(least)})"
    blind = max(limiter.unseen_percent or 0.0 for limiter in limited)
    return f"up to {blind:.3g} % less than owed in ten seconds would not show"


CHARTS = 8
SUM_CHARTS = 6
"""Limits that fleets share whose sums have charts."""
MOST_PAGES = 100
"""Tenants that get a page of their own: a picture takes a tenth of a second."""
MOST_STEPS = 300
CLOSE_UP = timedelta(seconds=120)
"""The time that a close-up shows to each side of the worst moment."""
MOST_SHARED = 20
MOST_WANTED = 50
"""Limits whose demand is measured."""
STEPS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 86400)


class Subject(LimitKey, frozen=True, kw_only=True):
    """One limiter (or, with an empty `proxy_id`, a topic without a limit) and the time and steps of its chart."""

    first: datetime
    last: datetime
    step_s: int


class SumSubject(Subject, frozen=True, kw_only=True):
    """A limit that a fleet shares, without a `proxy_id`, and the time and steps of the chart of its sum."""

    fleet: str


def step_for(first: datetime, last: datetime) -> int:
    """Return the shortest step that keeps a chart within its number of steps, seconds."""
    span_s = (last - first).total_seconds()
    longest = STEPS_S[-1]
    # A clock that was decades off must not make a chart of as many days.
    whole_days = longest * math.ceil(span_s / MOST_STEPS / longest)
    return next((step for step in STEPS_S if span_s / step <= MOST_STEPS), whole_days)


def charted(limiters: list[LimiterVerdict], topics: list[TopicFacts]) -> list[Subject]:
    """Return the subjects of charts: the gravest limits, one of each level among them, in all their time and close up.

    A close-up is there if that time is long. Without limits the busiest topics are the subjects.
    """
    limited = [limiter for limiter in limiters if limiter.containment != "no limit"]
    if limited:
        return [subject for limiter in _of_each_level(limited) for subject in _views(limiter)]
    return [
        _of_topic(topic) for topic in sorted(topics, key=lambda topic: (-topic.passed_messages, topic.topic))[:CHARTS]
    ]


def pictures(limiters: list[LimiterVerdict], topics: list[TopicFacts]) -> dict[str, Subject]:
    """Return the subject of each tenant's picture: its gravest limit, close up if it was broken, or its busiest topic.

    Tenants are in the order of their limits' gravity.
    """
    shown: dict[str, Subject] = {}
    for limiter in limiters:
        if limiter.tenant and limiter.containment != "no limit" and limiter.tenant not in shown:
            shown[limiter.tenant] = _views(limiter)[-1 if limiter.is_violated else 0]
    for topic in sorted(topics, key=lambda topic: (-topic.passed_messages, topic.topic)):
        if topic.tenant:
            shown.setdefault(topic.tenant, _of_topic(topic))
    return dict(islice(shown.items(), MOST_PAGES))


def _of_each_level(limited: list[LimiterVerdict]) -> list[LimiterVerdict]:
    """Return the gravest in their order, as many as leave room for the gravest of each level."""
    levels = list(dict.fromkeys(limiter.level for limiter in limited))[:CHARTS]
    firsts = [next(limiter for limiter in limited if limiter.level == level) for level in levels]
    rest = [limiter for limiter in limited if limiter not in firsts]
    return sorted((*firsts, *rest[: CHARTS - len(firsts)]), key=limited.index)


def _views(limiter: LimiterVerdict) -> list[Subject]:
    worst = limiter.deciding_window
    return [
        Subject(
            proxy_id=limiter.proxy_id,
            direction=limiter.direction,
            level=limiter.level,
            name=limiter.name,
            first=first,
            last=last,
            step_s=step_for(first, last),
        )
        for first, last in _spans(limiter.first, limiter.last, worst.end if worst else None)
    ]


def _spans(first: datetime, last: datetime, worst: datetime | None) -> Iterator[tuple[datetime, datetime]]:
    """Yield all the time of a limit, and that around its worst moment if the whole has longer steps than the least."""
    yield first, last
    if worst is not None and step_for(first, last) > STEPS_S[0]:
        # Within the limit's own time, so that no time exceeds the year 9999, whatever a clock shows.
        yield (
            first if worst - first < CLOSE_UP else worst - CLOSE_UP,
            last if last - worst < CLOSE_UP else worst + CLOSE_UP,
        )


def charted_sums(sums: Sequence[FleetVerdict]) -> list[FleetVerdict]:
    """Return the sums with charts, of one limit the graver unit.

    Args:
        sums: All verdicts, the gravest first.
    """
    graver: dict[tuple[str, ...], FleetVerdict] = {}
    for verdict in sums:
        graver.setdefault((verdict.fleet, verdict.direction, verdict.level, verdict.name), verdict)
    return list(islice(graver.values(), SUM_CHARTS))


def sum_subjects(sums: Sequence[FleetVerdict]) -> list[SumSubject]:
    """Return the subjects of the charts of sums, in all their time and close up."""
    return [
        SumSubject(
            proxy_id="",
            direction=verdict.direction,
            level=verdict.level,
            name=verdict.name,
            fleet=verdict.fleet,
            first=first,
            last=last,
            step_s=step_for(first, last),
        )
        for verdict in charted_sums(sums)
        for first, last in _spans(verdict.first, verdict.last, verdict.end)
    ]


def _of_topic(topic: TopicFacts) -> Subject:
    return Subject(
        proxy_id="",
        direction=topic.direction,
        level="topic",
        name=topic.topic,
        first=topic.first,
        last=topic.last,
        step_s=step_for(topic.first, topic.last),
    )


def shared_limits(limiters: list[LimiterVerdict]) -> list[LimiterVerdict]:
    """Limits whose members the log names and on which a stream waited, the longest wait first."""
    shared = [limiter for limiter in limiters if limiter.level in SHARED and limiter.throttled_s > 0]
    return sorted(shared, key=lambda limiter: (-limiter.throttled_s, limiter.name))[:MOST_SHARED]


def wanted_limits(limiters: list[LimiterVerdict]) -> list[LimiterVerdict]:
    """Limits that refused messages or on which a stream waited: those that refused most come first."""
    wanted = [limiter for limiter in limiters if limiter.throttled_s > 0 or limiter.rejected_messages]
    return sorted(wanted, key=lambda limiter: (-limiter.rejected_messages, -limiter.throttled_s, limiter.name))[
        :MOST_WANTED
    ]


FOLDER = "tenants"
MOST_OF_A_NAME = 200
"""Bytes of a file's name that a tenant's may take."""


class Tenant(Struct, frozen=True, kw_only=True):
    """One tenant and its page."""

    name: str
    page: str
    """The page's file, seen from the report's folder."""
    verdict: Verdict
    sentence: str
    rates: list[RateFacts]
    """Rates in the tenant's picture: of its gravest limit or, without limits, its busiest topic."""


def tenants(facts: Facts, limiters: Sequence[LimiterVerdict]) -> list[Tenant]:
    """Return the tenants that have a page, the gravest first.

    Args:
        facts: Of the whole log.
        limiters: All verdicts, the gravest first.
    """
    rates: dict[tuple[str, str, str, str, int], list[RateFacts]] = {}
    for rate in facts.tenant_rates:
        rates.setdefault(_key(rate), []).append(rate)
    pages = []
    for name, subject in pictures(list(limiters), facts.topics).items():
        own = limits_of(name, limiters)
        verdict = gravest(gravest([limiter.containment, limiter.entitlement]) for limiter in own)
        text, shown = sentence(name, own), rates.get(_key(subject), [])
        pages.append(Tenant(name=name, page=page_of(name), verdict=verdict, sentence=text, rates=shown))
    return pages


def limits_of(tenant: str, limiters: Sequence[LimiterVerdict]) -> list[LimiterVerdict]:
    """Limits that are a tenant's own; a limit that spans tenants has no owner."""
    return [limiter for limiter in limiters if limiter.tenant == tenant]


def topics_of(tenant: str, topics: Sequence[TopicFacts]) -> list[TopicFacts]:
    """Return a tenant's topics, the busiest first."""
    return sorted(
        (topic for topic in topics if topic.tenant == tenant), key=lambda topic: (-topic.passed_messages, topic.topic)
    )


def page_of(tenant: str) -> str:
    """Return a name that every file system takes, and that is no other tenant's."""
    name = quote(tenant, safe="")
    if len(name) > MOST_OF_A_NAME:
        name = f"{name[:MOST_OF_A_NAME]}-{hashlib.sha256(tenant.encode()).hexdigest()[:12]}"
    return f"{FOLDER}/{name}.html"


def _key(subject: RateFacts | Subject) -> tuple[str, str, str, str, int]:
    return subject.proxy_id, subject.direction, subject.level, subject.name, subject.step_s
