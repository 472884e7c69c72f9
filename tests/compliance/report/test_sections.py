"""What the sections are made of."""

import random
from datetime import timedelta
from typing import Any

import pytest

from accesslog.record import BUCKETS, upper_bound_ms
from compliance.figures.facts import (
    BurnFacts,
    ChangeFacts,
    DelayFacts,
    FairnessFacts,
    HeadroomFacts,
    LossFacts,
    ReplayFacts,
)
from compliance.figures.what_if import Proposal
from compliance.judging.facts import GapFacts
from compliance.report.sections import (
    added,
    burns,
    by_reason,
    days_until,
    delays,
    headrooms,
    jain,
    percentile_ms,
    shared_limits,
    t_of_95,
    timeline,
    unmatched,
    what_ifs,
)
from tests.compliance.judging.facts_made import END, FIRST_LINE, run_fact
from tests.compliance.planted import BEGIN


def delay_fact(**more):
    values: dict[str, Any] = {
        "tenant": "t",
        "namespace": "n",
        "topic": "a",
        "direction": "publish",
        "reason": "",
        "delay_sum_ms": 0.0,
    }
    return DelayFacts(**(values | {"passed_messages": 10, "held_messages": 0, "delay_max_ms": 0.0, "hist": []} | more))


def histogram(samples):
    counts = [0] * BUCKETS
    for sample in samples:
        bounds = (upper_bound_ms(bucket) for bucket in range(BUCKETS - 1))
        counts[next((place for place, bound in enumerate(bounds) if bound and sample < bound), BUCKETS - 1)] += 1
    return counts


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_a_percentile_of_merged_histograms_is_that_of_all_samples_to_a_quarter(share):
    chance = random.Random(3)
    parts = [[chance.lognormvariate(4, 2) for _ in range(chance.randrange(1, 900))] for _ in range(9)]
    everything = sorted(sample for part in parts for sample in part)
    truth = everything[max(0, -(-int(share * 1e6 * len(everything)) // 1_000_000) - 1)]
    percentile = percentile_ms(added(map(histogram, parts)), share, max(everything))
    assert percentile is not None
    assert truth <= percentile <= max(1.25 * truth, truth + 1)


def test_no_percentile_is_above_the_longest_delay():
    assert percentile_ms([0] * 20 + [5], 0.99, 31.0) == 31.0
    assert percentile_ms([0] * 65 + [5], 0.5, 90_000.0) == 90_000.0


def test_where_nothing_was_held_there_is_no_percentile():
    assert percentile_ms([], 0.5, 0.0) is None
    assert delays([delay_fact()])[0].p99_ms is None


def test_all_levels_together_come_first():
    topic = delay_fact(reason="topic", hist=[0, 0, 4], held_messages=4, delay_sum_ms=6.0, delay_max_ms=1.7)
    tenant = delay_fact(reason="tenant", hist=[4], held_messages=4, delay_sum_ms=2.0, delay_max_ms=0.9)
    rows = by_reason([tenant, topic, delay_fact()])
    assert [(row.reason, row.held_messages, row.mean_ms) for row in rows] == [
        ("", 8, 1),
        ("topic", 4, 1.5),
        ("tenant", 4, 0.5),
    ]
    assert (rows[0].passed_messages, rows[0].max_ms) == (30, 1.7)


def test_a_direction_in_which_nothing_was_held_is_left_out():
    assert by_reason([delay_fact(direction="dispatch")]) == []


def share_fact(member, got, fair, **more):
    values: dict[str, Any] = {
        "proxy_id": "p",
        "direction": "publish",
        "level": "namespace",
        "name": "acme/orders",
        "unit": "messages",
    }
    return FairnessFacts(
        **(values | {"member": member, "contended_s": 60.0, "got": got, "wanted": 900.0, "fair": fair} | more)
    )


def test_jains_index_is_one_for_equals_and_one_nth_for_a_monopoly():
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)


def test_the_gap_is_what_the_worst_off_lacks_of_its_share():
    (limit,) = shared_limits([share_fact("a", 90.0, 50.0), share_fact("b", 10.0, 50.0)])
    assert limit.worst_off == "b"
    assert limit.gap == pytest.approx(0.8)
    assert [member.member for member in limit.members] == ["b", "a"]
    assert limit.jain == pytest.approx(1 / (2 * (0.9**2 + 0.1**2)))


def test_different_demands_that_are_met_by_their_shares_are_fair():
    (limit,) = shared_limits([share_fact("a", 90.0, 90.0), share_fact("b", 10.0, 10.0)])
    assert limit.jain == pytest.approx(1)
    assert limit.gap == 0


def test_a_limit_of_one_member_shares_nothing():
    assert shared_limits([share_fact("a", 90.0, 50.0), share_fact("b", 0.0, 0.0, wanted=0.0)]) == []


def test_the_unfairest_limit_comes_first():
    rows = [share_fact(member, 50.0, 50.0) for member in "ab"] + [
        share_fact("c", 1.0, 50.0, name="z"),
        share_fact("d", 99.0, 50.0, name="z"),
    ]
    assert [limit.name for limit in shared_limits(rows)] == ["z", "acme/orders"]


def headroom(**more):
    values: dict[str, Any] = {
        "proxy_id": "p",
        "direction": "publish",
        "level": "topic",
        "name": "t",
        "steps": 100,
        "near_steps": 3,
    }
    peaks: dict[str, Any] = {
        "peak": 0.9,
        "peak_at": BEGIN,
        "typical": 0.5,
        "days": 10,
        "slope": 0.01,
        "slope_error": 0.002,
        "now": 0.8,
    }
    (row,) = headrooms([HeadroomFacts(**(values | peaks | more))])
    return row


def test_less_than_a_week_says_nothing_of_where_it_is_going():
    row = headroom(days=6)
    assert (row.outlook, row.per_day, row.days_left) == ("too little data", None, None)


def test_a_rise_has_a_date_and_an_interval():
    row = headroom()
    half = 2.31 * 0.002
    assert (row.outlook, row.days_left) == ("rising", pytest.approx(20))
    assert (row.per_day_low, row.per_day_high) == (pytest.approx(0.01 - half), pytest.approx(0.01 + half))
    assert (row.days_left_low, row.days_left_high) == (
        pytest.approx(0.2 / (0.01 + half)),
        pytest.approx(0.2 / (0.01 - half)),
    )


@pytest.mark.parametrize(
    ("more", "outlook"),
    [
        ({"slope_error": 0.02}, "no clear trend"),
        ({"slope": -0.01}, "falling"),
        ({"now": 1.02}, "at the limit"),
    ],
)
def test_no_date_is_given_where_there_is_no_clear_rise(more, outlook):
    row = headroom(**more)
    assert (row.outlook, row.days_left) == (outlook, None)


def test_what_is_farther_than_a_year_has_no_date():
    assert days_until(0.5, 0.001) is None
    assert days_until(0.5, 0.01) == 50
    assert days_until(1.2, 0.01) == 0


def test_students_t_falls_towards_the_normal_two():
    assert [t_of_95(freedom) for freedom in (1, 5, 20, 21, 500)] == [12.71, 2.57, 2.09, 2.05, 2.05]


def test_what_is_left_is_what_the_fullest_moment_left():
    assert headroom().left == pytest.approx(0.1)
    assert headroom(peak=1.4).left == 0
    assert (headroom().near_s, headroom().active_s) == (30, 1000)


def burn_fact(**more):
    values: dict[str, Any] = {
        "tenant": "t",
        "promise": "containment",
        "long_s": 3600,
        "short_s": 300,
        "threshold": 14.4,
    }
    sums: dict[str, Any] = {"judged_s": 1000.0, "bad_s": 2.0, "worst": 1.0, "worst_at": BEGIN, "last": 0.5}
    return BurnFacts(**(values | sums | more))


@pytest.mark.parametrize(("worst", "last", "bell"), [(14.4, 14.4, "rings"), (14.4, 14.3, "rang"), (14.3, 0.0, "quiet")])
def test_a_pair_rings_from_its_threshold_on(worst, last, bell):
    (row,) = burns([burn_fact(worst=worst, last=last)], 0.999, 7200)
    assert row.bell == bell


def test_the_budget_that_is_spent_is_that_of_the_time_that_was_judged():
    (row,) = burns([burn_fact()], 0.999, 7200)
    assert row.spent == pytest.approx(2)


def test_a_log_shorter_than_the_long_window_is_told():
    assert not burns([burn_fact()], 0.999, 3599)[0].is_whole
    assert burns([burn_fact()], 0.999, 3600)[0].is_whole


def test_what_rings_now_comes_first():
    rows = burns(
        [burn_fact(tenant="a"), burn_fact(tenant="b", worst=20.0), burn_fact(tenant="c", worst=15.0, last=15.0)],
        0.999,
        7200,
    )
    assert [row.tenant for row in rows] == ["c", "b", "a"]


PROPOSAL = Proposal(level="topic", messages=50.0)


def replay(**more):
    values: dict[str, Any] = {"proxy_id": "p", "direction": "publish", "level": "topic", "name": "t", "proposal": 0}
    values |= dict.fromkeys(("delay_p50_ms", "delay_p95_ms", "delay_p99_ms", "delay_max_ms", "left_ms"), 10.0)
    values |= {"offered_messages": 100, "offered_bytes": 1000, "held_messages": 10, "backlog_messages": 5.0}
    values |= {
        "queued_s": 1.0,
        "first_at": None,
        "censored_s": 0.0,
        "limit_now_messages": None,
        "limit_now_bytes": None,
    }
    return ReplayFacts(**(values | more))


def judged(**more):
    (row,) = what_ifs([replay(**more)], [PROPOSAL])
    return row


@pytest.mark.parametrize(
    ("more", "effect"),
    [({}, "newly held"), ({"censored_s": 3.0}, "still held"), ({"held_messages": 0}, "holds nobody")],
)
def test_the_effect_is_told_by_who_waited_before(more, effect):
    assert judged(**more).effect == effect


@pytest.mark.parametrize(
    ("more", "certainty"),
    [
        ({}, "sound"),
        # Nobody waited: all that was wanted was sent.
        ({"limit_now_messages": 10.0}, "sound"),
        ({"censored_s": 3.0, "limit_now_messages": 80.0}, "sound"),
        ({"censored_s": 3.0, "limit_now_messages": 10.0}, "lower bound"),
        # The proposal takes the limit of bytes away.
        ({"censored_s": 3.0, "limit_now_bytes": 10.0}, "lower bound"),
    ],
)
def test_a_looser_limit_than_the_one_waited_on_is_a_lower_bound(more, certainty):
    assert judged(**more).certainty == certainty


def test_what_never_catches_up_is_told():
    assert not judged(left_ms=20_000.0).is_caught_up
    assert judged().is_caught_up


def test_who_would_be_newly_held_comes_first():
    rows = [replay(name="a", held_messages=0), replay(name="b", censored_s=1.0, held_messages=99), replay(name="c")]
    assert [row.name for row in what_ifs(rows, [PROPOSAL])] == ["c", "b", "a"]


def test_a_proposal_that_fits_nothing_is_named():
    assert unmatched([replay()], [PROPOSAL, Proposal(level="tenant", name="x", bytes=1.0)]) == ["publish tenant x"]


LATER = END + timedelta(minutes=5)


def kinds(changes=(), runs=(), losses=(), gaps=()):
    return [(event.kind, event.at) for event in timeline(list(changes), list(runs), list(losses), list(gaps), LATER)]


def test_a_second_run_of_a_proxy_is_a_restart_and_of_another_a_start():
    runs = [
        run_fact(),
        run_fact(boot_id="b2", first=LATER, last=LATER),
        run_fact(proxy_id="q", first=LATER, last=LATER),
    ]
    assert kinds(runs=runs) == [
        ("start", BEGIN),
        ("end", END),
        *[("end", LATER)] * 2,
        ("restart", LATER),
        ("start", LATER),
    ]


def test_a_run_without_an_end_falls_silent_unless_it_is_the_last():
    killed = run_fact(ended=False)
    assert kinds(runs=[killed]) == [("start", BEGIN)]
    assert ("silence", END) in kinds(runs=[killed, run_fact(boot_id="b2", first=LATER, last=LATER)])


def test_changes_losses_and_gaps_stand_in_the_order_of_time():
    change = ChangeFacts(
        at=LATER, kind="set", proxy_id="p", what="publish of topic", name="t", before="1", after="2", who="ann"
    )
    loss = LossFacts(
        proxy_id="p", of_boot="b", cause="disk", detail="full", lost_lines=None, lost_from=BEGIN, lost_until=END
    )
    gap = GapFacts(proxy_id="p", boot_id="b", after_seq=3, missing=2, until=END, behind=FIRST_LINE)
    events = timeline([change], [], [loss], [gap], LATER)
    assert [event.text for event in events] == [
        "the proxy says that an unknown number of lines of run b are lost (disk: full) until 11:29:10",
        "2 lines of run b are missing after number 3",
        "publish limit of topic t: from 1 to 2, by ann",
    ]
