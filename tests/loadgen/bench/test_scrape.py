import math

import pytest

from loadgen.bench.peers import sluice
from loadgen.bench.scrape import Scrape, lateness, parsed, scrape

TEXT = """\
# TYPE sluice_held_bytes gauge
sluice_held_bytes{namespace="a"} 3.0
sluice_held_bytes{namespace="b"} 4.0
# TYPE sluice_timer_lateness_seconds histogram
sluice_timer_lateness_seconds_bucket{le="0.001"} 90.0
sluice_timer_lateness_seconds_bucket{le="0.005"} 99.0
sluice_timer_lateness_seconds_bucket{le="+Inf"} 100.0
sluice_timer_lateness_seconds_count 100.0
sluice_timer_lateness_seconds_sum 1.5
"""
NOTHING = Scrape({}, {})


def test_values_are_summed_over_labels_and_timers_kept_by_bound():
    found = parsed(TEXT)
    assert found.values["sluice_held_bytes"] == 7
    assert found.timers == {0.001: 90, 0.005: 99, math.inf: 100}


@pytest.mark.parametrize(
    ("share", "bound"), [(0.5, 0.001), (0.9, 0.001), (0.95, 0.005), (0.99, 0.005), (1.0, math.inf)]
)
def test_lateness_is_the_least_bound_that_so_many_kept(share, bound):
    assert lateness(NOTHING, parsed(TEXT), share) == bound


def test_only_what_fired_between_two_readings_counts():
    before = Scrape({}, {0.001: 90.0, 0.005: 90.0, math.inf: 90.0})
    assert lateness(before, parsed(TEXT), 0.9) == 0.005
    assert lateness(parsed(TEXT), parsed(TEXT), 0.99) == 0


def test_sluice_tells_what_is_asked_for(stage):
    found = scrape(stage.peers[sluice.NAME].spare_port)
    assert found.values["sluice_hold_budget_used_bytes"] == 0
    assert math.inf in found.timers
