from compliance.judging.verdict import judge_limiters, roll_up
from tests.compliance.judging.facts_made import (
    containment_fact,
    entitlement_fact,
    facts,
    kept_fact,
    limiter_fact,
    run_fact,
    spells,
)

TOPIC = "persistent://acme/orders/a"


def rolled(*rows, **more):
    limiters = judge_limiters(facts(limiters=list(rows), **more))
    return {(row.scope, row.name): row for row in roll_up(limiters)}


def test_a_tenant_is_as_bad_as_its_worst_limit():
    rows = [limiter_fact(name="a"), limiter_fact(name="b")]
    more = {
        "kept": [kept_fact(name="a"), kept_fact(name="b", over=spells(2.5))],
        "containment": [containment_fact(5.0, name="b")],
    }
    tenant = rolled(*rows, **more)["tenant", "acme"]
    assert (tenant.verdict, tenant.containment, tenant.entitlement) == ("violated", "violated", "compliant")
    assert (tenant.containment_share, tenant.entitlement_share) == (0.75, 1.0)
    assert (tenant.limits, tenant.violated, tenant.worst) == (2, 1, "publish topic b")
    assert (tenant.containment_broken, tenant.entitlement_broken) == (spells(2.5), None)


def test_without_coverage_there_is_no_verdict():
    tenant = rolled(limiter_fact(), runs=[run_fact(coverage=0.5)])["tenant", "acme"]
    assert (tenant.verdict, tenant.coverage) == ("unknown", 0.5)


def test_a_topic_has_the_limits_of_its_producers_and_subscriptions_too():
    rows = rolled(
        limiter_fact(name=TOPIC),
        limiter_fact(level="producer", name=f"odd@name@{TOPIC}"),
        limiter_fact(level="subscription", name=f"s@{TOPIC}", direction="dispatch"),
        limiter_fact(level="namespace", name="acme/orders"),
    )
    assert rows["topic", TOPIC].limits == 3
    assert rows["namespace", "acme/orders"].limits == 4
    assert {name for scope, name in rows if scope == "level"} == {"topic", "producer", "subscription", "namespace"}


def test_a_limit_that_spans_tenants_belongs_to_its_level_only():
    assert set(rolled(limiter_fact(level="role", name="app", tenant="", namespace=""))) == {("level", "role")}


def test_a_name_without_a_limit_in_force_has_no_shares():
    tenant = rolled(limiter_fact(was_limited=False))["tenant", "acme"]
    assert (tenant.verdict, tenant.containment_share, tenant.entitlement_share) == ("no limit", None, None)


def test_the_window_is_that_of_the_limit_that_decides():
    more = {"containment": [containment_fact(5.0, name="b"), containment_fact(-5.0, name="a")]}
    tenant = rolled(limiter_fact(name="a"), limiter_fact(name="b"), **more)["tenant", "acme"]
    worst = containment_fact(5.0)
    assert tenant.worst == "publish topic b"
    assert (tenant.worst_window.start, tenant.worst_window.end) == (worst.start, worst.end)
    assert (tenant.worst_window.first_line, tenant.worst_window.last_line) == (worst.first_line, worst.last_line)


def test_where_only_too_little_passed_that_window_decides():
    short = entitlement_fact(0.5)
    more = {"containment": [containment_fact(-5.0)], "entitlement": [short]}
    assert rolled(limiter_fact(), **more)["tenant", "acme"].worst_window.start == short.start


def test_without_a_judged_window_there_is_none():
    assert rolled(limiter_fact(was_limited=False))["tenant", "acme"].worst_window is None
