"""Progress: the time until shares are fair after each event; and bounds, refusals and counts."""

from dataclasses import replace
from random import Random

import pytest

from fleet.coordinator import MOST_MEMBERS, Coordinator
from fleet.member import FOREVER, REFRESH_REPORTS, FleetMember
from fleet.messages import (
    FULL_REPORT,
    MOST_BROKERS,
    MOST_GONE,
    MOST_LIMITERS,
    MOST_LISTED,
    MOST_NAME,
    MOST_VERSION,
    Demand,
    Grant,
    Grants,
    Introduction,
    LimitShare,
    MemberReport,
    Quota,
    ShareKey,
)
from fleet.settings import FleetSettings
from fleet.share_table import MOST_UNSEEN, MemberShares
from fleet.shares import MOST_WEIGHT, UNBOUNDED, WHOLE, fill
from tests.fleet.world import KEY, MS, RATE, SECOND, Clock, World, put_now

CYCLE = 250 * MS


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
    wanted = [process.offered[KEY] * 1010 for process in world.processes]
    return fill([min(WHOLE, int(demand * WHOLE / 1_000_000)) for demand in wanted], [1] * len(wanted))


def is_fair(world: World, within: float = 0.05) -> bool:
    return all(abs(share - to) <= within * WHOLE for share, to in zip(shares(world), fair(world), strict=True))


@pytest.mark.parametrize(("loss", "cycles"), [(0.0, 3), (0.2, 4)])
def test_shares_are_fair_a_few_cycles_after_a_change_of_load(loss, cycles) -> None:
    world = running(1e6, 1e6, 50, 0, loss=loss)
    assert is_fair(world)
    for index, load in ((3, 1e6), (2, 1e6), (0, 10), (0, 1e6), (1, 0)):
        world.offer(world.processes[index], KEY, load)
        world.run(cycles * CYCLE)
        assert is_fair(world), (index, load, shares(world), fair(world))
    world.join({KEY: 1e6})
    world.run(cycles * CYCLE)
    assert is_fair(world)


def share_of(member: FleetMember) -> int:
    [share] = [share for share in member.shares() if share.key == KEY]
    return share.ppm


def test_the_limit_is_used_while_a_member_wants_it() -> None:
    world = running(1e6, 1e6, 30)
    before = sum(process.buckets[KEY].passed for process in world.processes)
    world.run(5 * SECOND)
    passed = sum(process.buckets[KEY].passed for process in world.processes) - before
    assert 0.97 * 5000 <= passed <= 5000 + RATE.burst + 3


@pytest.mark.parametrize("loads", [(150, 150, 150, 150, 1e6), (900, 20, 30, 1e6), (100, 1e6, 1e6)])
def test_the_rest_of_met_demands_goes_to_unmet_ones(loads) -> None:
    """Members whose demand is met pass all of their load; all together pass 99 % of the limit."""
    world = running(*loads)
    before = [process.buckets[KEY].passed for process in world.processes]
    world.run(5 * SECOND)
    passed = [process.buckets[KEY].passed - old for process, old in zip(world.processes, before, strict=True)]
    assert 0.99 * 5000 <= sum(passed) <= 5000 + RATE.burst + len(loads)
    for load, tokens, share in zip(loads, passed, fair(world), strict=True):
        assert tokens >= 0.995 * 5 * min(load, share * 1000 / WHOLE)


def test_a_growing_demand_is_met_beside_an_unbounded_one() -> None:
    world = running(100, 1e6)
    load, missed = 100.0, 0.0
    for _ in range(100):
        load *= 1.02  # each cycle
        world.offer(world.processes[0], KEY, min(load, 480))
        before = world.processes[0].buckets[KEY].passed
        world.run(CYCLE)
        missed += min(load, 480) / 4 - (world.processes[0].buckets[KEY].passed - before)
    assert missed <= 0.03 * 100 * 480 / 4
    assert sum(shares(world)) >= 0.999 * WHOLE


def test_small_changes_of_demand_below_the_limit_change_no_share() -> None:
    world = running(300, 200, 100)
    before = shares(world)
    for index, load in ((0, 350), (1, 150), (2, 130), (0, 250)):
        world.offer(world.processes[index], KEY, load)
        world.run(3 * CYCLE)
        assert shares(world) == before
    world.offer(world.processes[0], KEY, 480)
    world.run(3 * CYCLE)
    assert is_fair(world)
    world.offer(world.processes[1], KEY, 0)
    world.run(3 * CYCLE)
    assert shares(world)[1] == 0
    world.offer(world.processes[0], KEY, 0)
    world.offer(world.processes[2], KEY, 0)
    world.run(4 * CYCLE)
    assert shares(world) == [333_250] * 3


def test_streams_above_the_greatest_weight_are_reported_as_it() -> None:
    member, coordinator = FleetMember(FleetSettings("f"), "m", 1, 0), Coordinator(FleetSettings("f"), "c", 1, 0)
    reported, demand = list[list[int]](), Demand(1000, UNBOUNDED, 10**6, RATE)
    for cycle in range(1, 5):
        report = member.report({KEY: demand}, (), cycle * CYCLE)
        reported.append(list(report.streams))
        coordinator.confirmed(cycle * CYCLE)
        coordinator.hear(report, cycle * CYCLE)
        for grants in coordinator.grant(cycle * CYCLE):
            member.take(grants, cycle * CYCLE)
            put_now(member)
    assert reported == [[], [MOST_WEIGHT], [], []]


def test_a_member_that_leaves_or_crashes_frees_its_share() -> None:
    world = running(1e6, 1e6, 1e6)
    world.leave(world.processes[0])
    world.run(500 * MS)
    assert shares(world) == [500_000, 500_000]
    world.crash(world.processes[0])
    world.run(1900 * MS)
    assert shares(world) == [500_000]  # it might only be silent
    world.run(600 * MS)
    assert shares(world) == [WHOLE]


def test_each_report_of_leaving_is_answered_even_after_the_end() -> None:
    settings = FleetSettings("front")
    member, coordinator = FleetMember(settings, "one", 7, 0), Coordinator(settings, "one", 1, 0)

    def pass_on(report: MemberReport) -> None:
        coordinator.hear(report, MS)
        for grants in coordinator.grant(MS):
            member.take(grants, MS)
            put_now(member)

    for _ in range(3):
        pass_on(member.report({}, (), MS))
    last = member.leave(MS)
    assert not member.has_left
    for _ in range(2):
        member.has_left = False
        pass_on(last)
        assert member.has_left
    assert coordinator.members(MS) == []
    assert not coordinator.dropped
    coordinator = Coordinator(settings, "two", 2, MS)
    coordinator.hear(last, MS)  # the member follows another coordinator and has no session with this one
    assert [grant for grants in coordinator.grant(MS) for grant in grants.grants] == []


def test_a_takeover_changes_no_share() -> None:
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


def test_brought_shares_are_divided_at_once_after_a_takeover() -> None:
    world = running(1e6, 1e6)
    world.kill_coordinator()
    world.elect()
    world.run(CYCLE)
    world.join({KEY: 1e6})
    world.run(3 * CYCLE)
    assert is_fair(world)


def test_a_stopped_process_has_lost_its_share_when_it_resumes() -> None:
    world = running(1e6, 1e6)
    world.processes[0].stopped = True
    world.run(90 * SECOND, 50 * MS)
    assert shares(world) == [0, WHOLE]
    world.processes[0].stopped = False
    world.run(3 * CYCLE)
    assert shares(world) == [500_000, 500_000]


@pytest.mark.parametrize(("members", "at_once"), [(1, 100), (2, 50), (4, 25)])
def test_a_burst_of_one_member_is_its_part_of_the_burst(members, at_once) -> None:
    """One process alone passes a burst of 100 whole."""
    world = running(*[0] * members)
    bucket = world.processes[0].buckets[KEY]
    before, at = bucket.passed, bucket.balance
    assert at_once <= at <= at_once + 1
    world.offer(world.processes[0], KEY, 1e6)
    world.run(5 * MS, MS)
    assert at_once <= bucket.passed - before <= at_once + 2 + 5 * members


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
def test_an_isolated_member_keeps_a_part_of_its_share(isolated, refused, kept) -> None:
    world = World(1, FleetSettings("f", isolated=isolated))
    world.elect()
    world.run(5 * SECOND)
    alone, other = world.join({KEY: 1e6}), world.join({KEY: 1e6})
    world.run(2 * SECOND)
    alone.cut = True
    member, end = alone.member, alone.member.lease_until
    put = list[list[int]]()
    for now in (end - 1, end, end + 1):
        member.cut_off(now, refused=refused)
        put.append([share.ppm for share in put_now(member)])
    assert put == [[], [kept], []]
    assert member.lease_until == FOREVER
    del other


@pytest.mark.parametrize(("expected", "kept"), [(0, WHOLE // 20), (4, WHOLE // 4)])
def test_a_member_without_a_coordinator_divides_by_the_expected(expected: int, kept: int) -> None:
    """Without a known or expected number of members a fair part is unknown, and the floor holds."""
    world = World(1, FleetSettings("f", isolated="fair", expected=expected))
    members = [world.join({KEY: 1e6}) for _ in range(4)]
    world.run(3 * SECOND)
    assert [process.can_earn(KEY, world.now) for process in members] == [kept] * 4


def test_an_isolated_member_that_is_back_brings_its_share() -> None:
    world = World(1, FleetSettings("f", isolated="fair"))
    world.allowed = 1 + 1 / 2  # one of two is cut off
    world.elect()
    world.run(5 * SECOND)
    alone, _ = world.join({KEY: 1e6}), world.join({KEY: 1e6})
    world.run(2 * SECOND)
    alone.cut = True
    world.run(4 * SECOND)
    assert shares(world) == [500_000, WHOLE]  # the documented price of `fair`
    world.run(20 * SECOND, 50 * MS)
    alone.cut = False
    world.run(3 * CYCLE)
    assert shares(world) == [500_000, 500_000]
    assert not alone.member.isolated


def test_brought_shares_above_the_whole_are_lowered_at_once() -> None:
    world = World(1, FleetSettings("f", isolated="fair"))
    world.allowed = 1 + 1 / 2
    world.elect()
    world.run(5 * SECOND)
    alone, _ = world.join({KEY: 100}), world.join({KEY: 100})
    world.run(2 * SECOND)
    alone.cut = True
    world.run(10 * SECOND, 20 * MS)
    assert shares(world) == [500_000, WHOLE]
    alone.cut = False
    world.run(3 * CYCLE)
    assert sum(shares(world)) <= WHOLE
    assert is_fair(world)


def test_the_lower_of_two_limits_holds_for_both_until_they_agree() -> None:
    world = running(1e6, 1e6)
    low = Quota(100, SECOND, 10)
    world.offer(world.processes[0], KEY, 1e6, low)
    world.run(3 * CYCLE)
    assert world.processes[1].held[KEY] == low
    assert world.leader is not None
    [status] = world.leader.table.limits(world.now)
    assert status.disagreement
    assert status.quota == low
    world.offer(world.processes[1], KEY, 1e6, Quota(5000, SECOND, 10))
    world.offer(world.processes[0], KEY, 1e6, Quota(5000, SECOND, 10))
    world.run(3 * CYCLE)
    assert [process.held[KEY] for process in world.processes] == [None, None]


def test_late_doubled_and_forged_grants_are_dropped_and_counted() -> None:
    world = running(1e6, 1e6)
    member = world.processes[0].member
    before, now = [*member.shares()], world.processes[0].clock.at(world.now)
    latest = member.report({}, (), now).sequence

    def take(fleet: str = "f", epoch: int = member.epoch, answers: int = 1, **more: object) -> None:
        grant = Grant(member.incarnation, answers, **more)  # type: ignore[arg-type]
        member.take(Grants(fleet, "x", epoch, 1, [grant]), now)
        assert not member.has_to_put

    member.dropped.clear()
    take(fleet="g")
    take(epoch=member.epoch - 1, sequence=99, ids=[0], ppm=[WHOLE])
    take(answers=0, sequence=99, ids=[0], ppm=[WHOLE])
    take(answers=latest + 1, sequence=99, ids=[0], ppm=[WHOLE])
    take(answers=latest, sequence=1, ids=[0], ppm=[WHOLE])
    take(answers=latest, sequence=99, ids=[7], ppm=[WHOLE])
    assert member.dropped == {"fleet": 1, "epoch": 1, "session": 2, "repeated": 1, "unknown": 1}
    assert [*member.shares()] == before


def test_shares_are_read_while_limits_come_and_go() -> None:
    keys = [KEY._replace(name=name) for name in ("one", "other", "later")]
    demand = Demand(1000, 1000, 1, RATE)
    member = World(1).join({}).member
    member.report(dict.fromkeys(keys[:2], demand), (), 1)
    shares = member.shares()
    assert next(shares).key == keys[0]
    member.report({}, keys[1:2], 2)
    member.report({keys[2]: demand}, (), 3)
    assert [*shares] == []
    assert [share.key for share in member.shares()] == [keys[0], keys[2]]


def test_dropped_reports_are_counted_by_cause() -> None:
    coordinator = Coordinator(FleetSettings("f"), "c", 5, 0)
    coordinator.hear(MemberReport("g", "m", 1, 1, 1, 5), 0)
    coordinator.hear(MemberReport("f", "m", 1, 1, 1, 5), 0)
    coordinator.hear(MemberReport("f", "m", 1, 1, 1, 5), 0)
    coordinator.hear(MemberReport("f", "m", 1, 2, 1, 5, seen=9), 0)
    coordinator.hear(MemberReport("f", "m", 2, 2, 1, 5, seen=9), 0)
    assert coordinator.dropped == {"fleet": 1, "repeated": 1, "seen": 1, "session": 1}
    [grants] = coordinator.grant(0)
    assert [(grant.incarnation, grant.void) for grant in grants.grants] == [(2, True), (1, False)]
    for incarnation in range(3, MOST_MEMBERS + 4):
        coordinator.hear(MemberReport("f", "m", incarnation, 1, 1, 5), 0)
    assert coordinator.dropped["members"] == 2
    coordinator.hear(MemberReport("f", "m", 1, 3, 1, 6), 0)
    assert coordinator.deposed
    assert coordinator.grant(0) == []


def test_a_forged_grant_holds_no_longer_than_its_lease() -> None:
    """Else one forged message with a huge sequence would make the member drop all true ones."""
    world = running(1e6, 1e6)
    member, now = world.processes[0].member, world.processes[0].clock.at(world.now)
    forged = Grant(member.incarnation, member.report({}, (), now).sequence, sequence=2**64 - 1, ids=[0], ppm=[WHOLE])
    member.take(Grants("f", "x", member.epoch, 2, [forged]), now)
    assert put_now(member)
    assert share_of(member) == WHOLE
    world.run(3 * world.settings.lease_ns)
    assert world.leader is not None
    assert world.leader.dropped["seen"] > 0
    assert sum(share_of(process.member) for process in world.processes) <= WHOLE
    assert min(share_of(process.member) for process in world.processes) > 0.45 * WHOLE


def test_a_member_has_at_most_one_share_of_a_limit() -> None:
    """The shares of a limit are searched one by one: many of one member would take minutes."""
    coordinator = settled_coordinator()
    coordinator.hear(introducing(1, 1, *[KEY] * 5000), 0)
    coordinator.hear(introducing(1, 2, *[KEY] * 5000), 0)
    coordinator.hear(introducing(2, 1, KEY, ShareKey.of("publish tenant a", "bytes"), KEY), 0)
    assert coordinator.dropped["doubled"] == 2 * 4999 + 1
    assert [member.limits for member in coordinator.members(0)] == [1, 2]
    [status, _] = coordinator.table.limits(0)
    assert len(status.holders) == 2
    gone = MemberReport("f", "m2", 2, 2, 1, 5, gone=[0])
    gone.introductions.append(Introduction(3, KEY, RATE, 0))  # a limiter that was replaced
    coordinator.hear(gone, 0)
    assert coordinator.dropped["doubled"] == 2 * 4999 + 1
    assert [member.limits for member in coordinator.members(0)] == [1, 2]


def introducing(
    incarnation: int, sequence: int, *keys: ShareKey, ppm: int = 0, since: int = 1, seen: int = 0
) -> MemberReport:
    """A report in which a member introduces limiters with an unbounded demand."""
    return MemberReport(
        "f",
        f"m{incarnation}",
        incarnation,
        sequence,
        since,
        5,
        seen,
        introductions=[Introduction(id_, key, RATE, ppm) for id_, key in enumerate(keys)],
        ids=range(len(keys)),
        used=[0] * len(keys),
        wanted=[UNBOUNDED] * len(keys),
        streams=[1] * len(keys),
    )


def granted(coordinator: Coordinator, now: int) -> dict[int, dict[int, int]]:
    """The shares of the next grants, by incarnation and number."""
    messages = coordinator.grant(now)
    return {
        grant.incarnation: dict(zip(grant.ids, grant.ppm, strict=True))
        for message in messages
        for grant in message.grants
    }


def settled_coordinator() -> Coordinator:
    """A coordinator that divides the whole, long after its takeover."""
    coordinator = Coordinator(FleetSettings("f"), "c", 5, -10 * SECOND)
    coordinator.confirmed(0)
    return coordinator


def test_a_silent_members_share_is_free_only_after_confirmation() -> None:
    coordinator = settled_coordinator()
    coordinator.hear(introducing(1, 1, KEY), 0)
    assert granted(coordinator, 0) == {1: {0: WHOLE}}
    coordinator.confirmed(1900 * MS)
    coordinator.hear(introducing(2, 1, KEY), 2100 * MS)
    assert granted(coordinator, 2100 * MS)[2] == {}
    coordinator.confirmed(2050 * MS)
    assert granted(coordinator, 2400 * MS)[2] == {0: WHOLE}


def test_a_new_coordinator_divides_brought_shares_for_two_leases() -> None:
    coordinator = Coordinator(FleetSettings("f"), "c", 5, 0)
    for incarnation, ppm in ((1, 300_000), (2, 0)):
        coordinator.hear(introducing(incarnation, 1, KEY, ppm=ppm), 0)
    assert granted(coordinator, 0) == {1: {0: 150_000}, 2: {}}
    for sequence, now in ((2, 1500 * MS), (3, 3 * SECOND), (4, 4079 * MS)):
        coordinator.confirmed(now)
        coordinator.hear(introducing(1, sequence, seen=1), now)
        coordinator.hear(introducing(2, sequence), now)
        coordinator.grant(now)
    [status] = coordinator.table.limits(4079 * MS)
    assert [holder.ppm for holder in status.holders] == [150_000, 150_000]
    assert granted(coordinator, 4080 * MS) == {1: {0: 500_000}, 2: {0: 500_000}}


def test_a_share_brought_again_in_a_new_session_counts_once() -> None:
    coordinator = Coordinator(FleetSettings("f"), "c", 5, 0)
    coordinator.hear(introducing(2, 1, KEY), 0)
    coordinator.hear(introducing(1, 1, KEY, ppm=300_000), 0)
    coordinator.hear(introducing(1, 2, KEY, ppm=300_000, since=2), 100 * MS)
    coordinator.grant(100 * MS)
    [status] = coordinator.table.limits(100 * MS)
    granted = {holder.member: holder.ppm for holder in status.holders}
    assert granted == {"m1": 150_000, "m2": 0}  # until it is acknowledged


def test_only_an_acknowledged_decrease_frees_a_share() -> None:
    other = ShareKey.of("publish tenant t", "messages")
    coordinator = settled_coordinator()
    coordinator.hear(introducing(1, 1, KEY, other), 0)
    assert granted(coordinator, 0) == {1: {0: WHOLE, 1: WHOLE}}
    coordinator.hear(introducing(1, 2, seen=1), 0)
    coordinator.hear(introducing(2, 1, KEY), 0)
    assert granted(coordinator, 0) == {1: {0: 500_000}, 2: {}}
    coordinator.hear(introducing(3, 1, other), 0)
    assert granted(coordinator, 0) == {1: {0: 500_000, 1: 500_000}, 3: {}}
    coordinator.hear(introducing(1, 3, seen=2), 0)
    assert granted(coordinator, 0) == {1: {}, 2: {0: 500_000}}


def test_shares_of_a_reused_number_are_those_of_its_new_limit() -> None:
    other = ShareKey.of("publish tenant t", "messages")
    coordinator = settled_coordinator()
    coordinator.hear(introducing(1, 1, KEY), 0)
    coordinator.hear(introducing(2, 1, other), 0)
    assert granted(coordinator, 0) == {1: {0: WHOLE}, 2: {0: WHOLE}}
    coordinator.hear(replace(introducing(1, 2, other), gone=[0]), 0)
    assert granted(coordinator, 0) == {1: {}, 2: {0: 500_000}}
    assert granted(coordinator, SECOND) == {1: {}, 2: {0: 500_000}}, "repeated; the whole was of the other limit"
    coordinator.hear(introducing(2, 2, seen=2), SECOND)
    assert granted(coordinator, SECOND) == {1: {0: 500_000}, 2: {}}


def test_a_late_report_of_an_ended_session_begins_none() -> None:
    coordinator = settled_coordinator()
    coordinator.hear(introducing(1, 1, KEY), 0)
    coordinator.hear(replace(introducing(1, 2, since=1, seen=0), leaving=True), 0)
    coordinator.hear(introducing(1, 3, KEY), 0)  # sent before the report of leaving: no member holds this share
    assert coordinator.members(0) == []
    assert coordinator.dropped["session"] == 1
    coordinator.hear(introducing(2, 1, KEY), 0)
    assert granted(coordinator, 0)[2] == {0: WHOLE}


def test_few_grants_with_new_shares_await_an_acknowledgement() -> None:
    coordinator = settled_coordinator()
    shares: dict[int, int] = {}
    for number in range(MOST_UNSEEN + 4):
        report = introducing(1, number + 1, ShareKey.of(f"publish tenant {number}", "messages"))
        (named,) = report.introductions
        coordinator.hear(replace(report, introductions=[named._replace(id=number)], ids=[number]), 0)
        shares |= granted(coordinator, 0)[1]
    assert shares == dict.fromkeys(range(MOST_UNSEEN), WHOLE)
    coordinator.hear(introducing(1, MOST_UNSEEN + 5, seen=MOST_UNSEEN), 0)
    assert granted(coordinator, 0)[1] == dict.fromkeys(range(MOST_UNSEEN, MOST_UNSEEN + 4), WHOLE)


def test_introductions_beyond_the_bounds_are_dropped_and_counted(monkeypatch) -> None:
    monkeypatch.setattr("fleet.share_table.MOST_SHARES", 3)
    coordinator = Coordinator(FleetSettings("f"), "c", 5, 0)
    coordinator.hear(introducing(1, 1, *[ShareKey.of(f"publish tenant {number}", "bytes") for number in range(5)]), 0)
    assert coordinator.dropped == {"limiters": 2, "unknown": 2}
    far = MemberReport("f", "m2", 2, 1, 1, 5, introductions=[Introduction(MOST_LIMITERS - 1, KEY, RATE, 0)])
    coordinator.hear(far, 0)
    assert coordinator.dropped["limiters"] == 3
    assert [member.limits for member in coordinator.members(0)] == [3, 0]


def test_names_of_limits_are_bounded_and_freed_with_the_limits(monkeypatch) -> None:
    monkeypatch.setattr("fleet.share_table.MOST_NAMES", 20_000)
    coordinator = Coordinator(FleetSettings("f"), "c", 5, 0)
    long = [ShareKey.of(f"publish tenant {number:04000}", "bytes") for number in range(9)]
    coordinator.hear(introducing(1, 1, *long), 0)
    assert coordinator.dropped["limiters"] == 9 - 5
    coordinator.hear(introducing(2, 1, *long[:2]), 0)  # known already
    coordinator.hear(MemberReport("f", "m", 2, 2, 1, 5, leaving=True), 0)
    coordinator.hear(MemberReport("f", "m", 1, 2, 1, 5, leaving=True), 0)
    coordinator.hear(introducing(3, 1, *long), 0)
    assert coordinator.dropped["limiters"] == 2 * (9 - 5)
    assert [member.limits for member in coordinator.members(0)] == [5]


def test_unsent_shares_leave_repeated_ones_as_they_were(monkeypatch) -> None:
    """Else the acknowledgement of a message would count as that of a decrease in a lost one."""
    monkeypatch.setattr("fleet.share_table.MOST_GRANTED", 2)
    other = ShareKey.of("publish tenant t", "messages")
    coordinator = settled_coordinator()
    coordinator.hear(introducing(1, 1, KEY, other), 0)
    assert granted(coordinator, 0) == {1: {0: WHOLE, 1: WHOLE}}
    coordinator.hear(introducing(1, 2, seen=1), 0)
    coordinator.hear(introducing(2, 1, KEY, other), 0)
    assert granted(coordinator, 0) == {1: {0: 500_000, 1: 500_000}, 2: {}}
    coordinator.hear(introducing(3, 1, KEY, other), 0)
    assert granted(coordinator, 0) == {3: {}}
    assert granted(coordinator, CYCLE) == {1: {0: 500_000, 1: 500_000}}
    coordinator.hear(introducing(1, 3, seen=3), CYCLE)
    assert granted(coordinator, CYCLE) == {
        1: {0: 333_250, 1: 333_250},
        2: {0: 250_000, 1: 250_000},
        3: {0: 250_000, 1: 250_000},
    }


def test_added_and_removed_limits_are_those_of_the_table() -> None:
    """Two members add and remove limiters at random, and reuse their numbers."""
    random, coordinator = Random(1), Coordinator(FleetSettings("f"), "c", 5, -10 * SECOND)
    have: list[dict[int, ShareKey]] = [{}, {}]
    applied = {1: [0, 0, 0], 2: [0, 0, 0]}  # acknowledged three cycles later
    for sequence in range(1, 400):
        for incarnation, own in enumerate(have, start=1):
            gone = [id_ for id_ in own if random.random() < (0.5 if sequence % 50 == 0 else 0.02)]
            introductions = list[Introduction]()
            for id_ in gone:
                del own[id_]
            for id_ in set(range(200)) - set(own) - set(gone):
                key = ShareKey.of(f"publish topic {random.randrange(400)}", "messages")
                if random.random() < 0.05 and key not in own.values():
                    own[id_] = key
                    introductions.append(Introduction(id_, key, RATE, 0))
            used, wanted, streams = [[value] * len(own) for value in (5, UNBOUNDED, 1)]
            report = MemberReport(
                "f",
                f"m{incarnation}",
                incarnation,
                sequence,
                1,
                5,
                applied[incarnation][-3],
                introductions=introductions,
                ids=list(own),
                used=used,
                wanted=wanted,
                streams=streams,
                gone=gone,
            )
            coordinator.hear(report, sequence)
        coordinator.confirmed(sequence)
        for grant in coordinator.grant(sequence)[0].grants:
            applied[grant.incarnation].append(grant.sequence or applied[grant.incarnation][-1])
        limits = list(coordinator.table.limits(sequence))
        assert len(limits) == len({status.key for status in limits})
        assert {(status.key, len(status.holders)) for status in limits} == {
            (key, sum(key in own.values() for own in have)) for own in have for key in own.values()
        }
        assert all(sum(holder.ppm for holder in status.holders) <= WHOLE for status in limits)
    assert not coordinator.dropped


def following(*keys: ShareKey) -> tuple[FleetMember, MemberReport]:
    """A member that follows a coordinator since second 10, and its first report, of that second."""
    member = FleetMember(FleetSettings("f", isolated="none"), "m", 1, 10 * SECOND)
    member.take(Grants("f", "c", 5, 1), 10 * SECOND)
    return member, member.report({key: Demand(0, UNBOUNDED, 1, RATE) for key in keys}, (), 10 * SECOND)


def test_numbers_of_removed_limits_are_reused() -> None:
    member, report = following(KEY)
    used = {introduction.id for introduction in report.introductions}
    gone = KEY
    for number in range(50):
        member.take(Grants("f", "c", 5, 1, [Grant(1, report.sequence)]), 10 * SECOND)
        key = ShareKey.of(f"publish tenant {number}", "messages")
        report = member.report({key: Demand(0, 1, 1, RATE)}, [gone], 10 * SECOND)
        used |= {introduction.id for introduction in report.introductions}
        gone = key
    assert len(used) == 2, "the number of the new limit, and that of the removed one until it is answered"


def test_small_change_of_demand_is_in_one_of_eight_reports() -> None:
    member, report = following(KEY)
    demand, reports = Demand(1000, 1050, 1, RATE), []
    for number in range(3 * REFRESH_REPORTS):
        now = 10 * SECOND + number * CYCLE
        member.take(Grants("f", "c", 5, 1, [Grant(1, report.sequence)]), now)
        changed = {KEY: demand} if number == 0 else {KEY: demand._replace(used=1010)} if number == 1 else {}
        report = member.report(changed, (), now)
        reports += [(number, list(report.used))] if report.ids else []
    (first, whole), (later, little) = reports
    assert (first, whole, little) == (0, [1000], [1010])
    assert 1 < later <= REFRESH_REPORTS


def test_a_lease_counts_from_the_sending_of_the_answered_report() -> None:
    member, report = following(KEY)
    member.take(Grants("f", "c", 5, 1, [Grant(1, report.sequence, 1, ids=[0], ppm=[WHOLE])]), 11 * SECOND)
    assert member.lease_until == 10 * SECOND, "the share is not in force yet"
    put_now(member)
    assert member.lease_until == 12 * SECOND


def test_lapsed_shares_are_0_before_a_new_coordinators_answer() -> None:
    member, report = following(KEY)
    member.take(Grants("f", "c", 5, 1, [Grant(1, report.sequence, 1, ids=[0], ppm=[WHOLE])]), 10 * SECOND)
    put_now(member)
    member.take(Grants("f", "d", 6, 1), 13 * SECOND)
    assert put_now(member) == [LimitShare(KEY, 0, None)]
    [introduction] = member.report({}, (), 13 * SECOND).introductions
    assert introduction.ppm == 0


def topics(count: int) -> list[ShareKey]:
    return [ShareKey.of(f"publish topic persistent://tenant/namespace/topic-{n}", "messages") for n in range(count)]


def answer(member: FleetMember, report: MemberReport, now: int, epoch: int = 5) -> None:
    member.take(Grants("f", "c", epoch, 1, [Grant(1, report.sequence)]), now)


def test_many_limits_are_introduced_in_several_reports() -> None:
    keys = topics(700)
    member, report = following(*keys)
    introduced, reports = list[ShareKey](), 0
    while report.introductions:
        assert len(report.encode()) <= FULL_REPORT
        assert not member.has_more, "the rest waits for an answer"
        assert member.report({}, (), 10 * SECOND).introductions == report.introductions, "until it is answered"
        introduced += [introduction.key for introduction in report.introductions]
        reports += 1
        answer(member, report, 10 * SECOND)
        assert member.has_more == (len(introduced) < len(keys))
        report = member.report({}, (), 10 * SECOND)
    assert introduced == keys
    assert reports > 2


def test_answer_renews_the_lease_when_all_shares_are_known() -> None:
    """A coordinator that does not know a share would give it away."""
    keys = topics(700)
    member, report = following(*keys)
    answer(member, report, 10 * SECOND)
    assert member.has_more
    assert member.lease_until == 12 * SECOND, "limits without a share need not be known"
    while (report := member.report({}, (), 10 * SECOND)).introductions:
        answer(member, report, 10 * SECOND)
    granted = Grant(1, report.sequence, 1, ids=[698, 699], ppm=[WHOLE] * 2)
    member.take(Grants("f", "c", 5, 1, [granted]), 10 * SECOND)
    assert len(put_now(member)) == 2
    member.take(Grants("f", "d", 6, 1), 11 * SECOND)
    while (report := member.report({}, (), 11 * SECOND)).introductions:
        assert member.lease_until == 12 * SECOND
        answer(member, report, 11 * SECOND, epoch=6)
    assert member.lease_until == 13 * SECOND


def test_changing_demands_keep_no_lease_from_being_renewed() -> None:
    """More demands change in each cycle than have room in a report."""
    keys = topics(2000)
    member, report = following(*keys)
    for cycle in range(40):
        now = 10 * SECOND + cycle * CYCLE
        while report.introductions:
            answer(member, report, now)
            report = member.report({}, (), now)
        report = member.report({key: Demand(0, 1 + cycle % 2 * 1000, 1, RATE) for key in keys}, (), now)
        assert len(report.ids) < len(keys)
        answer(member, report, now + MS)
        assert member.lease_until == now + 2 * SECOND


def test_shares_that_are_in_force_in_part_are_not_acknowledged() -> None:
    keys = topics(3)
    member, report = following(*keys)
    member.take(Grants("f", "c", 5, 1, [Grant(1, report.sequence, 1, ids=[0, 1, 2], ppm=[WHOLE] * 3)]), 10 * SECOND)
    assert [share.key for share in put_now(member, 2)] == keys[:2]
    report = member.report({}, (), 10 * SECOND)
    assert (report.seen, report.ids, member.lease_until) == (0, [], 10 * SECOND)
    answer(member, report, 10 * SECOND)
    shares = member.shares_to_put(1)
    assert next(shares)[0].key == keys[2]
    del shares  # as the caller fails to put it in force
    assert [share.key for share in put_now(member)] == keys[2:], "it was not in force when the caller failed"
    report = member.report({}, (), 10 * SECOND)
    assert (report.seen, member.lease_until) == (1, 12 * SECOND)


def test_revoked_shares_earn_nothing_while_they_are_put_to_0() -> None:
    member, report = following(*topics(3))
    member.take(Grants("f", "c", 5, 1, [Grant(1, report.sequence, 1, ids=[0, 1, 2], ppm=[WHOLE] * 3)]), 10 * SECOND)
    put_now(member)
    report = member.report({}, (), 10 * SECOND)
    member.take(Grants("f", "c", 5, 1, [Grant(1, report.sequence, void=True)]), 11 * SECOND)
    for _ in range(3):
        assert member.lease_until == 11 * SECOND
        put_now(member, 1)
    assert member.lease_until == 12 * SECOND
    assert [share.ppm for share in member.shares()] == [0] * 3


def test_isolated_shares_earn_when_all_are_in_force() -> None:
    member, report = following(*topics(3))
    member.settings = replace(member.settings, isolated="fair")
    member.take(Grants("f", "c", 5, 2, [Grant(1, report.sequence, 1, ids=[0, 1, 2], ppm=[WHOLE] * 3)]), 10 * SECOND)
    put_now(member)
    member.cut_off(12 * SECOND, refused=True)
    for _ in range(3):
        assert member.lease_until == 12 * SECOND
        put_now(member, 1)
    assert member.lease_until == FOREVER
    assert [share.ppm for share in member.shares()] == [WHOLE // 2] * 3


def test_coordinator_divides_and_grants_a_bounded_number_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.coordinator.MOST_STEPS", 100)
    monkeypatch.setattr("fleet.coordinator.MOST_AT_ONCE", 60)
    monkeypatch.setattr("fleet.share_table.MOST_GRANTED", 30)
    coordinator, keys, members = settled_coordinator(), topics(50), range(1, 11)
    for member in members:
        coordinator.hear(introducing(member, 1, *keys), 0)
    shares, calls, answered = {member: set[int]() for member in members}, 0, set[int]()
    while calls == 0 or coordinator.has_more:
        calls += 1
        given = granted(coordinator, 0)
        answered |= given.keys()
        assert calls == 1 or answered == set(members), "no answer waits until all limits are divided"
        assert sum(map(len, given.values())) < 60 + 30
        for member, ids in given.items():
            shares[member] |= ids.keys()
    assert calls >= 500 // 100
    assert {len(ids) for ids in shares.values()} == {30}, "the others wait until these are acknowledged"
    coordinator.hear(replace(introducing(1, 2, seen=0), leaving=True), 0)
    calls = 0
    while calls == 0 or coordinator.has_more:
        calls += 1
        granted(coordinator, 0)
    assert calls > 2
    assert [member.limits for member in coordinator.members(0)] == [50] * 9


def test_no_share_waits_behind_others_that_change_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.share_table.MOST_GRANTED", 2)
    member = MemberShares("m", 0, brings=False)
    member.grow([Introduction(3, KEY, RATE, 0)])
    got = list[list[int]]()
    for _ in range(4):
        for id_ in range(4):
            member.mark_unsent(id_)
        ids, _ = member.next_shares(0)
        member.acknowledge(member.sequence)
        got.append(list(ids))
    assert got == [[0, 1], [2, 3], [0, 1], [2, 3]]


def test_clocks_may_be_anywhere() -> None:
    world = World(1)
    world.elect(Clock(10**15, 2000))
    world.run(5 * SECOND)
    world.join({KEY: 1e6}, Clock(0, -2000))
    world.join({KEY: 1e6}, Clock(10**9, 2000))
    world.run(20 * SECOND, 20 * MS)
    assert shares(world) == [500_000, 500_000]


def test_two_members_of_one_name_are_found_after_a_lease() -> None:
    world = World()
    coordinator = world.elect()
    first = world.join({KEY: 1e6})
    world.run(100 * MS)
    other = world.join({KEY: 1e6})
    other.member.name = first.member.name
    world.run(1900 * MS)
    assert coordinator.names_taken_twice() == {}
    world.run(600 * MS)
    assert coordinator.names_taken_twice() == {"proxy-1": 2}
    world.leave(other)
    world.run(100 * MS)
    assert coordinator.names_taken_twice() == {}


@pytest.mark.parametrize("pause", [0, 500 * MS, 5 * SECOND])
def test_a_killed_and_restarted_member_is_not_its_own_twin(pause: int) -> None:
    world = World()
    coordinator = world.elect()
    world.join({KEY: 1e6})
    for _ in range(4):
        world.crash(world.processes[-1])
        world.run(max(pause, 5 * MS))
        world.join({KEY: 1e6}).member.name = "proxy-1"
        for _ in range(60):
            world.run(50 * MS)
            assert coordinator.names_taken_twice() == {}


def test_a_member_back_after_its_lease_is_not_its_own_twin() -> None:
    world = World()
    coordinator = world.elect()
    process = world.join({KEY: 1e6})
    for _ in range(3):
        world.run(3 * SECOND)
        process.cut = not process.cut
        assert coordinator.names_taken_twice() == {}


@pytest.mark.parametrize(
    ("peak", "lower"),
    [(None, (2000, SECOND, 20)), ((5000, SECOND, 20), (6000, 60 * SECOND, 20)), ((50, SECOND, 20), (50, SECOND, 19))],
    ids=["one has no peak", "another period", "another burst"],
)
def test_the_lower_peak_holds_if_rates_and_bursts_are_equal(
    peak: tuple[int, int, int] | None, lower: tuple[int, int, int]
) -> None:
    world = World()
    world.elect()
    quotas = [Quota(10, SECOND, 100, peak), Quota(10, SECOND, 100, lower)]
    for quota in quotas:
        world.offer(world.join(), KEY, 1e9, quota)
    world.run(6 * SECOND)
    assert [process.held[KEY] or quota for process, quota in zip(world.processes, quotas, strict=True)] == [
        quotas[1]
    ] * 2


def test_a_broker_that_one_member_reports_reaches_all() -> None:
    settings = FleetSettings("f")
    members = [FleetMember(settings, name, number, 0) for number, name in enumerate("ab", 1)]
    coordinator, heard = Coordinator(settings, "c", 1, 0), list[str]()

    def cycle(now: int, brokers: tuple[str, ...] = ()) -> bool:
        coordinator.confirmed(now)
        is_soon = coordinator.hear(members[0].report({}, (), now, brokers), now)
        for grants in coordinator.grant(now):
            assert len(grants.brokers) <= MOST_BROKERS
            heard.extend(grants.brokers)
            for member in members:
                member.take(grants, now)
                put_now(member)
        return is_soon

    for number in range(1, 4):
        cycle(number * CYCLE)
    assert not cycle(4 * CYCLE)
    assert cycle(5 * CYCLE, ("b1:6650", "b2:6650"))
    assert heard == ["b1:6650", "b2:6650"]
    cycle(6 * CYCLE, tuple(f"b{number}:6650" for number in range(MOST_BROKERS + 1)))
    assert len(heard) == 2 + MOST_BROKERS


def test_grants_list_members_when_one_joins_and_once_a_lease() -> None:
    settings = FleetSettings("f")
    coordinator = Coordinator(settings, "c", 1, 0)
    members = [FleetMember(settings, f"m{number}", number + 1, 0, version=f"0.{number}") for number in range(3)]
    lists = list[tuple[str, ...]]()

    def cycle(now: int, of: list[FleetMember]) -> None:
        coordinator.confirmed(now)
        for member in of:
            coordinator.hear(member.report({}, (), now), now)
        for grants in coordinator.grant(now):
            lists.append(tuple(status.name for status in Grants.decode(grants.encode()).roster))
            for member in of:
                member.take(grants, now)
                put_now(member)

    for number in range(1, 4):
        cycle(number * CYCLE, members[:2])
    assert lists.count(("m0", "m1")) == 1
    cycle(4 * CYCLE, members)
    cycle(5 * CYCLE, members)
    assert lists[3:].count(("m0", "m1", "m2")) == 1
    before = len(lists)
    for number in range(6, 6 + 3 * settings.lease_ns // CYCLE):
        cycle(number * CYCLE, members)
    assert sum(map(bool, lists[before:])) == 3
    roster, now = members[2].roster, coordinator._listed_at
    assert members[2].listed_at == now
    assert [(status.name, status.silent_ns, status.has_twin, status.version) for status in roster] == [
        (f"m{number}", 0, False, f"0.{number}") for number in range(3)
    ]


def test_list_of_a_thousand_members_is_bounded() -> None:
    settings = FleetSettings("f")
    coordinator = Coordinator(settings, "c", 1, 0)
    coordinator.confirmed(CYCLE)
    for number in range(MOST_MEMBERS):
        name = f"{number:04}".ljust(MOST_NAME["member"], "x")
        member = FleetMember(settings, name, number + 1, 0, version="\N{GRINNING FACE}" * MOST_VERSION)
        coordinator.hear(replace(member.report({}, (), CYCLE), epoch=1), CYCLE)
    messages = coordinator.grant(CYCLE)
    assert [len(grants.roster) for grants in messages] == [MOST_LISTED, *[0] * (len(messages) - 1)]
    assert [status.name[:4] for status in messages[0].roster] == [f"{number:04}" for number in range(MOST_LISTED)]
    assert len(replace(messages[0], grants=[]).encode()) < 60_000


def test_names_that_two_members_have_are_marked_in_the_list() -> None:
    settings = FleetSettings("f")
    coordinator = Coordinator(settings, "c", 1, 0)
    coordinator.confirmed(CYCLE)
    for incarnation, name in ((1, "twin"), (2, "twin"), (3, "other")):
        report = replace(FleetMember(settings, name, incarnation, 0).report({}, (), CYCLE), epoch=1)
        coordinator.hear(report, CYCLE)
    (grants,) = coordinator.grant(CYCLE)
    assert [(status.name, status.has_twin) for status in grants.roster] == [
        ("other", False),
        ("twin", True),
        ("twin", True),
    ]


def exchange(member: FleetMember, coordinator: Coordinator, now: int, at_once: int = 1000) -> None:
    """One report and its answer, of which so many shares are put in force."""
    coordinator.hear(member.report({}, (), now), now)
    for grants in coordinator.grant(now):
        member.take(grants, now)
    put_now(member, at_once)


def test_limits_that_are_made_again_have_shares() -> None:
    """More are gone than one report has, and the coordinator knows a limit by one number of a member."""
    coordinator, keys = settled_coordinator(), topics(3 * MOST_GONE)
    member, demands = FleetMember(FleetSettings("f"), "m", 1, 0), dict.fromkeys(keys, Demand(0, UNBOUNDED, 1, RATE))
    member.note(demands, ())
    for _ in range(20):
        exchange(member, coordinator, 0)
    assert {share.ppm for share in member.shares()} == {WHOLE}
    member.note({}, keys)
    member.note(demands, ())
    for _ in range(20):
        exchange(member, coordinator, 0)
        assert not member.has_more or member.urgent, "what waits for an answer asks for no report"
    assert [share.ppm for share in member.shares()] == [WHOLE] * len(keys)
    assert coordinator.dropped == {}


def test_shares_that_are_granted_again_meanwhile_are_put_once() -> None:
    coordinator, keys = settled_coordinator(), topics(100)
    member = FleetMember(FleetSettings("f"), "m", 1, 0)
    member.note(dict.fromkeys(keys, Demand(0, UNBOUNDED, 1, RATE)), ())
    for cycle in range(12):
        coordinator.confirmed(cycle * CYCLE)
        exchange(member, coordinator, cycle * CYCLE, at_once=20)
    assert member.lease_until > 11 * CYCLE
    assert [share.ppm for share in member.shares()] == [WHOLE] * len(keys)


def test_demands_that_change_in_each_cycle_keep_none_out() -> None:
    keys = topics(2000)
    member, report = following(*keys)
    while report.introductions:
        answer(member, report, 10 * SECOND)
        report = member.report({}, (), 10 * SECOND)
    reported = set[int]()
    for cycle in range(12):
        now = 10 * SECOND + cycle * CYCLE
        sent = member.report({key: Demand(0, 1000 * (1 + cycle), 1, RATE) for key in keys}, (), now)
        reported |= set(sent.ids)
        member.note({key: Demand(0, 1000 * (1 + cycle) + 500, 1, RATE) for key in keys}, ())
        answer(member, sent, now)
    assert len(reported) == len(keys)
