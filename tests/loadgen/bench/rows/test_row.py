from loadgen.bench.__main__ import PLANS, SHORT, rows
from loadgen.bench.peers import bare
from loadgen.bench.rows.row import EVERYBODY, SUBJECT


def test_every_peer_of_a_row_has_a_plan():
    plans = {plan.name for plan in PLANS}
    assert {SUBJECT, bare.NAME} < set(EVERYBODY) <= plans
    assert {name for row in rows() for name in row.peers} == plans


def test_goals_beside_a_peer_are_those_of_peers_that_take_part():
    for row in rows():
        beside = {goal.beside for figure in row.figures for goal in figure.goals if goal.beside}
        assert beside <= set(row.peers)


def test_the_short_form_has_a_guard_in_each_of_its_rows():
    named = {row.name: row for row in rows()}
    assert len(named) == len(rows())
    for name in SHORT:
        assert any(goal.guard is not None for figure in named[name].figures for goal in figure.goals)
