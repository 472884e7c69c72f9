"""The checks of the demo, pure: messages at the receiving end obey the limits, and the report agrees."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_SHARE = 0.97
"""Least share of a limit that passes while a stream waits on it."""
LEAST_PACE = 0.95
"""Least share of a steady pace beside throttled neighbours."""
LEAST_LOADED_S = 1.0
"""Least time for which a limit must be wanted: over less, its share means nothing."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check, its result, and the numbers that decide it."""

    name: str
    holds: bool
    detail: str


def all_checks(counts: Mapping[str, Any], usage: Iterable[Mapping[str, str]]) -> list[Check]:
    """Make every check of the demo.

    Args:
        counts: The counts of `sluice load --verify-url`.
        usage: The rows of the report's `usage.csv`.
    """
    return [
        *(never_above(limit, longest_stall_ms(counts)) for limit in counts["limits"]),
        *(fully_used(limit) for limit in counts["limits"] if _must_bite(limit, counts["topics"])),
        *(pace_kept(name, topic) for name, topic in counts["topics"].items() if topic["pattern"] == "steady"),
        nothing_lost(counts),
        totals_agree(counts["topics"], usage),
    ]


def longest_stall_ms(counts: Mapping[str, Any]) -> float:
    """Return the longest standstill of broker, proxy or load generator that shows without any limit, in ms.

    That is the slowest receipt of a steady topic, which no limit delays, or the load generator's own longest pause.
    """
    steady = [topic["receipt_latency_ms"] for topic in counts["topics"].values() if topic["pattern"] == "steady"]
    pauses: list[float] = [counts["longest_pause_ms"], *(latency["max"] for latency in steady if latency)]
    return max(pauses)


def never_above(limit: Mapping[str, Any], stall_ms: float) -> Check:
    """Check P2 at the receiving end: no interval above burst + rate * time + one entry, with slack for the machine."""
    excess, slack, rate = limit["max_excess_messages"], limit["slack_messages"], limit["messages_per_s"]
    name = f"{limit['name']}: never above {rate:g}/s"
    if excess is None:
        return Check(name, holds=False, detail="nothing arrived")
    detail = f"worst interval {excess:+.1f} messages from the line, {slack:g} are allowed for the machine"
    if excess > slack and stall_ms > slack / rate * 1000:
        # a standstill with a burst after it is no fault of a limiter, and looks like one
        detail += f"; the machine or the broker stood still for {stall_ms:.0f} ms: try again when it is less busy"
    return Check(name, excess <= slack, detail)


def fully_used(limit: Mapping[str, Any]) -> Check:
    """Check that a limit was used in full while it was wanted."""
    name = f"{limit['name']}: at least {LEAST_SHARE:.0%} of {limit['messages_per_s']:g}/s while wanted"
    if limit["share_of_limit"] is None or limit["loaded_s"] < LEAST_LOADED_S:
        return Check(name, holds=False, detail=f"wanted for only {limit['loaded_s']:.1f} s: too short to judge")
    detail = f"{limit['share_of_limit']:.2%} over {limit['loaded_s']:.1f} s"
    return Check(name, limit["share_of_limit"] >= LEAST_SHARE, detail)


def pace_kept(topic: str, counts: Mapping[str, Any]) -> Check:
    """Check that a steady topic arrived at its own pace beside throttled streams of the same connection."""
    wanted, received = counts["wanted_messages"], counts["received"]["while_offering"]
    share = received / wanted if wanted else 0.0
    latency = counts["receipt_latency_ms"] or {"p99": float("nan")}
    detail = f"{share:.2%} of its pace, 99 % of the receipts within {latency['p99']:.0f} ms"
    return Check(f"{_short(topic)}: at least {LEAST_PACE:.0%} of its pace", share >= LEAST_PACE, detail)


def nothing_lost(counts: Mapping[str, Any]) -> Check:
    """Check that each message has its receipt and arrived once, in order, intact."""
    faults = counts["faults"]
    total = sum(topic["offered_messages"] for topic in counts["topics"].values())
    detail = "; ".join(faults) or f"{total:,} messages offered, each arrived once, in order and intact"
    return Check("nothing lost", not faults and total > 0, detail)


def totals_agree(topics: Mapping[str, Mapping[str, Any]], usage: Iterable[Mapping[str, str]]) -> Check:
    """Check that the report's totals are the load generator's, to the message."""
    offered, passed = Counter[str](), Counter[str]()
    for row in usage:
        if row["direction"] == "publish":
            offered[row["topic"]] += int(row["offered_messages"])
            passed[row["topic"]] += int(row["passed_messages"])
    wrong = [
        f"{_short(name)} {kind} {reported[name]:,} where {topic[key]:,} were counted"
        for name, topic in topics.items()
        for kind, reported, key in (("offered", offered, "offered_messages"), ("passed", passed, "receipts"))
        if reported[name] != topic[key]
    ]
    wrong += [f"{name} is reported, but nothing was sent there" for name in sorted(set(offered) - set(topics))]
    detail = "; ".join(wrong) or f"{passed.total():,} messages passed, in the report as at the load generator"
    return Check("the report's totals equal what was counted", not wrong, detail)


def verdict_line(checks: Sequence[Check]) -> str:
    """The last line of the demo."""
    failed = [f"{check.name} ({check.detail})" for check in checks if not check.holds]
    if failed or not checks:
        return "VERDICT: FAILED: " + ("; ".join(failed) or "nothing was checked")
    return "VERDICT: every limit held, nothing lost, no neighbour slowed, and the report agrees to the message"


def _must_bite(limit: Mapping[str, Any], topics: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(topics[topic]["pattern"] != "steady" for topic in limit["topics"])


def _short(topic: str) -> str:
    return topic.removeprefix("persistent://")
