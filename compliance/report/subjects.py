"""What the report is about: the whole log, tenants, topics and limits, and the pictures of each."""

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from urllib.parse import quote

from msgspec import Struct

from compliance.figures.facts import RateFacts
from compliance.figures.rates import SHARED
from compliance.judging.facts import Facts, TopicFacts
from compliance.judging.verdict import LimiterVerdict, Verdict, gravest
from compliance.report.words import sentence

CHARTS = 8
MOST_PAGES = 100
"""Tenants that get a page of their own: a picture takes a tenth of a second."""
MOST_STEPS = 300
CLOSE_UP = timedelta(seconds=120)
"""To each side of the worst moment."""
MOST_SHARED = 20
STEPS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 86400)


class Subject(Struct, frozen=True, kw_only=True):
    """One limiter (or, with an empty `proxy_id`, a topic without a limit) and the time and steps of its chart."""

    proxy_id: str
    direction: str
    level: str
    name: str
    first: datetime
    last: datetime
    step_s: int


def step_for(first: datetime, last: datetime) -> int:
    """The shortest step that keeps a chart within its number of steps, seconds."""
    span_s = (last - first).total_seconds()
    longest = STEPS_S[-1]
    # A clock that was decades off must not make a chart of as many days.
    whole_days = longest * math.ceil(span_s / MOST_STEPS / longest)
    return next((step for step in STEPS_S if span_s / step <= MOST_STEPS), whole_days)


def charted(limiters: list[LimiterVerdict], topics: list[TopicFacts]) -> list[Subject]:
    """The gravest limits, one of each level among them, over all their time and, if that is long, close up.

    Without limits the busiest topics.
    """
    limited = [limiter for limiter in limiters if limiter.containment != "no limit"]
    if limited:
        return [subject for limiter in _of_each_level(limited) for subject in _views(limiter)]
    return [_of_topic(topic) for topic in sorted(topics, key=lambda one: (-one.passed_messages, one.topic))[:CHARTS]]


def pictures(limiters: list[LimiterVerdict], topics: list[TopicFacts]) -> dict[str, Subject]:
    """Of each tenant what its page shows: its gravest limit, close up if that was broken, or its busiest topic.

    Tenants stand in the order of their limits' gravity.
    """
    shown: dict[str, Subject] = {}
    for limiter in limiters:
        if limiter.tenant and limiter.containment != "no limit" and limiter.tenant not in shown:
            shown[limiter.tenant] = _views(limiter)[-1 if limiter.is_violated else 0]
    for topic in sorted(topics, key=lambda one: (-one.passed_messages, one.topic)):
        if topic.tenant:
            shown.setdefault(topic.tenant, _of_topic(topic))
    return dict(islice(shown.items(), MOST_PAGES))


def _of_each_level(limited: list[LimiterVerdict]) -> list[LimiterVerdict]:
    """So many of the gravest, in their order, that there is room for the gravest of each level."""
    levels = list(dict.fromkeys(limiter.level for limiter in limited))[:CHARTS]
    firsts = [next(limiter for limiter in limited if limiter.level == level) for level in levels]
    others = [limiter for limiter in limited if limiter not in firsts]
    return sorted((*firsts, *others[: CHARTS - len(firsts)]), key=limited.index)


def _views(limiter: LimiterVerdict) -> list[Subject]:
    whole = _subject(limiter, limiter.first, limiter.last)
    worst = limiter.deciding_window
    if whole.step_s == STEPS_S[0] or worst is None:
        return [whole]
    # Within the limit's own time, so that no clock's year 9999 has anything behind it.
    first = limiter.first if worst.end - limiter.first < CLOSE_UP else worst.end - CLOSE_UP
    last = limiter.last if limiter.last - worst.end < CLOSE_UP else worst.end + CLOSE_UP
    return [whole, _subject(limiter, first, last)]


def _subject(limiter: LimiterVerdict, first: datetime, last: datetime) -> Subject:
    return Subject(
        proxy_id=limiter.proxy_id,
        direction=limiter.direction,
        level=limiter.level,
        name=limiter.name,
        first=first,
        last=last,
        step_s=step_for(first, last),
    )


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
    """Those whose members the log names and on which somebody waited, the longest first."""
    shared = [limiter for limiter in limiters if limiter.level in SHARED and limiter.throttled_s > 0]
    return sorted(shared, key=lambda limiter: (-limiter.throttled_s, limiter.name))[:MOST_SHARED]


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
    """What its picture shows: its gravest limit or, without limits, its busiest topic."""


def tenants(facts: Facts, limiters: Sequence[LimiterVerdict]) -> list[Tenant]:
    """Those that have a page, the gravest first.

    Args:
        facts: Of the whole log.
        limiters: All verdicts, the gravest first.
    """
    rates: dict[tuple[str, str, str, str, int], list[RateFacts]] = {}
    for rate in facts.tenant_rates:
        rates.setdefault(_key(rate), []).append(rate)
    pages = []
    for name, subject in pictures(list(limiters), facts.topics).items():
        mine = limits_of(name, limiters)
        verdict = gravest(gravest([one.containment, one.entitlement]) for one in mine)
        said, shown = sentence(name, mine), rates.get(_key(subject), [])
        pages.append(Tenant(name=name, page=page_of(name), verdict=verdict, sentence=said, rates=shown))
    return pages


def limits_of(tenant: str, limiters: Sequence[LimiterVerdict]) -> list[LimiterVerdict]:
    """Limits that are a tenant's own; one that spans tenants is nobody's."""
    return [limiter for limiter in limiters if limiter.tenant == tenant]


def topics_of(tenant: str, topics: Sequence[TopicFacts]) -> list[TopicFacts]:
    """The busiest first."""
    return sorted((one for one in topics if one.tenant == tenant), key=lambda one: (-one.passed_messages, one.topic))


def page_of(tenant: str) -> str:
    """A name that every file system takes, and that is no other tenant's."""
    name = quote(tenant, safe="")
    if len(name) > MOST_OF_A_NAME:
        name = f"{name[:MOST_OF_A_NAME]}-{hashlib.sha256(tenant.encode()).hexdigest()[:12]}"
    return f"{FOLDER}/{name}.html"


def _key(of: RateFacts | Subject) -> tuple[str, str, str, str, int]:
    return of.proxy_id, of.direction, of.level, of.name, of.step_s
