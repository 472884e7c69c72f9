"""One verdict for each tenant, namespace, topic and level: the gravest of its limits', and how long they were kept."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from compliance.judging.facts import LinePlace
from compliance.judging.spells import Spells
from compliance.judging.verdict import LimiterVerdict, Verdict, gravest

Scope = Literal["tenant", "namespace", "topic", "level"]
_TOPIC_LEVELS = ("topic", "partitioned_topic")
_AT_TOPIC_LEVELS = ("subscription", "producer")


class WorstWindow(Struct, frozen=True, kw_only=True):
    """The window behind a verdict, and the lines that it begins and ends with."""

    start: datetime
    end: datetime
    first_line: LinePlace
    last_line: LinePlace


class Rollup(Struct, frozen=True, kw_only=True):
    """All limits of one tenant, one namespace, one topic or one level."""

    scope: Scope
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
    """Of that limit; null if no window was judged."""


def roll_up(limiters: list[LimiterVerdict]) -> list[Rollup]:
    """By tenant, namespace, topic and level, in this order; the gravest first.

    Args:
        limiters: In the order of gravity.
    """
    groups: defaultdict[tuple[Scope, str], list[LimiterVerdict]] = defaultdict(list)
    for limiter in limiters:
        for key in scopes(limiter):
            groups[key].append(limiter)
    order: tuple[Scope, ...] = ("tenant", "namespace", "topic", "level")
    rolled = [_roll(scope, name, members) for (scope, name), members in groups.items()]
    # Within a scope as the limits are: a group came up with its gravest.
    return sorted(rolled, key=lambda row: order.index(row.scope))


def scopes(limiter: LimiterVerdict) -> Iterable[tuple[Scope, str]]:
    """What the limit belongs to. One that spans tenants belongs to its level only."""
    yield ("level", limiter.level)
    if limiter.tenant:
        yield ("tenant", limiter.tenant)
        if limiter.namespace:
            yield ("namespace", f"{limiter.tenant}/{limiter.namespace}")
    if topic := _topic(limiter):
        yield ("topic", topic)


def _topic(limiter: LimiterVerdict) -> str:
    if limiter.level in _TOPIC_LEVELS:
        return limiter.name
    # Names of producers may hold an @, names of topics begin with their kind.
    for kind in ("@persistent://", "@non-persistent://"):
        if limiter.level in _AT_TOPIC_LEVELS and kind in limiter.name:
            return kind[1:] + limiter.name.rpartition(kind)[2]
    return ""


def _roll(scope: Scope, name: str, limiters: list[LimiterVerdict]) -> Rollup:
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
    of = limiter.deciding_window
    if of is None:
        return None
    return WorstWindow(start=of.start, end=of.end, first_line=of.first_line, last_line=of.last_line)


def _contained(limiter: LimiterVerdict) -> tuple[bool, float]:
    return limiter.containment != "violated", limiter.containment_share or 0.0


def _entitled(limiter: LimiterVerdict) -> tuple[bool, float]:
    return limiter.entitlement != "violated", limiter.entitlement_share or 0.0


def _lowest(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)
