"""The sum over a fleet by the log of real members: limiters, core and service, on a clock that only the test moves."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from compliance.judging.fleets import CutOff, FleetNotes, sums_of
from tests.proxy.fleet.proxies import BURST, RATE, STEP_S, Proxy, World

STEP_US = round(STEP_S * 1e6)


class LoggedWorld(World):
    """Writes a line of the limit for each member and second, and where a share changes."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self.away: defaultdict[tuple[str, str], list[CutOff]] = defaultdict(list)
        self._begun: dict[str, tuple[int, int, int, float]] = {}
        """By member: when its line begins, what had passed and how many changes there had been, and the share."""
        self._at_us = 0

    def log(self, seconds: float, most: float = BURST) -> None:
        """Let time pass, line by line."""
        for _ in range(round(seconds / STEP_S)):
            self.run(STEP_S, most)
            self._at_us += STEP_US
            for proxy in self.proxies:
                changes = self._begun.setdefault(proxy.fleet.name, (self._at_us - STEP_US, 0, 0, 0.0))[2]
                new = proxy.told[changes:]
                if new or self._at_us % 1_000_000 == 0:
                    self._line(proxy)
                for change in new:
                    spells = self.away[proxy.fleet.name, "boot"]
                    if change.cause == "isolated":
                        spells.append(CutOff(self._at_us, 2**60, change.members))
                    elif spells:
                        spells[-1] = spells[-1]._replace(end_us=min(spells[-1].end_us, self._at_us))

    def _line(self, proxy: Proxy) -> None:
        begun_us, passed, _, share = self._begun[proxy.fleet.name]
        now = (proxy.fleet.shared.share_in_force(("publish tenant", "acme", "messages")) or 0) / 1e6
        self._begun[proxy.fleet.name] = self._at_us, proxy.passed, len(proxy.told), now
        lasts_ms, count = (self._at_us - begun_us) / 1e3, proxy.passed - passed
        if not count and not proxy.offers:
            return
        names = {"proxy_id": proxy.fleet.name, "boot_id": "boot", "direction": "publish", "level": "tenant"}
        place = {"name": "acme", "tenant": "acme", "seq": len(self.rows), "file": "a", "line": 1}
        waited_ms = lasts_ms if proxy.offers else 0.0
        times = {"start_us": begun_us, "end_us": self._at_us, "duration_ms": lasts_ms, "throttled_ms": waited_ms}
        limit = {"share": share, "shared": float(RATE), "shared_burst": float(BURST), "limit": RATE * share}
        counts = {"passed": count, "largest_entry": min(1, count)}
        of_messages = {f"{name}_messages": value for name, value in (limit | counts).items()}
        self.rows.append(names | place | times | of_messages | {"share_bytes": None, "limit_bytes": None})

    def sum(self, rows: list[dict[str, Any]] | None = None) -> Any:
        """Judge what is written, or a part of it."""
        in_order = sorted(self.rows if rows is None else rows, key=lambda row: row["start_us"])
        [sum_] = sums_of(in_order, FleetNotes({("sluice-0", "boot"): "front"}, self.away))
        return sum_


@pytest.fixture
def world() -> Iterator[LoggedWorld]:
    world = LoggedWorld()
    yield world
    world.loop.close()


def test_a_fleet_that_members_join_leave_and_drop_out_of_is_held_and_not_stingy(world: LoggedWorld) -> None:
    proxy, other = world.join(), world.join()
    world.log(5)  # a new coordinator gives nothing but what members bring, for two leases
    proxy.offers = True
    world.log(2)
    other.offers = True
    world.log(2)
    newcomer = world.join()
    newcomer.offers = True
    world.log(2)
    newcomer.offers = False
    newcomer.stop()
    world.log(2)
    before = list(world.rows)
    other.offers = False
    world.hub.links.pop()  # the other one hears nothing any more, and passes nothing: it is as good as killed
    world.log(5)
    quiet = world.sum(before)
    assert quiet.demand_s == pytest.approx(8, abs=0.01)
    assert 0.97 <= quiet.demand_share <= 1.02
    sum_ = world.sum()
    assert sum_.excess < 0
    # Three entries, and what clocks hide.
    assert sum_.excess > -BURST - 3 - sum_.slack - 0.1 * RATE
    assert sum_.entries <= 3
    # Half of the limit is nobody's until the lease of the one that dropped out has ended.
    # In its last second it passes what it holds, and nobody waits there.
    assert sum_.demand_s == pytest.approx(12, abs=0.01)
    assert sum_.demand_share >= 1 - (2.5 * 0.5 + 0.03 * 12) / 12
    assert {proxy_id for proxy_id, _ in sum_.members} == {"sluice-0", "sluice-1", "sluice-2"}


def test_members_that_are_cut_off_are_named_with_the_part_that_each_may_keep(world: LoggedWorld) -> None:
    proxy, other = world.join(), world.join()
    world.log(5)
    proxy.offers = other.offers = True
    world.log(2)
    world.hub.is_cut = True
    world.log(5)
    world.hub.is_cut = False
    world.log(4, most=BURST + RATE / 10)
    sum_ = world.sum()
    assert sum_.excess < 0
    assert [cut_off.proxy_id for cut_off in sum_.cut_off] == ["sluice-0", "sluice-1"]
    for cut_off in sum_.cut_off:
        assert cut_off.beyond == 0
        assert cut_off.share == 0.025  # a twentieth of an equal part: `floor`, as nothing is heard
        assert cut_off.passed == pytest.approx(0.025 * RATE * cut_off.seconds, abs=3)
        assert 2.5 <= cut_off.seconds <= 4
