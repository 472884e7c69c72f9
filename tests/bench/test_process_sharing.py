"""What the figures of sharing are made of, without processes: looks at counters, and how even they are."""

import pytest

from bench.process_sharing import soonest


def looks(*rates, each_s=0.05):
    """Looks at two connections that together pass `rates`, each for `each_s`."""
    readings, passed = [(7.0, [0, 0])], 0.0
    for number, rate in enumerate(rates, 1):
        passed += rate * each_s / 2
        readings.append((7.0 + number * each_s, [round(passed)] * 2))
    return readings


def test_a_rate_is_there_when_a_whole_window_has_it():
    assert soonest(looks(*[400] * 4, *[4000] * 10), 4000) == pytest.approx(0.2)
    assert soonest(looks(*[4000] * 10), 4000) == 0


def test_a_rate_that_never_comes_is_not_found():
    assert soonest(looks(*[3700] * 40), 4000) is None


def test_a_burst_is_no_rate():
    assert soonest(looks(12_000, *[0] * 20), 4000) is None


def test_looks_shorter_than_a_window_say_nothing():
    assert soonest(looks(4000, 4000), 4000) is None
