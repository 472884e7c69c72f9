from datetime import timedelta

import pyarrow as pa
import pytest

from compliance.figures.facts import BurnFacts
from compliance.figures.trends import PAIRS, burn_facts
from tests.compliance.planted import BEGIN

BAD_MINUTES = {"a bad minute": ({10}, 15), "an old story": (range(5), 60), "a blip": ({300}, 360), "short": ({1}, 5)}
"""By tenant, the minutes in which its limit was over, and how many there are."""


@pytest.fixture(scope="module")
def burned():
    """By tenant and promise, and then by long window, what is found.

    Limits are judged for all of each minute; in the bad ones they were over for half of it.
    """
    begin = int(BEGIN.timestamp()) // 60
    rows = [
        {"tenant": tenant, "minute": begin + minute, "judged_s": 60.0, "over_s": 30.0 if minute in bad else 0.0}
        | {"waited_s": 0.0, "short_s": 0.0}
        for tenant, (bad, minutes) in BAD_MINUTES.items()
        for minute in range(minutes)
    ]
    burns: dict[tuple[str, str], dict[int, BurnFacts]] = {}
    for row in burn_facts(pa.Table.from_pylist(rows), 1 - 0.01):
        pairs = burns.setdefault((row.tenant, row.promise), {})
        assert row.long_s not in pairs
        pairs[row.long_s] = row
    return burns


def test_a_burn_rate_is_bad_time_over_the_budget_in_both_windows(burned):
    # One bad minute of a quarter of an hour: 30 s of 300 s, and 30 s of the 900 s that there are of the hour.
    rows = burned["a bad minute", "containment"]
    assert rows[3600].worst == pytest.approx(30 / 660 / 0.01)
    assert rows[3600].worst_at == BEGIN + timedelta(minutes=11)
    assert (rows[3600].bad_s, rows[3600].judged_s) == (30, 900)


def test_an_old_story_does_not_burn_at_the_end(burned):
    rows = burned["an old story", "containment"]
    assert rows[3600].last == 0
    assert rows[3600].worst == pytest.approx(50)


def test_a_blip_alone_does_not_ring_the_long_window(burned):
    rows = burned["a blip", "containment"]
    assert rows[3600].worst == pytest.approx(30 / 3600 / 0.01)
    assert rows[3600].worst < PAIRS[0].threshold


def test_a_promise_that_was_never_due_has_no_row(burned):
    assert set(burned) == {(tenant, "containment") for tenant in BAD_MINUTES}
