from datetime import timedelta
from typing import Any

import pytest

from accesslog.record import ThrottleLine
from compliance.figures.limits import episode_facts, episodes_of
from compliance.figures.traffic import (
    CLIENT_WAITS,
    CLIENTS,
    PAUSES,
    REFUSALS,
    delay_facts,
    pause_facts,
    refusal_facts,
)
from tests.compliance.arrow import limits_of, summed_of
from tests.compliance.planted import BEGIN, PlantedLog


def test_waits_that_follow_one_another_are_one_episode():
    log = PlantedLog()
    for waited_ms in (0, 400, 1000, 300, 0, 0, 700):
        log.limit(10, throttled_ms=float(waited_ms))
        log.second += 1
    log.second += 60
    log.limit(10, throttled_ms=200.0)
    [row] = episode_facts(**episodes_of(limits_of(log))).to_pylist()
    assert (row["episodes"], row["throttled_s"]) == (3, pytest.approx(2.6))
    assert (row["longest_s"], row["longest_start"]) == (pytest.approx(1.7), BEGIN + timedelta(seconds=1))
    assert row["span_s"] == 68


def test_of_episodes_that_are_as_long_the_first_is_named():
    log = PlantedLog()
    for waited_ms in (0, 400, 0, 400, 0, 400, 0, 100):
        log.limit(10, throttled_ms=float(waited_ms))
        log.second += 1
    [row] = episode_facts(**episodes_of(limits_of(log))).to_pylist()
    assert (row["episodes"], row["longest_s"]) == (4, 0.4)
    assert row["longest_start"] == BEGIN + timedelta(seconds=1)


def test_limit_without_waits_or_in_observe_has_no_episode():
    log = PlantedLog()
    log.limit(10, throttled_ms=0.0)
    log.limit(10, throttled_ms=500.0, mode="observe", level="namespace")
    assert len(episode_facts(**episodes_of(limits_of(log)))) == 0


def test_histograms_are_added_place_by_place():
    log = PlantedLog()
    log.interval(10, delay_hist=(1, 0, 2), delay_sum_ms=5.0, delay_max_ms=1.6, reason="topic")
    log.interval(10, delay_hist=(4, 1), delay_sum_ms=2.0, delay_max_ms=1.1, reason="tenant")
    log.interval(10)
    clients, waits = summed_of(CLIENTS, log), summed_of(CLIENT_WAITS, log)
    [row] = delay_facts(clients, waits, by_topic=True).to_pylist()
    assert (row["hist"], row["held_messages"], row["passed_messages"]) == ([5, 1, 2], 8, 30)
    assert (row["delay_sum_ms"], row["delay_max_ms"]) == (7.0, 1.6)
    reasons = delay_facts(clients, waits, by_topic=False).to_pylist()
    assert {row["reason"]: row["hist"] for row in reasons} == {"topic": [1, 0, 2], "tenant": [4, 1], "": []}


def test_pauses_are_summed_up_by_side_and_cause():
    log = PlantedLog()
    for connection_id, paused_ms in ((1, 300.0), (1, 500.0), (2, 200.0)):
        span = {"duration_ms": paused_ms, "end": log._head["start"] + timedelta(milliseconds=paused_ms)}
        names: dict[str, Any] = {"client_address": "192.0.2.1:4000", "side": "client", "cause": "hold budget"}
        log.add(ThrottleLine, **span, **names, connection_id=connection_id)
    [row] = pause_facts(summed_of(PAUSES, log)).to_pylist()
    assert (row["pauses"], row["connections"], row["longest_s"]) == (3, 2, 0.5)
    assert row["total_s"] == pytest.approx(1.0)


def test_refusals_have_the_last_text_of_each_reason():
    log = PlantedLog()
    log.reject(2, detail="first")
    log.second += 1
    log.reject(5, connection_id=2, detail="last")
    [row] = refusal_facts(summed_of(REFUSALS, log)).to_pylist()
    assert (row["reason"], row["rejected"], row["connections"]) == ("admission.lookups", 7, 2)
    assert (row["example"], row["first"], row["last"]) == ("last", BEGIN, BEGIN + timedelta(seconds=2))
