"""The planted violations, each found, and no other: from files to verdicts."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from compliance.report.subjects import CHARTS
from tests.compliance.planted import BEGIN

C, V, U, N = "compliant", "violated", "unknown", "no limit"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("proxy_id", "containment", "entitlement"),
    [
        ("exact", C, C),
        ("over", V, C),
        ("edge", C, C),
        ("starved", C, V),
        ("lost", U, U),
        ("lost-and-over", V, U),
        ("twice", C, C),
        ("torn", U, U),
        ("restarted", C, C),
        ("changed", C, C),
        ("changed-and-over", V, C),
        ("unlimited", N, N),
        ("observed", N, N),
        ("rejecting", C, C),
        ("refusing", C, C),
        ("declared", U, U),
        ("killed", U, U),
        ("cut-off", U, U),
        ("bypassed", V, U),
        ("bytes", C, C),
        ("batches", C, C),
        ("in-no-time", C, C),
        ("stepped", C, C),
        ("stepped-and-over", V, C),
        ("silent", U, U),
        ("without-heartbeats", U, U),
        ("later", C, C),
        ("ahead-between", C, C),
        ("newer", C, C),
        ("newer-line", U, U),
        ("alone", U, U),
        ("end-of-time", C, C),
        ("no-lines", V, U),
        ("system", C, C),
        ("torn-tail", V, U),
        ("elsewhere", C, C),
        ("set-again", C, C),
        ("in-vain", U, U),
        ("removed", C, C),
        ("conflict", U, U),
    ],
)
def test_each_planted_log_gets_its_verdict(planted_report, proxy_id, containment, entitlement):
    limiter = limiter_of(planted_report, proxy_id)
    assert (limiter.containment, limiter.entitlement) == (containment, entitlement)


@pytest.mark.spark
def test_what_is_over_by_one_message_is_over_by_one(planted_report):
    worst = limiter_of(planted_report, "over").worst_containment
    assert worst.end == BEGIN + timedelta(seconds=21)
    assert worst.passed - worst.allowed == worst.excess == 1
    assert (worst.unit, worst.basis) == ("messages", "limiter")


@pytest.mark.spark
def test_a_bypass_is_found_by_the_streams_own_lines(planted_report):
    worst = limiter_of(planted_report, "bypassed").worst_containment
    assert worst.basis == "streams"
    assert (worst.passed, worst.allowed) == (2020, 10 + 100 * 10 + 1)


@pytest.mark.spark
def test_a_shortfall_is_stated_in_percent_and_lies_where_it_was_planted(planted_report):
    starved = limiter_of(planted_report, "starved")
    # 15 of 1000 messages in a window of ten seconds that holds all three, but for a late timer's and one at hand.
    assert starved.shortfall_percent == pytest.approx(1.2)
    assert starved.worst_entitlement.start <= BEGIN + timedelta(seconds=18)
    assert starved.worst_entitlement.end >= BEGIN + timedelta(seconds=21)


@pytest.mark.spark
def test_a_changed_limit_is_seen_as_two_values(planted_report):
    assert limiter_of(planted_report, "changed").values == 2
    assert limiter_of(planted_report, "changed").limit_messages == 50


@pytest.mark.spark
def test_missing_lines_are_counted_and_placed(planted_report):
    (run,) = runs_of(planted_report, "lost")
    assert run.missing == 6
    assert 0.8 < run.coverage < 0.95
    assert [(gap.after_seq, gap.missing) for gap in planted_report.quality.gaps if gap.proxy_id == "lost"] == [(29, 6)]


@pytest.mark.spark
def test_copies_are_removed_and_counted(planted_report):
    (run,) = runs_of(planted_report, "twice")
    assert (run.lines, run.duplicates, run.missing) == (30, 10, 0)
    assert topic_of(planted_report, "twice").passed_messages == 1010


@pytest.mark.spark
def test_a_torn_last_line_is_quarantined_and_ends_what_is_known(planted_report):
    (run,) = runs_of(planted_report, "torn")
    assert run.complete_up_to == BEGIN + timedelta(seconds=9)
    assert run.last == BEGIN + timedelta(seconds=10)
    files = {group.file: group.lines for group in planted_report.quality.quarantine}
    assert files == {"torn.jsonl": 1, "torn-tail.jsonl": 2}


@pytest.mark.spark
def test_the_last_seconds_are_in_the_totals(planted_report):
    assert topic_of(planted_report, "exact").passed_messages == 3010
    assert topic_of(planted_report, "later").passed_messages == 510


@pytest.mark.spark
def test_open_files_are_left_alone(planted_report):
    assert not runs_of(planted_report, "ignored")


@pytest.mark.spark
def test_held_is_what_the_last_lines_say_and_the_account_balances(planted_report):
    held = topic_of(planted_report, "held")
    assert (held.held_messages, held.held_bytes, held.dropped_messages) == (2, 200, 7)
    assert held.offered_messages == held.passed_messages + held.held_messages + held.dropped_messages


@pytest.mark.spark
def test_what_was_rejected_was_offered_and_did_not_pass_and_is_told_as_pain(planted_report):
    topic, limiter = topic_of(planted_report, "rejecting"), limiter_of(planted_report, "rejecting")
    assert (topic.offered_messages, topic.passed_messages, topic.rejected_messages) == (3600, 1210, 2390)
    assert (limiter.rejected_messages, limiter.throttled_s) == (2390, 0)


@pytest.mark.spark
def test_requests_that_were_refused_are_counted_by_reason(planted_report):
    refusals = [(row.reason, row.rejected, row.connections) for row in planted_report.throttling.refusals]
    assert refusals == [("admission.lookups", 10, 2), ("blocked", 1, 1)]


@pytest.mark.spark
def test_what_a_proxy_says_is_lost_is_listed_and_nothing_of_it_is_confirmed(planted_report):
    losses = {(row.proxy_id, row.of_boot): row.lost_lines for row in planted_report.quality.losses}
    assert losses == {("declared", "boot-1"): 2, ("killed", "boot-1"): None}
    first, second = runs_of(planted_report, "killed")
    # All numbers are there, and yet it is not known whether that is all.
    assert (first.missing, first.coverage, first.is_lossy) == (0, 1, True)
    assert not second.is_lossy
    assert limiter_of(planted_report, "killed").coverage < 1


@pytest.mark.spark
def test_a_run_that_stops_without_an_end_before_the_next_one_is_not_taken_for_whole(planted_report):
    first, second = runs_of(planted_report, "cut-off")
    assert (first.missing, first.coverage, first.is_lossy, first.is_cut_off) == (0, 1, False, True)
    assert not second.is_cut_off
    assert limiter_of(planted_report, "cut-off").coverage < 1


@pytest.mark.spark
def test_who_fell_silent_without_an_orderly_end_is_not_taken_for_whole(planted_report):
    assert planted_report.quality.silent == ["silent", "torn", "without-heartbeats"]
    (run,) = runs_of(planted_report, "silent")
    assert (run.coverage, run.is_cut_off, limiter_of(planted_report, "silent").coverage) == (1, True, 0.9999)


@pytest.mark.spark
def test_usage_is_split_at_midnight_utc(planted_report):
    usage = [(row.day, row.passed_messages) for row in planted_report.usage if row.topic.endswith("/midnight")]
    assert usage == [("2026-11-21", 11), ("2026-11-22", 1100)]


@pytest.mark.spark
def test_the_whole_is_as_bad_as_its_worst_part(planted_report):
    assert planted_report.overall.verdict == "violated"
    # A proxy without heartbeats is complete up to nothing, and with it the whole.
    assert planted_report.overall.complete_up_to is None
    assert planted_report.overall.coverage == 0


@pytest.mark.spark
def test_charts_show_the_gravest_limits_and_say_how_many_are_left_out(planted_report):
    charted = {(rate.proxy_id, rate.name) for rate in planted_report.rates}
    assert len(charted) == CHARTS
    violated = {(limiter.proxy_id, limiter.name) for limiter in planted_report.limiters if limiter.is_violated}
    # The gravest of each level is among them, and one level has none that was violated.
    assert len(violated & charted) == CHARTS - 1
    limited = [limiter for limiter in planted_report.limiters if limiter.containment != "no limit"]
    assert planted_report.charts_left_out == len(limited) - CHARTS


@pytest.mark.spark
def test_a_report_survives_its_json(planted_report):
    assert msgspec.json.decode(msgspec.json.encode(planted_report), type=type(planted_report)) == planted_report
    (run,) = runs_of(planted_report, "exact")
    assert run.first == datetime(2026, 11, 21, 11, 29, tzinfo=UTC)


def limiter_of(report, proxy_id):
    (limiter,) = (limiter for limiter in report.limiters if limiter.proxy_id == proxy_id)
    return limiter


def runs_of(report, proxy_id):
    return [run for run in report.quality.runs if run.proxy_id == proxy_id]


def topic_of(report, proxy_id):
    (topic,) = (topic for topic in report.topics if topic.topic.endswith(f"/{proxy_id}"))
    return topic


@pytest.mark.spark
def test_report_has_size_and_window_of_each_clock_step(planted_report):
    (step,) = (step for step in planted_report.quality.clock_steps if step.proxy_id == "ahead-between")
    assert (step.size_s, step.line.seq, step.last - step.first) == (3600, 30, timedelta(seconds=3601))
    (run,) = runs_of(planted_report, "ahead-between")
    assert (run.coverage, run.clock_steps) == (1, 1)


@pytest.mark.spark
def test_what_a_newer_proxy_writes_is_passed_over_and_told(planted_report):
    assert [(kind.what, kind.lines) for kind in planted_report.quality.newer] == [
        ("audit", 1),
        ("limit (version 2)", 1),
    ]
    (run,) = runs_of(planted_report, "newer")
    assert (run.lines, run.missing, run.malformed) == (32, 0, 0)


@pytest.mark.spark
def test_what_contradicts_itself_is_told_with_both_numbers(planted_report):
    texts = {doubt.name.rpartition("/")[2]: doubt.said for doubt in planted_report.doubts}
    assert texts["no-lines"] == "its streams passed 500 messages, and it has no line"
    assert texts["bypassed"] == "its streams passed 220 messages, and it passed 110 by its own line"
    assert texts["alone"] == "it passed 5,000 messages before any stream under it has a line"


@pytest.mark.spark
def test_copies_that_are_not_the_same_are_a_conflict_and_others_are_none(planted_report):
    assert {run.proxy_id for run in planted_report.quality.runs if run.conflicts} == {"conflict"}
    assert {run.proxy_id for run in planted_report.quality.runs if run.malformed} == {"torn", "torn-tail"}


@pytest.mark.spark
def test_each_tenant_has_its_own_sentence_and_picture(planted_report):
    acme = next(tenant for tenant in planted_report.tenants if tenant.name == "acme")
    assert acme.verdict == "violated"
    assert " limits of acme were exceeded, the worst for " in acme.sentence
    gravest = next(limiter for limiter in planted_report.limiters if limiter.tenant == "acme")
    assert {(rate.proxy_id, rate.name) for rate in acme.rates} == {(gravest.proxy_id, gravest.name)}
    assert any(rate.passed_messages > (rate.limit_messages or 0) > 0 for rate in acme.rates)


@pytest.mark.spark
def test_removed_limit_is_not_in_force_and_its_end_is_a_change(planted_report):
    at, limiter = BEGIN + timedelta(seconds=5), limiter_of(planted_report, "removed")
    assert limiter.removed == at
    (end,) = (event for event in planted_report.events if event.proxy_id == "removed" and event.kind == "limit")
    assert (end.at, end.text) == (at, f"publish limit of topic {limiter.name}: removed (before: 100 messages/s)")
