import copy
from typing import Any

import pytest

from demo.verdict import all_checks, verdict_line

GREEDY, STEADY = "persistent://c/w/pages", "persistent://l/t/orders"


def topic(pattern: str, number: int) -> dict[str, Any]:
    return {
        "pattern": pattern,
        "wanted_messages": number,
        "offered_messages": number,
        "receipts": number,
        "receipt_latency_ms": {"p50": 1.0, "p99": 2.0, "max": 3.0},
        "received": {"while_offering": number},
    }


def limit(name: str, topic: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "topics": [topic],
        "messages_per_s": 500.0,
        "max_excess_messages": 20.0,
        "slack_messages": 25.0,
        "loaded_s": 30.0,
        "share_of_limit": 0.995,
        **changes,
    }


COUNTS = {
    "limits": [limit("pages", GREEDY), limit("orders", STEADY, loaded_s=0, share_of_limit=None)],
    "faults": [],
    "longest_pause_ms": 7.0,
    "topics": {GREEDY: topic("greedy", 1000), STEADY: topic("steady", 600)},
}


def row(topic: str, offered: int, passed: int, direction: str = "publish") -> dict[str, str]:
    return {"topic": topic, "direction": direction, "offered_messages": str(offered), "passed_messages": str(passed)}


USAGE = [row(GREEDY, 400, 300), row(GREEDY, 600, 700), row(STEADY, 600, 600), row(STEADY, 5, 5, "dispatch")]


def failed(counts: dict[str, Any] = COUNTS, usage: list[dict[str, str]] = USAGE) -> list[str]:
    return [check.name for check in all_checks(counts, usage) if not check.holds]


def with_limit(**changes: Any) -> dict[str, Any]:
    return {**COUNTS, "limits": [limit("pages", GREEDY, **changes)]}


def with_topic(name: str, **changes: Any) -> dict[str, Any]:
    counts = copy.deepcopy(COUNTS)
    counts["topics"][name].update(changes)  # type: ignore[index] # a plain JSON document
    return counts


def test_all_hold_when_all_is_well_and_days_are_added_up() -> None:
    assert failed() == []
    assert verdict_line(all_checks(COUNTS, USAGE)).startswith("VERDICT: every limit held")


@pytest.mark.parametrize(("excess", "fails"), [(25.0, 0), (25.1, 1), (-40.0, 0), (None, 1)])
def test_the_receiving_end_may_be_above_the_line_by_the_slack_alone(excess: float | None, fails: int) -> None:
    assert failed(with_limit(max_excess_messages=excess)) == ["pages: never above 500/s"] * fails


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms", "remark"),
    [(3.0, 50.0, ""), (80.0, 5.0, "stood still for 80 ms"), (3.0, 90.0, "for 90 ms")],
)
def test_above_the_line_it_is_told_when_the_machine_stood_still(
    latency_ms: float, pause_ms: float, remark: str
) -> None:
    counts = with_topic(STEADY, receipt_latency_ms={"p50": 1.0, "p99": 2.0, "max": latency_ms})
    counts |= {**with_limit(max_excess_messages=99.0), "topics": counts["topics"], "longest_pause_ms": pause_ms}
    (check, *_) = all_checks(counts, USAGE)
    assert not check.holds
    assert ("stood still" in check.detail) == bool(remark)
    assert remark in check.detail


@pytest.mark.parametrize(("share", "loaded_s", "fails"), [(0.97, 30, 0), (0.969, 30, 1), (None, 0, 1), (1.0, 0.9, 1)])
def test_a_throttled_topic_gets_its_limit_and_wanted_it_long_enough(
    share: float | None, loaded_s: float, fails: int
) -> None:
    counts = with_limit(share_of_limit=share, loaded_s=loaded_s)
    assert failed(counts) == ["pages: at least 97% of 500/s while wanted"] * fails


@pytest.mark.parametrize(("received", "fails"), [(570, 0), (569, 1)])
def test_a_steady_topic_keeps_its_pace(received: int, fails: int) -> None:
    counts = with_topic(STEADY, received={"while_offering": received})
    assert failed(counts) == ["l/t/orders: at least 95% of its pace"] * fails


def test_a_greedy_topic_need_not_keep_its_pace() -> None:
    assert failed(with_topic(GREEDY, wanted_messages=90_000)) == []


def test_a_fault_fails() -> None:
    assert failed({**COUNTS, "faults": ["x: 1 duplicates"]}) == ["nothing lost"]


@pytest.mark.parametrize(
    "usage",
    [
        [],
        [*USAGE, row(GREEDY, 1, 0)],
        [*USAGE, row(GREEDY, 0, 1)],
        USAGE[1:],
        [*USAGE, row("persistent://c/w/other", 0, 0)],
    ],
)
def test_totals_agree_to_the_message_or_fail(usage: list[dict[str, str]]) -> None:
    assert failed(usage=usage) == ["the report's totals equal what was counted"]


def test_the_verdict_names_all_that_failed() -> None:
    line = verdict_line(all_checks({**with_limit(max_excess_messages=99.0), "faults": ["x: 1 duplicates"]}, USAGE))
    assert line.startswith("VERDICT: FAILED: ")
    assert "pages: never above 500/s (worst interval +99.0" in line
    assert "nothing lost (x: 1 duplicates)" in line


def test_nothing_checked_is_no_success() -> None:
    assert verdict_line([]) == "VERDICT: FAILED: nothing was checked"
