"""Limits above each other, which streams of several members reach at once: shares come to rest, and nothing is lost."""

from asyncio import TimerHandle
from collections.abc import Callable
from statistics import fmean

import pytest

from limiter.levels import Setting
from limiter.limiter import Limiter, Stream, StreamName
from limiter.policies import Policies, Value
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.config.sections import Fleet
from tests.manual_clock import ManualClock
from tests.proxy.fleet.hub import Hub
from tests.proxy.fleet.proxies import STEP_S, LimitedProxy
from tests.proxy.manual_loop import ManualLoop

SETTLED_S, LOOKED_AT_S = 5, 15
LIMITED, OTHER = (parse_topic(f"persistent://acme/shop/{name}") for name in ("orders", "other"))


class Member(LimitedProxy):
    """A proxy with producers, two thirds of them of a limited topic; all of them always have more to send."""

    def __init__(self, number: int, loop: ManualLoop, hub: Hub, limits: tuple[int, int], producers: int) -> None:
        tenant, topic_limit = limits
        self.alarms: dict[Limiter, TimerHandle] = {}
        policies = Policies()
        policies.put("publish", Setting.TENANT, "acme", Value(Limit(rate(tenant)), "file"))
        policies.put("publish", Setting.TOPIC, LIMITED.full, Value(Limit(rate(topic_limit)), "file"))
        super().__init__(Fleet(name="front"), f"sluice-{number}", loop, policies)
        self.streams = []
        for id_ in range(producers):
            topic = OTHER if id_ % 3 == 0 else LIMITED
            name = StreamName("publish", "acme", "acme/shop", topic.full, id_)
            self.streams.append(Stream(name, (), lambda _stream, _entry: None))
            self.registry.open(self.streams[-1], topic, self.clock())
        self.start(hub)

    def set_alarm(self, limiter: Limiter, delay_s: float, ring: Callable[[], object]) -> TimerHandle:
        """In place of the one before, as in a proxy; so many streams would have too many."""
        if limiter in self.alarms:
            self.alarms[limiter].cancel()
        self.alarms[limiter] = super().set_alarm(limiter, delay_s, ring)
        return self.alarms[limiter]

    def offer(self) -> None:
        for stream in self.streams:
            while len(stream.held) < 50:
                self.offer_entry(stream, 1, 100)

    def changes(self) -> int:
        """Return how often the share of the tenant's limit has changed, on which a stream always waits."""
        return sum(change.limiter == "publish tenant acme" for change in self.told)

    @property
    def passed(self) -> list[int]:
        return [stream.usage.passed_messages for stream in self.streams]


def run_of(limits: tuple[int, int], producers: int, later_s: float) -> tuple[list[list[float]], int]:
    """Check that the limits are used up, and return what each producer passes, and how often shares have changed.

    Args:
        limits: Messages a second of the tenant and of the topic.
        producers: Of each of the members.
        later_s: Seconds by which the second member comes after the first.
    """
    loop = ManualLoop(ManualClock(10**12))
    hub, members = Hub(loop.clock), list[Member]()

    def run(seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            for member in members:
                loop.run(member.offer)
            loop.advance(STEP_S)

    for number in range(2):
        members.append(Member(number, loop, hub, limits, producers))
        run(later_s)
    run(SETTLED_S)
    begun, changes_before = [member.passed for member in members], sum(member.changes() for member in members)
    run(LOOKED_AT_S)
    rates = [
        [(after - earlier) / LOOKED_AT_S for after, earlier in zip(member.passed, before, strict=True)]
        for member, before in zip(members, begun, strict=True)
    ]
    passed = sum(sum(member.passed) for member in members) - sum(map(sum, begun))
    assert passed >= 0.99 * limits[0] * LOOKED_AT_S
    changes = sum(member.changes() for member in members) - changes_before
    loop.close()
    return rates, changes


@pytest.mark.parametrize(
    ("limits", "producers", "of_each", "most_changes"),
    [
        ((60, 50), 3, (10, 10), 8),
        ((60, 40), 3, (10, 10), 8),
        ((60, 30), 3, (15, 7.5), 8),
        ((60, 20), 3, (20, 5), 8),
    ],
)
def test_two_limits_that_streams_reach_at_once_are_passed_whole(
    limits: tuple[int, int], producers: int, of_each: tuple[float, float], most_changes: int
) -> None:
    """A stream that waits on one limit does not wait on the other, so who waits is different at each report.

    What a producer passes, and the number of changes, depend on when reports come, so they are means of several runs.

    Args:
        limits: Messages a second of the tenant and of the topic.
        producers: Of each of two members.
        of_each: Messages a second that each producer of the other topic, and of the limited one, passes.
        most_changes: Of the shares.
    """
    runs = [run_of(limits, producers, later * STEP_S) for later in range(0, 24, 2)]
    for member in range(2):
        passed = [fmean(rates[member][id_] for rates, _ in runs) for id_ in range(producers)]
        assert passed == pytest.approx([of_each[id_ % 3 > 0] for id_ in range(producers)], abs=0.6)
    assert fmean(changes for _, changes in runs) <= most_changes


@pytest.mark.parametrize(("limits", "of_each"), [((240, 160), (5, 5)), ((240, 120), (7.5, 3.75))])
def test_two_limits_that_many_streams_reach_are_passed_whole(
    limits: tuple[int, int], of_each: tuple[float, float]
) -> None:
    both, changes = run_of(limits, 24, 0)
    for rates in both:
        assert rates == pytest.approx([of_each[id_ % 3 > 0] for id_ in range(24)], abs=0.6)
    assert changes <= 300
