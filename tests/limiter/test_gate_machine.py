"""Anything may happen to a gate, in any order: see the rules and what must be true in `clockwork.py`."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from limiter.limiter import Limiter
from limiter.policies import Policies, Setting, Value
from limiter.rates import NANOS_PER_SECOND, Limit, rate
from limiter.registry import Registry
from protocol.topic_name import parse_topic
from tests.limiter.clockwork import MOST_STREAMS, WHOSE, Clockwork
from tests.limiter.world import limiter as some_limiter

BURSTS = st.none() | st.integers(1, 2000)
RATES = st.none() | st.builds(rate, st.sampled_from([1, 7, 100, 1000, 10**6]), st.just(NANOS_PER_SECOND), BURSTS)
LIMITS = st.builds(Limit, RATES, RATES | st.builds(rate, st.sampled_from([1000, 10**5])))


class Hierarchy(Clockwork):
    """As in the product: topics with limits of their own within a total, changed while streams live."""

    def __init__(self) -> None:
        super().__init__()
        self.policies = Policies()
        self.put(Setting.TOPIC_OF_NAMESPACE, "t/n", Limit(rate(100)))
        self.put(Setting.NAMESPACE, "t/n", Limit(rate(200), rate(10**5)))
        self.registry = Registry(self.policies, self.world.gate, self.world.observer)

    def put(self, setting: Setting, name: str, limit: Limit | None) -> None:
        self.policies.put("publish", setting, name, Value(limit, "rest") if limit is not None else None)

    @precondition(lambda self: len(self.streams) < MOST_STREAMS)
    @rule(topic=st.sampled_from("xxxyz"))
    def open(self, topic: str) -> None:
        self.registry.open(self.new_stream(), parse_topic(f"t/n/{topic}"), self.now)

    @precondition(lambda self: self.streams)
    @rule(whose=WHOSE)
    def close(self, whose: int) -> None:
        stream = self.one(whose)
        held = sum(entry.memory for entry in stream.held)
        assert sum(entry.memory for entry in self.registry.close(stream, self.now)) == held
        self.streams.remove(stream)
        self.active.discard(stream)

    @rule(own=LIMITS, total=LIMITS, topic=st.none() | LIMITS)
    def change_the_values(self, own: Limit, total: Limit, topic: Limit | None) -> None:
        self.ledger.values_changed()
        self.put(Setting.TOPIC_OF_NAMESPACE, "t/n", own)
        self.put(Setting.NAMESPACE, "t/n", total)
        self.put(Setting.TOPIC, "persistent://t/n/y", topic)
        self.registry.apply(self.now)


class Crossing(Clockwork):
    """Three limiters, streams within any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.all = [
            some_limiter(100, name="a"),
            some_limiter(70, 50_000, name="b"),
            some_limiter(size=30_000, name="c"),
        ]

    def chain(self, which: int) -> tuple[Limiter, ...]:
        return tuple(limiter for bit, limiter in enumerate(self.all) if which >> bit & 1)

    @precondition(lambda self: len(self.streams) < MOST_STREAMS)
    @rule(which=st.integers(1, 7))
    def open(self, which: int) -> None:
        stream = self.new_stream()
        stream.chain = self.chain(which)
        self.world.gate.join(stream)

    @precondition(lambda self: self.streams)
    @rule(whose=WHOSE)
    def close(self, whose: int) -> None:
        stream = self.one(whose)
        self.dropped(stream, self.world.gate.leave(stream, self.now))
        self.streams.remove(stream)
        self.active.discard(stream)

    @precondition(lambda self: self.streams)
    @rule(whose=WHOSE, which=st.integers(0, 7))
    def rewire(self, whose: int, which: int) -> None:
        self.world.gate.rewire(self.one(whose), self.chain(which), self.now)

    @rule(whose=st.integers(0, 2), limit=LIMITS.filter(bool))
    def change_a_value(self, whose: int, limit: Limit) -> None:
        self.ledger.values_changed()
        self.all[whose].retune(limit, "changed", self.now)
        self.world.gate.woken([self.all[whose]], self.now)


TestHierarchy = Hierarchy.TestCase
TestHierarchy.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestCrossing = Crossing.TestCase
TestCrossing.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
