"""What the kernel and Sluice say."""

import math
import os

import pytest

from bench import meters
from bench.data_path.proxies import SLUICE
from bench.meters import Scrape, lateness, parsed, scrape


def test_the_use_of_all_threads_is_summed_up(tmp_path):
    for number, (cpu, waited) in enumerate([("1500000000 7 9\n", 3), ("500000000 0 1\n", 4)]):
        task = tmp_path / "12" / "task" / str(number)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(cpu)
        (task / "status").write_text(f"Name:\tx\nvoluntary_ctxt_switches:\t{waited}\nnonvoluntary_ctxt_switches:\t9\n")
    assert meters.used(12, tmp_path) == meters.Used(2.0, 7)


def test_a_thread_that_has_just_ended_counts_for_nothing(tmp_path):
    (tmp_path / "12" / "task" / "1").mkdir(parents=True)
    assert meters.used(12, tmp_path) == meters.Used(0.0, 0)


@pytest.mark.parametrize("states", [("S (sleeping)", "R (running)"), ("R (running)",), ("S (sleeping)",), ()])
def test_a_process_is_runnable_if_one_of_its_threads_is(tmp_path, states):
    (tmp_path / "12" / "task").mkdir(parents=True)
    for number, state in enumerate(states):
        (tmp_path / "12" / "task" / str(number)).mkdir()
        (tmp_path / "12" / "task" / str(number) / "status").write_text(f"Name:\tx\nState:\t{state}\nTgid:\t12\n")
    assert meters.is_runnable(12, tmp_path) is ("R (running)" in states)


def test_memory_is_in_bytes(tmp_path):
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "status").write_text("VmPeak:\t   900 kB\nVmRSS:\t   300 kB\n")
    assert meters.resident_bytes(12, tmp_path) == 300 * 1024


def test_the_most_memory_is_that_since_it_was_forgotten():
    meters.forget_peak(os.getpid())
    before = meters.peak_bytes(os.getpid())
    large = bytearray(64 << 20)
    at_most = meters.peak_bytes(os.getpid())
    del large
    meters.forget_peak(os.getpid())
    assert before + (60 << 20) < at_most
    assert meters.peak_bytes(os.getpid()) < at_most - (32 << 20)


def test_the_processes_are_found_that_any_of_its_threads_started(tmp_path):
    for number, children in enumerate(["13 14 ", "", "15 "]):
        task = tmp_path / "12" / "task" / str(number)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
    (tmp_path / "12" / "task" / "ended").mkdir()
    assert sorted(meters.children(12, tmp_path)) == [13, 14, 15]


def test_the_kernel_tells_of_this_process():
    assert meters.resident_bytes(os.getpid()) > 1 << 20
    assert meters.used(os.getpid()).cpu_s > 0


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
    metrics = parsed(TEXT)
    assert metrics.values["sluice_held_bytes"] == 7
    assert metrics.timers == {0.001: 90, 0.005: 99, math.inf: 100}


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
    metrics = scrape(stage.peers[SLUICE].spare_port)
    assert metrics.values["sluice_hold_budget_used_bytes"] == 0
    assert math.inf in metrics.timers
