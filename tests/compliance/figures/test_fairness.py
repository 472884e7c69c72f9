import random
from fractions import Fraction

import pytest

from compliance.figures.waiting import fairness_facts, with_fair_share
from tests.compliance.planted import PlantedLog, frame

pytestmark = pytest.mark.spark


def filled(capacity, wants):
    """Max-min by pouring: everybody gets the same until satisfied."""
    got = dict.fromkeys(wants, Fraction(0))
    left, thirsty = Fraction(capacity), {name for name, want in wants.items() if want > 0}
    while left > 0 and thirsty:
        part = min(left / len(thirsty), *(wants[name] - got[name] for name in thirsty))
        for name in thirsty:
            got[name] += part
        left -= part * len(thirsty)
        thirsty = {name for name in thirsty if got[name] < wants[name]}
    return got


def test_shares_are_those_that_pouring_gives(spark):
    chance = random.Random(7)
    groups = {}
    for group in range(30):
        wants = {f"m{number}": chance.randrange(1, 100) for number in range(chance.randrange(1, 8))}
        groups[group] = (chance.randrange(1, sum(wants.values()) + 1), wants)
    rows = [
        (group, name, float(want), capacity / len(wants))
        for group, (capacity, wants) in groups.items()
        for name, want in wants.items()
    ]
    members = spark.createDataFrame(rows, "step long, member string, wanted double, got double")
    found = {(row.step, row.member): row.fair for row in with_fair_share(members, ["step"]).collect()}
    expected = {
        (group, name): part for group, (of, wants) in groups.items() for name, part in filled(of, wants).items()
    }
    assert found == pytest.approx({key: float(part) for key, part in expected.items()})


def contended(passed_a, passed_b, held_b, throttled_ms=1000.0):
    log = PlantedLog()
    for _ in range(60):
        for topic, passed, held in (("a", passed_a, 50), ("b", passed_b, held_b)):
            log.interval(passed, topic=f"persistent://acme/orders/{topic}", held_messages=held)
        log.limit(passed_a + passed_b, level="namespace", name="acme/orders", throttled_ms=throttled_ms)
        log.beat()
    return log


def fairness(spark, log, level="namespace", name="acme/orders"):
    names = [("proxy-1", "publish", level, name, "messages")]
    columns = "proxy_id string, direction string, level string, name string, unit string"
    lines = [frame(spark, [log], kind) for kind in ("limit", "interval")]
    rows = fairness_facts(lines[0], lines[1], spark.createDataFrame(names, columns)).collect()
    return {row.member[-1]: row for row in rows}


def test_who_got_more_than_an_equal_part_while_the_other_waited_is_seen(spark):
    members = fairness(spark, contended(90, 10, 500))
    assert (members["a"].got, members["b"].got) == (5400, 600)
    assert members["a"].fair == members["b"].fair == pytest.approx(3000)


def test_who_wants_little_gets_little_and_that_is_fair(spark):
    members = fairness(spark, contended(90, 10, 0))
    assert (members["b"].fair, members["a"].fair) == (pytest.approx(600), pytest.approx(5400))


def test_time_in_which_hardly_anybody_waited_is_not_compared(spark):
    assert fairness(spark, contended(90, 10, 0, throttled_ms=400.0)) == {}


def test_who_got_what_of_a_resource_group_is_told_by_namespace(spark):
    log = PlantedLog()
    for _ in range(60):
        for namespace, passed in (("a", 90), ("b", 10)):
            log.interval(passed, namespace=namespace, resource_group="gold", held_messages=500)
        log.interval(40, namespace="c", held_messages=500)
        log.limit(100, level="resource_group", name="gold")
        log.beat()
    members = fairness(spark, log, "resource_group", "gold")
    assert {name: row.got for name, row in members.items()} == {"a": 5400, "b": 600}
    assert members["b"].fair == pytest.approx(3000)
