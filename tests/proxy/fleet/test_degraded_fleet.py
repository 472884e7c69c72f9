"""The degraded states of a member, and which shares are in force in it."""

from dataclasses import replace

import pytest

from fleet.messages import Introduction, MemberReport
from proxy.fleet.service import FleetService
from tests.proxy.fleet.proxies import Proxy, World


def causes(member: Proxy) -> list[str]:
    return [state.cause for state in member.fleet.degraded()]


def shares(fleet: FleetService) -> tuple[str, str]:
    in_force = fleet.shares_in_force()
    return in_force.state, in_force.part


def test_a_member_that_is_answered_is_not_degraded(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    assert causes(leader) == causes(other) == []
    assert shares(other.fleet) == ("granted", "")
    assert other.fleet.shares_in_force().why == "as sluice-0 has granted them"


def test_fleet_not_formed_is_reported_with_cause_and_remedy(world: World) -> None:
    world.hub.is_cut = True
    member = world.join()
    world.hub.links[0].remedy = "start another one"
    world.hub.links[0].problem = "nobody is there; start another one"
    assert shares(member.fleet) == ("none", "")
    world.run(1.9)
    assert causes(member) == []
    world.run(1)
    [state] = member.fleet.degraded()
    assert state == (
        "fleet_not_formed",
        (
            "fleet front has not formed since the start; cut off: at most 5 % of each shared limit (fleet.isolated: "
            "floor): nobody is there"
        ),
        "start another one",
    )
    assert shares(member.fleet) == ("isolated", "floor")
    since = member.fleet.shares_in_force().since_ns
    world.run(5)
    assert member.fleet.shares_in_force().since_ns == since


@pytest.mark.parametrize(("refused", "part", "most"), [(False, "floor", "2.5 %"), (True, "fair", "50 %")])
def test_member_cut_off_tells_its_part_and_last_coordinator(
    world: World, *, refused: bool, part: str, most: str
) -> None:
    _, other = world.join(), world.join()
    world.run(5)
    world.hub.is_cut = True
    world.hub.links[1].refused = refused
    world.run(3)
    [state] = other.fleet.degraded()
    assert state.cause == "fleet_cut_off"
    assert f"at most {most} of each shared limit (fleet.isolated: {part})" in state.reason
    assert state.reason.endswith("; sluice-0 coordinated last")
    assert shares(other.fleet) == ("isolated", part)
    world.hub.is_cut = False
    world.run(1)
    assert causes(other) == []
    assert shares(other.fleet) == ("granted", "")


@pytest.mark.parametrize(
    ("ahead_s", "reason"),
    [(0, None), (0.9, None), (-3, "3.0 s ahead"), (3, "3.0 s behind"), (10**6, "more than a day")],
)
def test_a_clock_that_is_off_is_told(world: World, ahead_s: float, reason: str | None) -> None:
    world.join(ahead_ns=round(ahead_s * 1e9))
    other = world.join()
    world.run(3)
    if reason is None:
        assert causes(other) == []
    else:
        [state] = other.fleet.degraded()
        assert state.cause == "fleet_clock"
        assert reason in state.reason


def test_lost_messages_are_told_for_a_minute(world: World) -> None:
    member = world.join()
    world.run(5)
    counts = world.hub.links[0].counts
    counts.dropped["disconnected"] += 5
    assert causes(member) == []
    counts.dropped["refused"] += 2
    [state] = member.fleet.degraded()
    assert (state.cause, "refused 2 since the start" in state.reason) == ("fleet_messages_lost", True)
    world.loop.advance(59)
    assert causes(member) == ["fleet_messages_lost"]
    world.loop.advance(2)
    assert causes(member) == []


def test_members_with_other_limits_or_one_name_are_told(world: World) -> None:
    leader, other = world.join(), world.join(500)
    world.run(10)
    assert causes(leader) == causes(other) == ["fleet_limits_differ"]
    [state] = other.fleet.degraded()
    assert "in sluice-0; 1 limits" in state.reason
    assert "in sluice-1. " in state.reason
    coordinator = leader.fleet.coordinator
    assert coordinator is not None
    report = MemberReport("front", "sluice-0", 5, 1, 1, coordinator.epoch, introductions=list[Introduction]())
    for sequence in range(1, 40):
        coordinator.hear(replace(report, sequence=sequence), world.loop.clock())
        world.run(0.25)
    assert "fleet_names_taken_twice" in causes(leader)
