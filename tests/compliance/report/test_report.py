from datetime import timedelta

import pytest

from compliance.judging.facts import QuarantineFacts
from compliance.report.report import make_report
from compliance.report.subjects import clock
from tests.compliance.judging.facts_made import (
    END,
    containment_fact,
    entitlement_fact,
    facts,
    limiter_fact,
    run_fact,
    standstill_fact,
)
from tests.compliance.planted import BEGIN


@pytest.mark.parametrize(
    ("made_of", "headline"),
    [
        ({}, "All limits were kept, and no stream got less than owed"),
        ({"runs": [run_fact(coverage=0.5)]}, "No violation seen, but the log is not complete"),
        ({"runs": [run_fact(is_cut_off=True)]}, "No violation seen, but the log is not complete"),
        # A proxy without limits: what is missing of it might be of one.
        ({"runs": [run_fact(), run_fact(proxy_id="q", missing=1)]}, "No violation seen, but the log is not complete"),
        ({"containment": [containment_fact(5.0)]}, "1 limit exceeded"),
        ({"entitlement": [entitlement_fact(0.5)]}, "1 limit throttled below its rate"),
        ({"limiters": []}, "No limits in force"),
        ({"limiters": [limiter_fact(was_limited=False)]}, "No limits in force"),
        ({"runs": [], "limiters": []}, "Nothing to judge"),
    ],
)
def test_the_headline_says_it_all(made_of, headline):
    assert make_report(facts(**made_of)).headline == headline


def test_the_sentence_names_three_and_counts_the_rest():
    names = [f"t{number}" for number in range(5)]
    report = make_report(
        facts(
            limiters=[limiter_fact(name=name) for name in names],
            containment=[containment_fact(5.0, name=name) for name in names],
        )
    )
    assert report.sentence == "Of 5 limits judged. Concerned: t0, t1, t2 and 2 more."


def test_beside_a_violation_what_is_not_known_is_told():
    report = make_report(
        facts(
            limiters=[limiter_fact(name="t")],
            containment=[containment_fact(5.0, name="t")],
            quarantine=[QuarantineFacts(file="a.jsonl", reason="torn", lines=2, example="{")],
        )
    )
    assert report.headline == "1 limit exceeded"
    assert report.sentence == ("Of 1 limit judged. Concerned: t. Also, not all is known: 2 lines malformed (torn).")


def test_the_worst_is_named_first():
    names = ["a", "b", "c"]
    over = [containment_fact(float(place), name=name) for place, name in enumerate(names, 1)]
    report = make_report(facts(limiters=[limiter_fact(name=name) for name in names], containment=over))
    assert report.sentence == "Of 3 limits judged. Concerned: c, b, a."


def test_who_fell_silent_is_named_beside_the_verdict():
    runs = [run_fact(ended=False, is_cut_off=True), run_fact(proxy_id="q", last=END + timedelta(minutes=2))]
    report = make_report(facts(runs=runs))
    assert report.overall.verdict == "unknown"
    assert (
        "99.99 % in the least covered of 2 runs, and p fell silent without an orderly end, and missing lines might"
        in report.sentence
    )


def test_a_standstill_is_named_once_for_all_limits_waited_on():
    names = ["a", "b", "c"]
    waited = [entitlement_fact(-0.1, name=name, still_s=3.0) for name in names[:2]]
    still = [standstill_fact(3.0), standstill_fact(0.6, start=END)]
    report = make_report(
        facts(limiters=[limiter_fact(name=name) for name in names], entitlement=waited, standstills=still)
    )
    assert report.sentence == (
        f"p stood still for 3 s at {clock(BEGIN)}, the longest of 2 times, while a stream waited on 2 limits: "
        "so nothing is confirmed."
    )
    assert [limiter.entitlement for limiter in report.limiters] == ["unknown", "unknown", "compliant"]


def test_what_is_missing_is_summed_up():
    report = make_report(facts(runs=[run_fact(missing=2, duplicates=1), run_fact(boot_id="b2", missing=3, lines=4)]))
    assert (report.quality.lines, report.quality.missing, report.quality.duplicates) == (14, 5, 1)


def test_a_proxy_that_stops_a_minute_early_is_silent():
    later, far = END + timedelta(minutes=1), END + timedelta(days=9)
    runs = [run_fact(ended=False), run_fact(proxy_id="q", last=later, ended=False), run_fact(proxy_id="r")]
    assert make_report(facts(runs=runs)).quality.silent == ["p"]
    ahead = run_fact(proxy_id="q", boot_id="b0", first=far, last=far)
    report = make_report(facts(runs=[*runs, ahead]))
    assert report.quality.silent == ["p"]
    assert [event.proxy_id for event in report.events if event.kind == "silence"] == ["p", "q"]
