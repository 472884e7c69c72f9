"""What the operator hears of tenants that fill the memory for held frames."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from proxy.observe import operator_log
from proxy.observe.operator_log import INTERVAL_NS, HoldLog
from tests.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    with capture_logs() as events:
        yield events


def told(logs: list[EventDict]) -> list[tuple[str, str]]:
    return [(line["log_level"], line["tenant"]) for line in logs]


def test_a_tenant_that_goes_over_its_share_is_named_and_so_is_its_return(
    clock: ManualClock, logs: list[EventDict]
) -> None:
    log = HoldLog(clock)
    log.on_over_share_changed("acme", True, 500)
    log.on_over_share_changed("acme", False, 100)
    assert told(logs) == [("warning", "acme"), ("info", "acme")]
    assert [line["bytes"] for line in logs] == [500, 100]


def test_one_that_goes_to_and_fro_is_told_once_in_a_while_and_others_at_once(
    clock: ManualClock, logs: list[EventDict]
) -> None:
    log = HoldLog(clock)
    for _ in range(100):
        log.on_over_share_changed("acme", True, 500)
        log.on_over_share_changed("acme", False, 100)
    log.on_over_share_changed("umbrella", True, 10)
    assert told(logs) == [("warning", "acme"), ("info", "acme"), ("warning", "umbrella")]
    clock.now += INTERVAL_NS
    log.on_over_share_changed("acme", True, 500)
    assert told(logs)[3:] == [("warning", "acme")]


def test_it_remembers_a_bounded_number_of_tenants(
    clock: ManualClock, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_log, "_MOST_TENANTS", 2)
    log = HoldLog(clock)
    for tenant in ("a", "b", "c", "a"):
        log.on_over_share_changed(tenant, True, 1)
    assert told(logs) == [("warning", tenant) for tenant in ("a", "b", "c")]
    assert len(log._is_due) <= 2
