"""Limits above each other, which streams of several members reach at once: shares come to rest, and nothing is lost."""

from collections.abc import Sequence

import pytest

from limiter.levels import Setting
from limiter.limiter import Stream, StreamName
from limiter.policies import Policies, Value
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.config.sections import Fleet
from tests.proxy.fleet.hub import Hub
from tests.proxy.fleet.proxies import STEP_S, LimitedProxy, World
from tests.proxy.manual_loop import ManualLoop

TENANT, SETTLED_S, LOOKED_AT_S = 60, 5, 20
MOST_CHANGES = 8
LIMITED, OTHER = (parse_topic(f"persistent://acme/shop/{name}") for name in ("orders", "other"))


class Member(LimitedProxy):
    """A proxy with two producers of a limited topic and one of another topic; all of them always have more to send."""

    def __init__(self, number: int, loop: ManualLoop, hub: Hub, topic_limit: int) -> None:
        policies = Policies()
        policies.put("publish", Setting.TENANT, "acme", Value(Limit(rate(TENANT)), "file"))
        policies.put("publish", Setting.TOPIC, LIMITED.full, Value(Limit(rate(topic_limit)), "file"))
        super().__init__(Fleet(name="front"), f"sluice-{number}", loop, policies)
        self.streams = []
        for id_, topic in enumerate((LIMITED, LIMITED, OTHER)):
            name = StreamName("publish", "acme", "acme/shop", topic.full, id_)
            self.streams.append(Stream(name, (), lambda _stream, _entry: None))
            self.registry.open(self.streams[-1], topic, self.clock())
        self.start(hub)

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


@pytest.mark.parametrize(
    ("topic_limit", "of_each"), [(50, (10, 10, 10)), (40, (10, 10, 10)), (30, (7.5, 7.5, 15)), (20, (5, 5, 20))]
)
def test_two_limits_that_streams_reach_at_once_are_passed_whole(
    world: World, topic_limit: int, of_each: Sequence[float]
) -> None:
    """A stream that waits on one limit does not wait on the other, so who waits is different at each report."""
    loop = world.loop
    members = [Member(number, loop, world.hub, topic_limit) for number in range(2)]

    def run(seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            for member in members:
                loop.run(member.offer)
            loop.advance(STEP_S)

    run(SETTLED_S)
    begun, told = [member.passed for member in members], sum(member.changes() for member in members)
    run(LOOKED_AT_S)
    for member, before in zip(members, begun, strict=True):
        rates = [(after - earlier) / LOOKED_AT_S for after, earlier in zip(member.passed, before, strict=True)]
        assert rates == pytest.approx(of_each, abs=0.5)
    passed = sum(sum(member.passed) for member in members) - sum(map(sum, begun))
    assert passed >= 0.995 * TENANT * LOOKED_AT_S
    assert sum(member.changes() for member in members) - told <= MOST_CHANGES
