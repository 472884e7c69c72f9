from structlog.testing import capture_logs

from proxy.counters import Counters
from proxy.observe.operator_log import INTERVAL_NS, OversizedBatchLog
from tests.manual_clock import ManualClock


def test_all_are_counted_and_a_flood_of_them_is_one_line_in_ten_seconds() -> None:
    counters, clock = Counters(), ManualClock()
    oversized_batches = OversizedBatchLog(counters, clock)

    with capture_logs() as lines:
        for _ in range(5):
            oversized_batches.met(2**31 - 1, "192.0.2.7:4000")
        clock.now += INTERVAL_NS
        oversized_batches.met(100_001, "192.0.2.7:4000")

    assert counters.batches_not_believed == 6
    assert [(line["messages"], line["batches"]) for line in lines] == [(2**31 - 1, 1), (100_001, 5)]
