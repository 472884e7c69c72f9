import msgspec
import pytest

from compliance.excerpt import WHOLE_LOG
from compliance.figures.facts import ChangeFacts
from compliance.figures.limits import last_lines, value_changes
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


@pytest.mark.parametrize(
    "places",
    [
        range(24),
        range(23, -1, -1),
        [*range(12, 24), *range(12)],
        [*range(10), 11, 10, *range(12, 24)],
        [*range(11), 12, 11, *range(13, 24)],
    ],
)
def test_lines_of_limiters_need_no_order(places):
    log = PlantedLog()
    for name in ("persistent://acme/shop/a", "persistent://acme/shop/b"):
        log.second = 0
        for rate in [100.0] * 11 + [50.0]:
            log.limit(10, name=name, rate=rate)
            log.second += 1
    in_order = limits_of(log).sort_by([("name", "ascending"), ("seq", "ascending")])
    changed = value_changes(in_order).to_pylist()
    assert [(row["name"], row["after"]) for row in changed] == [
        (name, "50 messages/s") for name in sorted({*in_order["name"].to_pylist()})
    ]
    lines = in_order.take(list(places))
    assert value_changes(lines).to_pylist() == changed
    assert sorted(last_lines(lines)["seq"].to_pylist()) == [11, 23]
