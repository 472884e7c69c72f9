from datetime import timedelta
from typing import Any

import pytest

from accesslog.record import ThrottleLine
from compliance.figures.traffic import PAUSES, STREAMS, neighbour_facts
from tests.compliance.arrow import summed_of
from tests.compliance.planted import PlantedLog


def neighbours(log):
    rows = neighbour_facts(summed_of(STREAMS, log), summed_of(PAUSES, log))
    return [(row.offender[-1], row.victim and row.victim[-1], row) for row in rows]


def stream(log, topic, connection_id, offered, **more):
    names = {"topic": f"persistent://acme/orders/{topic}", "connection_id": connection_id}
    log.interval(min(offered, 100), offered=offered, **names, **more)


def test_an_offender_is_named_with_the_victim_on_its_connection():
    log = PlantedLog()
    for _ in range(10):
        stream(log, "a", 1, 300, stream_id=1)
        stream(log, "b", 1, 20, stream_id=2, throttled_ms=500.0, delay_max_ms=80.0, reason="tenant")
        stream(log, "c", 2, 20, stream_id=3, throttled_ms=500.0)
        stream(log, "d", 1, 20, stream_id=4)
        log.beat()
    span = {"duration_ms": 700.0, "end": log._head["start"] + timedelta(milliseconds=700)}
    pause: dict[str, Any] = {"client_address": "192.0.2.1:4000", "side": "client", "cause": "hold budget"}
    log.add(ThrottleLine, **span, **pause, connection_id=1)
    ((offender, victim, row),) = neighbours(log)
    assert (offender, victim, row.victims) == ("a", "b", 1)
    assert (row.ratio, row.paused_s, row.victim_reason) == (pytest.approx(3), pytest.approx(0.7), "tenant")
    assert (row.victim_throttled_s, row.victim_delay_max_ms) == (5, 80)


def test_an_offender_that_hurts_nobody_is_named_alone():
    log = PlantedLog()
    stream(log, "a", 1, 300)
    ((offender, victim, row),) = neighbours(log)
    assert (offender, victim, row.victims) == ("a", None, 0)


def test_who_passed_only_its_first_burst_is_no_offender_unless_somebody_suffered():
    log = PlantedLog()
    for second in range(100):
        for connection, topic in ((1, "a"), (2, "b")):
            stream(log, topic, connection, 110 if second == 0 else 100, stream_id=1)
        stream(log, "c", 2, 20, stream_id=2, throttled_ms=5.0)
        log.beat()
    assert [(offender, victim) for offender, victim, _ in neighbours(log)] == [("b", "c")]


def test_who_has_no_limit_cannot_offend():
    log = PlantedLog()
    stream(log, "a", 1, 3000, limit_messages=None)
    assert neighbours(log) == []
