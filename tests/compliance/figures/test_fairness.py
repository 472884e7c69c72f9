import random
from fractions import Fraction

import pyarrow as pa
import pytest

from compliance.figures.wanted import Wanted, wanted_figures, wanted_lines, with_fair_share
from tests.compliance.arrow import lines_of
from tests.compliance.planted import PlantedLog


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


def test_shares_are_those_that_pouring_gives():
    chance = random.Random(7)
    groups = {}
    for group in range(30):
        wants = {f"m{number}": chance.randrange(1, 100) for number in range(chance.randrange(1, 8))}
        groups[group] = (chance.randrange(1, sum(wants.values()) + 1), wants)
    rows = [
        {"step": group, "member": name, "wanted": float(want), "got": capacity / len(wants)}
        for group, (capacity, wants) in groups.items()
        for name, want in wants.items()
    ]
    members = with_fair_share(pa.Table.from_pylist(rows), ["step"]).to_pylist()
    shares = {(row["step"], row["member"]): row["fair"] for row in members}
    expected = {
        (group, name): part for group, (of, wants) in groups.items() for name, part in filled(of, wants).items()
    }
    assert shares == pytest.approx({key: float(part) for key, part in expected.items()})


def contended(name, passed_a, passed_b, held_b, throttled_ms=1000.0):
    log = PlantedLog(name)
    for _ in range(60):
        for topic, passed, held in (("a", passed_a, 50), ("b", passed_b, held_b)):
            log.interval(passed, topic=f"persistent://acme/orders/{topic}", held_messages=held)
        log.limit(passed_a + passed_b, level="namespace", name="acme/orders", throttled_ms=throttled_ms)
        log.beat()
    return log


def of_a_group(name):
    log = PlantedLog(name)
    for _ in range(60):
        for namespace, passed in (("a", 90), ("b", 10)):
            log.interval(passed, namespace=namespace, resource_group="gold", held_messages=500)
        log.interval(40, namespace="c", held_messages=500)
        log.limit(100, level="resource_group", name="gold")
        log.beat()
    return log


def test_fair_shares_are_max_min_by_what_members_wanted():
    """Of limits of proxies of their own: one where hardly anybody waited is not compared, a group's is by namespace."""
    limits = [
        (contended("unfair", 90, 10, 500), ("namespace", "acme/orders")),
        (contended("content", 90, 10, 0), ("namespace", "acme/orders")),
        (contended("idle", 90, 10, 0, throttled_ms=400.0), ("namespace", "acme/orders")),
        (of_a_group("group"), ("resource_group", "gold")),
    ]
    names = [(log.proxy_id, "publish", *limit, "messages") for log, limit in limits]
    wanted = Wanted(shared=names)
    lines = wanted_lines(lines_of([log for log, _ in limits]), wanted)
    rows = wanted_figures(lines, wanted)["fairness"].to_pylist()
    assert len(rows) == 6
    assert {(row["proxy_id"], row["member"]): (row["got"], row["fair"]) for row in rows} == {
        ("unfair", "persistent://acme/orders/a"): (5400, pytest.approx(3000)),
        ("unfair", "persistent://acme/orders/b"): (600, pytest.approx(3000)),
        ("content", "persistent://acme/orders/a"): (5400, pytest.approx(5400)),
        ("content", "persistent://acme/orders/b"): (600, pytest.approx(600)),
        ("group", "acme/a"): (5400, pytest.approx(3000)),
        ("group", "acme/b"): (600, pytest.approx(3000)),
    }
