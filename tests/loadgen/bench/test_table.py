from dataclasses import replace

from loadgen.bench.figures import Figure, Goal
from loadgen.bench.peers import bare, official
from loadgen.bench.rows.row import SUBJECT, Row
from loadgen.bench.table import beyond, losses, missed, table, unguarded, unlisted

RATE = Figure("rate", "frames/s", goals=(Goal("≥", 0.9, bare.NAME, guard=0.5),))
LOST = Figure("lost", "lost")
ROW = Row("send", "SEND", (RATE, LOST), lambda _stage, _name: {})


def found(rate, lost=0.0):
    return {"send": {bare.NAME: [{"rate": 100.0, "lost": 0.0}], SUBJECT: [{"rate": rate, "lost": lost}]}}


def test_a_row_shows_each_peer_and_how_sluice_stands_beside_them():
    heading, _, first, second = table([ROW], found(95.0)).splitlines()
    cells = [cell.strip() for cell in first.split("|")]
    assert [cell.strip() for cell in heading.split("|")][3] == bare.NAME
    assert cells[1:4] == ["SEND", "frames/s", "100"]
    assert cells[4:7] == ["-", "-", "-"]
    assert cells[7:9] == ["95", "0.95 x bare forwarder ✓ (≥ 0.90)"]
    assert [cell.strip() for cell in second.split("|")][1:3] == ["", "lost"]


def test_goals_that_are_missed_are_named():
    assert missed([ROW], found(90.0)) == []
    assert missed([ROW], found(80.0)) == ["send: frames/s: 0.80 x bare forwarder **missed** (≥ 0.90)"]


def test_the_guard_fails_below_its_own_bound_or_without_a_measurement():
    assert unguarded([ROW], found(50.0)) == []
    assert unguarded([ROW], found(49.0)) == ["send: frames/s: 0.49 x bare forwarder, bound ≥ 0.5"]
    assert unguarded([ROW], {"send": {bare.NAME: [None], SUBJECT: [None]}}) == ["send: frames/s: was not measured"]


def test_who_lost_frames_is_named_with_the_most():
    assert losses([ROW], found(1.0)) == []
    assert losses([ROW], found(1.0, lost=7.0)) == [
        "Sluice lost frames that were written before the close: SEND, 7.00 in one of 1 measurements"
    ]


def test_what_the_machine_is_not_up_to_is_one_line():
    row = replace(ROW, needs=("rate", 95))
    assert beyond([ROW], found(90.0)) == beyond([row], {"send": {SUBJECT: [{"rate": 95.0}, None]}}) == []
    assert beyond([row], found(90.0)) == ["the load is not reached here: SEND, Sluice: 90 frames/s"]


def test_a_peer_without_a_column_gets_a_line():
    assert unlisted([ROW], found(1.0)) == []
    assert unlisted([ROW], {"send": {official.COPYING: [{"rate": 5.0}]}}) == [
        "official proxy, copying, SEND: 5 frames/s, - lost"
    ]
