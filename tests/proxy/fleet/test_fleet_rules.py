"""Limits as they are written in the members of a fleet: what one lacks holds in it, too, and all tell of it."""

from random import Random

import pytest
from structlog.testing import capture_logs

from tests.proxy.fleet.proxies import RATE, World


def test_a_limit_that_a_member_lacks_holds_there_too_and_is_named_in_all_until_all_have_it(world: World) -> None:
    lacking = world.join(0, tells_rules=True)
    world.run(5)
    lacking.offer_one()
    assert (lacking.stream.chain, lacking.passed) == ((), 1)
    with capture_logs() as logs:
        having = world.join(tells_rules=True)
        world.run(0.5)  # two cycles
        assert [(limiter.scope.level, limiter.source) for limiter in lacking.stream.chain] == [
            ("tenant", "total fleet")
        ]
        world.run(3)
        assert [log for log in logs if log["log_level"] == "warning"] == []
        world.run(1)  # two leases
    (said, other) = [log for log in logs if log["log_level"] == "warning"]
    assert {said["first"][0], other["first"][0]} == {
        "publish tenant acme: messages 1000/s, burst 100 in sluice-1; here: nothing",
        "publish tenant acme: messages 1000/s, burst 100 in sluice-1",
    }
    assert [proxy.fleet.rules.disagreed for proxy in world.proxies] == [1, 1]
    lacking.offers = True
    world.run(0.5)
    assert world.run(2)[0] >= 0.99 * 2 * RATE  # nobody else uses it
    having.offers = True
    world.run(0.75)
    first, second = world.run(2)
    assert first + second >= 0.99 * 2 * RATE
    assert abs(first - second) <= 0.02 * RATE
    with capture_logs() as logs:
        world.loop.run(lambda: lacking.reload(RATE))
        world.run(1)
    assert [log["event"] for log in logs] == ["fleet: all members have the same limits now"] * 2
    assert [limiter.source for limiter in lacking.stream.chain] == ["total file"]
    assert [proxy.fleet.rules.disagreed for proxy in world.proxies] == [0, 0]


@pytest.mark.parametrize("seed", range(2))
def test_while_files_are_reloaded_one_after_the_other_the_limit_holds_for_all(world: World, seed: int) -> None:
    """The world checks each interval. Who has lost its limit is quiet until it holds again: at most a second."""
    random = Random(seed)
    members = [world.join(0 if number else RATE, tells_rules=True) for number in range(3)]
    has = {0}
    world.run(6)
    for proxy in members:
        proxy.offers = True
    for _ in range(12):
        number = random.randrange(3)
        proxy = members[number]
        if has == {number}:
            continue
        if number in has:
            proxy.offers = False
            while proxy.stream.held:
                world.run(0.1)
            world.loop.run(lambda proxy=proxy: proxy.reload(0))
            has.remove(number)
            world.run(1)
            assert [limiter.source for limiter in proxy.stream.chain] == ["total fleet"]
            proxy.offers = True
        else:
            world.loop.run(lambda proxy=proxy: proxy.reload(RATE))
            has.add(number)
        world.run(random.choice([0.1, 0.5, 2.0]))
    world.run(2)
    assert sum(world.run(2)) >= 0.99 * 2 * RATE
    assert [proxy.fleet.rules.disagreed for proxy in members] == [int(len(has) < 3)] * 3


def test_of_two_values_the_lower_one_holds_also_where_its_own_member_has_no_clients(world: World) -> None:
    lacking, low, high = (world.join(rate, tells_rules=True) for rate in (0, RATE // 10, RATE))
    world.run(5)
    for proxy in (lacking, high):
        assert [limiter.limit for limiter in proxy.stream.chain] == [limiter.limit for limiter in low.stream.chain]
    assert [limiter.source for limiter in high.stream.chain] == ["total fleet"]
    high.offers = True
    world.run(1)
    assert 0.99 * 2 * RATE // 10 <= world.run(2)[-1] <= 2 * RATE // 10 + 1
    high.offers = False
    assert lacking.fleet.rules.disagreed == 1
    assert [(rule.having, rule.lacking) for rule in lacking.fleet.rules.differing(lacking.fleet.coordinator, 10)] == [
        (["sluice-1"], ["sluice-0", "sluice-2"]),
        (["sluice-2"], ["sluice-0", "sluice-1"]),
    ]


def test_a_limit_that_a_member_has_and_does_not_share_is_told_to_be_there_and_not_shared(world: World) -> None:
    world.join(tells_rules=True)
    alone, lacking = (world.join(rate, tells_rules=True, levels={"topic"}) for rate in (RATE, 0))
    world.run(1)
    shown = [next(iter(proxy.fleet.rules.differing(None, 10))) for proxy in world.proxies]
    value = "messages 1000/s, burst 100"
    assert [(rule.here, rule.is_here) for rule in shown] == [
        (value, True),
        (f"{value}; not shared here", False),
        ("not shared here", False),
    ]
    assert [[limiter.source for limiter in proxy.stream.chain] for proxy in (alone, lacking)] == [["total file"], []]
