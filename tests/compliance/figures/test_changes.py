from datetime import timedelta
from typing import Any

import pytest

from accesslog.record import LossLine
from compliance.figures.trends import change_facts, loss_facts
from tests.compliance.planted import BEGIN, PlantedLog, frame

pytestmark = pytest.mark.spark


def changes(spark, log):
    lines = (frame(spark, [log], kind) for kind in ("change", "limit"))
    rows = change_facts(*lines).orderBy("at", "kind").collect()
    return [(row.kind, row.what, row.before, row.after, row.who) for row in rows]


def test_what_somebody_set_and_what_came_of_it_are_both_told(spark):
    log = PlantedLog()
    log.tick(10)
    log.change()
    log.tick(10, rate=50.0)
    assert changes(spark, log) == [
        ("limit", "publish topic", "100 messages/s", "50 messages/s", ""),
        ("set", "publish of topic", "", '{"a": 1}', "ann from 192.0.2.1"),
    ]


def test_another_file_is_a_reload(spark):
    log = PlantedLog()
    log.change(what="file", setting="", name="", who="SIGHUP", address="")
    assert [(row[0], row[1], row[4]) for row in changes(spark, log)] == [("reload", "file", "SIGHUP")]


def test_a_limit_that_is_lifted_or_only_observed_from_now_on_has_changed(spark):
    log = PlantedLog()
    for more in ({}, {"mode": "observe"}, {"rate": None}):
        log.limit(10, **more)
        log.second += 1
    assert [(before, after) for _, _, before, after, _ in changes(spark, log)] == [
        ("100 messages/s", "100 messages/s, mode observe"),
        ("100 messages/s, mode observe", "no limit"),
    ]


def test_a_limit_that_follows_the_publish_rate_does_not_change_by_that(spark):
    log = PlantedLog()
    for published in (0.0, 10.0, 20.0):
        log.limit(10, rate=100.0 + published, published_messages=published)
    assert changes(spark, log) == []


def test_what_a_proxy_says_is_lost_is_handed_on(spark):
    log = PlantedLog()
    lost: dict[str, Any] = {
        "of_boot": "b",
        "cause": "disk",
        "detail": "full",
        "lost_lines": None,
        "first_seq": 3,
        "last_seq": None,
    }
    times: dict[str, Any] = {"lost_from": BEGIN, "lost_until": BEGIN + timedelta(seconds=5)}
    log.add(LossLine, **lost, **times)
    (row,) = loss_facts(frame(spark, [log], "loss")).collect()
    assert (row.cause, row.lost_lines, row.lost_until) == ("disk", None, "2026-11-21T11:29:05.000000Z")
