"""What is counted and told of those whom the admin address refuses."""

from collections import Counter

from structlog.testing import capture_logs

from proxy.admin.refusals import RefusalCause, RefusalLog
from tests.manual_clock import ManualClock


def test_a_flood_is_counted_in_full_and_told_once_in_a_while() -> None:
    clock, counts = ManualClock(), Counter[str]()
    with capture_logs() as logs:
        refused = RefusalLog(counts, clock)
        for _ in range(1000):
            refused.count(RefusalCause.WRONG, "this token is not known here", "192.0.2.7")
            clock.advance(0.015)
    assert counts == {"wrong": 1000}
    assert [(line["kind"], line["refused"]) for line in logs] == [("wrong", 1), ("wrong", 667)]
    assert {(line["log_level"], line["detail"], line["caller"]) for line in logs} == {
        ("warning", "this token is not known here", "192.0.2.7")
    }


def test_another_kind_is_told_at_once() -> None:
    with capture_logs() as logs:
        refused = RefusalLog(Counter(), ManualClock())
        for why in (RefusalCause.WRONG, RefusalCause.RATE, RefusalCause.WRONG):
            refused.count(why, "", "")
    assert [line["kind"] for line in logs] == ["wrong", "rate"]
