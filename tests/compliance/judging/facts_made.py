"""Facts with plain values, for tests of the judging."""

from datetime import timedelta
from typing import Any

from compliance.judging.facts import (
    ContainmentFacts,
    DoubtFacts,
    EntitlementFacts,
    Facts,
    KeptFacts,
    LimiterFacts,
    LinePlace,
    RunFacts,
    Spells,
    StandstillFacts,
    TopicFacts,
)
from tests.compliance.planted import BEGIN, TOPIC

END = BEGIN + timedelta(seconds=10)
_LIMITER: dict[str, Any] = {"proxy_id": "p", "boot_id": "b", "direction": "publish", "level": "topic", "name": TOPIC}


FIRST_LINE = LinePlace(file="a.jsonl", seq=3, line=4)
LAST_LINE = LinePlace(file="a.jsonl", seq=30, line=31)


def spells(seconds, **more):
    values: dict[str, Any] = {"times": 1, "first": BEGIN, "longest": BEGIN, "longest_s": seconds}
    return Spells(**(values | {"seconds": seconds} | more))


def kept_fact(**more):
    values: dict[str, Any] = {"lines": 10, "judged_s": 10.0, "waited_s": 5.0, "over": None, "short": None}
    return KeptFacts(**(_LIMITER | values | more))


def run_fact(**more):
    values: dict[str, Any] = {
        "proxy_id": "p",
        "boot_id": "b",
        "lines": 10,
        "duplicates": 0,
        "missing": 0,
        "first": BEGIN,
        "last": END,
        "complete_up_to": END,
        "coverage": 1.0,
        "dropped_lines": 0,
        "is_lossy": False,
        "ended": True,
        "clock_steps": 0,
    }
    return RunFacts(**(values | more))


def topic_fact(**more):
    amounts = ("offered", "passed", "dropped", "rejected", "held")
    values: dict[str, Any] = {f"{amount}_{unit}": 0 for amount in amounts for unit in ("messages", "bytes")}
    values |= {"tenant": "acme", "namespace": "orders", "topic": TOPIC, "direction": "publish", "throttled_s": 0.0}
    values |= {"delay_max_ms": 0.0, "limit_level": "topic", "limit_messages": 100.0, "limit_bytes": None}
    values |= {"first": BEGIN, "last": END}
    return TopicFacts(**(values | more))


def limiter_fact(**more):
    values: dict[str, Any] = {
        "tenant": "acme",
        "namespace": "orders",
        "source": "topic file",
        "mode": "enforce",
        "limit_messages": 100.0,
        "limit_bytes": None,
        "burst_messages": 10.0,
        "burst_bytes": None,
        "values": 1,
        "is_relative": False,
        "was_limited": True,
        "passed_messages": 1000,
        "passed_bytes": 100000,
        "rejected_messages": 0,
        "rejected_bytes": 0,
        "throttled_s": 5.0,
        "first": BEGIN,
        "last": END,
    }
    return LimiterFacts(**(_LIMITER | values | more))


def containment_fact(excess, **more):
    values: dict[str, Any] = {
        "unit": "messages",
        "basis": "limiter",
        "start": BEGIN,
        "end": END,
        "passed": 1010.0 + excess,
        "first_line": FIRST_LINE,
        "last_line": LAST_LINE,
    }
    return ContainmentFacts(**(_LIMITER | values | {"allowed": 1010.0, "limit": 100.0, "excess": excess} | more))


def entitlement_fact(deficit_s, **more):
    values: dict[str, Any] = {"start": BEGIN, "end": END, "waited_s": 10.0, "served_s": 9.0, "deficit_s": deficit_s}
    values["late_s"] = 0.0
    values |= {"first_line": FIRST_LINE, "last_line": LAST_LINE}
    values |= {"passed_messages": 900, "passed_bytes": 90_000, "owed_messages": 1000.0, "owed_bytes": None}
    whole: dict[str, Any] = {"whole_waited_s": 10.0, "whole_served_s": 9.5, "whole_deficit_s": -1.0, "unseen_s": 0.11}
    return EntitlementFacts(**(_LIMITER | values | whole | more))


def doubt_fact(**more):
    values: dict[str, Any] = {"what": "streams", "said": "its streams passed 50 messages, and it passed 40"}
    values |= {"start": BEGIN, "end": END, "first_line": FIRST_LINE, "last_line": LAST_LINE}
    return DoubtFacts(**(_LIMITER | values | more))


def standstill_fact(lasted_s, **more):
    values: dict[str, Any] = {
        "proxy_id": "p",
        "boot_id": "b",
        "start": BEGIN,
        "end": BEGIN + timedelta(seconds=lasted_s),
    }
    return StandstillFacts(**(values | {"lasted_s": lasted_s, "line": FIRST_LINE} | more))


def facts(**more):
    empty: dict[str, Any] = {
        "read_at": END,
        "runs": [run_fact()],
        "gaps": [],
        "quarantine": [],
        "limiters": [limiter_fact()],
        "containment": [],
    }
    empty |= {"entitlement": [], "topics": [], "usage": [], "rates": [], "charts_left_out": 0}
    return Facts(**(empty | more))
