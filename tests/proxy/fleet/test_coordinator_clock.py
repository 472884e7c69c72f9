"""How far the coordinator's wall clock is ahead: by the bounds of single grants, and in what members tell."""

import pytest

from proxy.fleet.coordinator_clock import CoordinatorClock
from tests.proxy.fleet.proxies import MS, SECOND, World


def test_clock_has_the_narrowest_bounds_until_it_is_stepped() -> None:
    clock, wall = CoordinatorClock(), 10**18
    ahead = 5 * SECOND

    def exchange(sequence: int, there: int, back: int) -> None:
        nonlocal wall
        clock.reported(sequence, wall)
        wall += there + back
        clock.heard(7, sequence, wall - back + ahead, wall)

    assert clock.ahead_ns is None
    exchange(1, 40 * MS, 2 * MS)
    assert clock.ahead_ns == (ahead + 19 * MS, 21 * MS)
    exchange(2, 1 * MS, 90 * MS)
    assert clock.ahead_ns == (ahead - MS // 2, 3 * MS // 2)
    for sequence in range(3, 40):
        wall += SECOND
        exchange(sequence, 50 * MS, 50 * MS)
    assert clock.ahead_ns == (ahead - MS // 2, 3 * MS // 2)
    for sequence in range(40, 90):
        wall += SECOND
        exchange(sequence, 50 * MS, 50 * MS)
    assert clock.ahead_ns == (ahead, 50 * MS)  # what is long ago does not count: clocks drift
    ahead = 6 * SECOND
    exchange(90, 5 * MS, 5 * MS)
    assert clock.ahead_ns == (ahead, 5 * MS)
    clock.heard(7, 1, wall, wall)  # that report is too long ago
    clock.heard(7, 90, wall + 10**17, wall)
    assert clock.ahead_ns == (ahead, 5 * MS)
    clock.heard(8, 999, wall, wall)
    assert clock.ahead_ns is None  # another coordinator


@pytest.mark.parametrize("ahead_ns", [0, 37_000_000_000, -1_500_000_000])
def test_a_change_of_a_share_tells_how_far_the_coordinators_clock_is_ahead(world: World, ahead_ns: int) -> None:
    leader, other = world.join(), world.join(ahead_ns=ahead_ns)
    world.hub.links[1].delay_s = 0.01
    world.run(5)
    leader.offers = other.offers = True
    world.run(2)
    assert {change.ahead_ns for change in leader.told} == {(0, 0)}  # it coordinates
    for change in other.told:
        assert change.ahead_ns is not None
        ahead, within = change.ahead_ns
        assert abs(ahead + ahead_ns) <= within <= 20_000_000
    for link in world.hub.links:
        link.delay_s = 0
    world.hub.is_cut = True
    world.run(3)
    assert (other.told[-1].cause, other.told[-1].ahead_ns) == ("isolated", None)
