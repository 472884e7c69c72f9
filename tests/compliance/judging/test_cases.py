"""Faults that a proxy may have, and faultless logs that may look like one: right by docs/compliance.md alone."""

from typing import Any

import pytest

from tests.compliance.judging.pure import deficit_s, doubts, excess, verdicts
from tests.compliance.planted import TOPIC, PlantedLog

ALL_THE_TIME = {"throttled_ms": 1000.0, "reason": "topic", "reason_name": TOPIC}
BLOCK = {"what": "block", "setting": "", "before": None, "after": "role 'r'"}


def limiter_of(log: PlantedLog) -> Any:
    return verdicts(log.lines)["publish", "topic", TOPIC]


@pytest.mark.parametrize("passed", [36, 45])
@pytest.mark.parametrize("levels", ["topic", "namespace topic"])
def test_two_limits_at_once_owe_what_the_slower_gives(passed: int, levels: str) -> None:
    """Messages of 100 bytes wait all the time at limits of 50/s and 5,000 B/s: 50/s are owed."""
    log = PlantedLog()
    for second in range(30):
        log.interval(passed, offered=50, held_messages=50 * (second + 1), limit_levels=levels, **ALL_THE_TIME)
        both = {"limit_bytes": 5000.0, "burst_bytes": 500.0, "largest_entry_bytes": 100}
        log.limit(passed, rate=50.0, **both)
        log.second += 1
    assert deficit_s(limiter_of(log)) > 0.1


def test_two_limits_that_bind_in_turn_owe_no_more_than_they_give() -> None:
    """Half of each second small messages wait for 50/s, half of it one of 2,500 bytes for 5,000 B/s."""
    log = PlantedLog()
    for second in range(30):
        log.interval(26, offered=50, held_messages=24 * (second + 1), limit_levels="topic", **ALL_THE_TIME)
        both = {"limit_bytes": 5000.0, "burst_bytes": 1.0, "largest_entry_bytes": 2500, "passed_bytes": 2525}
        log.limit(26, rate=50.0, **both, burst_messages=1.0)
        log.second += 1
    assert deficit_s(limiter_of(log)) < 0


OTHERS: dict[str, dict[str, Any]] = {
    "blocks": BLOCK,
    "rates of subscribing": {"what": "subscribe"},
    "the other direction": {"what": "dispatch"},
    "another tenant": {"name": "persistent://globex/orders/new"},
    "another level": {"setting": "producer", "name": "p"},
    "a resource group": {"what": "group", "setting": "", "name": "gold"},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_changes_of_other_limits_begin_no_account_anew(change: dict[str, Any]) -> None:
    """A true rate of 100.8/s of 100/s, and two changes of something else in one moment each ten seconds."""
    log = PlantedLog()
    for second in range(120):
        if second % 10 == 0:
            log.change(**change)
            log.change(**change)
        log.tick(101 if second % 5 else 100)
    assert excess(limiter_of(log)) > 0


@pytest.mark.parametrize(("paid_s", "is_short"), [(1, False), (40, True)])
def test_a_debt_keeps_its_seconds_where_the_limit_is_lowered(paid_s: int, is_short: bool) -> None:  # noqa: FBT001
    """One entry of 500 messages at 1000/s leaves a debt of 400; then the limit is 10/s, and the debt is 0.4 s."""
    log = PlantedLog()
    more = {"limit_levels": "topic", "limit_messages": 10.0, **ALL_THE_TIME}
    log.interval(500, offered_entries=1, limit_levels="topic", limit_messages=1000.0)
    entry = {"passed_entries": 1, "largest_entry_messages": 500, "burst_messages": 100.0, "throttled_ms": 0.0}
    log.limit(500, rate=1000.0, **entry, tokens_messages=-400.0)
    log.second += 1
    log.change(before='{"messages": 1000}', after='{"messages": 10}')
    tokens = -4.0 if paid_s == 1 else -400.0
    for second in range(60):
        passed = max(0, min(10, int(tokens + 10)))
        tokens += 10 - passed
        log.interval(passed, offered=20, held_messages=20 * (second + 1), **more)
        log.limit(passed, rate=10.0, burst_messages=1.0, tokens_messages=tokens, idle_ms=0.0)
        log.second += 1
    result = limiter_of(log)
    assert (deficit_s(result) > 0) == is_short
    assert ("books" in doubts(result)) == is_short


@pytest.mark.parametrize("with_streams_from", [30, 90])
def test_a_limit_without_any_stream_is_unknown(with_streams_from: int) -> None:
    log = PlantedLog()
    for second in range(90):
        log.limit(50, throttled_ms=0.0)
        if second >= with_streams_from:
            log.interval(50)
        log.beat(last=second == 89)
    (doubt,) = limiter_of(log).doubts
    assert doubt.what == "no streams"
    assert doubt.said == f"it passed {50 * with_streams_from:,} messages before any stream under it has a line"


@pytest.mark.parametrize("held", [0, 1_500_000])
def test_an_entry_that_has_come_in_part_makes_no_limit_unknown(held: int) -> None:
    """Of 1.5 MB the first half has come in one second, the rest in the next."""
    log = PlantedLog()
    log.interval(0, offered_bytes=700_000, offered_messages=0, held_messages=1 if held else 0, held_bytes=held)
    log.limit(0, throttled_ms=0.0)
    log.beat()
    log.interval(1, offered_bytes=800_000, passed_bytes=1_500_000, held_messages=0, held_bytes=0)
    log.limit(1, passed_bytes=1_500_000, throttled_ms=0.0)
    log.beat(last=True)
    assert doubts(limiter_of(log)) == set()


@pytest.mark.parametrize("ahead_s", [-3600.0, -0.5, 0.5, 60.0])
@pytest.mark.parametrize(
    ("passed", "is_over", "is_short"), [(100, False, False), (102, True, False), (90, False, True)]
)
def test_a_step_of_the_wall_clock_changes_no_verdict(
    ahead_s: float, passed: int, *, is_over: bool, is_short: bool
) -> None:
    log = PlantedLog()
    for second in range(30):
        log.ahead_s = ahead_s if 10 <= second < 20 else 0.0
        log.tick(passed + (10 if second == 0 else 0))
    result = limiter_of(log)
    assert (excess(result) > 0, deficit_s(result) > 0) == (passed > 100, passed < 100)
    assert doubts(result) == set()
