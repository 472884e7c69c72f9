"""P8 over real limiters: whatever members do, all together pass what one limiter would, and an entry each."""

import asyncio
from collections import deque
from typing import Literal

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from limiter.levels import Client, Setting
from limiter.limiter import Limiter, Stream, StreamName
from limiter.policies import Policies, Value
from limiter.restart import FirstBalances
from limiter.token_bucket import NOTHING_PUBLISHED, Direction, Limit, Mode, Rate, rate
from proxy.config.sections import Fleet
from tests.limiter.emptied import emptied
from tests.manual_clock import ManualClock
from tests.proxy.fleet.hub import Hub
from tests.proxy.fleet.proxies import TOPIC, LimitedProxy
from tests.proxy.manual_loop import ManualLoop

TICK_S = 0.01
DELAYS_S = (0.0, 0.06, 0.01, 0.03)
"""Of each member's messages, each way."""
TOLD_S = 0.3
"""So long after a member has a lower value others may have the higher one: a tenth of a second until a change of what
is in use is reported, a cycle, and the ways there and back."""
MOST_MESSAGES, MOST_SIZE = 5, 500
VALUES = (300, 1000)
SIZE = Limit(size=Rate(100_000, 10**9, 2000), peak_size=Rate(120_000, 10**9, 1000))
RELATIVE = Limit(rate(200, burst=4), published=NOTHING_PUBLISHED)

Weight = Literal["streams", "proxy"]
Metered = tuple[str, str]
"""Direction and level of a limiter that is looked at."""
TENANT, NAMESPACE, DELIVERIES = ("publish", "tenant"), ("publish", "namespace"), ("dispatch", "topic")


class Member(LimitedProxy):
    """A proxy with some producers and a consumer."""

    def __init__(
        self, number: int, loop: ManualLoop, hub: Hub, weight: Weight, first: FirstBalances | None = None
    ) -> None:
        self.number, self.first = number, FirstBalances() if first is None else first
        config = Fleet(name="front", cycle=0.05, lease=0.4, weight=weight)
        super().__init__(config, f"sluice-{number}", loop, Policies(), first=self.first)
        self.offers = self.delivers = 0
        """Entries in each tick."""
        self.seen: dict[Limiter, None] = {}
        self.tenant = Limit(rate(max(VALUES), burst=max(VALUES) // 50))
        self.put(self.tenant)
        self.policies.put("publish", Setting.NAMESPACE, "acme/shop", Value(SIZE, "file"))
        self.policies.put("dispatch", Setting.TOPIC_OF_NAMESPACE, "acme/shop", Value(RELATIVE, "file"))
        self.producers = [self.open("publish")]
        self.consumer = self.open("dispatch")
        self.turn = 0
        self.start(hub)
        self.link = hub.links[-1]
        self.link.delay_s = DELAYS_S[number % len(DELAYS_S)]

    def put(self, limit: Limit) -> None:
        """Put another limit of the tenant in force."""
        self.look()
        self.tenant = limit
        self.policies.put("publish", Setting.TENANT, "acme", Value(limit, "file"))
        self.registry.apply(self.clock())
        self.look()

    def open(self, direction: Direction) -> Stream:
        name = StreamName(direction, "acme", "acme/shop", TOPIC.full, 1, subscription="s" * (direction == "dispatch"))
        stream = Stream(name, (), lambda _stream, _entry: None)
        self.registry.open(stream, TOPIC, self.clock(), Client(subscription=name.subscription))
        if direction == "dispatch":
            self.registry.meter(stream, lambda _permits: None)
        return stream

    def have_producers(self, count: int) -> None:
        while len(self.producers) > count:
            self.look()
            self.registry.close(self.producers.pop(), self.clock())
        while len(self.producers) < count:
            self.producers.append(self.open("publish"))

    def tick(self) -> None:
        """Offer what is to come, and put measured publish rates in force each second."""
        for _ in range(self.offers if self.producers else 0):
            self.turn += 1
            messages = 1 + self.turn % MOST_MESSAGES
            self.offer(self.producers[self.turn % len(self.producers)], messages, messages * MOST_SIZE // MOST_MESSAGES)
        for _ in range(self.delivers):
            self.offer(self.consumer, 1, 10)
        self.look()

    def second(self) -> None:
        active = list(self.journal.streams)
        emptied(self.journal)
        for _ in self.registry.measuring(active, self.clock):
            pass

    def offer(self, stream: Stream, messages: int, size: int) -> None:
        """As sessions do, with 300 entries waiting at most."""
        if len(stream.held) < 300:
            self.offer_entry(stream, messages, size)

    def look(self) -> None:
        self.seen.update(dict.fromkeys(self.registry.limiters.values()))

    def passed(self, of: Metered) -> tuple[int, int]:
        """Return the messages and bytes that these limits let pass, or would have."""
        usages = [limiter.usage for limiter in self.seen if (limiter.scope.direction, limiter.scope.level) == of]
        return sum(usage.messages for usage in usages), sum(usage.size for usage in usages)

    def delivery_rate(self) -> Rate:
        """Return the limit of deliveries by what was published through this member."""
        value = self.consumer.chain[-1].limit.messages
        assert value is not None
        return value

    def end_streams(self) -> None:
        self.have_producers(0)
        self.registry.close(self.consumer, self.clock())

    def leave(self) -> None:
        self.end_streams()
        self.leaving = asyncio.get_running_loop().create_task(self.fleet.stop())

    def die(self) -> None:
        """End without a word: others hear nothing of this member any more, and it hears nothing of them."""
        links, led = self.link.hub.links, self.link.state == "leading"
        links.remove(self.link)
        self.link.hub = Hub(self.clock)
        if led and links:
            links[0].callbacks.on_lead()  # the broker elects the next one when the connection ends
        self.end_streams()


class Excess:
    """What passed beyond a rate, over the interval for which that is most; rate and burst may change.

    An interval may have the highest burst that held within it.

    Args:
        entries: The largest entry.
    """

    def __init__(self, entry: int) -> None:
        self.entry = entry
        self.most: dict[int, float] = {}
        """By burst: of the intervals within which no burst was higher."""
        self._at = self._before = 0
        self._rates: deque[tuple[int, Rate]] = deque()

    def look(self, passed: int, now: int, value: Rate, members: int) -> None:
        """No interval up to now has more than a burst, the rate and an entry for each member."""
        self._rates.append((now, value))
        while self._rates[0][0] < now - TOLD_S * 1e9:
            self._rates.popleft()
        highest = max(rate.per_second for _, rate in self._rates)
        burst = max(rate.burst for _, rate in self._rates)
        more = passed - self._before - highest * (now - self._at) / 1e9
        self._at, self._before = now, passed
        self.most.setdefault(burst, max(self.most.values(), default=0.0))
        for allowed, most in self.most.items():
            self.most[allowed] = max(0.0, most) + more if allowed >= burst else 0.0
            assert self.most[allowed] <= allowed + members * self.entry + 1e-6


class World:
    """Members that come and go, and what all of them have passed."""

    def __init__(self, members: int, weight: Weight) -> None:
        self.loop = ManualLoop(ManualClock(10**12))
        self.hub, self.weight = Hub(self.loop.clock), weight
        self.members: list[Member] = []
        self.all: list[Member] = []
        self.excess = {
            (TENANT, 0): Excess(MOST_MESSAGES),
            (NAMESPACE, 1): Excess(MOST_SIZE),
            (DELIVERIES, 0): Excess(1),
        }
        self.ticks = 0
        for _ in range(members):
            self.join()
        self.run(1)

    def join(self) -> None:
        self.members.append(Member(len(self.all), self.loop, self.hub, self.weight))
        self.all.append(self.members[-1])

    def leave(self, index: int) -> None:
        self.loop.run(self.members.pop(index).leave)

    def restart(self, index: int, *, is_killed: bool) -> None:
        """A member ends or is killed; the next one of its name begins with its balances.

        The next one counts as one member more: that is the entry for each restart.
        """
        member, now = self.members.pop(index), self.loop.clock()
        member.look()
        self.loop.run(member.die if is_killed else member.leave)
        left = dict(member.first.left(member.registry.limiters.values(), now))
        first = FirstBalances(empty_since=now) if is_killed else FirstBalances(left, now)
        self.members.append(Member(member.number, self.loop, self.hub, self.weight, first))
        self.all.append(self.members[-1])
        self.members[-1].offers, self.members[-1].delivers = member.offers, member.delivers

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            for member in self.members:
                self.loop.run(member.tick)
            self.loop.advance(TICK_S)
            self.ticks += 1
            if self.ticks % 100 == 0:
                for member in self.members:
                    self.loop.run(member.second)
            self.look()

    def look(self) -> None:
        peak, members = SIZE.peak_size, self.members
        assert peak is not None
        using = [member for member in members if member.producers] or members  # nobody hears of others' values
        tenants = [member.tenant.messages for member in using if member.tenant.messages is not None]
        rates = {
            TENANT: min(tenants, key=lambda rate_: rate_.per_second),
            NAMESPACE: SIZE.size,
            # by what each of them has measured: the highest is the bound, though the lowest is to hold
            DELIVERIES: max([member.delivery_rate() for member in members], key=lambda rate_: rate_.per_second),
        }
        for (of, unit), excess in self.excess.items():
            value = rates[of]
            assert value is not None
            passed = sum(member.passed(of)[unit] for member in self.all)
            excess.look(passed, self.loop.clock(), value, len(self.all))

    def take(self, kind: str, index: int, amount: int) -> None:
        """Do one step."""
        member = self.members[index % len(self.members)]
        modes: tuple[Mode, ...] = ("enforce", "observe", "reject")
        match kind:
            case "offer":
                member.offers = amount
            case "deliver":
                member.delivers = amount
            case "producers":
                self.loop.run(member.have_producers, amount % 4)
            case "mode" | "value" | "both":
                for each in self.members if index == 3 else [member]:
                    value = each.tenant
                    mode = modes[amount % 3] if kind != "value" else value.mode
                    tokens = VALUES[amount % 2] if kind != "mode" else None
                    messages = value.messages if tokens is None else rate(tokens, burst=tokens // 50)
                    self.loop.run(each.put, Limit(messages, mode=mode))
            case "join" if len(self.members) < 4:
                self.join()
            case "leave" if len(self.members) > 1:
                self.leave(index % len(self.members))
            case "end" | "kill" if len(self.members) > 1:
                self.restart(index % len(self.members), is_killed=kind == "kill")
        self.run((0.02, 0.3, 0.7)[amount % 3])


KINDS = ("offer", "offer", "deliver", "producers", "mode", "value", "both", "join", "leave", "end", "kill")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.sampled_from([0, 1, 2, 5, 20])), max_size=25)
GREEDY = [*[("offer", 1, amount) for amount in (1, 1, 20)], ("offer", 0, 20), ("offer", 2, 20)]
"""The one that hears last has its burst when it becomes greedy, and then shares it."""


@given(members=st.integers(2, 4), weight=st.sampled_from(["streams", "proxy"]), steps=STEPS)
@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@example(3, "streams", [*GREEDY, *[("mode", index, mode) for mode in (1, 2, 0) for index in (0, 1, 2, 3)]])
@example(2, "proxy", [*GREEDY, ("value", 3, 0), ("wait", 0, 2), ("both", 1, 1), ("wait", 0, 2), ("both", 0, 1)])
@example(3, "streams", [*GREEDY, *[(how, index, 1) for how in ("kill", "end") * 4 for index in (1, 2)]])
@example(3, "streams", [*GREEDY, *[(how, 0, amount) for how in ("kill", "end") * 2 for amount in (0, 1, 2)]])
@example(2, "streams", [*[("deliver", index, 20) for index in (0, 1)], ("offer", 0, 5), *[("wait", 0, 2)] * 5])
def test_members_pass_at_most_burst_rate_and_an_entry_each(
    members: int, weight: Weight, steps: list[tuple[str, int, int]]
) -> None:
    world = World(members, weight)
    for step in steps:
        world.take(*step)
    assert not any(member.fleet.member.isolated for member in world.members)
    world.loop.close()


def test_relative_limits_may_differ_without_a_warning() -> None:
    world = World(2, "streams")
    with capture_logs() as logs:
        for step in (("deliver", 0, 20), ("deliver", 1, 20), ("offer", 0, 2), *[("wait", 0, 2)] * 6):
            world.take(*step)
    coordinator = world.members[0].fleet.coordinator
    assert coordinator is not None
    assert coordinator.table.disagreements == 1
    assert [log for log in logs if log["log_level"] == "warning"] == []
    world.loop.close()
