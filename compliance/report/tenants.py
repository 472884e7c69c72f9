"""What a tenant is handed: the verdict on its own limits in one sentence, one picture, and what both are made from."""

import hashlib
from collections.abc import Sequence
from urllib.parse import quote

from msgspec import Struct

from compliance.figures.facts import RateFacts
from compliance.judging.facts import Facts, TopicFacts
from compliance.judging.verdict import LimiterVerdict, Verdict, gravest
from compliance.report.subjects import Subject, pictures
from compliance.report.words import sentence

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
