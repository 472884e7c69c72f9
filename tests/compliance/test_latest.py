from datetime import timedelta

import pytest

from compliance.judging.facts import (
    AHEAD,
    SILENT,
    RunEnd,
    complete_up_to,
    cut_off,
    end_of_log,
    latest_runs,
    silent_runs,
)
from tests.compliance.planted import BEGIN

HORIZON = 1_000


def end(proxy_id, last, complete=0, *, has_ended=False, boot_id=""):
    return RunEnd(proxy_id, boot_id, last, last if complete == 0 else complete, has_ended)


def up_to(*runs):
    return complete_up_to(runs, HORIZON)


def test_the_slowest_proxy_says_how_far_it_is_complete():
    assert up_to(end("a", 10), end("b", 4)) == 4


def test_a_proxy_without_heartbeats_is_complete_up_to_nothing():
    assert up_to(end("a", 10), end("b", 4, None)) is None
    assert up_to() is None


def test_one_that_has_ended_holds_nobody_back_and_all_of_them_end_last():
    assert up_to(end("a", 10), end("b", 4, has_ended=True)) == 10
    assert up_to(end("a", 7, has_ended=True), end("b", 4, has_ended=True)) == 7
    assert up_to(end("a", 7, None, has_ended=True)) is None


def test_a_proxy_is_as_far_as_its_latest_run():
    assert up_to(end("a", 4), end("a", 105), end("a", 50, has_ended=True)) == 105
    assert up_to(end("a", 105, has_ended=True), end("a", 4), end("b", 7)) == 7


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_run_whose_clock_was_far_ahead_hides_no_other(has_ended):
    ahead = end("a", HORIZON + 1, has_ended=has_ended)
    live = [end("a", 900), end("b", 950)]
    for runs in ([ahead, *live], [*live, ahead]):
        assert up_to(*runs) == 900
        assert [run.last for run in latest_runs(runs, HORIZON)] == [900, 950]
        assert end_of_log(runs, HORIZON) == 950


def test_where_all_are_ahead_the_one_that_ends_last_is_the_latest():
    assert up_to(end("a", HORIZON + 5), end("a", HORIZON + 9)) == HORIZON + 9
    assert end_of_log([end("a", HORIZON + 5)], HORIZON) == HORIZON + 5
    assert end_of_log(list[RunEnd[int]](), HORIZON) is None


def test_of_two_runs_that_end_at_once_the_one_that_goes_on_is_the_later():
    both = [end("a", 4), end("a", 4, has_ended=True), end("b", 9)]
    assert up_to(*both) == up_to(*reversed(both)) == 4


def at(proxy_id, second, boot_id="1", *, has_ended=False):
    time = BEGIN + timedelta(seconds=second)
    return RunEnd(proxy_id, boot_id, time, time, has_ended)


def test_who_has_a_later_run_and_did_not_end_in_order_is_cut_off():
    runs = [at("a", 4), at("a", 6, "2", has_ended=True), at("a", 9, "3"), at("b", 9)]
    horizon = BEGIN + AHEAD
    assert cut_off(runs, horizon) == {("a", "1")}
    assert cut_off([*runs, at("a", 5000, "4")], horizon) == {("a", "1"), ("a", "4")}
    assert cut_off([at("a", 4), at("a", 4, "2")], horizon) == {("a", "1")}


def test_a_run_that_stops_early_without_an_end_is_silent():
    end_s = SILENT.total_seconds() + 4
    runs = [at("a", 4), at("b", 4, has_ended=True), at("c", 5), at("d", end_s)]
    assert silent_runs(runs, BEGIN + AHEAD) == [at("a", 4)]
    assert cut_off(runs, BEGIN + AHEAD) == {("a", "1")}
    assert silent_runs([], BEGIN) == []


def test_times_of_any_kind_are_compared():
    run = RunEnd("a", "b", BEGIN, BEGIN - timedelta(seconds=1), has_ended=False)
    assert complete_up_to([run], BEGIN + AHEAD) == BEGIN - timedelta(seconds=1)
