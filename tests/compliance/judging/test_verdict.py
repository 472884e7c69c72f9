from datetime import timedelta

import pytest

from compliance.figures.facts import RoleFacts
from compliance.judging.lines import CLOCK_RESOLUTION_S, excess_tolerance
from compliance.judging.verdict import gravest, judge_limiters, judge_overall
from tests.compliance.judging.facts_made import (
    END,
    containment_fact,
    doubt_fact,
    entitlement_fact,
    facts,
    limiter_fact,
    run_fact,
)


def judged(**more):
    (limiter,) = judge_limiters(facts(**more))
    return limiter


def test_nothing_wrong_and_nothing_missing_is_compliant():
    limiter = judged(containment=[containment_fact(-1.0)], entitlement=[entitlement_fact(-0.1)])
    assert (limiter.containment, limiter.entitlement, limiter.shortfall_percent) == ("compliant", "compliant", 0.0)


def test_one_message_too_many_is_a_violation_and_rounding_is_not():
    assert judged(containment=[containment_fact(1.0)]).containment == "violated"
    assert judged(containment=[containment_fact(1e-6)]).containment == "compliant"


def test_an_excess_of_just_what_is_tolerated_is_none():
    assert judged(containment=[containment_fact(excess_tolerance(100.0))]).containment == "compliant"
    assert judged(containment=[containment_fact(excess_tolerance(100.0) + 1e-9)]).containment == "violated"


@pytest.mark.parametrize(
    "run",
    [
        run_fact(coverage=0.999),
        run_fact(missing=1),
        run_fact(coverage=0.0),
        run_fact(is_lossy=True),
        run_fact(is_cut_off=True),
    ],
)
def test_without_full_coverage_nothing_is_compliant(run):
    limiter = judged(runs=[run])
    assert (limiter.containment, limiter.entitlement) == ("unknown", "unknown")
    assert limiter.coverage < 1


def test_of_a_run_beyond_the_table_of_runs_nothing_is_compliant():
    limiter = judged(runs=[run_fact(boot_id="another")], containment=[containment_fact(-1.0)])
    assert (limiter.containment, limiter.entitlement) == ("unknown", "unknown")
    assert judged(runs=[], containment=[containment_fact(5.0)]).containment == "violated"


def test_a_violation_that_was_seen_stands_whatever_is_missing():
    limiter = judged(runs=[run_fact(coverage=0.5)], containment=[containment_fact(5.0)])
    assert (limiter.containment, limiter.entitlement) == ("violated", "unknown")


def test_without_a_limit_there_is_nothing_to_keep():
    limiter = judged(limiters=[limiter_fact(was_limited=False, limit_messages=None)], runs=[run_fact(coverage=0.5)])
    assert (limiter.containment, limiter.entitlement) == ("no limit", "no limit")


def test_the_shortfall_is_that_of_the_worse_of_window_and_whole():
    short = judged(entitlement=[entitlement_fact(0.5)])
    assert (short.entitlement, short.shortfall_percent) == ("violated", pytest.approx(10.0))
    whole = judged(entitlement=[entitlement_fact(-0.5, whole_deficit_s=0.1, whole_served_s=9.8)])
    assert (whole.entitlement, whole.shortfall_percent) == ("violated", pytest.approx(2.0))
    rounding = judged(entitlement=[entitlement_fact(CLOCK_RESOLUTION_S)])
    assert (rounding.entitlement, rounding.shortfall_percent) == ("compliant", 0.0)


@pytest.mark.parametrize(("unseen_s", "verdict"), [(0.5, "compliant"), (0.51, "unknown")])
def test_what_cannot_be_seen_is_said_and_beyond_five_percent_nothing_is_confirmed(unseen_s, verdict):
    limiter = judged(entitlement=[entitlement_fact(-0.1, unseen_s=unseen_s)])
    assert (limiter.unseen_percent, limiter.entitlement) == (pytest.approx(10 * unseen_s), verdict)
    assert judged().unseen_percent is None


@pytest.mark.parametrize(("still_s", "verdict"), [(0.1, "compliant"), (0.11, "unknown")])
def test_what_those_got_who_waited_while_the_proxy_stood_still_is_not_known(still_s, verdict):
    limiter = judged(entitlement=[entitlement_fact(-0.1, still_s=still_s)])
    assert (limiter.containment, limiter.entitlement) == ("compliant", verdict)
    assert judged(entitlement=[entitlement_fact(0.1, still_s=still_s)]).entitlement == "violated"


def test_what_contradicts_itself_is_not_known():
    limiter = judged(doubts=[doubt_fact()])
    assert (limiter.containment, limiter.entitlement) == ("unknown", "unknown")
    assert judged(doubts=[doubt_fact()], containment=[containment_fact(5.0)]).containment == "violated"


@pytest.mark.parametrize("fields", [{"malformed": 1}, {"conflicts": 1}, {"newer": 1}, {"has_tail": True}])
def test_lines_that_cannot_be_read_may_be_of_any_limit_of_their_run(fields):
    limiter = judged(runs=[run_fact(**fields)])
    assert (limiter.containment, limiter.entitlement) == ("unknown", "unknown")


def test_runs_of_one_proxy_are_one_limiter_and_the_worst_counts():
    runs = [run_fact(), run_fact(boot_id="b2")]
    limiters = [limiter_fact(), limiter_fact(boot_id="b2", last=END + timedelta(hours=1), limit_messages=7.0)]
    limiter = judged(
        runs=runs, limiters=limiters, containment=[containment_fact(-5.0), containment_fact(9.0, boot_id="b2")]
    )
    assert (limiter.containment, limiter.limit_messages, limiter.passed_messages) == ("violated", 7.0, 2000)
    assert limiter.worst_containment.boot_id == "b2"


def test_the_whole_is_unknown_without_a_line():
    assert judge_overall(facts(runs=[], limiters=[]), []).verdict == "unknown"


def test_missing_lines_may_be_of_any_limit():
    whole, torn = facts(), facts(runs=[run_fact(), run_fact(proxy_id="q", missing=1)])
    assert [judge_overall(log_facts, judge_limiters(log_facts)).verdict for log_facts in (whole, torn)] == [
        "compliant",
        "unknown",
    ]
    assert judge_overall(torn, []).verdict == "no limit"
    beyond = facts(runs=torn.runs, left_out={"limiters": 1})
    assert judge_overall(beyond, []).verdict == "unknown"


def test_the_whole_is_complete_up_to_what_the_slowest_proxy_has():
    early = END - timedelta(seconds=5)
    ahead = run_fact(boot_id="b0", last=END + timedelta(days=2), complete_up_to=END + timedelta(days=2))
    runs = [
        ahead,
        run_fact(boot_id="b2", complete_up_to=early, ended=False),
        run_fact(proxy_id="q", complete_up_to=END),
    ]
    assert judge_overall(facts(runs=runs, limiters=[]), []).complete_up_to == early
    mute = run_fact(proxy_id="r", complete_up_to=None, ended=False)
    assert judge_overall(facts(runs=[*runs, mute], limiters=[]), []).complete_up_to is None


def test_one_violation_outweighs_everything():
    assert gravest(["compliant", "no limit", "unknown", "violated"]) == "violated"
    assert gravest(["compliant", "no limit", "unknown"]) == "unknown"
    assert gravest(["compliant", "no limit"]) == "compliant"
    assert gravest([]) == "no limit"


def test_the_gravest_limiter_comes_first():
    limiters = [limiter_fact(name="a"), limiter_fact(name="b")]
    order = judge_limiters(facts(limiters=limiters, containment=[containment_fact(5.0, name="b")]))
    assert [limiter.name for limiter in order] == ["b", "a"]


def test_of_violations_the_one_by_more_of_its_limit_comes_first():
    over = [containment_fact(30.0, name="a", limit=1000.0), containment_fact(20.0, name="b"), containment_fact(-9.0)]
    names = ("a", "b", "c", "d")
    limiters = [limiter_fact(name=name, throttled_s=float(place)) for place, name in enumerate(names)]
    short = [entitlement_fact(0.1, name="c")]
    order = judge_limiters(facts(limiters=limiters, containment=over, entitlement=short))
    assert [limiter.name for limiter in order] == ["b", "c", "a", "d"]
    assert [limiter.severity_s for limiter in order] == pytest.approx([0.2, 0.1, 0.03, 0])


@pytest.mark.parametrize(
    ("is_proved", "is_claimed", "proof"), [(True, False, "proved"), (False, True, "claimed"), (True, True, "mixed")]
)
def test_a_role_s_limit_says_how_clients_came_by_the_role(is_proved, is_claimed, proof):
    """Of that proxy and direction; other limits of the name, and roles of which no line tells, say nothing."""
    role = RoleFacts(proxy_id="p", direction="publish", name="billing", is_proved=is_proved, is_claimed=is_claimed)
    limiters = [
        limiter_fact(level=level, direction=direction, name=name)
        for level, direction, name in (
            ("role", "publish", "billing"),
            ("role", "dispatch", "billing"),
            ("role", "publish", "other"),
            ("producer", "publish", "billing"),
        )
    ]
    verdicts = judge_limiters(facts(limiters=limiters, roles=[role]))
    assert {(verdict.level, verdict.direction, verdict.name): verdict.role_proof for verdict in verdicts} == {
        ("role", "publish", "billing"): proof,
        ("role", "dispatch", "billing"): "",
        ("role", "publish", "other"): "",
        ("producer", "publish", "billing"): "",
    }
