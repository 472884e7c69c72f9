"""Members of one fleet in one process, on a clock that only the test moves: limiters, core and service together."""

from collections.abc import Iterator

import pytest

from limiter.activity import ActivitySet
from limiter.levels import Setting
from limiter.limiter import Entry, Limiter, Stream, StreamName
from limiter.policies import Policies, Value
from limiter.rates import Limit, rate
from limiter.registry import Registry
from limiter.scheduler import Scheduler
from limiter.shadow import ShadowLimiter
from protocol.topic_name import parse_topic
from proxy.config.sections import Fleet
from proxy.fleet.link import Callbacks, LinkCounts, LinkState
from proxy.fleet.service import FleetService
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop

RATE, BURST = 1000, 100
TOPIC = parse_topic("persistent://acme/shop/orders")
STEP_S = 0.005


class Hub:
    """Carries messages between members at once; the first one that is there leads."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.links: list[HubLink] = []
        self.is_cut = False


class HubLink:
    """A link by the hub."""

    def __init__(self, hub: Hub, callbacks: Callbacks) -> None:
        self.counts = LinkCounts()
        self.refused = False
        self.hub, self.callbacks = hub, callbacks

    @property
    def state(self) -> LinkState:
        if self not in self.hub.links:
            return "connecting"
        return "leading" if self.hub.links[0] is self else "following"

    async def start(self) -> None:
        self.hub.links.append(self)
        if self.state == "leading":
            self.callbacks.on_lead()

    async def stop(self) -> None:
        led = self.state == "leading"
        self.hub.links.remove(self)
        if led and self.hub.links:
            self.hub.links[0].callbacks.on_lead()

    def report(self, message: bytes) -> bool:
        if self.hub.is_cut or not self.hub.links:
            return False
        self.hub.links[0].callbacks.on_report(message)
        return True

    def grant(self, message: bytes) -> bool:
        if self.hub.is_cut:
            return False
        self.callbacks.on_confirmed(self.hub.clock())
        for link in list(self.hub.links):
            link.callbacks.on_grant(message)
        return True


class Proxy:
    """What a proxy has of limits, and its part in the fleet; its one producer is greedy while it offers."""

    def __init__(self, name: str, loop: ManualLoop, hub: Hub) -> None:
        self.loop, self.offers = loop, False
        clock = loop.clock
        self.fleet = FleetService(Fleet(name="front"), name, clock, lambda: 10**18 + clock())
        journal = ActivitySet(lambda: None)
        self.scheduler = Scheduler(self._wake_at, journal)
        shadow = ShadowLimiter(lambda _limiter, _at: None, journal, (1 << 20, 0))
        self.policies = Policies()
        self.policies.put("publish", Setting.TENANT, "acme", Value(Limit(rate(RATE, burst=BURST)), "file"))
        self.registry = Registry(self.policies, self.scheduler, shadow, shared=self.fleet.shared)
        self.stream = Stream(StreamName("publish", "acme", "shop", TOPIC.full, 1), (), lambda _stream, _entry: None)
        self.registry.open(self.stream, TOPIC, clock())
        loop.run(lambda: loop.create_task(self.fleet.start(lambda callbacks: HubLink(hub, callbacks))))

    @property
    def passed(self) -> int:
        return self.stream.usage.passed_messages

    def offer(self) -> None:
        """Keep fifty messages waiting."""
        while self.offers and len(self.stream.held) < 50:
            now = self.loop.clock()
            self.scheduler.count_offered(self.stream, 1, 1, 100)
            if not self.scheduler.pass_entry(self.stream, 1, 100, now):
                self.scheduler.hold(self.stream, Entry(b"", 1, 100, 100, now), now)

    def stop(self) -> None:
        self.loop.run(lambda: self.loop.create_task(self.fleet.stop()))

    def _wake_at(self, limiter: Limiter, at_ns: int) -> None:
        delay = max(0, at_ns - self.loop.clock()) / 1e9
        self.loop.call_later(delay, lambda: self.scheduler.serve(limiter, self.loop.clock()))


class World:
    """Members, and what all of them have passed."""

    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock(10**12))
        self.hub = Hub(self.loop.clock)
        self.proxies: list[Proxy] = []
        self.excess = 0.0

    def join(self) -> Proxy:
        self.proxies.append(Proxy(f"sluice-{len(self.proxies)}", self.loop, self.hub))
        return self.proxies[-1]

    def run(self, seconds: float, most: float = BURST) -> list[int]:
        """Let time pass; no interval may see more than `most` and an entry for each member above the rate."""
        begun = [proxy.passed for proxy in self.proxies]
        for _ in range(round(seconds / STEP_S)):
            before = sum(proxy.passed for proxy in self.proxies)
            for proxy in self.proxies:
                self.loop.run(proxy.offer)
            self.loop.advance(STEP_S)
            passed = sum(proxy.passed for proxy in self.proxies) - before
            assert self.excess + passed <= most + RATE * STEP_S + len(self.proxies)
            self.excess = max(0.0, self.excess + passed - RATE * STEP_S)
        return [proxy.passed - at for proxy, at in zip(self.proxies, begun, strict=True)]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


def test_all_members_together_pass_one_limit_and_share_it_equally(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)  # a new coordinator divides only what members bring, for two leases
    one.offers = True
    world.run(0.25)
    alone = world.run(2)
    assert alone[0] >= 0.99 * 2 * RATE
    other.offers = True
    world.run(0.75)
    first, second = world.run(2)
    assert first + second >= 0.99 * 2 * RATE
    assert abs(first - second) <= 0.02 * RATE


def test_the_first_message_of_a_newcomer_never_waits(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = True
    world.run(1)
    other.offers = True
    world.loop.run(other.offer)
    assert other.passed == 1


def test_who_leaves_has_nothing_any_more_and_the_other_has_all_within_half_a_second(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    other.offers = False
    other.stop()
    world.run(0.5)
    assert world.run(1)[0] >= 0.99 * RATE
    assert other.fleet.shared.lease.until <= world.loop.clock()


def test_a_coordinator_that_leaves_takes_no_share_from_the_others(world: World) -> None:
    leaving, one, other = world.join(), world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    leaving.stop()
    assert one.fleet.state == "leading"
    assert sum(world.run(4)) >= 0.99 * 4 * RATE


def test_members_that_are_cut_off_keep_a_floor_and_share_again_when_they_are_heard(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    world.hub.is_cut = True
    world.run(3)
    assert all(proxy.fleet.member.isolated and proxy.fleet.lease_ends == 1 for proxy in (one, other))
    for passed in world.run(2):
        assert 0.98 * 0.025 * RATE <= passed / 2 <= 1.05 * 0.025 * RATE  # 5 % of an equal part of two
    world.hub.is_cut = False
    world.run(1, most=BURST + RATE / 10)
    assert not one.fleet.member.isolated
    assert sum(world.run(2)) >= 0.99 * 2 * RATE


def test_forged_and_broken_messages_are_counted_and_change_nothing(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    for message in (b"", b"\xff" * 100, b"x" * (1 << 21)):
        for link in world.hub.links:
            world.loop.run(link.callbacks.on_grant, message)
            world.loop.run(link.callbacks.on_report, message)
    assert one.fleet.refused_messages()["oversized"] == 2
    assert other.fleet.refused_messages()["malformed"] >= 1
    assert sum(world.run(2)) >= 0.99 * 2 * RATE
