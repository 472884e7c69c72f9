import msgspec
import pytest

from accesslog.record import upper_bound_ms
from compliance.figures.facts import ImpactFacts
from compliance.figures.limits import observed_facts, observed_of
from compliance.figures.traffic import CLIENT_WAITS, CLIENTS, LATE_BUCKET, impact_facts
from compliance.figures.wanted import Wanted, wanted_figures, wanted_lines
from tests.compliance.arrow import limits_of, lines_of, summed_of
from tests.compliance.planted import TOPIC, PlantedLog

LIMIT = {"reason": "topic", "reason_name": TOPIC}


def log_with_waits():
    """One producer waits 40 s, another 1 s; a third is refused half, a fourth is never held."""
    log = PlantedLog()
    late = {"delay_max_ms": 40_000.0, "delay_hist": [*[0] * 40, 1, *[0] * 19, 2, 5], "throttled_ms": 1000.0}
    log.interval(8, producer_name="late", **late, **LIMIT)
    short = {"delay_max_ms": 29_000.0, "delay_hist": [*[0] * 60, 7], "throttled_ms": 1000.0}
    log.interval(7, producer_name="short", stream_id=2, **short, **LIMIT)
    log.interval(5, offered=10, producer_name="refused", stream_id=3, rejected_messages=5, held_messages=0, **LIMIT)
    log.interval(3, producer_name="free", stream_id=4)
    return log


def test_messages_count_as_late_from_the_bucket_of_30_s():
    assert [upper_bound_ms(LATE_BUCKET + more) for more in (-1, 0)] == [28_672.0, 32_768.0]


def test_impact_is_summed_in_all_by_tenant_limit_and_client():
    log = log_with_waits()
    impacts = impact_facts(summed_of(CLIENTS, log), summed_of(CLIENT_WAITS, log)).to_pylist()
    rows = [msgspec.convert(row, ImpactFacts) for row in impacts]
    by = {(row.tenant, row.level, row.client): row for row in rows}
    assert set(by) == {
        (None, None, None),
        ("acme", None, None),
        ("acme", "topic", None),
        *(("acme", "topic", client) for client in ("late", "short", "refused")),
    }
    assert (by["acme", None, None].offered_messages, by["acme", None, None].passed_messages) == (28, 23)
    of_limit = by["acme", "topic", None]
    # Buckets from 28.7 s on, in lines with a wait of 30 s.
    assert (of_limit.late_messages, of_limit.rejected_messages, sum(of_limit.hist)) == (7, 5, 15)
    assert (by["acme", "topic", "late"].late_messages, by["acme", "topic", "short"].late_messages) == (7, 0)
    assert of_limit.worst_at == by["acme", "topic", "late"].first


def test_demand_is_what_came_in_the_fullest_half_minute():
    log = PlantedLog()
    for second in range(90):
        log.interval(10, offered=300 if 30 <= second < 60 else 10)
        log.beat()
    key = ("proxy-1", "publish", "topic", TOPIC)
    wanted = Wanted(demands=[(*key, "proxy-1")])
    [row] = wanted_figures(wanted_lines(lines_of([log]), wanted), wanted)["demands"].to_pylist()
    assert (row["proxy_id"], row["messages_per_s"], row["bytes_per_s"]) == ("proxy-1", 300.0, 30_000.0)


def test_observed_limits_have_the_time_in_which_they_would_hold():
    log = PlantedLog()
    log.limit(20, mode="observe", throttled_ms=800.0)
    log.limit(20, mode="observe", throttled_ms=0.0)
    log.limit(20, name="enforced")
    [row] = observed_facts(**observed_of(limits_of(log))).to_pylist()
    values = (row["name"], row["limit_messages"], row["would_throttle_s"], row["observed_s"])
    assert values == (TOPIC, 100.0, pytest.approx(0.8), 2.0)
