from typing import Any

import pytest

from compliance.figures.facts import FairnessFacts
from compliance.report.sections.sharing import jain, shared_limits


def fact(member, got, fair, **more):
    values: dict[str, Any] = {
        "proxy_id": "p",
        "direction": "publish",
        "level": "namespace",
        "name": "acme/orders",
        "unit": "messages",
    }
    return FairnessFacts(
        **(values | {"member": member, "contended_s": 60.0, "got": got, "wanted": 900.0, "fair": fair} | more)
    )


def test_jains_index_is_one_for_equals_and_one_nth_for_a_monopoly():
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)


def test_the_gap_is_what_the_worst_off_lacks_of_its_share():
    (limit,) = shared_limits([fact("a", 90.0, 50.0), fact("b", 10.0, 50.0)])
    assert limit.worst_off == "b"
    assert limit.gap == pytest.approx(0.8)
    assert [one.member for one in limit.members] == ["b", "a"]
    assert limit.jain == pytest.approx(1 / (2 * (0.9**2 + 0.1**2)))


def test_different_demands_that_are_met_by_their_shares_are_fair():
    (limit,) = shared_limits([fact("a", 90.0, 90.0), fact("b", 10.0, 10.0)])
    assert limit.jain == pytest.approx(1)
    assert limit.gap == 0


def test_a_limit_of_one_member_shares_nothing():
    assert shared_limits([fact("a", 90.0, 50.0), fact("b", 0.0, 0.0, wanted=0.0)]) == []


def test_the_unfairest_limit_comes_first():
    rows = [fact(one, 50.0, 50.0) for one in "ab"] + [fact("c", 1.0, 50.0, name="z"), fact("d", 99.0, 50.0, name="z")]
    assert [limit.name for limit in shared_limits(rows)] == ["z", "acme/orders"]
