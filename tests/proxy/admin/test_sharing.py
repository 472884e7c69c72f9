"""`GET /sluice/fleet`: what is listed has a bound, and each member lists the members."""

from contextlib import closing

import pytest

from fleet.messages import Introduction, MemberReport, Quota, ShareKey
from proxy.admin.routes import sharing
from tests.proxy.fleet.proxies import SECOND, World


def test_of_all_shares_so_many_are_shown_as_an_answer_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    with closing(world.loop):
        leader, _ = world.join(), world.join()
        world.run(5)
        coordinator = leader.fleet.coordinator
        assert coordinator is not None
        quota = Quota(1, SECOND, 1)
        for member in range(1, 11):
            keys = [ShareKey.of(f"publish tenant t{number}", "bytes") for number in range(10)]
            introductions = [Introduction(number, key, quota, 0) for number, key in enumerate(keys)]
            coordinator.hear(
                MemberReport("front", "m", member, 1, 1, coordinator.epoch, introductions=introductions), 0
            )
        monkeypatch.setattr(sharing, "MOST_HOLDERS", 35)
        shown = list(sharing._limits(coordinator, leader.fleet.now(), 1000))
        assert [len(limit["holders"]) for limit in shown[-3:]] == [10, 10, 10]
        assert sum(len(limit["holders"]) for limit in shown) <= 35


def test_each_member_lists_the_members_that_the_coordinator_has() -> None:
    world = World()
    with closing(world.loop):
        leader, other = world.join(), world.join()
        assert sharing._members(other.fleet) is None, "no coordinator has answered yet"
        world.run(5)
        assert (leader.fleet.coordinator is None, other.fleet.coordinator is None) == (False, True)
        of_coordinator, of_other = sharing._members(leader.fleet), sharing._members(other.fleet)
        assert of_coordinator is not None
        assert of_other is not None
        assert sorted(each["incarnation"] for each in of_coordinator) == sorted(
            each["incarnation"] for each in of_other
        )
        assert all(0 <= each["heard_s_ago"] < 3 for each in of_other)
        assert [(each["has_twin"], each["version"]) for each in of_other] == [(False, "9.9"), (False, "9.9")]
        listed = of_other[0]["heard_s_ago"]
        world.hub.is_cut = True
        world.run(1)
        later = sharing._members(other.fleet)
        assert later is not None
        assert later[0]["heard_s_ago"] > listed
