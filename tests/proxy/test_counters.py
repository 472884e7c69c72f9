"""Plain integers of the data path."""

import copy

from proxy.counters import Counters, Words


def test_two_processes_do_not_share_them() -> None:
    counters, other = Counters(), Counters()
    counters.connections_ended["x"] += 1
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
