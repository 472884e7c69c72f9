"""Members of one fleet in one process, on a clock that only the test moves: limiters, core and service together."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import accumulate, count, pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fleet import shares
from fleet.messages import MOST_EPOCH, Grants, Introduction, MemberReport, Quota, ShareKey
from fleet.share_table import _rate
from limiter.activity import ActivitySet
from limiter.levels import SHAREABLE, Setting
from limiter.limiter import Entry, Limiter, Scope, Stream, StreamName
from limiter.policies import Change, Policies, PutRules, RuleTally, SharedRules, Value, lowest
from limiter.registry import KEPT, Registry
from limiter.scheduler import Scheduler
from limiter.shadow import ShadowLimiter
from limiter.sharing import UNBOUNDED, key_of
from limiter.token_bucket import WHOLE, Limit, Rate, rate
from protocol.topic_name import parse_topic
from proxy.admin.routes import sharing
from proxy.config.model import Config
from proxy.config.sections import Fleet
from proxy.fleet.configured_link import own_auth
from proxy.fleet.coordinator_clock import CoordinatorClock
from proxy.fleet.service import LEAST_BETWEEN_REPORTS_S, FleetService
from proxy.identity.evidence import Credentials, Verifier
from proxy.observe.counters import Counters
from proxy.observe.log_lines import ShareChange
from proxy.session.engine import Engine
from tests.manual_clock import ManualClock
from tests.proxy.fleet.hub import Hub, HubLink
from tests.proxy.manual_loop import ManualLoop

RATE, BURST = 1000, 100
TOPIC = parse_topic("persistent://acme/shop/orders")
STEP_S = 0.005
MS, SECOND = 10**6, 10**9


class Proxy:
    """What a proxy has of limits, and its part in the fleet.

    Its one producer is greedy while it offers; else it sends a message at each of `arrivals`, in seconds.
    """

    def __init__(
        self,
        name: str,
        loop: ManualLoop,
        hub: Hub,
        per_second: int,
        ahead_ns: int = 0,
        *,
        tells_rules: bool = False,
        levels: Iterable[str] = SHAREABLE,
    ) -> None:
        self.loop, self.offers = loop, False
        self.arrivals: Iterator[float] = iter(())
        self.next_at = 0.0
        clock = loop.clock
        self.told: list[ShareChange] = []
        self.policies = Policies(tally=RuleTally(frozenset(levels)) if tells_rules else None)
        rules = SharedRules(self.policies, self.change) if tells_rules else None
        self.fleet = FleetService(
            Fleet(name="front"), name, clock, lambda: 10**18 + ahead_ns + clock(), self.told.append, rules
        )
        journal = ActivitySet(lambda: None)
        self.scheduler = Scheduler(self._wake_at, journal)
        shadow = ShadowLimiter(lambda _limiter, _at: None, journal, (1 << 20, 0))
        self.limit(per_second)
        self.registry = Registry(self.policies, self.scheduler, shadow, shared=self.fleet.shared)
        self.stream = Stream(StreamName("publish", "acme", "shop", TOPIC.full, 1), (), lambda _stream, _entry: None)
        self.registry.open(self.stream, TOPIC, clock())
        loop.run(lambda: loop.create_task(self.fleet.start(lambda callbacks: HubLink(hub, callbacks))))

    def limit(self, per_second: int) -> None:
        """Have a limit of the tenant in the file, or none."""
        value = Value(Limit(rate(per_second, burst=BURST)), "file") if per_second else None
        self.policies.put("publish", Setting.TENANT, "acme", value)

    def reload(self, per_second: int) -> None:
        self.limit(per_second)
        self.changed([Change("publish", Setting.TENANT, "acme")])

    def change(self, changes: list[Change], put: PutRules) -> None:
        put()
        self.changed(changes)

    def changed(self, changes: list[Change]) -> None:
        self.registry.change(changes, self.loop.clock())

    @property
    def passed(self) -> int:
        return self.stream.usage.passed_messages

    def offer(self) -> None:
        """Keep fifty messages waiting."""
        while self.offers and len(self.stream.held) < 50:
            self.offer_one()
        while self.next_at <= self.loop.clock() / 1e9:
            if self.next_at:
                self.offer_one()
            self.next_at = next(self.arrivals, 1e18)

    def offer_one(self) -> None:
        now = self.loop.clock()
        self.scheduler.count_offered(self.stream, 1, 1, 100)
        if not self.scheduler.pass_entry(self.stream, 1, 100, now):
            self.scheduler.hold(self.stream, Entry(b"", 1, 100, 100, now), now)

    def stop(self) -> "asyncio.Task[None]":
        tasks: list[asyncio.Task[None]] = []
        self.loop.run(lambda: tasks.append(self.loop.create_task(self.fleet.stop())))
        return tasks[0]

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

    def join(
        self, per_second: int = RATE, ahead_ns: int = 0, *, tells_rules: bool = False, levels: Iterable[str] = SHAREABLE
    ) -> Proxy:
        name = f"sluice-{len(self.proxies)}"
        proxy = Proxy(name, self.loop, self.hub, per_second, ahead_ns, tells_rules=tells_rules, levels=levels)
        self.proxies.append(proxy)
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


def test_the_two_cores_mean_the_same_by_what_they_tell_each_other() -> None:
    assert (shares.WHOLE, shares.UNBOUNDED) == (WHOLE, UNBOUNDED)


SMALL_RATES = st.builds(Rate, st.integers(1, 4), st.sampled_from([1, 2, 60]), st.integers(1, 3))


@given(SMALL_RATES, SMALL_RATES, st.none() | SMALL_RATES, st.none() | SMALL_RATES)
def test_the_two_cores_take_the_same_of_two_limits_for_the_lower_one(
    one: Rate, other: Rate, peak: Rate | None, other_peak: Rate | None
) -> None:
    """The coordinator puts the lowest of members' quotas in force; a member lets a lower one of others hold."""
    held = lowest(Limit(one, peak_messages=peak), Limit(other, peak_messages=other_peak))
    assert held.messages is not None
    quotas = [_quota(one, peak), _quota(other, other_peak)]
    assert _rate(min(quotas, key=_rate)) == _rate(_quota(held.messages, held.peak_messages))


def _quota(one: Rate, peak: Rate | None) -> Quota:
    of_peak = None if peak is None else (peak.tokens, peak.period_ns, peak.burst)
    return Quota(one.tokens, one.period_ns, one.burst, of_peak)


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


def test_a_low_limit_that_one_member_uses_alone_is_wholly_its_own_though_others_have_used_it_before(world) -> None:
    proxies = [world.join(per_second=0) for _ in range(4)]
    world.run(5)
    for proxy in proxies:
        proxy.policies.put("publish", Setting.TENANT, "acme", Value(Limit(Rate(1, 60 * 10**9, 1)), "file"))
        world.loop.run(lambda proxy=proxy: proxy.changed([Change("publish", Setting.TENANT, "acme")]))
        world.loop.run(proxy.offer_one)
    world.loop.advance(300)
    proxies[0].offers = True
    world.run(1)
    key = ShareKey.of("publish tenant acme", "messages")
    shares = [proxy.fleet.member.shares()[key].ppm for proxy in proxies]
    assert shares == [WHOLE, 0, 0, 0]


def test_a_limiter_that_was_forgotten_and_made_anew_between_two_reports_has_a_share_again(world: World) -> None:
    one, _ = world.join(), world.join()
    world.run(5)
    one.offers = True
    world.run(1)
    one.offers = False
    world.run(1)

    def reconnect() -> None:
        now = world.loop.clock()
        one.registry.close(one.stream, now)
        for number in range(KEPT + 1):  # each rests, and the oldest ones are forgotten
            topic = parse_topic(f"persistent://other/n/t{number}")
            name = StreamName("publish", "other", "n", topic.full, 1)
            stream = Stream(name, (), lambda _stream, _entry: None)
            one.registry.open(stream, topic, now)
            one.registry.close(stream, now)
        one.stream = Stream(StreamName("publish", "acme", "shop", TOPIC.full, 1), (), lambda _stream, _entry: None)
        one.registry.open(one.stream, TOPIC, now)

    one.policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "other/n", Value(Limit(rate(1)), "file"))
    world.loop.run(reconnect)
    one.offers = True
    world.run(1)
    assert world.run(1)[0] >= 0.99 * RATE


def test_a_unit_whose_limit_was_taken_back_and_set_again_has_no_share_but_what_is_granted_anew(world: World) -> None:
    one, other = world.join(), world.join()
    key = ShareKey.of("publish tenant acme", "bytes")

    def put(size: Rate | None) -> None:
        for proxy in (one, other):
            value = Value(Limit(rate(RATE, burst=BURST), size=size), "file")
            proxy.policies.put("publish", Setting.TENANT, "acme", value)
            world.loop.run(lambda proxy=proxy: proxy.changed([Change("publish", Setting.TENANT, "acme")]))

    put(rate(10**6))
    world.run(5)
    one.offers = True
    world.run(2)
    assert one.fleet.shared.share_in_force(key) == WHOLE
    put(None)
    world.run(1)
    assert one.fleet.shared.share_in_force(key) == 0
    put(rate(10**6))
    world.run(1)
    assert one.fleet.shared.share_in_force(key) == WHOLE


def test_a_raised_limit_holds_although_the_clients_of_a_member_have_left_while_it_was_lower(world: World) -> None:
    one, other = world.join(RATE // 4), world.join(RATE // 4)
    world.run(5)
    one.offers = other.offers = True
    world.run(1)
    other.offers = False
    world.loop.run(lambda: other.registry.close(other.stream, world.loop.clock()))
    world.run(1)
    for proxy in (one, other):
        world.loop.run(lambda proxy=proxy: proxy.reload(RATE))
    world.run(1)
    assert world.run(1)[0] >= 0.99 * RATE


def test_a_limit_that_is_taken_back_has_no_shares_any_more(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(1)
    one.offers = other.offers = False
    for proxy in (one, other):
        world.loop.run(lambda proxy=proxy: proxy.reload(0))
    world.loop.advance(1)
    assert [proxy.fleet.member.shares() for proxy in (one, other)] == [{}, {}]


def steady(rate: float, _random: Random) -> Iterator[float]:
    """Seconds at which a message comes: evenly."""
    return (1005 + number / rate for number in count())


def poisson(rate: float, random: Random) -> Iterator[float]:
    return accumulate((random.expovariate(rate) for _ in count()), initial=1005.0)


def bursts(rate: float, random: Random) -> Iterator[float]:
    """Three times the rate for half a second of each one and a half."""
    return (at for at in poisson(3 * rate, random) if at % 1.5 < 0.5)


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
        passed = [one + more for one, more in zip(passed, world.run(0.25), strict=True)]
        assert all(len(proxy.stream.held) <= most_held for proxy in proxies[:3])
    assert sum(passed) >= least * 8 * RATE
    for tokens, per_second in zip(passed, rates, strict=False):
        assert abs(tokens - 8 * per_second) <= 0.1 * 8 * per_second + most_held


def test_the_first_message_of_a_newcomer_never_waits(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = True
    world.run(1)
    other.offers = True
    world.loop.run(other.offer)
    assert other.passed == 1


def test_what_a_member_wants_is_reported_at_once_and_soon_after_a_report_once_for_all_wishes(world: World) -> None:
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
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    other.offers = False
    other.stop()
    world.run(0.5)
    assert world.run(1)[0] >= 0.99 * RATE
    assert other.fleet.shared.lease.until <= world.loop.clock()


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
    assert min(later - one for one, later in pairwise(times)) >= 0.1 * 1e9


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_who_leaves_says_it_until_it_is_answered_and_three_times_at_most(world: World, lost: int) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    link, other.offers = world.hub.links[1], False
    link.loses, told = lost, link.counts.messages_out
    stopping = other.stop()
    world.run(0.02)
    assert stopping.done() == (lost == 0)
    world.run(0.48)
    assert stopping.done()
    assert link.counts.messages_out - told == min(lost + 1, 3)
    assert one.fleet.coordinator is not None
    assert len(one.fleet.coordinator.members(world.loop.clock())) == (2 if lost == 3 else 1)


def test_who_is_cut_off_says_once_that_it_leaves_and_waits_for_nobody(world: World) -> None:
    world.join()
    other = world.join()
    world.run(5)
    world.hub.is_cut = True
    world.run(3)
    world.hub.is_cut, world.hub.links[1].loses = False, 9
    told = world.hub.links[1].counts.messages_out
    link = world.hub.links[1]
    stopping = other.stop()
    world.run(0.005)
    assert stopping.done()
    assert link.counts.messages_out == told + 1


def test_a_coordinator_that_leaves_takes_no_share_from_the_others(world: World) -> None:
    leaving, one, other = world.join(), world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    leaving.stop()
    assert one.fleet.state == "leading"
    assert sum(world.run(4)) >= 0.99 * 4 * RATE


def test_a_coordinator_goes_on_where_a_greater_epoch_was_forged_and_its_link_confirms_it(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    forged = Grants("front", "forged", MOST_EPOCH, 2).encode()
    world.loop.run(lambda: [link.callbacks.on_grant(forged) for link in world.hub.links])
    for _ in range(28):  # a link between peers confirms without grants
        world.run(0.5, most=BURST + RATE / 10)
        world.run(0.01)
        world.loop.run(lambda: world.hub.links[0].callbacks.on_confirmed(world.loop.clock()))
    assert [proxy.fleet.member.coordinator for proxy in (one, other)] == ["sluice-0"] * 2
    assert sum(world.run(2)) >= 0.99 * 2 * RATE


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


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_workers_were_lent_of_a_lowered_share_is_nobody_elses_until_it_is_back_or_its_time_is_over(
    world: World,
    comes_back: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = True
    world.run(1)
    (limiter,) = one.registry.limiters.values()
    assert limiter.shares[0] == WHOLE
    limiter.charge(80, 0, world.loop.clock())
    limiter.lend(80, 0)
    other.offers = True
    world.run(0.9)
    assert limiter.shares[0] == pytest.approx(WHOLE // 2, abs=10)
    assert other.fleet.shared.share_in_force(key_of(limiter.scope, "messages")) == 0
    if comes_back:
        limiter.come_back((80, 0), (0, 0), world.loop.clock())
        world.run(0.05)
    else:
        world.run(0.3)
    assert other.fleet.shared.share_in_force(key_of(limiter.scope, "messages")) == pytest.approx(WHOLE // 2, abs=10)
    world.run(2)
    assert one.fleet.dropped_messages() == other.fleet.dropped_messages() == {}


def test_forged_and_broken_messages_are_counted_and_change_nothing(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    for message in (b"", b"\xff" * 100, b"x" * (1 << 21)):
        for link in world.hub.links:
            world.loop.run(link.callbacks.on_grant, message)
            world.loop.run(link.callbacks.on_report, message)
    assert one.fleet.dropped_messages()["oversized"] == 2
    assert other.fleet.dropped_messages()["malformed"] >= 1
    assert sum(world.run(2)) >= 0.99 * 2 * RATE


@pytest.mark.parametrize("since", [1, 2**64 - 1])
def test_a_report_in_the_name_of_another_one_keeps_that_one_out_for_seconds_and_not_for_ever(
    world: World, since: int
) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    member = other.fleet.member
    said = MemberReport("front", "", member.incarnation, 2**64 - 1, since, member.epoch)
    world.loop.run(world.hub.links[0].callbacks.on_report, said.encode())
    world.run(15, most=float("inf"))  # for moments both have it
    world.excess = 0.0
    passed = world.run(5)
    assert sum(passed) >= 0.99 * 5 * RATE
    assert min(passed) >= 0.45 * 5 * RATE
    assert one.fleet.coordinator is not None
    assert len(one.fleet.coordinator.members(world.loop.clock())) == 2


def test_of_all_shares_so_many_are_shown_as_an_answer_can_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = world.join(), world.join()
    world.run(5)
    coordinator = one.fleet.coordinator
    assert coordinator is not None
    quota = Quota(1, SECOND, 1)
    for member in range(1, 11):
        keys = [ShareKey.of(f"publish tenant t{number}", "bytes") for number in range(10)]
        said = [Introduction(number, key, quota, 0) for number, key in enumerate(keys)]
        coordinator.hear(MemberReport("front", "m", member, 1, 1, coordinator.epoch, introductions=said), 0)
    monkeypatch.setattr(sharing, "MOST_HOLDERS", 35)
    shown = sharing._shown(one.fleet, None, 1000)["fleet_limits"]
    assert shown is not None
    assert [len(limit["holders"]) for limit in shown[-3:]] == [10, 10, 10]
    assert sum(len(limit["holders"]) for limit in shown) <= 35


def test_changes_of_shares_are_told_once_each_with_their_cause(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
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


@pytest.mark.parametrize("ahead_ns", [0, 37_000_000_000, -1_500_000_000])
def test_a_change_of_a_share_tells_how_far_the_coordinators_clock_is_ahead(world: World, ahead_ns: int) -> None:
    one, other = world.join(), world.join(ahead_ns=ahead_ns)
    world.hub.links[1].delay_s = 0.01
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    assert {change.ahead_ns for change in one.told} == {(0, 0)}  # it coordinates
    for change in other.told:
        assert change.ahead_ns is not None
        ahead, within = change.ahead_ns
        assert abs(ahead + ahead_ns) <= within <= 20_000_000
    for link in world.hub.links:
        link.delay_s = 0
    world.hub.is_cut = True
    world.run(3)
    assert (other.told[-1].cause, other.told[-1].ahead_ns) == ("isolated", None)


def test_a_clock_is_measured_by_the_narrowest_bounds_of_a_minute_and_anew_when_one_was_stepped() -> None:
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


def test_demand_that_goes_up_and_down_far_below_the_limit_changes_shares_seldom(world: World) -> None:
    for _ in range(4):
        world.join()
    world.loop.advance(5)
    random, told, seconds = Random(1), [len(proxy.told) for proxy in world.proxies], 10

    def offer(proxy: Proxy) -> None:
        for _ in range(sum(random.random() < 0.1 for _ in range(10))):
            now = world.loop.clock()
            proxy.scheduler.count_offered(proxy.stream, 1, 1, 100)
            if not proxy.scheduler.pass_entry(proxy.stream, 1, 100, now):
                proxy.scheduler.hold(proxy.stream, Entry(b"", 1, 100, 100, now), now)

    for _ in range(seconds * 100):
        for proxy in world.proxies:
            world.loop.run(offer, proxy)
        world.loop.advance(0.01)
    assert all(60 * seconds <= proxy.passed <= 140 * seconds for proxy in world.proxies)  # a tenth of the limit each
    for proxy in world.proxies:
        shown = {one.ppm for one in proxy.fleet.limits.granted()}
        assert shown == {limiter.shares[0] for limiter in proxy.registry.limiters.values()}  # what is in force
    changes = [len(proxy.told) - before for proxy, before in zip(world.proxies, told, strict=True)]
    assert all(1 <= count <= 1.5 * seconds for count in changes)  # seven a second, if each grant were put in force


def test_members_with_different_limits_are_named_at_both_ends_and_not_each_time(world: World) -> None:
    one, other = world.join(), world.join(RATE // 10)
    world.run(5)
    one.offers = other.offers = True
    with capture_logs() as logs:
        world.run(3, most=BURST + RATE / 10)
    said = [log for log in logs if log["log_level"] == "warning"]
    assert {log["event"].split(":")[1] for log in said} == {
        " another member has a lower limit, which holds",
        " members have different limits, and the lowest holds",
    }
    assert len(said) == 2
    assert all(log["limiter"] == "publish tenant acme" and log["in_force"] == "100/s, burst 100" for log in said)
    assert next(log["own"] for log in said if "own" in log) == "1000/s, burst 100"


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


def test_that_two_members_have_one_name_is_told_each_ten_seconds_at_most(world: World) -> None:
    one, other = world.join(), world.join()
    other.fleet.member.name = one.fleet.member.name
    with capture_logs() as logs:
        world.run(9)
    said = [log for log in logs if log["log_level"] == "warning"]
    assert [(log["member"], log["members"]) for log in said] == [("sluice-0", 2)]
    assert "proxy_id of its own" in said[0]["event"]


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


def test_that_nobody_has_coordinated_since_the_start_is_told_once(world: World) -> None:
    world.hub.is_cut = True
    with capture_logs() as logs:
        world.join()
        world.run(7.9)
        assert [log for log in logs if log["log_level"] == "warning"] == []
        world.run(10)
    said = [log["event"].split(",")[0] for log in logs if log["log_level"] == "warning"]
    assert said == ["fleet: no coordinator since the start"]
    assert [log["problem"] for log in logs if "since the start" in log["event"]] == ["nobody is there"]


def test_that_a_member_is_cut_off_and_back_is_told_though_it_keeps_its_share(world: World) -> None:
    one, other = world.join(), world.join()
    world.run(5)
    one.offers = other.offers = True
    world.run(2)
    for link in world.hub.links:
        link.refused = True  # so others are cut off, too: each keeps an equal part
    world.hub.is_cut = True
    world.run(3)
    world.hub.is_cut = False
    world.run(1)
    for proxy in world.proxies:
        told = [(change.cause, change.before, change.after) for change in proxy.told if change.cause == "isolated"]
        assert told == [("isolated", 500_000, 500_000)]
        causes = [change.cause for change in proxy.told]
        assert causes[causes.index("isolated") + 1] == "rejoined"
        assert causes.count("rejoined") == 1


def test_a_hundred_thousand_limits_at_rest_cost_a_heartbeat_in_each_cycle_and_nothing_else(world: World) -> None:
    leading, other = world.join(), world.join()
    now, limit, shared = world.loop.clock(), Limit(rate(RATE, burst=BURST)), other.fleet.shared
    scopes = [Scope("publish", "topic", f"t{number}", "", "") for number in range(100_000)]
    limiters = [Limiter(scope, limit, "", now, shared.lease) for scope in scopes]
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
    assert max(reports) <= 40
    assert max(grants_and_reports) <= 100
    assert leading.fleet.coordinator is not None
    assert len(list(leading.fleet.coordinator.table.limits(world.loop.clock()))) == len(used)
    world.loop.run(used[0].pay, 1, 10, world.loop.clock())
    world.loop.advance(0.25)
    assert len(timers) > 2 * (cycles + 1)


def test_brokers_are_shown_the_token_in_the_fleets_file_now_or_else_what_clients_brokers_are(tmp_path: Path) -> None:
    engine, file = Engine(Config(), Counters()), tmp_path / "token"
    assert own_auth(None, engine) is own_auth(Fleet(name="front"), engine) is None
    engine.identity = cast("Verifier", SimpleNamespace(own=Credentials("basic", b"sluice:x")))
    file.write_text("one")
    auth = own_auth(Fleet(name="front", token_file=file), engine)
    file.write_text("two")
    for found, expected in ((auth, ("token", b"two")), (own_auth(None, engine), ("basic", b"sluice:x"))):
        assert found is not None
        assert (found[0], found[1]()) == expected
