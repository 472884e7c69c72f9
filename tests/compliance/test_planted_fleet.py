"""What the planted fleet passed together, from files to the report."""

from datetime import timedelta

import pytest

from tests.compliance.planted import BEGIN, topic_of

pytestmark = pytest.mark.spark


def test_shares_above_the_whole_are_found(planted_report):
    assert planted_report.fleets.verdict == "violated"
    [sum_] = planted_report.fleets.sums
    assert (sum_.fleet, sum_.name, sum_.unit, sum_.limit, sum_.burst) == (
        "front",
        topic_of("fleet"),
        "messages",
        100,
        10,
    )
    assert sum_.members == [("fleet-a", "boot-1"), ("fleet-b", "boot-1")]
    ahead = timedelta(milliseconds=20)  # both members are behind the coordinator's clock, which counts
    assert (sum_.start, sum_.end) == (BEGIN + timedelta(seconds=10) + ahead, BEGIN + timedelta(seconds=15) + ahead)
    assert (sum_.corrected_s, sum_.uncertain_s) == (0, 0)
    assert (sum_.passed, sum_.entries, sum_.slack) == (5 * 160, 2, pytest.approx(10.5001))
    assert sum_.excess == pytest.approx(5 * 60 - 10 - 2 - 10.5001)
    assert (sum_.judged_s, sum_.demand_s, sum_.beside) == (15, 15, 0)
    assert (sum_.first_line.file, sum_.last_line.file) == ("fleet-a.jsonl.zst", "fleet-b.jsonl.zst")
    members = [limiter for limiter in planted_report.limiters if limiter.proxy_id in {"fleet-a", "fleet-b"}]
    assert [(member.containment, member.values) for member in members] == [("compliant", 1)] * 2
    assert [(member.limit_messages, member.shared_messages, member.is_shared) for member in members] == [
        (80, 100, True)
    ] * 2
    assert [limiter.is_shared for limiter in planted_report.limiters if limiter.proxy_id == "fleet-c"] == [False]


def test_the_chart_of_the_sum_has_what_all_members_passed_and_the_whole_limit(planted_report):
    rows = planted_report.fleets.rates
    assert {(row.proxy_id, row.fleet, row.name, row.step_s) for row in rows} == {("", "front", topic_of("fleet"), 1)}
    assert {(row.limit_messages, row.burst_messages) for row in rows} == {(100, 10)}
    # By the common clock a fiftieth of each line is in the next second.
    sums = [110] + [100] * 3 + [52] * 2 + [100] * 4 + [160] * 5
    passed = [0.98 * now + 0.02 * before for now, before in zip([*sums, 0], [0, *sums], strict=True)]
    assert [row.passed_messages for row in rows] == pytest.approx(passed, abs=1e-3)
    assert [row.offered_messages for row in rows] == [pytest.approx(row.passed_messages) for row in rows]
    assert rows[0].step == int(BEGIN.timestamp())
    assert not [row for row in planted_report.rates if not row.proxy_id]


def test_who_is_cut_off_and_who_has_the_limit_to_itself_are_named(planted_report):
    [sum_] = planted_report.fleets.sums
    assert [(out.proxy_id, out.passed, out.first) for out in sum_.outside] == [
        ("fleet-c", 200, BEGIN + timedelta(seconds=7))
    ]
    assert [(out.proxy_id, out.share, out.passed, out.seconds) for out in sum_.cut_off] == [("fleet-b", 0.02, 4, 2)]
    assert planted_report.fleets.gaps == []


def test_changes_of_shares_are_counted_by_cause_and_are_no_changes_of_the_limit(planted_report):
    rows = planted_report.fleets.share_changes
    changes = {(row.proxy_id, row.cause): (row.lines, row.left_out, row.limits, row.largest) for row in rows}
    assert changes == {
        ("fleet-a", "granted"): (2, 0, 1, 0.8),
        ("fleet-b", "granted"): (2, 0, 1, 0.8),
        ("fleet-b", "isolated"): (1, 0, 1, 0.02),
        ("fleet-b", "rejoined"): (1, 0, 1, 0.5),
    }
    assert not [event for event in planted_report.events if event.kind == "limit" and "fleet" in event.proxy_id]


def test_headroom_is_of_all_members_an_outsider_has_its_own(planted_report):
    rows = [row for row in planted_report.headroom if row.name == topic_of("fleet")]
    assert [(row.proxy_id, row.fleet, row.members, row.active_s, row.near_s) for row in rows] == [
        ("", "front", 2, 20, 20),
        ("fleet-c", "", 0, 10, 0),
    ]
    # In the first ten seconds 914 of 1,000 passed. By the coordinator's clock 2 of them passed in the next ones.
    assert [row.peak for row in rows] == [pytest.approx(0.912), pytest.approx(0.2)]


def test_what_if_holds_all_members_by_one_proposed_limit_and_an_outsider_by_its_own(planted_report):
    rows = [row for row in planted_report.what_if.rows if row.proposed.level == "topic"]
    assert [(row.proxy_id, row.fleet, row.members, row.facts.offered_messages) for row in rows] == [
        ("", "front", 2, 1714),
        ("fleet-c", "", 0, 200),
    ]
    # The limit then is the whole of the fleet, and not a share.
    assert (rows[0].facts.limit_now_messages, rows[0].facts.limit_now_bytes) == (100, None)
    assert rows[0].facts.backlog_messages == pytest.approx(1714 - 15 * 70 - 7, abs=4)
    of_networks = [row for row in planted_report.what_if.rows if row.proposed.level == "address"]
    assert {row.proxy_id for row in of_networks} >= {"fleet-a", "fleet-b", "fleet-c"}
    assert {row.fleet for row in of_networks} == {""}
