from typing import Any

import pytest

from compliance.figures.facts import DemandFacts, FairnessFacts, HeadroomFacts, ImpactFacts, ObservedFacts
from compliance.report.impact import failed, sufficing
from compliance.report.page import render, tenant_pages
from compliance.report.report import make_report
from tests.compliance.judging.facts_made import END, containment_fact, facts, limiter_fact
from tests.compliance.planted import BEGIN, TOPIC

ALL: dict[str, Any] = dict.fromkeys(("tenant", "level", "name", "topic", "client"))
LIMIT = {"tenant": "acme", "level": "topic", "name": TOPIC}
CLIENT = LIMIT | {"topic": TOPIC, "client": "shop-1"}
LATE: dict[str, Any] = {"passed_messages": 100, "late_messages": 90, "hist": [*[0] * 60, 90], "delay_max_ms": 40_000.0}
LATE |= {"throttled_s": 60.0, "first": BEGIN, "last": END, "worst_at": BEGIN}
REFUSED: dict[str, Any] = {"rejected_messages": 60, "first": BEGIN, "last": END, "worst_at": BEGIN}


def impact_fact(**more):
    counts = dict.fromkeys(("dropped_messages", "rejected_messages", "late_messages"), 0)
    values: dict[str, Any] = {"direction": "publish", "offered_messages": 120, "passed_messages": 60, "hist": []}
    values |= {"delay_max_ms": 0.0, "throttled_s": 0.0, "first": None, "last": None, "worst_at": None}
    return ImpactFacts(**(ALL | counts | values | {"would_throttle_s": 0.0, "would_delay_max_ms": 0.0} | more))


def hurt(impact, **more):
    """The same impact in all, on the tenant, at the limit and on the client."""
    return [impact_fact(**impact, **of, **more) for of in ({}, {"tenant": "acme"}, LIMIT, CLIENT)]


def demand(messages):
    key = {"proxy_id": "p", "direction": "publish", "level": "topic", "name": TOPIC}
    return DemandFacts(**key, messages_per_s=messages, bytes_per_s=1.0)


def report_on(**more):
    return make_report(facts(**more))


def test_kept_limits_are_not_plainly_green_where_sends_failed():
    report = report_on(impacts=hurt(LATE), demands=[demand(312.0)])
    assert (report.overall.verdict, report.answers.is_hurt) == ("compliant", True)
    assert report.headline == "All limits were kept, but 90 messages waited longer than 30 s"
    page = render(report)
    assert '<header class="hurt">' in page
    assert '<header class="compliant">' in render(report_on(impacts=[impact_fact(), impact_fact(tenant="acme")]))
    (own,) = tenant_pages(report).values()
    assert '<header class="hurt">' in own


def test_summary_names_tenant_amount_time_limit_and_remedy():
    summary = report_on(impacts=hurt(LATE), demands=[demand(312.0)]).answers.summary
    assert summary == (
        "Tenant acme: 90 of 120 messages waited longer than 30 s, 2026-11-21 11:29:00 to 11:29:10 UTC, "
        f"by the publish limit of topic {TOPIC} (100 messages/s); enough would have been at least 320 messages/s."
    )


def test_next_step_names_the_producer_that_sends_most():
    quiet = impact_fact(**{**CLIENT, "client": "shop-2", "offered_messages": 6})
    report = report_on(
        impacts=[
            *hurt(
                LATE,
            ),
            quiet,
        ],
        demands=[demand(312.0)],
    )
    assert "Or let producer shop-1 (100 % of what came) send less." in report.answers.next_steps[0]


def test_refused_messages_are_refused_and_did_not_wait():
    limiter = limiter_fact(mode="reject", rejected_messages=60, throttled_s=0.0)
    report = report_on(limiters=[limiter], impacts=hurt(REFUSED), demands=[demand(150.0)])
    assert report.headline == "All limits were kept, but 60 messages were refused"
    (limit,) = report.answers.limits
    assert (limit.mode, limit.late_messages, sufficing(limit)) == ("reject", 0, "150 messages/s")
    assert "Or let messages wait: mode enforce." in report.answers.next_steps[0]


def test_both_waits_and_refusals_are_counted():
    (row, *_) = report_on(impacts=hurt(LATE | {"rejected_messages": 1})).answers.totals
    assert failed(row) == "90 messages waited longer than 30 s and 1 was refused"


def test_late_deliveries_to_consumers_fail_no_send():
    report = report_on(impacts=hurt(LATE, direction="dispatch"))
    assert not report.answers.is_hurt
    assert report.headline == "All limits were kept, and no stream got less than owed"


@pytest.mark.parametrize(
    ("asked", "impact", "enough"),
    [
        (312.0, LATE, "at least 320 messages/s"),
        (90.0, LATE, "more than it is; how much is not in the log, as clients that wait send less"),
        (90.0, REFUSED, "the same rate with a larger burst"),
        (90.0, {"throttled_s": 3.0, "first": BEGIN, "last": END}, ""),
    ],
)
def test_limit_that_would_have_sufficed_is_of_the_fullest_time(asked, impact, enough):
    (limit,) = report_on(impacts=hurt(impact), demands=[demand(asked)]).answers.limits
    assert sufficing(limit) == enough


def test_demand_of_each_proxy_counts_where_limit_is_not_shared():
    two = [demand(312.0), demand(480.0)]
    (limit,) = report_on(impacts=hurt(LATE), demands=two).answers.limits
    assert limit.suffices_messages == 480.0


def test_waits_are_those_of_all_messages_held_or_not():
    half = {**LATE, "hist": [*[0] * 60, 40], "late_messages": 40}
    (row, *_) = report_on(impacts=hurt(half)).answers.totals
    assert (row.p50_ms, row.p99_ms, row.longest_ms) == (0.0, 32_768.0, 40_000.0)
    (row, *_) = report_on(impacts=hurt(LATE)).answers.totals
    assert row.p50_ms == 32_768.0


def test_observed_limit_held_nothing_and_says_what_it_would_hold():
    key: dict[str, Any] = {"direction": "publish", "tenant": "acme", "level": "topic", "name": TOPIC}
    values: dict[str, Any] = {"limit_messages": 20.0, "limit_bytes": None, "observed_s": 100.0, "first": BEGIN}
    row = ObservedFacts(**key, **values, would_throttle_s=80.0)
    report = report_on(limiters=[limiter_fact(mode="observe", was_limited=False)], observed=[row])
    assert "1 limit only observed: nothing was held." in report.sentence
    assert "Nothing was held. Enforced, it would have held messages for 80 s of 100 s." in render(report)
    assert "raise it: it would have held messages for 80 % of its time." in report.answers.next_steps[0]


def test_page_of_a_tenant_has_its_own_impact_only():
    other = {"tenant": "zeta", "level": "topic", "name": "persistent://zeta/a/b"}
    rows = [*hurt(LATE), impact_fact(**REFUSED, tenant="zeta"), impact_fact(**REFUSED, **other)]
    limiters = [limiter_fact(), limiter_fact(tenant="zeta", name=other["name"])]
    pages = tenant_pages(report_on(impacts=rows, limiters=limiters))
    assert "zeta" not in pages["tenants/acme.html"]
    assert "shop-1" in pages["tenants/acme.html"]
    assert "acme" not in pages["tenants/zeta.html"]
    assert "60 of 120 messages were refused" in pages["tenants/zeta.html"]


def test_violation_stays_the_headline_where_sends_failed_too():
    report = report_on(impacts=hurt(LATE), containment=[containment_fact(5.0)])
    assert report.headline == "1 limit exceeded"
    page = render(report)
    assert '<header class="violated">' in page
    assert report.answers.summary in page


def test_first_screen_has_the_worst_and_folds_away_the_rest():
    names = [f"t{number}" for number in range(6)]
    more = [impact_fact(**LATE, **LIMIT | {"tenant": name, "name": name}) for name in names]
    rows = [impact_fact(**LATE), *(impact_fact(**LATE, tenant=name) for name in names), *more]
    page = render(report_on(impacts=rows))
    assert "<summary>4 more hurt tenants</summary>" in page
    assert "<summary>4 more limits with failed sends</summary>" in page
    assert "4 more tenants had failed sends." in page


def fairness_fact(member, wanted):
    key: dict[str, Any] = {"proxy_id": "p", "direction": "publish", "level": "tenant", "name": "acme"}
    shares = {"member": member, "unit": "messages", "contended_s": 60.0, "got": 50.0, "wanted": wanted, "fair": 50.0}
    return FairnessFacts(**key, **shares)


def test_member_that_makes_others_wait_is_named():
    rows = [fairness_fact("acme/loud", 500.0), fairness_fact("acme/calm", 50.0)]
    (step,) = report_on(fairness=rows).answers.next_steps
    assert step == (
        "Give acme/loud a limit of its own within tenant acme: 1 other in the same limit asked for no more than a fair "
        "share and waited too."
    )
    both = [fairness_fact("acme/loud", 500.0), fairness_fact("acme/louder", 600.0)]
    assert report_on(fairness=both).answers.next_steps == []


def headroom_fact(name, peak, near_steps=0):
    key: dict[str, Any] = {"proxy_id": "p", "direction": "publish", "level": "topic", "name": name}
    use = {"steps": 9, "near_steps": near_steps, "peak": peak, "peak_at": BEGIN, "typical": peak, "days": 1}
    return HeadroomFacts(**key, **use, slope=None, slope_error=None, now=None)


def test_limits_that_are_near_or_hardly_used_are_next_steps():
    use = [
        headroom_fact("near", 0.9, near_steps=2),
        headroom_fact(TOPIC, 1.0, near_steps=9),
        headroom_fact("idle", 0.1),
    ]
    steps = report_on(headroom=use, impacts=hurt(LATE)).answers.next_steps
    assert steps[1:] == [
        "Watch 1 limit near the limit without a wait: near.",
        "1 limit never had more than 20 % in use: lower ones would do.",
    ]


def test_tenant_that_publishes_and_consumes_is_one():
    short = {"delay_max_ms": 900.0, "throttled_s": 1.0, "first": BEGIN, "last": END}
    rows = [impact_fact(**short, direction=way, tenant="acme") for way in ("publish", "dispatch")]
    assert "<summary>1 tenant with shorter waits</summary>" in render(report_on(impacts=rows))


def test_half_without_a_wait_is_at_once():
    half = {**LATE, "hist": [*[0] * 60, 40]}
    assert "half at once, 99 % under 32.8 s" in render(report_on(impacts=hurt(half)))
