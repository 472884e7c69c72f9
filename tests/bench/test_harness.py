"""Figures, goals, tables and pages of both benchmarks."""

import argparse
import math
import os

import pytest

from bench import harness
from bench.harness import (
    Figure,
    Goal,
    PageError,
    Row,
    Sample,
    Section,
    missed,
    page_text,
    put_between,
    shown,
    unguarded,
)

RATE = Figure("rate", "frames/s", digits=1)
ROUNDS = {"a": [{"rate": 8.0}, {"rate": 9.0}, {"rate": 40.0}], "b": [{"rate": 10.0}, {"rate": 10.0}, {"rate": 80.0}]}
FACTOR = Figure("factor", "first second", " x", 2, (Goal("≤", 1.1),))


def samples(*values, key="factor"):
    return [{key: value} for value in values]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.994], "1.99 x"),
        ([2.0, 1.94, 1.99], "1.99 x (1.94 to 2.00)"),
        ([1.001, 1.002], "1.00 x"),
        ([-0.001], "0.00 x"),
        ([1234.5], "1,234.50 x"),
        ([math.inf, math.inf], "never x"),
        ([], "-"),
    ],
)
def test_a_figure_shows_its_median_and_the_spread_that_can_be_seen(values, text):
    assert FACTOR.shown(samples(*values)) == text
    assert FACTOR.shown([*samples(*values), None]) == text, "what failed is no value"


def is_met(goal, *values):
    return FACTOR.is_met(goal, {"a": samples(*values)}, "a")


def test_a_goal_is_judged_by_the_median_as_it_is_printed():
    assert is_met(Goal("≤", 1.1), 1.104)
    assert not is_met(Goal("≤", 1.1), 1.106)
    assert not is_met(Goal("≤", 1.1), math.inf)
    assert is_met(Goal("≤", 1.1), 1.0, 1.0, 9.0), "the median and not the worst"
    assert is_met(Goal("≥", 0.99), 0.99)
    assert not is_met(Goal("≥", 0.99), 0.98)


def test_a_ratio_is_the_median_of_the_ratios_within_rounds():
    assert RATE.compared(Goal("≥", 1, "b"), ROUNDS, "a") == pytest.approx(0.8)
    assert RATE.compared(Goal("≤", 1), ROUNDS, "a") == 9.0, "without a peer the figure itself counts"


def test_a_round_in_which_one_of_them_failed_does_not_count():
    rounds = {"a": [{"rate": 8.0}, None, {"rate": 6.0}], "b": [None, {"rate": 10.0}, {"rate": 12.0}]}
    assert RATE.compared(Goal("≥", 1, "b"), rounds, "a") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("≥", 0.8, "b"), "0.80 (0.50 to 0.90) x b ✓ (≥ 0.80)"),
        (Goal("≥", 0.81, "b"), "0.80 (0.50 to 0.90) x b **missed** (≥ 0.81)"),
        (Goal("≤", None, "b"), "0.80 (0.50 to 0.90) x b"),
        (Goal("≤", 9), "✓ (≤ 9.0)"),
        (Goal("≤", 8.9), "**missed** (≤ 8.9)"),
    ],
)
def test_a_verdict_says_the_ratio_the_goal_and_whether_it_is_met(goal, verdict):
    assert RATE.verdict(goal, ROUNDS, "a") == verdict


def test_who_fails_in_a_round_has_met_no_goal():
    rounds: dict[str, list[Sample | None]] = {
        "a": [{"rate": 8.0}, None, {"rate": 8.0}],
        "b": [{"rate": 10.0}, {"rate": 10.0}, {"rate": 10.0}],
    }
    goal = Goal("≥", 0.5, "b")
    assert RATE.verdict(goal, rounds, "a") == "0.80 x b **missed** (≥ 0.50; failed in 1 of 3 rounds)"
    assert not RATE.is_met(goal, rounds, "a")
    assert RATE.is_met(Goal("≤", None, "b"), rounds, "a"), "what has no bound cannot be missed"


def test_a_goal_without_a_figure_is_missed_unless_a_peer_is_out():
    goal, beside = Goal("≥", 1), Goal("≥", 1, "b")
    measured = {"b": [{"rate": 1.0}]}
    nothing: list[list[Sample | None]] = [[None], [{}]]
    for samples_of_a in nothing:
        assert not RATE.is_met(goal, {"a": samples_of_a}, "a")
        assert not RATE.is_met(beside, {"a": samples_of_a, **measured}, "a")
        assert RATE.verdict(goal, {"a": samples_of_a}, "a").startswith("**missed** (≥ 1.0")
    assert RATE.is_met(goal, measured, "a")
    assert RATE.is_met(beside, {"a": [{"rate": 0.1}]}, "a")
    assert RATE.verdict(beside, {"a": [{"rate": 0.1}]}, "a") == ""


# ---- Rows

BESIDE = Figure("rate", "frames/s", goals=(Goal("≥", 0.9, "other, bare", guard=0.5),))
LATE = Figure("late", "lag", " ms", goals=(Goal("≤", 5),))
ROW: Row[None] = Row("send", "SEND of 100 B", (BESIDE, LATE), None, ("other, bare", "absent", "Sluice"))


def found(*rates):
    mine = [{"rate": rate, "late": 4.0} for rate in rates]
    return {"send": {"other, bare": [{"rate": 100.0, "late": 1.0}] * len(rates), "Sluice": mine}}


def test_a_load_is_a_table_of_peers_and_of_sluice_beside_them():
    assert shown([ROW], found(95.0, 99.0, 1000.0)).splitlines() == [
        "**SEND of 100 B**",
        "",
        "|          | bare |           Sluice |     goal |",
        "| -------- | ---: | ---------------: | -------: |",
        "| frames/s |  100 | 99 (95 to 1,000) |          |",
        "| lag      | 1 ms |             4 ms | ≤ 5 ms ✓ |",
        "",
        "- frames/s: 0.99 (0.95 to 10.00) x other, bare ✓ (≥ 0.90)",
    ]


def test_rows_of_the_same_figures_are_lines_of_one_table():
    figures = (Figure("rate", "frames/s"), LATE, Figure("lost", "lost"))
    row: Row[None] = Row("send", "SEND of 100 B", figures, None, ("other, bare", "Sluice"))
    assert Section("bench", [row, row], is_listed=True).drawn(found(95.0)).splitlines() == [
        "|               | frames/s |         lag | lost |     goal |",
        "| ------------- | -------: | ----------: | ---: | -------: |",
        *["| SEND of 100 B | 100 → 95 | 1 ms → 4 ms |    - | ≤ 5 ms ✓ |"] * 2,
    ]


def test_goals_that_are_missed_are_named():
    assert missed([ROW], found(90.0)) == []
    assert missed([ROW], found(80.0)) == ["send: frames/s: 80: 0.80 x other, bare **missed** (≥ 0.90)"]
    slow = {"send": {"Sluice": [{"rate": 1.0, "late": 6.0}]}}
    assert missed([ROW], slow) == ["send: lag: 6 ms: **missed** (≤ 5 ms)"]
    assert "| 6 ms | ≤ 5 ms **missed** |" in " ".join(shown([ROW], slow).split())


def test_the_guard_fails_below_its_own_bound_or_without_a_measurement():
    assert unguarded([ROW], found(50.0)) == []
    assert unguarded([ROW], found(49.0)) == ["send: frames/s: 0.49 x other, bare, bound ≥ 0.5"]
    nothing = {"send": {"other, bare": [None], "Sluice": [None]}}
    assert unguarded([ROW], nothing) == ["send: frames/s: was not measured"]


# ---- The page

BEGIN, END = MARKS = Section("data-path, TLS", [], lambda tables, _: tables).marks


def test_a_section_takes_the_place_of_the_one_before_and_leaves_the_rest():
    page = put_between("# Page\n\nfirst\n", MARKS, "old")
    page = put_between(page + "\nlast\n", MARKS, "new")
    assert page == f"# Page\n\nfirst\n\n{BEGIN}\nnew\n{END}\n\nlast\n"
    assert put_between(page, MARKS, "new") == page
    assert put_between("", MARKS, "text") == f"# Benchmarks\n\n{BEGIN}\ntext\n{END}\n"


@pytest.mark.parametrize("mark", [BEGIN, END])
def test_a_page_with_one_mark_only_is_refused(mark):
    with pytest.raises(PageError, match="only one of the lines"):
        put_between(f"# Page\n{mark}\n", MARKS, "text")


def test_what_cannot_become_a_page_is_told_with_the_remedy(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    assert page_text(page) == ""
    page.write_text("grüße", encoding="utf-8")
    assert page_text(page) == "grüße"
    with pytest.raises(PageError, match="it is a folder: name a file"):
        page_text(tmp_path)
    with pytest.raises(PageError, match=r"there is no folder .*: make it"):
        page_text(tmp_path / "nowhere" / "page.md")
    page.write_bytes(b"\xff\xfe")
    with pytest.raises(PageError, match="no text in UTF-8"):
        page_text(page)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(PageError, match="may not be written"):
        page_text(page)


# ---- The command line


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "", "²"])
def test_nothing_can_be_done_less_than_once(text):
    assert harness.count("3") == 3
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number above 0 belongs here"):
        harness.count(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "x", ""])
def test_a_time_is_one_that_passes(text):
    assert harness.seconds("0.02") == 0.02
    with pytest.raises(argparse.ArgumentTypeError, match="seconds belong here"):
        harness.seconds(text)


def test_the_reason_is_what_was_said_last():
    assert harness.last_line("starting\n  no such file \n\n") == "no such file"
    assert harness.last_line(" \n") == "it said nothing"
