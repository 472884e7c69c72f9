"""A claim that could not fail would show nothing."""

import pytest

from docs.examples.claims import Span, at_least, even, never_above, none_after, nothing_lost, soon
from loadgen.load.results import RateLine

EVENLY = [index / 100 for index in range(300)]
"""100 a second for three seconds."""


def test_arrivals_on_the_line_hold() -> None:
    assert never_above("x", EVENLY, RateLine(100, 0), 0).holds


def test_a_hidden_second_of_twice_the_rate_does_not() -> None:
    doubled = sorted([*EVENLY, *(at + 0.005 for at in EVENLY[100:200])])
    assert not never_above("x", doubled, RateLine(100, 10), 0).holds


def test_a_standstill_of_the_machine_excuses_what_came_at_once_after_it() -> None:
    bunched = [max(at, 1.3) if at >= 1 else at for at in EVENLY]
    assert not never_above("x", bunched, RateLine(100, 10), 0).holds
    assert never_above("x", bunched, RateLine(100, 10), 0.3).holds


def test_a_machine_that_stood_still_for_long_shows_nothing() -> None:
    assert not never_above("x", EVENLY, RateLine(100, 10), 1.1).holds


def test_what_arrives_after_the_end_fails() -> None:
    assert none_after("x", EVENLY, 3, 0).holds
    assert not none_after("x", EVENLY, 2.9, 0).holds
    assert none_after("x", EVENLY, 2.9, 0.1).holds
    assert not none_after("x", [], 3, 0).holds


def test_nothing_arrived_is_no_proof_of_a_limit() -> None:
    assert not never_above("x", [], RateLine(100, 10), 0).holds
    assert not at_least("x", [], Span(0, 3), 100, 0).holds
    assert not at_least("x", [], Span.of([]), 100, 0).holds
    assert not soon("x", [], 1).holds
    assert not nothing_lost("x", 0, 0, []).holds
    assert not even("x", [0, 0]).holds


def test_a_rate_that_was_not_reached_fails() -> None:
    assert at_least("x", EVENLY, Span(0, 3), 100, 0).holds
    assert not at_least("x", EVENLY, Span(0, 3), 110, 0).holds
    assert not at_least("x", EVENLY, Span(2, 4), 100, 0).holds


def test_a_span_of_nothing_but_standstill_shows_no_rate() -> None:
    assert not at_least("x", EVENLY, Span(1, 1.1), 100, 0.3).holds


@pytest.mark.parametrize(
    ("receipts", "arrived"), [(2, [0, 1, 2]), (3, [0, 1]), (3, [0, 2, 1]), (3, [0, 1, 1, 2]), (3, [0, 1, 2, 3])]
)
def test_a_lost_repeated_reordered_or_unreceipted_message_fails(receipts: int, arrived: list[int]) -> None:
    assert not nothing_lost("x", 3, receipts, arrived).holds
    assert nothing_lost("x", 3, 3, [0, 1, 2]).holds


def test_unequal_shares_fail() -> None:
    assert even("x", [100, 96, 104]).holds
    assert not even("x", [100, 80, 120]).holds


def test_late_receipts_fail() -> None:
    assert soon("x", [0.01, 0.02, 9], 0.05).holds
    assert not soon("x", [0.01, 0.2, 9], 0.05).holds
