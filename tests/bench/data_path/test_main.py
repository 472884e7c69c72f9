"""The command line; what is measured is no test's business."""

import re
from dataclasses import replace

import pytest

from bench.data_path import command as bench
from bench.data_path.proxies import BARE, BARE_PLAN, SLUICE, PeerPlan, sluice_plan
from bench.harness import BAD_INPUT, CANNOT_START, MISSED, WIDTH, BenchError, Section
from loadgen.real import jars

MARKS = Section(bench.NAME, [], lambda tables, _: tables).marks


def called(*arguments):
    return bench.main(arguments)


def test_a_short_run_of_one_row_prints_its_table(capsys):
    assert called("--only", "send-1024-1", "--peer", BARE, "--seconds", "0.02", "--rounds", "1") == 0
    printed = capsys.readouterr().out
    assert "**SEND of 1,024 B, 1 connection**" in printed
    assert "measured on" in printed


def test_a_page_gets_full_runs_only(capsys, tmp_path):
    assert called("--short", "--write", str(tmp_path / "page.md")) == BAD_INPUT
    assert "full runs only" in capsys.readouterr().err


def test_a_page_without_a_mark_is_reported_before_measuring(capsys, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(MARKS[0])
    assert called("--write", str(page)) == BAD_INPUT
    assert "only one of the lines" in capsys.readouterr().err


def test_rows_of_tls_are_written_alone_and_leave_the_others(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_measure", measured)
    page = tmp_path / "page.md"
    page.write_text(f"{MARKS[0]}\nthe others\n{MARKS[1]}\n")
    assert called("--tls", "--write", str(page)) == 0
    assert "the others" in page.read_text()
    assert "TLS on both legs: SEND of 16,384 B" in page.read_text()
    assert called("--tls", "--short") == BAD_INPUT


def measured(_arguments, chosen):
    slow = {BARE: [{"rate": 100.0, "cpu": 1.0}], SLUICE: [{"rate": 1.0, "cpu": 1.0}]}
    return {row.name: slow for row in chosen}, {}


def test_the_short_form_fails_if_sluice_is_too_slow(capsys, monkeypatch):
    monkeypatch.setattr(bench, "_measure", measured)
    assert called("--short") == MISSED
    assert "send-1024-1: frames/s: 0.01 x bare forwarder" in capsys.readouterr().err


def test_a_full_run_only_tells_what_it_found(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_measure", measured)
    page = tmp_path / "page.md"
    assert called("--write", str(page)) == 0
    assert "missed: send-1024-1" in capsys.readouterr().out
    assert "The data path" in page.read_text()


def test_a_row_with_a_real_broker_is_there_only_if_one_is_wanted(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_measure", measured)
    assert called("--only", "perf-100") == BAD_INPUT
    assert "--only perf-100: a row with a real broker: add --real" in capsys.readouterr().err
    page = tmp_path / "page.md"
    assert called("--write", str(page)) == 0
    assert "Not measured: rows with a real broker: only with --real." in page.read_text()
    assert "pulsar-perf -o" not in page.read_text()


@pytest.mark.parametrize("why", [None, "install Maven"])
def test_a_real_broker_is_measured_or_it_is_said_why_not(capsys, monkeypatch, why):
    monkeypatch.setattr(bench, "_measure", measured)
    monkeypatch.setattr(jars, "available", lambda: why)
    assert called("--real") == 0
    printed = capsys.readouterr()
    assert ("pulsar-perf -o 500: 10,000 msg/s of 100 B, unbatched" in printed.out) == (why is None)
    assert printed.err == (f"without rows with a real broker: {why}\n" if why else "")


def test_what_cannot_start_is_one_line(capsys, monkeypatch):
    def fails():
        raise BenchError("no C compiler")

    monkeypatch.setattr(bench, "Native", fails)
    assert called("--only", "send-1024-1") == CANNOT_START
    assert capsys.readouterr().err == "bench data-path: no C compiler\n"


def test_a_peer_that_is_not_to_be_had_is_told_and_left_out(capsys, monkeypatch):
    absent = PeerPlan(SLUICE, sluice_plan().command, lambda: "install it")
    monkeypatch.setattr(bench, "PLANS", (BARE_PLAN, absent))
    assert called("--only", "send-1024-1", "--seconds", "0.02", "--rounds", "1") == 0
    assert "without Sluice: install it" in capsys.readouterr().err


ROW = bench.rows()[0]


def found(rate, lost=0.0):
    return {ROW.name: {BARE: [{"rate": 100.0, "lost": 0.0}], SLUICE: [{"rate": rate, "lost": lost}, None]}}


def test_who_lost_frames_is_named_with_the_most():
    assert bench.losses([ROW], found(1.0)) == []
    assert bench.losses([ROW], found(1.0, lost=7.0)) == [
        f"Sluice lost frames that were written before the close: {ROW.load}, 7.00 in one of 1 measurements"
    ]


def test_what_the_machine_is_not_up_to_is_one_line():
    row = replace(ROW, needs=("rate", 95))
    assert bench.beyond([ROW], found(90.0)) == bench.beyond([row], found(95.0)) == []
    assert bench.beyond([row], found(90.0)) == [f"the load is not reached here: {ROW.load}, Sluice: 90 frames/s"]


def test_the_section_fits_the_page_and_holds_all():
    text = bench.section("section.md", "| a table |", ["somebody lost some"], {"HAProxy": "install it"})
    assert "\n| a table |\n" in text
    assert "\n- somebody lost some\n" in text
    assert text.endswith("Not measured: HAProxy: install it.")
    assert re.search(r"is \d\d lines\s+of\s+uvloop", text)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "No frame was lost." in bench.section("section.md", "", [], {})
