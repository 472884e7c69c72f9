from datetime import timedelta

import pytest

from compliance.judging.verdict import judge_limiters
from compliance.report.subjects import broken_for, containment, entitlement, sentence, unseen
from tests.compliance.judging.facts_made import (
    containment_fact,
    doubt_fact,
    entitlement_fact,
    facts,
    kept_fact,
    limiter_fact,
    run_fact,
    spells,
)
from tests.compliance.planted import BEGIN

AT = "at 2026-11-21 11:29:00 UTC"
OVER = {"containment": [containment_fact(5.0)], "kept": [kept_fact(judged_s=120.0, over=spells(1.0))]}
SHORT = {"entitlement": [entitlement_fact(0.5)], "kept": [kept_fact(short=spells(2.0))]}


def judged(**more):
    return judge_limiters(facts(**more))


def test_a_share_says_what_it_is_of_and_when_it_was_broken():
    (over,) = judged(**OVER)
    assert containment(over) == f"kept 99.17 % of the time, broken for 1 s {AT}"
    (short,) = judged(**SHORT)
    assert entitlement(short) == f"kept 60.00 % of the 5 s in which a stream waited, broken for 2 s {AT}"


def test_several_spells_are_summed_up_with_the_first_and_the_longest():
    later = BEGIN + timedelta(minutes=1)
    text = broken_for(spells(14.0, times=3, longest=later, longest_s=9.0))
    assert text == f"broken for 14 s in 3 spells, the first {AT}, the longest for 9 s at 2026-11-21 11:30:00 UTC"


def test_what_falls_short_only_in_sum_is_said_so():
    (limiter,) = judged(entitlement=[entitlement_fact(-0.5, whole_deficit_s=0.1, whole_served_s=9.8)])
    assert entitlement(limiter) == "2.0 % less than owed, summed up over the 5 s in which a stream waited"


def test_what_is_not_known_is_not_called_kept():
    (blind,) = judged(entitlement=[entitlement_fact(-0.1, unseen_s=5.1)])
    assert containment(blind) == "kept 100 % of the time"
    assert entitlement(blind) == "no shortfall, as far as the log shows, in the 5 s in which a stream waited"
    assert unseen(blind) == "a shortfall of up to 51 % in ten seconds would not show"
    (torn,) = judged(runs=[run_fact(missing=1)], limiters=[limiter_fact(throttled_s=0.0)])
    assert containment(torn) == "no overrun, as far as the log shows"
    assert entitlement(torn) == "no stream waited, as far as the log shows"


TWO = {"limiters": [limiter_fact(), limiter_fact(name="other")]}


@pytest.mark.parametrize(
    ("made_of", "text"),
    [
        ({}, "Nothing passed beyond the limit of acme; streams that waited got all that was owed."),
        (
            {"limiters": [limiter_fact(throttled_s=0.0), limiter_fact(name="b", throttled_s=0.0)]},
            "Nothing passed beyond the 2 limits of acme; no stream had to wait.",
        ),
        (OVER, f"The limit of acme was exceeded, for 1 s {AT}; streams that waited got all that was owed."),
        (
            OVER | TWO,
            f"1 of the 2 limits of acme was exceeded, for 1 s {AT}; streams that waited got all that was owed.",
        ),
        (
            SHORT,
            (
                "Nothing passed beyond the limit of acme; "
                f"streams that waited got up to 10 % less than was owed, for 2 s {AT}."
            ),
        ),
        (
            {"entitlement": [entitlement_fact(-0.1, unseen_s=5.1)]},
            (
                "Nothing passed beyond the limit of acme; whether streams that waited got all that was owed is not "
                "known: up to 51 % less than owed in ten seconds would not show."
            ),
        ),
        (
            {"runs": [run_fact(coverage=0.5)]},
            (
                "It is not known whether the limit of acme was kept, and whether streams that waited got all that was "
                "owed: lines of the log are missing, or may be (coverage 50.00 %)."
            ),
        ),
        (
            {"doubts": [doubt_fact()]} | OVER,
            (
                f"The limit of acme was exceeded, for 1 s {AT}; whether streams that waited got all that was owed is "
                "not known: lines about publish topic persistent://acme/orders/new contradict each other."
            ),
        ),
        (
            {"limiters": [limiter_fact(was_limited=False)]},
            "No limit of acme was in force: there was nothing to keep.",
        ),
        (
            {"limiters": [limiter_fact(was_limited=False, mode="observe")]},
            "The limits of acme are only observed: nothing was held or refused.",
        ),
        (
            {"limiters": [limiter_fact(mode="reject", rejected_messages=7, throttled_s=0.0)]},
            "Nothing passed beyond the limit of acme; the surplus of 7 messages was refused.",
        ),
    ],
)
def test_a_tenants_sentence_has_both_verdicts(made_of, text):
    assert sentence("acme", judged(**made_of)) == text
