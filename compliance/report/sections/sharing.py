"""Fairness in shared limits: Jain's index and the largest gap to the max-min share."""

from collections import defaultdict

from msgspec import Struct

from compliance.figures.facts import FairnessFacts, LimitKey

_ENTRY = 1.0


class Member(Struct, frozen=True, kw_only=True):
    """Who shares the limit, and what it got while somebody waited."""

    member: str
    got: float
    wanted: float
    fair: float
    """Its max-min share of what passed."""


class SharedLimit(LimitKey, frozen=True, kw_only=True):
    """One limit with several members, while somebody waited on it."""

    unit: str
    contended_s: float
    jain: float
    """Of got / fair: 1 if all got the same part of their share, 1/n if one of n got everything."""
    gap: float
    """How much less than its share the worst-off got, as a share of it: 0 is fair."""
    worst_off: str
    members: list[Member]
    """Who got least of its share first."""


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
