from typing import Any

import pytest

from compliance.figures.facts import ReplayFacts
from compliance.figures.proposals import Proposal
from compliance.report.sections.what_if import unmatched, what_ifs

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
def test_a_looser_limit_than_the_one_somebody_waited_on_is_a_lower_bound(more, certainty):
    assert judged(**more).certainty == certainty


def test_what_never_catches_up_is_told():
    assert not judged(left_ms=20_000.0).is_caught_up
    assert judged().is_caught_up


def test_who_would_be_newly_held_comes_first():
    rows = [replay(name="a", held_messages=0), replay(name="b", censored_s=1.0, held_messages=99), replay(name="c")]
    assert [row.name for row in what_ifs(rows, [PROPOSAL])] == ["c", "b", "a"]


def test_a_proposal_that_fits_nothing_is_named():
    assert unmatched([replay()], [PROPOSAL, Proposal(level="tenant", name="x", bytes=1.0)]) == ["publish tenant x"]
