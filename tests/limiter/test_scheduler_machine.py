"""A scheduler under calls in any order: the rules are in `clockwork.py`, the invariants in `truths.py`."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from limiter.levels import Setting
from limiter.limiter import Limiter
from limiter.policies import Policies, Value
from limiter.registry import Registry
from limiter.token_bucket import NANOS_PER_SECOND, Limit, Mode, rate
from protocol.topic_name import parse_topic
from tests.limiter.clockwork import MOST_STREAMS, WHOSE, Clockwork
from tests.limiter.long_run import long_run
from tests.limiter.world import limiter as some_limiter

SECOND = NANOS_PER_SECOND
COUNTS = [rate(tokens, SECOND, burst) for tokens in (1, 7, 100, 1000, 10**6) for burst in (None, 1, 40, 2000)]
WEIGHTS = [rate(tokens, SECOND, burst) for tokens in (1000, 10**5) for burst in (None, 1, 2000)]
PEAKS = [rate(tokens, SECOND, burst) for tokens in (50, 3000, 10**6) for burst in (None, 1, 2000)]
MODES: st.SearchStrategy[Mode] = st.sampled_from(["enforce", "enforce", "observe", "reject"])
LIMITS = st.builds(
    Limit,
    st.sampled_from([None, *COUNTS]),
    st.sampled_from([None, *COUNTS, *WEIGHTS]),
    st.sampled_from([None, None, *PEAKS]),
    st.sampled_from([None, None, *PEAKS]),
    MODES,
)
TOPIC_Y = "persistent://t/n/y"


class Hierarchy(Clockwork):
    """As in the product: topics with limits of their own within a total, changed while streams live.

    Proves beyond `Clockwork`: values, peaks and modes change at any time through the registry. A mode that changes,
    there and back, leaves the tokens and debts as they are: P2 holds across it, what was only observed included. Who
    waits is neither lost nor stranded: it goes on at once, or waits in the queue of the mode that is in force.
    """

    def __init__(self) -> None:
        super().__init__()
        self.policies = Policies()
        self.values: dict[tuple[Setting, str], Limit | None] = {}
        self.put(Setting.TOPIC_OF_NAMESPACE, "t/n", Limit(rate(100)))
        self.put(Setting.NAMESPACE, "t/n", Limit(rate(200), rate(10**5), rate(400, burst=10)))
        self.registry = Registry(self.policies, self.world.scheduler, self.world.observer)

    def put(self, setting: Setting, name: str, limit: Limit | None) -> None:
        self.values[setting, name] = limit
        self.policies.put("publish", setting, name, Value(limit, "rest") if limit is not None else None)

    @precondition(lambda self: len(self.streams) < MOST_STREAMS)
    @rule(topic=st.sampled_from("xxxyz"))
    def open(self, topic: str) -> None:
        self.registry.open(self.new_stream(), parse_topic(f"t/n/{topic}"), self.now)

    @precondition(lambda self: self.streams)
    @rule(index=WHOSE)
    def close(self, index: int) -> None:
        stream = self.one(index)
        held = sum(entry.memory for entry in stream.held)
        assert sum(entry.memory for entry in self.registry.close(stream, self.now)) == held
        self.forget(stream)

    @rule(own=LIMITS, total=LIMITS, topic=st.none() | LIMITS)
    def change_the_values(self, own: Limit, total: Limit, topic: Limit | None) -> None:
        self.ledger.values_changed()
        before = self.tokens()
        self.put(Setting.TOPIC_OF_NAMESPACE, "t/n", own)
        self.put(Setting.NAMESPACE, "t/n", total)
        self.put(Setting.TOPIC, TOPIC_Y, topic)
        self.registry.apply(self.now)
        self.gave_nothing(before)

    @rule(modes=st.tuples(MODES, MODES, MODES))
    def change_the_modes(self, modes: tuple[Mode, Mode, Mode]) -> None:
        """The ledger goes on: whatever the mode, it is the same limit."""
        for (where, limit), mode in zip(list(self.values.items()), modes, strict=False):
            self.put(*where, replace(limit, mode=mode) if limit is not None else None)
        self.registry.apply(self.now)


class Crossing(Clockwork):
    """Three limiters, streams within any of them, moved from some to others.

    Proves beyond `Clockwork`: overlapping limits block nobody for ever, whatever is rewired, dropped or closed between.
    """

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
        self.world.scheduler.join(stream)

    @precondition(lambda self: self.streams)
    @rule(index=WHOSE)
    def close(self, index: int) -> None:
        stream = self.one(index)
        self.dropped(stream, self.world.scheduler.leave(stream, self.now))
        self.forget(stream)

    @precondition(lambda self: self.streams)
    @rule(index=WHOSE, which=st.integers(0, 7))
    def rewire(self, index: int, which: int) -> None:
        self.world.scheduler.rewire(self.one(index), self.chain(which), self.now)

    @rule(index=st.integers(0, 2), limit=LIMITS.filter(lambda limit: bool(limit) and limit.mode != "observe"))
    def change_a_value(self, index: int, limit: Limit) -> None:
        self.ledger.values_changed()
        before = self.tokens()
        self.all[index].retune(limit, "changed", self.now)
        self.world.scheduler.serve(self.all[index], self.now)
        self.gave_nothing(before)


TestHierarchy = long_run(Hierarchy, at_least=5_000)
TestCrossing = long_run(Crossing, at_least=4_000)
