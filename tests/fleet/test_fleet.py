"""Progress: how soon shares are what they should be, after everything that can happen; and what is kept and refused."""

import tracemalloc
from random import Random

import pytest

from fleet.coordinator import MOST_MEMBERS, Coordinator
from fleet.member import FOREVER, FleetMember, FleetSettings
from fleet.messages import Demand, Grant, Grants, MemberReport, Quota, ShareKey
from fleet.shares import UNBOUNDED, WHOLE, ShareClaim, fill
from tests.fleet.world import KEY, MS, RATE, SECOND, Clock, World

CYCLE = 250 * MS
MOST_MEMORY = 50_000_000


def running(*loads: float, loss: float = 0.0) -> World:
    world = World(1)
    world.elect()
    world.run(5 * SECOND)
    world.loss = loss
    for load in loads:
        world.join({KEY: load})
    world.run(3 * SECOND)
    return world


def shares(world: World) -> list[int]:
    return [process.can_earn(KEY, world.now) for process in world.processes]


def fair(world: World) -> list[int]:
    wanted = [process.offered[KEY] * 1050 for process in world.processes]
    return fill([ShareClaim(min(WHOLE, int(one * WHOLE / 1_000_000)), 1) for one in wanted])


def is_fair(world: World, within: float = 0.05) -> bool:
    return all(abs(share - to) <= within * WHOLE for share, to in zip(shares(world), fair(world), strict=True))


@pytest.mark.parametrize(("loss", "cycles"), [(0.0, 3), (0.2, 4)])
def test_shares_are_fair_within_cycles_of_a_join_a_wake_a_surge_and_a_fall(loss, cycles) -> None:
    world = running(1e6, 1e6, 50, 0, loss=loss)
    assert is_fair(world)
    for index, load in ((3, 1e6), (2, 1e6), (0, 10), (0, 1e6), (1, 0)):
        world.offer(world.processes[index], KEY, load)
        world.run(cycles * CYCLE)
        assert is_fair(world), (index, load, shares(world), fair(world))
    world.join({KEY: 1e6})
    world.run(cycles * CYCLE)
    assert is_fair(world)


def test_the_quota_is_used_while_anybody_wants_it() -> None:
    world = running(1e6, 1e6, 30)
    before = sum(process.buckets[KEY].passed for process in world.processes)
    world.run(5 * SECOND)
    passed = sum(process.buckets[KEY].passed for process in world.processes) - before
    assert 0.97 * 5000 <= passed <= 5000 + RATE.burst + 3


def test_who_leaves_or_crashes_leaves_its_share_to_the_others() -> None:
    world = running(1e6, 1e6, 1e6)
    world.leave(world.processes[0])
    world.run(500 * MS)
    assert shares(world) == [500_000, 500_000]
    world.crash(world.processes[0])
    world.run(1900 * MS)
    assert shares(world) == [500_000]  # it might only be silent
    world.run(600 * MS)
    assert shares(world) == [WHOLE]


def test_a_takeover_disturbs_nobody() -> None:
    world = running(1e6, 1e6, 50)
    before = shares(world)
    world.kill_coordinator()
    world.run(SECOND)
    world.elect()
    for _ in range(80):
        world.run(100 * MS)
        assert shares(world) == before
    world.join({KEY: 1e6})
    world.run(3 * CYCLE)
    assert is_fair(world)


def test_after_a_takeover_what_was_brought_is_divided_at_once() -> None:
    world = running(1e6, 1e6)
    world.kill_coordinator()
    world.elect()
    world.run(CYCLE)
    world.join({KEY: 1e6})
    world.run(3 * CYCLE)
    assert is_fair(world)


def test_a_stopped_process_has_lost_its_share_when_it_goes_on() -> None:
    world = running(1e6, 1e6)
    world.processes[0].stopped = True
    world.run(90 * SECOND, 50 * MS)
    assert shares(world) == [0, WHOLE]
    world.processes[0].stopped = False
    world.run(3 * CYCLE)
    assert shares(world) == [500_000, 500_000]


@pytest.mark.parametrize(
    ("isolated", "refused", "kept"),
    [
        ("fair", False, 500_000),
        ("floor", True, 25_000),
        ("none", True, 0),
        ("auto", True, 500_000),
        ("auto", False, 25_000),
    ],
)
def test_who_is_cut_off_keeps_a_part(isolated, refused, kept) -> None:
    world = World(1, FleetSettings("f", isolated=isolated))
    world.elect()
    world.run(5 * SECOND)
    alone, other = world.join({KEY: 1e6}), world.join({KEY: 1e6})
    world.run(2 * SECOND)
    alone.cut = True
    member, end = alone.member, alone.member.lease_until
    assert member.cut_off(end - 1, refused=refused) == []
    assert [share.ppm for share in member.cut_off(end, refused=refused)] == [kept]
    assert member.lease_until == FOREVER
    assert member.cut_off(end + 1, refused=refused) == []  # once
    del other


def test_who_was_cut_off_is_heard_again_and_brings_its_share() -> None:
    world = World(1, FleetSettings("f", isolated="fair"))
    world.allowed = 1 + 1 / 2  # one of two is cut off
    world.elect()
    world.run(5 * SECOND)
    alone, _ = world.join({KEY: 1e6}), world.join({KEY: 1e6})
    world.run(2 * SECOND)
    alone.cut = True
    world.run(4 * SECOND)
    assert shares(world) == [500_000, WHOLE]  # what `fair` costs, as is said
    world.run(20 * SECOND, 50 * MS)
    alone.cut = False
    world.run(3 * CYCLE)
    assert shares(world) == [500_000, 500_000]
    assert not alone.member.isolated


def test_the_lower_of_two_limits_holds_for_both_until_they_agree() -> None:
    world = running(1e6, 1e6)
    low = Quota(100, SECOND, 10)
    world.offer(world.processes[0], KEY, 1e6, low)
    world.run(3 * CYCLE)
    assert world.processes[1].held[KEY] == low
    assert world.leader is not None
    [status] = world.leader.limits(world.now)
    assert status.disagreement
    assert status.quota == low
    world.offer(world.processes[1], KEY, 1e6, Quota(5000, SECOND, 10))
    world.offer(world.processes[0], KEY, 1e6, Quota(5000, SECOND, 10))
    world.run(3 * CYCLE)
    assert [process.held[KEY] for process in world.processes] == [None, None]


def test_late_doubled_and_forged_grants_are_refused_and_counted() -> None:
    world = running(1e6, 1e6)
    member = world.processes[0].member
    before, now = member.shares(), world.processes[0].clock.at(world.now)

    def take(fleet: str = "f", epoch: int = member.epoch, answers: int = 1, **more: object) -> None:
        grant = Grant(member.incarnation, answers, **more)  # type: ignore[arg-type]
        assert member.take(Grants(fleet, "x", epoch, 1, [grant]), now) == []

    member.refused.clear()
    take(fleet="g")
    take(epoch=member.epoch - 1, sequence=99, shares=[(0, WHOLE)])
    take(answers=member._since - 1, sequence=99, shares=[(0, WHOLE)])
    take(answers=member._sequence + 1, sequence=99, shares=[(0, WHOLE)])
    take(answers=member._sequence, sequence=1, shares=[(0, WHOLE)])
    take(answers=member._sequence, sequence=99, shares=[(7, WHOLE)])
    assert member.refused == {"fleet": 1, "epoch": 1, "session": 2, "repeated": 1, "unknown": 1}
    assert member.shares() == before


def test_reports_that_are_not_to_be_taken_are_counted() -> None:
    coordinator = Coordinator(FleetSettings("f"), "c", 5, 0)
    coordinator.hear(MemberReport("g", "m", 1, 1, 1, 5), 0)
    coordinator.hear(MemberReport("f", "m", 1, 1, 1, 5), 0)
    coordinator.hear(MemberReport("f", "m", 1, 1, 1, 5), 0)
    coordinator.hear(MemberReport("f", "m", 1, 2, 1, 5, seen=9), 0)
    coordinator.hear(MemberReport("f", "m", 2, 2, 1, 5, seen=9), 0)
    assert coordinator.refused == {"fleet": 1, "repeated": 1, "seen": 1, "session": 1}
    [grants] = coordinator.grant(0)
    assert [(grant.incarnation, grant.void) for grant in grants.grants] == [(2, True), (1, False)]
    for incarnation in range(3, MOST_MEMBERS + 4):
        coordinator.hear(MemberReport("f", "m", incarnation, 1, 1, 5), 0)
    assert coordinator.refused["members"] == 2
    coordinator.hear(MemberReport("f", "m", 1, 3, 1, 6), 0)
    assert coordinator.deposed
    assert coordinator.grant(0) == []


def test_twenty_members_of_a_thousand_limiters() -> None:
    """Each limiter is of five members: a 25th of 100 members of 5,000, whose goals these are."""
    random, settings = Random(1), FleetSettings("f", isolated="none")
    members = [FleetMember(settings, f"proxy-{index}", index + 1, 0) for index in range(20)]
    keys = [ShareKey(f"publish namespace tenant-{index % 100}/namespace-{index}", "messages") for index in range(4000)]
    coordinator = Coordinator(settings, "c", 5, -10 * SECOND)
    for member in members:
        member.take(Grants("f", "c", 5, 0), 0)

    def cycle(now: int, part: int) -> int:
        coordinator.confirmed(now)
        size = 0
        for index, member in enumerate(members):
            own = [keys[(index * 200 + number) % 4000] for number in range(1000)]
            demand = Demand(random.randrange(10**6), UNBOUNDED, 1, Quota(1000, SECOND, 1000))
            data = member.report(dict.fromkeys(random.sample(own, part), demand), (), now).encode()
            coordinator.hear(MemberReport.decode(data), now)
            size += len(data)
        for grants in coordinator.grant(now):
            data = grants.encode()
            size += len(data)
            for member in members:
                member.take(Grants.decode(data), now)
        return size

    tracemalloc.start()
    sizes = [cycle(number * CYCLE, part) for number, part in enumerate([1000, 0, 0, 10, 1000, 0, 0])]
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/fleet/coordinator.py")])
    tracemalloc.stop()
    assert sizes[2] <= 20 * 50
    assert sizes[3] <= 100_000 / 25
    assert sizes[4] <= 10_000_000 / 25
    assert sum(one.size for one in snapshot.statistics("filename")) <= MOST_MEMORY / 25


def test_clocks_may_be_anywhere() -> None:
    world = World(1)
    world.elect(Clock(10**15, 2000))
    world.run(5 * SECOND)
    world.join({KEY: 1e6}, Clock(0, -2000))
    world.join({KEY: 1e6}, Clock(10**9, 2000))
    world.run(20 * SECOND, 20 * MS)
    assert shares(world) == [500_000, 500_000]
