import random
from typing import Any

import pytest

from accesslog.delays import BUCKETS, upper_bound_ms
from compliance.figures.facts import DelayFacts
from compliance.report.sections.throttling import added, by_reason, delays, percentile_ms


def fact(**more):
    values: dict[str, Any] = {
        "tenant": "t",
        "namespace": "n",
        "topic": "a",
        "direction": "publish",
        "reason": "",
        "delay_sum_ms": 0.0,
    }
    return DelayFacts(**(values | {"passed_messages": 10, "held_messages": 0, "delay_max_ms": 0.0, "hist": []} | more))


def histogram(samples):
    counts = [0] * BUCKETS
    for sample in samples:
        bounds = (upper_bound_ms(bucket) for bucket in range(BUCKETS - 1))
        counts[next((place for place, bound in enumerate(bounds) if bound and sample < bound), BUCKETS - 1)] += 1
    return counts


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_a_percentile_of_merged_histograms_is_that_of_all_samples_to_a_quarter(share):
    chance = random.Random(3)
    parts = [[chance.lognormvariate(4, 2) for _ in range(chance.randrange(1, 900))] for _ in range(9)]
    everything = sorted(sample for part in parts for sample in part)
    truth = everything[max(0, -(-int(share * 1e6 * len(everything)) // 1_000_000) - 1)]
    found = percentile_ms(added(map(histogram, parts)), share, max(everything))
    assert found is not None
    assert truth <= found <= max(1.25 * truth, truth + 1)


def test_no_percentile_is_above_the_longest_delay():
    assert percentile_ms([0] * 20 + [5], 0.99, 31.0) == 31.0
    assert percentile_ms([0] * 65 + [5], 0.5, 90_000.0) == 90_000.0


def test_where_nothing_was_held_there_is_no_percentile():
    assert percentile_ms([], 0.5, 0.0) is None
    assert delays([fact()])[0].p99_ms is None


def test_all_levels_together_come_first():
    topic = fact(reason="topic", hist=[0, 0, 4], held_messages=4, delay_sum_ms=6.0, delay_max_ms=1.7)
    tenant = fact(reason="tenant", hist=[4], held_messages=4, delay_sum_ms=2.0, delay_max_ms=0.9)
    rows = by_reason([tenant, topic, fact()])
    assert [(row.reason, row.held_messages, row.mean_ms) for row in rows] == [
        ("", 8, 1),
        ("topic", 4, 1.5),
        ("tenant", 4, 0.5),
    ]
    assert (rows[0].passed_messages, rows[0].max_ms) == (30, 1.7)


def test_a_direction_in_which_nothing_was_held_is_left_out():
    assert by_reason([fact(direction="dispatch")]) == []
