"""Plain integers of the data path."""

import copy

from proxy.counters import LATENESS_NS, Counters, Words


def test_the_lateness_of_timers_is_summed_and_its_worst_kept() -> None:
    counters = Counters()
    for late_ns in (5, 20, 10):
        counters.timer_fired(late_ns)
    assert (counters.timers_fired, counters.loop_lag_ns, counters.loop_lag_max_ns) == (3, 35, 20)


def test_timers_are_counted_by_the_least_bound_that_holds_them() -> None:
    counters = Counters()
    for late_ns in (-7, LATENESS_NS[0], LATENESS_NS[0] + 1, LATENESS_NS[-1], LATENESS_NS[-1] + 1):
        counters.timer_fired(late_ns)
    assert [counters.timers_by_lateness[at] for at in (0, 1, -2, -1)] == [2, 1, 1, 1]
    assert sum(counters.timers_by_lateness) == counters.timers_fired


def test_a_timer_that_fires_early_is_not_late() -> None:
    counters = Counters()
    counters.timer_fired(-7)
    assert (counters.timers_fired, counters.loop_lag_ns) == (1, 0)


def test_two_processes_do_not_share_them() -> None:
    one, other = Counters(), Counters()
    one.connections_ended["x"] += 1
    assert other.connections_ended["x"] == 0


def test_words_are_counted_as_a_counter_counts_them() -> None:
    words = Words()
    words["a"] += 1
    words.update({"a": 2, "b": 1})
    words.subtract({"b": 1})
    assert (words["a"], words["none"], +words, copy.copy(words)) == (3, 0, {"a": 3}, words)
    del words["b"]
    assert list(words) == ["a"]
    assert Words.__delitem__ is dict.__delitem__, "a method here would make each assignment a call of Python"
