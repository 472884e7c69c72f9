from typing import Any

import pytest

from compliance.figures.facts import BurnFacts
from compliance.report.sections.budgets import burns
from tests.compliance.planted import BEGIN


def fact(**more):
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
    (row,) = burns([fact(worst=worst, last=last)], 0.999, 7200)
    assert row.bell == bell


def test_the_budget_that_is_spent_is_that_of_the_time_that_was_judged():
    (row,) = burns([fact()], 0.999, 7200)
    assert row.spent == pytest.approx(2)


def test_a_log_shorter_than_the_long_window_is_told():
    assert not burns([fact()], 0.999, 3599)[0].is_whole
    assert burns([fact()], 0.999, 3600)[0].is_whole


def test_what_rings_now_comes_first():
    rows = burns([fact(tenant="a"), fact(tenant="b", worst=20.0), fact(tenant="c", worst=15.0, last=15.0)], 0.999, 7200)
    assert [row.tenant for row in rows] == ["c", "b", "a"]
