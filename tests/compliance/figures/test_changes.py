import msgspec

from compliance.excerpt import WHOLE_LOG
from compliance.figures.facts import ChangeFacts
from compliance.figures.limits import value_changes
from compliance.figures.trends import CHANGES, set_facts
from tests.compliance.arrow import limits_of, summed_of
from tests.compliance.planted import PlantedLog


def changes(log):
    values = value_changes(limits_of(log)).to_pylist()
    rows = [*set_facts(summed_of(CHANGES, log), WHOLE_LOG), *(msgspec.convert(value, ChangeFacts) for value in values)]
    return [(row.kind, row.what, row.before, row.after, row.who) for row in rows]


def test_what_somebody_set_and_what_came_of_it_are_both_told():
    log = PlantedLog()
    log.tick(10)
    log.change()
    log.tick(10, rate=50.0)
    assert changes(log) == [
        ("set", "publish of topic", "", '{"a": 1}', "ann from 192.0.2.1"),
        ("limit", "publish topic", "100 messages/s", "50 messages/s", ""),
    ]


def test_another_file_is_a_reload():
    log = PlantedLog()
    log.change(what="file", setting="", name="", who="SIGHUP", address="")
    assert [(row[0], row[1], row[4]) for row in changes(log)] == [("reload", "file", "SIGHUP")]


def test_a_limit_that_is_lifted_or_only_observed_from_now_on_has_changed():
    log = PlantedLog()
    for more in ({}, {"mode": "observe"}, {"rate": None}):
        log.limit(10, **more)
        log.second += 1
    assert [(before, after) for _, _, before, after, _ in changes(log)] == [
        ("100 messages/s", "100 messages/s, mode observe"),
        ("100 messages/s, mode observe", "no limit"),
    ]


def test_limit_relative_to_a_publish_rate_does_not_change_by_it():
    log = PlantedLog()
    for published in (0.0, 10.0, 20.0):
        log.limit(10, rate=100.0 + published, published_messages=published)
    assert changes(log) == []
