"""What a process does as the coordinator of its fleet: grants, epochs, and the warnings of what members report."""

from itertools import pairwise
from random import Random

from structlog.testing import capture_logs

from fleet.messages import MOST_EPOCH, Grants
from tests.proxy.fleet.proxies import BURST, RATE, World, poisson


def test_grants_that_take_long_to_make_come_the_less_often(world: World) -> None:
    proxies = [world.join() for _ in range(4)]
    for number, proxy in enumerate(proxies):
        proxy.arrivals = poisson(300, Random(number))
    proxies[0].offers = True
    world.run(7)
    world.hub.takes_s = 0.04
    world.run(1)
    begun = len(world.hub.granted_at)
    world.run(3)
    times = world.hub.granted_at[begun:]
    assert len(times) >= 3 / 0.25
    assert min(later - earlier for earlier, later in pairwise(times)) >= 0.1 * 1e9


def test_a_coordinator_that_leaves_takes_no_share_from_the_others(world: World) -> None:
    leaving, successor, other = world.join(), world.join(), world.join()
    world.run(5)
    successor.offers = other.offers = True
    world.run(2)
    leaving.stop()
    assert successor.fleet.state == "leading"
    assert sum(world.run(4)) >= 0.99 * 4 * RATE


def test_what_was_dropped_stays_counted_though_the_leadership_ends(world: World) -> None:
    leading = world.join()
    world.run(5)
    leadership = leading.fleet.leadership
    assert leadership.coordinator is not None
    leadership.coordinator.dropped["unknown"] += 2
    before = leadership.dropped_messages()
    world.loop.run(leadership.unlead)
    assert leadership.dropped_messages() == before
    for _ in range(2):
        world.loop.run(leadership.lead)
        assert leadership.dropped_messages() == before


def test_confirmed_coordinator_goes_on_after_a_forged_epoch(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    forged = Grants("front", "forged", MOST_EPOCH, 2).encode()
    world.loop.run(lambda: [link.callbacks.on_grant(forged) for link in world.hub.links])
    for _ in range(28):  # a link between peers confirms without grants
        world.run(0.5, most=BURST + RATE / 10)
        world.run(0.01)
        world.loop.run(lambda: world.hub.links[0].callbacks.on_confirmed(world.loop.clock()))
    assert [proxy.fleet.member.coordinator for proxy in (leader, other)] == ["sluice-0"] * 2
    assert sum(world.run(2)) >= 0.99 * 2 * RATE


def test_that_two_members_have_one_name_is_told_each_ten_seconds_at_most(world: World) -> None:
    leader, other = world.join(), world.join()
    other.fleet.member.name = leader.fleet.member.name
    with capture_logs() as logs:
        world.run(9)
    warnings = [log for log in logs if log["log_level"] == "warning"]
    assert [(log["member"], log["members"]) for log in warnings] == [("sluice-0", 2)]
    assert "proxy_id of its own" in warnings[0]["event"]
