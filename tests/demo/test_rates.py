from typing import Any

from demo.watch import RateMeter, TopicRates, TopicStreams

NOTHING: dict[str, Any] = {"at_s": 0.0, "topics": {}}


def load(at_s: float, wanted: int, received: int) -> dict[str, Any]:
    return {"at_s": at_s, "topics": {"t": {"wanted_messages": wanted, "received": received}}}


def test_the_first_look_has_no_rates() -> None:
    state = TopicStreams(10, 5)
    assert RateMeter(["t"]).rows(1.0, {"t": state}, load(0.2, 20, 5)) == [TopicRates("t", 0, 0, 0, 0, state)]


def test_rates_are_differences_over_the_time_between_by_each_sources_own_clock() -> None:
    meter = RateMeter(["t"])
    meter.rows(1.0, {"t": TopicStreams(10, 5)}, load(0.2, 20, 5))
    (row,) = meter.rows(1.5, {"t": TopicStreams(110, 55)}, load(1.2, 220, 30))
    assert (row.wanted, row.offered, row.passed, row.received) == (200, 200, 100, 25)


def test_rates_are_those_of_about_the_last_second() -> None:
    meter = RateMeter(["t"])
    for half, passed in enumerate([0, 1000, 1000, 1010, 1020]):
        (row,) = meter.rows(half / 2, {"t": TopicStreams(passed=passed)}, NOTHING)
    assert row.passed == 20


def test_a_stream_that_closes_is_no_negative_rate() -> None:
    meter = RateMeter(["t"])
    meter.rows(1.0, {"t": TopicStreams(10, 5)}, NOTHING)
    assert meter.rows(2.0, {}, NOTHING)[0].passed == 0
