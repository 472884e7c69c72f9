from typing import Any

import pytest

from compliance.figures.trends import CHANGES, set_facts, value_facts
from tests.compliance.arrow import summed_of
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def changes(spark, log):
    values = value_facts(frame(spark, [log], "limit")).orderBy("at").collect()
    rows: list[Any] = [*set_facts(summed_of(CHANGES, log)), *values]
    return [(row.kind, row.what, row.before, row.after, row.who) for row in rows]


def test_what_somebody_set_and_what_came_of_it_are_both_told(spark):
    log = PlantedLog()
    log.tick(10)
    log.change()
    log.tick(10, rate=50.0)
    assert changes(spark, log) == [
        ("set", "publish of topic", "", '{"a": 1}', "ann from 192.0.2.1"),
        ("limit", "publish topic", "100 messages/s", "50 messages/s", ""),
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
