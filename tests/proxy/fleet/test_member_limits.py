"""The shared limits of a process: both cores agree on values, and each change of a share in force is told."""

from itertools import pairwise
from random import Random

import pytest
from structlog.testing import capture_logs

from fleet import shares
from limiter.sharing import UNBOUNDED
from limiter.token_bucket import WHOLE
from tests.proxy.fleet.proxies import BURST, RATE, Proxy, World


def test_the_two_cores_mean_the_same_by_what_they_tell_each_other() -> None:
    assert (shares.WHOLE, shares.UNBOUNDED) == (WHOLE, UNBOUNDED)


def test_changes_of_shares_are_told_once_each_with_their_cause(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    world.hub.is_cut = True
    world.run(3)
    world.hub.is_cut = False
    world.run(2, most=BURST + RATE / 10)
    for proxy in world.proxies:
        causes = [change.cause for change in proxy.told]
        assert causes[0] == "granted"
        assert causes.count("isolated") == causes.count("rejoined") == 1
        assert causes.index("rejoined") == causes.index("isolated") + 1
        assert len(causes) <= 8
        changes = proxy.told
        assert all(later.before == earlier.after for earlier, later in pairwise(changes))
        assert all(change.before != change.after for change in changes if change.cause != "rejoined")
        away = changes[causes.index("isolated")]
        assert (away.fleet, away.limiter, away.unit) == ("front", "publish tenant acme", "messages")
        assert (away.before, away.after, away.members) == (500_000, 25_000, 2)
        assert changes[0].epoch == changes[-1].epoch > 0 == away.epoch
        assert changes[-1].after == pytest.approx(500_000, rel=0.02)


def test_that_a_member_is_cut_off_and_back_is_told_though_it_keeps_its_share(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    for link in world.hub.links:
        link.refused = True  # so others are cut off, too: each keeps an equal part
    world.hub.is_cut = True
    world.run(3)
    world.hub.is_cut = False
    world.run(1)
    for proxy in world.proxies:
        changes = [(change.cause, change.before, change.after) for change in proxy.told if change.cause == "isolated"]
        assert changes == [("isolated", 500_000, 500_000)]
        causes = [change.cause for change in proxy.told]
        assert causes[causes.index("isolated") + 1] == "rejoined"
        assert causes.count("rejoined") == 1


def test_demand_that_goes_up_and_down_far_below_the_limit_changes_shares_seldom(world: World) -> None:
    for _ in range(4):
        world.join()
    world.loop.advance(5)
    random, counts, seconds = Random(1), [len(proxy.told) for proxy in world.proxies], 10

    def offer(proxy: Proxy) -> None:
        for _ in range(sum(random.random() < 0.1 for _ in range(10))):
            proxy.offer_one()

    for _ in range(seconds * 100):
        for proxy in world.proxies:
            world.loop.run(offer, proxy)
        world.loop.advance(0.01)
    assert all(60 * seconds <= proxy.passed <= 140 * seconds for proxy in world.proxies)  # a tenth of the limit each
    for proxy in world.proxies:
        shown = {limit.ppm for limit in proxy.fleet.limits.granted()}
        assert shown == {limiter.shares[0] for limiter in proxy.registry.limiters.values()}  # what is in force
    changes = [len(proxy.told) - before for proxy, before in zip(world.proxies, counts, strict=True)]
    assert all(1 <= count <= 1.5 * seconds for count in changes)  # seven a second, if each grant were put in force


def test_members_with_different_limits_are_named_at_both_ends_and_not_each_time(world: World) -> None:
    leader, other = world.join(), world.join(RATE // 10)
    world.run(5)
    leader.offers = other.offers = True
    with capture_logs() as logs:
        world.run(3, most=BURST + RATE / 10)
    warnings = [log for log in logs if log["log_level"] == "warning"]
    assert {log["event"].split(":")[1] for log in warnings} == {
        " another member has a lower limit, which holds",
        " members have different limits, and the lowest holds",
    }
    assert len(warnings) == 2
    assert all(log["limiter"] == "publish tenant acme" and log["in_force"] == "100/s, burst 100" for log in warnings)
    assert next(log["own"] for log in warnings if "own" in log) == "1000/s, burst 100"
