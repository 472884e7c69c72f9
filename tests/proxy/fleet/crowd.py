"""Two members of a fleet with many limits, on a clock that only the test moves, and what a turn does for the fleet."""

from collections.abc import Callable
from typing import Any

import pytest

from fleet.member import FleetMember
from fleet.share_table import ShareTable
from limiter.levels import SHAREABLE, Setting
from limiter.limiter import Stream, StreamName
from limiter.policies import LimitTally, Policies, Value
from limiter.sharing import SharedLimits
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.config.sections import Fleet
from tests.manual_clock import ManualClock
from tests.proxy.fleet.hub import Hub
from tests.proxy.fleet.proxies import SECOND, LimitedProxy
from tests.proxy.manual_loop import ManualLoop

MANY = 300
"""Limits: many times what a turn may do."""
PER_SECOND, BURST = 20, 4


class FleetCrowd:
    """Two members of a fleet, through each of which a producer sends to each of many topics with a limit of its own.

    Attributes:
        most: The most calls of each counted function in a turn.
        total: All of them.
        offering: The members through which producers send.
        is_slow: Whether a turn with work for the fleet takes a millisecond, and clients send in it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = ManualLoop(ManualClock(10**12))
        self.hub = Hub(self.loop.clock)
        self.most: dict[str, int] = {}
        self.total: dict[str, int] = {}
        self.is_slow = False
        self.offering = {"a", "b"}
        self._done: dict[str, int] = {}
        self._count(monkeypatch, SharedLimits, "_demand_of")
        self._count(monkeypatch, SharedLimits, "assign")
        self._count(monkeypatch, ShareTable, "_divide")
        self._count(monkeypatch, ShareTable, "_introduce")
        self._count(monkeypatch, ShareTable, "_remove")
        self._count(monkeypatch, FleetMember, "_note")
        self.loop.turned = self._turned
        self.proxies = [self._proxy(name) for name in "ab"]
        self.streams = [(proxy, self._open(proxy, number)) for proxy in self.proxies for number in range(MANY)]
        self.excess = [0.0] * MANY

    def _proxy(self, name: str) -> LimitedProxy:
        policies = Policies(tally=LimitTally(frozenset(SHAREABLE)))
        value = Value(Limit(rate(PER_SECOND, burst=BURST)), "file")
        policies.put("publish", Setting.TOPIC_OF_BROKER, "", value)
        proxy = LimitedProxy(Fleet(name="front"), name, self.loop, policies)
        proxy.start(self.hub)
        return proxy

    @staticmethod
    def _open(proxy: LimitedProxy, number: int) -> Stream:
        topic = parse_topic(f"persistent://acme/shop/{number}")
        stream = Stream(StreamName("publish", "acme", "shop", topic.full, number), (), lambda _stream, _entry: None)
        proxy.registry.open(stream, topic, proxy.clock())
        return stream

    def _count(self, monkeypatch: pytest.MonkeyPatch, cls: type, name: str) -> None:
        does: Callable[..., Any] = getattr(cls, name)

        def counted(*args: Any) -> Any:
            self._done[name] = self._done.get(name, 0) + 1
            return does(*args)

        monkeypatch.setattr(cls, name, counted)

    def _turned(self) -> None:
        done, self._done = self._done, {}
        for name, times in done.items():
            self.most[name] = max(self.most.get(name, 0), times)
            self.total[name] = self.total.get(name, 0) + times
        if done and self.is_slow:
            self._pass(0.001)

    def _passed(self) -> list[int]:
        passed = [stream.usage.passed_messages for _, stream in self.streams]
        return [messages + other for messages, other in zip(passed[:MANY], passed[MANY:], strict=True)]

    def _pass(self, seconds: float) -> None:
        """Let time pass in which all offer. No topic may pass more than its burst and its rate allow."""
        before = self._passed()
        for proxy, stream in self.streams:
            while proxy.fleet.name in self.offering and len(stream.held) < 3:
                proxy.offer_entry(stream, 1, 100)
        self.loop.clock.advance(seconds)
        for topic, (earlier, later) in enumerate(zip(before, self._passed(), strict=True)):
            excess = self.excess[topic] + later - earlier
            assert excess <= BURST + 2, "and an entry of each member"
            self.excess[topic] = max(0.0, excess - PER_SECOND * seconds)

    def run(self, seconds: float) -> int:
        """Let this time pass, and return how many messages have passed in it."""
        begun, end = sum(self._passed()), self.loop.clock.now + round(seconds * SECOND)
        while self.loop.clock.now < end:
            self.loop.run(self._pass, 0.005)
        return sum(self._passed()) - begun
