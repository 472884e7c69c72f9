"""What fleets passed together, in the report's files."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from compliance.figures.facts import FleetRateFacts, HeadroomFacts
from compliance.figures.what_if import Proposal
from compliance.judging.facts import CutOffMember, FleetGapFacts, FleetSumFacts
from compliance.report.page import render, report_json, sum_charts, tables, tenant_pages
from compliance.report.report import fleet_lines, make_report
from compliance.report.subjects import charted_sums, sum_subjects
from tests.compliance.judging.facts_made import END, containment_fact, facts, limiter_fact, run_fact, topic_fact
from tests.compliance.judging.test_fleets import IN_FRONT, member, one_sum
from tests.compliance.planted import BEGIN, PlantedLog
from tests.compliance.report.test_page import rate_fact
from tests.compliance.report.test_sections import replay


def a_sum(passed: int, **more: Any) -> FleetSumFacts:
    """Of two members, and of a proxy beside them."""
    outside = PlantedLog(proxy_id="c", topic="t", second=1)
    outside.limit(100)
    sum_: FleetSumFacts = one_sum([member("a", [passed] * 3, 0.5), member("b", [passed] * 3, 0.5), outside], IN_FRONT)
    changed: FleetSumFacts = msgspec.structs.replace(sum_, **more)
    return changed


def headroom_fact(**more: Any) -> HeadroomFacts:
    values: dict[str, Any] = {"direction": "publish", "level": "topic", "name": "t", "steps": 10, "near_steps": 3}
    peaks: dict[str, Any] = {"peak": 0.9, "peak_at": BEGIN, "typical": 0.5, "days": 1}
    trend: dict[str, Any] = dict.fromkeys(("slope", "slope_error", "now"))
    return HeadroomFacts(**(values | peaks | trend | more))


def report_of(**more: Any) -> Any:
    runs = [run_fact(proxy_id=name, boot_id="boot-1") for name in "ab"]
    return make_report(facts(**({"runs": runs} | more)))


def test_the_sum_is_in_the_verdict_the_page_the_json_the_tables_and_the_terminal():
    made = report_of(fleet_sums=[a_sum(90), a_sum(50, name="u", unit="bytes")])
    assert (made.overall.verdict, made.fleets.verdict) == ("violated", "violated")
    assert made.headline == "1 limit exceeded by a fleet together"
    assert made.sentence.endswith("Concerned: t.")
    assert [sum_.verdict for sum_ in made.fleets.sums] == ["violated", "held"]
    html = render(made)
    assert '<a href="#fleets">Fleets</a>' in html
    assert '<b aria-hidden="true">✗</b> violated' in html
    assert '<b aria-hidden="true">✓</b> held' in html
    text = "c has publish topic t and 1 limit more to itself beside fleet front"
    assert text in html
    assert json.loads(report_json(made))["fleets"]["sums"][0]["excess"] == pytest.approx(540 - 322.5001)
    made_tables = tables(made)
    assert made_tables["fleets.csv"].count("\n") == 3
    assert made_tables["fleets-outside.csv"].splitlines()[1].startswith("front,publish,topic,t,messages,c,")
    first, worst, outside = fleet_lines(made.fleets)
    assert first == "fleets: the sum of 2 shared limits: 1 held, 1 violated"
    assert "fleet front, publish topic t: 540 messages passed" in worst
    assert "for 3 s, 323 allowed; clocks that differ by 2.27 s would explain it" in worst
    assert outside == f"{text}: give it `fleet: {{name: front}}` as the others have it"


def test_a_log_without_a_fleet_has_no_section_and_no_line():
    made = report_of()
    assert (made.fleets.verdict, fleet_lines(made.fleets)) == (None, [])
    assert "#fleets" not in render(made)
    assert not [name for name in tables(made) if name.startswith("fleets")]


def test_members_without_a_log_leave_all_unknown_and_are_named():
    gap = FleetGapFacts(fleet="front", at=END, members=4, logs=2)
    made = report_of(fleet_sums=[a_sum(50)], fleet_gaps=[gap])
    assert made.overall.verdict == "unknown"
    assert "what a fleet passed together is not known for 1 limit (the fleet had 4 members at 11:29:10" in made.sentence
    assert "had 4 members at 2026-11-21 11:29:10 UTC, and there are logs of 2 proxies" in render(made)


def test_who_was_cut_off_is_told_with_what_it_kept_and_of_many_some():
    away = [CutOffMember(proxy_id=f"p{n:02}", seconds=3.0, share=0.025, passed=7) for n in range(12)]
    made = report_of(fleet_sums=[a_sum(50, cut_off=away, outside=[])])
    text = "p00 was cut off from fleet front for 3 s. It kept 2.50 % of a limit at most"
    lines = fleet_lines(made.fleets)
    assert (len(lines), lines[-1]) == (12, "and 2 more proxies like it")
    assert lines[1].startswith(text)
    assert text in render(made)
    assert tables(made)["fleets-cut-off.csv"].count("\n") == 13


def test_a_sum_has_a_chart_of_its_unit_and_rates_of_its_own():
    of_bytes = {"passed_bytes": 500.0, "limit_bytes": 1000.0, "burst_bytes": 100.0}
    begun = int(BEGIN.timestamp())
    steps = [rate_fact(proxy_id="", step=begun + place, limit_messages=100.0, **of_bytes) for place in range(9)]
    rates = [
        FleetRateFacts(**msgspec.structs.asdict(step), fleet=fleet) for fleet in ("back", "front") for step in steps
    ]
    over, held = a_sum(90), a_sum(50, fleet="back", unit="bytes")
    made = report_of(fleet_sums=[held, a_sum(50, unit="bytes"), over], fleet_rates=rates, rates=[rate_fact()])
    assert [(sum_.fleet, sum_.unit) for sum_ in charted_sums(made.fleets.sums)] == [
        ("front", "messages"),
        ("back", "bytes"),
    ]
    [(first, of_over), (second, of_held)] = sum_charts(made.fleets)
    assert (first.fleet, of_over.unit, of_over.step_s, second.fleet, of_held.unit) == (
        "front",
        "messages",
        1,
        "back",
        "bytes",
    )
    assert of_held.description.endswith("passed at most 500 bytes/s, limit at most 1k bytes/s.")
    assert ("worst" in of_over.svg, "worst" in of_held.svg) == (True, False)
    html = render(made)
    assert html.count("all members of fleet front · steps of 1 s</small>") == 1
    assert html.count("publish · topic · p · steps of 1 s</small>") == 1
    exported = json.loads(report_json(made))
    assert ({row["fleet"] for row in exported["fleets"]["rates"]}, len(exported["rates"])) == ({"back", "front"}, 1)
    made_tables = tables(made)
    assert "fleet" not in made_tables["rates.csv"].splitlines()[0]
    assert (made_tables["fleets-rates.csv"].splitlines()[1][:17], made_tables["fleets-rates.csv"].count("\n")) == (
        ",publish,topic,t,",
        19,
    )


def test_at_most_six_limits_have_charts_of_their_sums_and_long_ones_a_close_up():
    sums = [a_sum(50, name=f"t{number}") for number in range(7)]
    [long, *others] = report_of(fleet_sums=[a_sum(90, name="t", last=BEGIN + timedelta(hours=1)), *sums]).fleets.sums
    assert [sum_.name for sum_ in charted_sums([long, *others])] == ["t", "t0", "t1", "t2", "t3", "t4"]
    views = [
        (subject.fleet, subject.first, subject.last - long.end, subject.step_s) for subject in sum_subjects([long])
    ]
    assert views == [
        ("front", BEGIN, timedelta(hours=1, seconds=-3), 30),
        ("front", BEGIN, timedelta(seconds=120), 1),
    ]


def test_the_headroom_of_a_shared_limit_names_the_fleet_and_no_proxy():
    rows = [headroom_fact(proxy_id="", fleet="front", members=4), headroom_fact(proxy_id="", members=1)]
    made = report_of(fleet_sums=[a_sum(50)], headroom=[*rows, headroom_fact(proxy_id="p")])
    html = render(made)
    assert "publish · topic · fleet front, 4 members</small>" in html
    assert "publish · topic · a fleet, 1 member</small>" in html
    assert "publish · topic · p</small>" in html
    assert "A limit that a fleet shares is one row" in html
    assert "A limit that a fleet shares is one row" not in render(report_of(headroom=[headroom_fact(proxy_id="p")]))
    lines = tables(made)["headroom.csv"].splitlines()
    assert lines[0].startswith("proxy_id,direction,level,name,fleet,members,near_s")
    assert lines[1].startswith(",publish,topic,t,front,4,")


def test_what_if_names_the_fleet_that_would_share_the_limit():
    rows = [replay(proxy_id="", fleet="front", members=4), replay()]
    made = report_of(fleet_sums=[a_sum(50)], replays=rows, proposals=[Proposal(level="topic", messages=1.0)])
    html = render(made)
    together = "the members of a fleet are replayed together, as one limit that they share"
    assert ("publish · topic · fleet front, 4 members</small>" in html, together in html) == (True, True)
    lines = tables(made)["what-if.csv"].splitlines()
    assert lines[0].startswith("proxy_id,direction,level,name,fleet,members,proposed_level")
    assert sorted(line[:24] for line in lines[1:]) == [",publish,topic,t,front,4", "p,publish,topic,t,,0,top"]
    alone = report_of(replays=rows[1:], proposals=[Proposal(level="topic", messages=1.0)])
    assert together not in render(alone)


def test_a_member_s_limit_is_told_to_be_a_share_on_the_page_and_on_the_tenant_s():
    shared = limiter_fact(limit_messages=50.0, shared_messages=100.0, is_shared=True)
    made = report_of(fleet_sums=[a_sum(50)], limiters=[shared], containment=[containment_fact(5.0)])
    share = "50 messages/s<small>its last share of 100 messages/s, which a fleet holds together</small>"
    [tenants_page] = tenant_pages(made).values()
    html = render(made)
    assert (share in html, share in tenants_page) == (True, True)
    assert "limit of 50 messages/s, a share of 100 messages/s, proxy p" in html
    alone = report_of(limiters=[limiter_fact()])
    [page_alone] = tenant_pages(alone).values()
    assert ("last share of" in render(alone), "last share of" in page_alone) == (False, False)


OF_MEMBERS = (
    "a chart shows one member and its share",
    "Or a fleet shares it",
    "Each proxy is looked at by itself",
    "the share of the proxy that wrote last",
)


def test_sections_on_single_members_say_so_in_a_fleet():
    more = {"topics": [topic_fact()], "rates": [rate_fact()], "proposals": [Proposal(level="topic", messages=1.0)]}
    html, alone = render(report_of(fleet_sums=[a_sum(50)], **more)), render(report_of(**more))
    assert [text in html for text in OF_MEMBERS] == [True] * len(OF_MEMBERS)
    assert [text in alone for text in OF_MEMBERS] == [False] * len(OF_MEMBERS)
