"""Members of one fleet in one process: they join, share, leave, are cut off and come back."""

from random import Random

import pytest

from fleet.messages import MemberReport
from limiter.limiter import Limiter, Scope
from limiter.token_bucket import WHOLE, Limit, rate
from proxy.fleet.service import LEAST_BETWEEN_REPORTS_S
from tests.proxy.fleet.proxies import BURST, RATE, SECOND, World, bursts, poisson, steady


def test_all_members_together_pass_one_limit_and_share_it_equally(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)  # a new coordinator divides only what members bring, for two leases
    leader.offers = True
    world.run(0.25)
    alone = world.run(2)
    assert alone[0] >= 0.99 * 2 * RATE
    other.offers = True
    world.run(0.75)
    first, second = world.run(2)
    assert first + second >= 0.99 * 2 * RATE
    assert abs(first - second) <= 0.02 * RATE


@pytest.mark.parametrize(
    ("arrivals", "least", "most_held"), [(steady, 0.99, 1), (poisson, 0.9, 20), (bursts, 0.84, 100)]
)
def test_who_wants_less_than_its_part_gets_it_beside_one_that_wants_all(world, arrivals, least, most_held) -> None:
    rates = (150, 100, 40)
    proxies = [world.join() for _ in range(4)]
    world.run(5)
    for number, (proxy, per_second) in enumerate(zip(proxies, rates, strict=False)):
        proxy.arrivals, proxy.next_at = arrivals(per_second, Random(number)), 0.0
    proxies[3].offers = True
    world.run(2)
    passed = [0] * 4
    for _ in range(32):
        passed = [total + more for total, more in zip(passed, world.run(0.25), strict=True)]
        assert all(len(proxy.stream.held) <= most_held for proxy in proxies[:3])
    assert sum(passed) >= least * 8 * RATE
    for tokens, per_second in zip(passed, rates, strict=False):
        assert abs(tokens - 8 * per_second) <= 0.1 * 8 * per_second + most_held


def test_the_first_message_of_a_newcomer_never_waits(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = True
    world.run(1)
    other.offers = True
    world.loop.run(other.offer)
    assert other.passed == 1


def test_demand_is_reported_at_once_and_once_for_several(world: World) -> None:
    fleet, loop = world.join().fleet, world.loop
    [link] = world.hub.links
    loop.advance(0.1)
    before, now = len(link.reported_at), loop.clock()
    for _ in range(3):
        loop.run(fleet.wants_now)
    assert link.reported_at[before:] == [now]
    loop.advance(0.1)
    assert link.reported_at[before:] == [now, now + round(LEAST_BETWEEN_REPORTS_S * 1e9)]


def test_who_leaves_has_nothing_any_more_and_the_other_has_all_within_half_a_second(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    other.offers = False
    other.stop()
    world.run(0.5)
    assert world.run(1)[0] >= 0.99 * RATE
    assert other.fleet.shared.lease.until <= world.loop.clock()


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_who_leaves_says_it_until_it_is_answered_and_three_times_at_most(world: World, lost: int) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    link, other.offers = world.hub.links[1], False
    link.loses, sent = lost, link.counts.messages_out
    stopping = other.stop()
    world.run(0.02)
    assert stopping.done() == (lost == 0)
    world.run(0.48)
    assert stopping.done()
    assert link.counts.messages_out - sent == min(lost + 1, 3)
    assert leader.fleet.coordinator is not None
    assert len(leader.fleet.coordinator.members(world.loop.clock())) == (2 if lost == 3 else 1)


def test_who_is_cut_off_says_once_that_it_leaves_and_waits_for_nobody(world: World) -> None:
    world.join()
    other = world.join()
    world.run(5)
    world.hub.is_cut = True
    world.run(3)
    world.hub.is_cut, world.hub.links[1].loses = False, 9
    sent = world.hub.links[1].counts.messages_out
    link = world.hub.links[1]
    stopping = other.stop()
    world.run(0.005)
    assert stopping.done()
    assert link.counts.messages_out == sent + 1


def test_members_that_are_cut_off_keep_a_floor_and_share_again_when_they_are_heard(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    world.hub.is_cut = True
    world.run(3)
    assert all(proxy.fleet.member.isolated and proxy.fleet.lease_ends == 1 for proxy in (leader, other))
    for passed in world.run(2):
        assert 0.98 * 0.025 * RATE <= passed / 2 <= 1.05 * 0.025 * RATE  # 5 % of an equal part of two
    world.hub.is_cut = False
    world.run(1, most=BURST + RATE / 10)
    assert not leader.fleet.member.isolated
    assert sum(world.run(2)) >= 0.99 * 2 * RATE


@pytest.mark.parametrize("had_formed", [True, False])
def test_a_cut_off_member_passes_its_part_of_a_changed_limit(world: World, *, had_formed: bool) -> None:
    member, other = world.join(), world.join()
    world.hub.is_cut = not had_formed
    world.run(5)
    member.offers = True
    world.run(1)
    world.hub.is_cut = True
    world.run(3)
    part = 0.025 if had_formed else 0.05  # of an equal part of two; of the whole where the number is not known
    for rate_ in (RATE, 4 * RATE, RATE // 2, RATE):
        for proxy in (member, other):
            world.loop.run(proxy.reload, rate_)
        world.run(0.3)  # a cycle
        (limiter,) = member.registry.limiters.values()
        assert limiter.rates()[0] == rate(rate_, burst=BURST)
        passed, _ = world.run(2)
        assert 0.98 * part * rate_ <= passed / 2 <= 1.05 * part * rate_


def test_forged_and_broken_messages_are_counted_and_change_nothing(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    for message in (b"", b"\xff" * 100, b"x" * (1 << 21)):
        for link in world.hub.links:
            world.loop.run(link.callbacks.on_grant, message)
            world.loop.run(link.callbacks.on_report, message)
    assert leader.fleet.dropped_messages()["oversized"] == 2
    assert other.fleet.dropped_messages()["malformed"] >= 1
    assert sum(world.run(2)) >= 0.99 * 2 * RATE


@pytest.mark.parametrize("since", [1, 2**64 - 1])
def test_forged_report_keeps_a_member_out_for_seconds_only(world: World, since: int) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    member = other.fleet.member
    report = MemberReport("front", "", member.incarnation, 2**64 - 1, since, member.epoch)
    world.loop.run(world.hub.links[0].callbacks.on_report, report.encode())
    world.run(15, most=float("inf"))  # for moments both have it
    world.excess = 0.0
    passed = world.run(5)
    assert sum(passed) >= 0.99 * 5 * RATE
    assert min(passed) >= 0.45 * 5 * RATE
    assert leader.fleet.coordinator is not None
    assert len(leader.fleet.coordinator.members(world.loop.clock())) == 2


def test_who_hears_no_coordinator_follows_none_and_knows_which_was_the_last(world: World) -> None:
    world.join()
    other = world.join().fleet
    assert (other.follows, other.answered_ago_ns()) == ("", None)
    world.run(1)
    assert (other.state, other.follows) == ("following", "sluice-0")
    world.hub.is_cut = True
    world.run(3)
    assert (other.state, other.follows, other.member.coordinator) == ("connecting", "", "sluice-0")
    ago = other.answered_ago_ns()
    assert ago is not None
    assert 3 * SECOND <= ago <= 3.3 * SECOND
    world.hub.is_cut = False
    world.run(1)
    assert (other.state, other.follows) == ("following", "sluice-0")


def test_100000_limits_at_rest_cost_one_heartbeat_a_cycle(world: World) -> None:
    leading, other = world.join(), world.join()
    now, limit, shared = world.loop.clock(), Limit(rate(RATE, burst=BURST)), other.fleet.shared
    scopes = [Scope("publish", "topic", f"t{number}", "", "") for number in range(100_000)]
    limiters = [Limiter(scope, limit, "", now, shared.lease, shared.on_activity) for scope in scopes]
    for limiter in limiters:
        shared.made(limiter, now)
    used = limiters[:100]
    world.loop.advance(5)
    for limiter in used:
        assert world.loop.run(limiter.pay, 1, 10, world.loop.clock())
    world.loop.advance(0.5)
    assert {limiter.shares[0] for limiter in used} == {WHOLE}
    world.loop.advance(5)  # full again, and at rest
    assert all(limiter.is_quiet for limiter in limiters)
    for link in world.hub.links:
        link.sent.clear()
    timers: list[float] = []
    call_later = world.loop.call_later
    world.loop.call_later = lambda delay, *rest: timers.append(delay) or call_later(delay, *rest)  # type: ignore[func-returns-value, method-assign]
    cycles = 40
    world.loop.advance(cycles * 0.25)
    assert timers == [0.25] * 2 * cycles
    reports, grants_and_reports = world.hub.links[1].sent, world.hub.links[0].sent
    assert (len(reports), len(grants_and_reports)) == (cycles, 2 * cycles)
    assert max(reports) <= 48
    with_list = [size for size in grants_and_reports if size > 100]
    assert len(with_list) <= 1 + cycles * 0.25 / 2, "the members are listed once in a lease"
    assert max(with_list) <= 100 + 2 * 30
    assert leading.fleet.coordinator is not None
    assert len(list(leading.fleet.coordinator.table.limits(world.loop.clock()))) == len(used)
    world.loop.run(used[0].pay, 1, 10, world.loop.clock())
    world.loop.advance(0.25)
    assert len(timers) > 2 * (cycles + 1)
