"""Proxies of one fleet in one process, on a clock that only the test moves: limiters, core and service together."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate, count
from random import Random

from fleet.messages import NO_LIMITS, WrittenLimits
from limiter.activity import ActivityJournal
from limiter.levels import SHAREABLE, Setting
from limiter.limiter import Entry, Limiter, Stream, StreamName, rejecting
from limiter.policies import Change, LimitTally, Policies, Value
from limiter.registry import Registry
from limiter.restart import FirstBalances
from limiter.scheduler import Scheduler
from limiter.shadow import ShadowLimiter
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.config.sections import Fleet
from proxy.counters import Counters
from proxy.fleet.service import FleetService
from proxy.observe.log_lines import ShareChange
from proxy.slices import CallsInSlices, Slices, Work
from tests.manual_clock import ManualClock
from tests.proxy.fleet.hub import Hub, HubLink
from tests.proxy.manual_loop import ManualLoop

RATE, BURST = 1000, 100
TOPIC = parse_topic("persistent://acme/shop/orders")
STEP_S = 0.005
MS, SECOND = 10**6, 10**9


class LimitedProxy:
    """What a proxy has of limits, and its part in a fleet."""

    def __init__(
        self,
        config: Fleet,
        name: str,
        loop: ManualLoop,
        policies: Policies,
        ahead_ns: int = 0,
        *,
        first: FirstBalances | None = None,
    ) -> None:
        self.loop, self.clock = loop, loop.clock
        self.told: list[ShareChange] = []
        self.policies = policies
        self.fleet = FleetService(
            config,
            name,
            CallsInSlices(Slices(Counters(), self.clock), Work.FLEET).add,
            self.clock,
            lambda: 10**18 + ahead_ns + self.clock(),
            self.told.append,
            self.written,
            version="9.9",
        )
        self.journal = ActivityJournal()
        self.scheduler = Scheduler(self._waking(lambda: self.scheduler), self.journal)
        scheduled = partial(Scheduler, self._waking(lambda: self.shadow.scheduler))
        self.shadow = ShadowLimiter(scheduled, self.journal, 1 << 20, 0)
        self.registry = Registry(
            policies, self.scheduler, self.shadow, clock=self.clock, shared=self.fleet.shared, first=first
        )

    def written(self) -> WrittenLimits:
        tally = self.policies.tally
        return NO_LIMITS if tally is None else WrittenLimits(tally.digest, tally.total)

    def start(self, hub: Hub) -> None:
        self.loop.run(lambda: self.loop.create_task(self.fleet.start(lambda callbacks: HubLink(hub, callbacks))))

    def offer_entry(self, stream: Stream, messages: int, size: int) -> None:
        """Offer an entry, as sessions do."""
        now = self.clock()
        self.scheduler.count_offered(stream, 1, messages, size)
        limiter = rejecting(stream, now)
        if limiter is not None:
            self.scheduler.count_rejected(stream, limiter, messages, size)
        elif not self.scheduler.pass_entry(stream, messages, size, now):
            self.scheduler.hold(stream, Entry(b"", messages, size, size, now), now)

    def _waking(self, scheduler: Callable[[], Scheduler]) -> Callable[[Limiter, int], None]:
        def wake_at(limiter: Limiter, at_ns: int) -> None:
            delay = max(0, at_ns - self.clock()) / 1e9
            self.set_alarm(limiter, delay, lambda: scheduler().serve(limiter, self.clock()))

        return wake_at

    def set_alarm(self, _limiter: Limiter, delay_s: float, ring: Callable[[], object]) -> asyncio.TimerHandle:
        """Beside those that are set for the limiter already."""
        return self.loop.call_later(delay_s, ring)


class Proxy(LimitedProxy):
    """A proxy with one producer, whose tenant has a limit.

    The producer is greedy while it offers; else it sends a message at each of `arrivals`, in seconds.
    """

    def __init__(
        self,
        name: str,
        loop: ManualLoop,
        hub: Hub,
        per_second: int,
        ahead_ns: int = 0,
        *,
        levels: Iterable[str] = SHAREABLE,
    ) -> None:
        self.offers = False
        self.arrivals: Iterator[float] = iter(())
        self.next_at = 0.0
        policies = Policies(tally=LimitTally(frozenset(levels)))
        super().__init__(Fleet(name="front"), name, loop, policies, ahead_ns)
        self.limit(per_second)
        self.stream = Stream(StreamName("publish", "acme", "shop", TOPIC.full, 1), (), lambda _stream, _entry: None)
        self.registry.open(self.stream, TOPIC, self.clock())
        self.start(hub)

    def limit(self, per_second: int) -> None:
        """Have a limit of the tenant in the file, or none."""
        value = Value(Limit(rate(per_second, burst=BURST)), "file") if per_second else None
        self.policies.put("publish", Setting.TENANT, "acme", value)

    def reload(self, per_second: int) -> None:
        self.limit(per_second)
        self.changed([Change("publish", Setting.TENANT, "acme")])

    def changed(self, changes: list[Change]) -> None:
        self.registry.change(changes, self.clock())

    @property
    def passed(self) -> int:
        return self.stream.usage.passed_messages

    def offer(self) -> None:
        """Keep fifty messages waiting."""
        while self.offers and len(self.stream.held) < 50:
            self.offer_one()
        while self.next_at <= self.clock() / 1e9:
            if self.next_at:
                self.offer_one()
            self.next_at = next(self.arrivals, 1e18)

    def offer_one(self) -> None:
        self.offer_entry(self.stream, 1, 100)

    def stop(self) -> "asyncio.Task[None]":
        tasks: list[asyncio.Task[None]] = []
        self.loop.run(lambda: tasks.append(self.loop.create_task(self.fleet.stop())))
        return tasks[0]


class World:
    """Members, and what all of them have passed."""

    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock(10**12))
        self.hub = Hub(self.loop.clock)
        self.proxies: list[Proxy] = []
        self.excess = 0.0

    def join(self, per_second: int = RATE, ahead_ns: int = 0, *, levels: Iterable[str] = SHAREABLE) -> Proxy:
        name = f"sluice-{len(self.proxies)}"
        proxy = Proxy(name, self.loop, self.hub, per_second, ahead_ns, levels=levels)
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


def steady(rate: float, _random: Random) -> Iterator[float]:
    """Seconds at which a message comes: evenly."""
    return (1005 + number / rate for number in count())


def poisson(rate: float, random: Random) -> Iterator[float]:
    return accumulate((random.expovariate(rate) for _ in count()), initial=1005.0)


def bursts(rate: float, random: Random) -> Iterator[float]:
    """Three times the rate for half a second of each one and a half."""
    return (at for at in poisson(3 * rate, random) if at % 1.5 < 0.5)
