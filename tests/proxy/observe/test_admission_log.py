"""What the operator hears of who is not let in."""

from structlog.testing import capture_logs

from proxy.observe.operator_log import AdmissionLog
from tests.manual_clock import ManualClock


def test_a_flood_is_told_once_in_a_while_with_how_much_it_was() -> None:
    clock = ManualClock()
    with capture_logs() as logs:
        log = AdmissionLog(clock)
        for _ in range(1000):
            log.refused("max_connections", "at most 10", "192.0.2.7:1")
            clock.advance(0.015)
    assert [(line["bound"], line["refused"]) for line in logs] == [("max_connections", 1), ("max_connections", 667)]
    assert {(line["log_level"], line["detail"], line["client"]) for line in logs} == {
        ("warning", "at most 10", "192.0.2.7:1")
    }


def test_another_bound_is_told_at_once() -> None:
    with capture_logs() as logs:
        log = AdmissionLog(ManualClock())
        for bound in ("max_connections", "connection_rate", "max_connections"):
            log.refused(bound, "", "")
    assert [line["bound"] for line in logs] == ["max_connections", "connection_rate"]
